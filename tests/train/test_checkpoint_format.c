/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of index and completeness record: what is written is read; of every byte and number that is another one,
 * with right checksums, what is taken is an index in itself, and says the same written again. */
#include "checkpoint_fixture.h"

#include "base/hash.h"
#include "base/text.h"
#include "train/checkpoint/format.h"

/* What holds for every index, whoever wrote it. */
static void check_index(const tm_checkpoint_index *x, bool part)
{
    const tm_checkpoint_state *s = &x->state;
    uint64_t                   sum = 0;
    assert_true(s->step >= 0 && s->step <= TM_CHECKPOINT_MAX_COUNT);
    assert_true(s->samples_consumed >= 0 && s->samples_consumed <= TM_CHECKPOINT_MAX_COUNT);
    assert_true(s->n_scalars <= TM_CHECKPOINT_SCALARS && memchr(s->model, 0, sizeof s->model));
    for (size_t i = 0; i < s->n_scalars; i++)
        for (size_t k = 0; k < i; k++) assert_string_not_equal(s->scalars[i].name, s->scalars[k].name);
    for (size_t i = 0; i < x->n_files; i++) sum += x->files[i].bytes;
    assert_true(x->data_bytes == sum);
    for (size_t i = 0; i < x->count; i++) {
        const tm_checkpoint_record *r = &x->records[i];
        uint64_t                    covered = 0;
        assert_true(r->name[0] && r->rank >= 0 && r->rank <= TM_CHECKPOINT_MAX_RANK && r->dtype >= 0);
        for (int k = 0; k < TM_CHECKPOINT_MAX_RANK; k++) assert_true(k < r->rank ? r->n[k] >= 0 : r->n[k] == 0);
        assert_true(r->bytes == 0 || (r->row_bytes > 0 && r->bytes % r->row_bytes == 0));
        assert_true(r->first_piece + r->n_pieces <= x->n_pieces);
        for (size_t k = 0; k < r->n_pieces; k++) {
            const tm_checkpoint_piece *p = &x->pieces[r->first_piece + k];
            const uint64_t             bytes = p->rows * p->row_part;
            assert_true(p->file < x->n_files && bytes <= x->files[p->file].bytes);
            assert_true(p->offset <= x->files[p->file].bytes - bytes);
            assert_true(p->first_byte + p->row_part <= r->row_bytes || bytes == 0);
            assert_true((p->first_row + p->rows) * r->row_bytes <= r->bytes || bytes == 0);
            covered += bytes;
        }
        assert_true(part || covered == r->bytes);
    }
}

typedef struct {
    int taken, refused;
} asked;

static tm_status decode(const unsigned char *bytes, size_t n, bool part, tm_arena *arena, tm_checkpoint_index *out,
                        tm_error *err)
{
    return part ? tm_checkpoint_part_decode(bytes, n, arena, out, err)
                : tm_checkpoint_index_decode(bytes, n, arena, out, err);
}

/* The index as a whole, or as the part of a rank. */
static void ask(asked *said, const tm_text *bytes, bool part)
{
    tm_arena           *arena = tm_arena_create();
    tm_checkpoint_index index = { 0 }, read = { 0 };
    tm_error            err = { 0 };
    unsigned char      *own = malloc(bytes->length + 1); /* so that a sanitizer sees its end */
    memcpy(own, bytes->data, bytes->length);
    tm_status st = decode(own, bytes->length, part, arena, &index, &err);
    if (st == TM_OK) {
        size_t         n = tm_checkpoint_index_bytes(&index);
        unsigned char *written = calloc(1, n), *again = calloc(1, n);
        said->taken++;
        check_index(&index, part);
        tm_checkpoint_index_encode(&index, written);
        if (decode(written, n, part, arena, &read, &err) != TM_OK) fail_msg("%s", err.text);
        assert_int_equal(tm_checkpoint_index_bytes(&read), n);
        tm_checkpoint_index_encode(&read, again);
        assert_memory_equal(again, written, n);
        free(written), free(again);
    } else {
        said->refused++;
        assert_int_equal(st, TM_FORMAT);
        assert_true(strlen(err.text) > 10);
    }
    free(own);
    tm_arena_destroy(arena);
}

static void ask_with(asked *said, tm_text *bytes, size_t at, const void *value, size_t n)
{
    unsigned char before[8];
    memcpy(before, bytes->data + at, n);
    memcpy(bytes->data + at, value, n);
    ask(said, bytes, false);
    ask(said, bytes, true);
    memcpy(bytes->data + at, before, n);
}

/* Every byte one more, one less, 0, 255; every number of 4 and 8 bytes one of those that are hard on arithmetic; ends
 * that are missing. */
static void ask_all(tm_text *bytes)
{
    static const uint64_t hard[] = { 0, UINT64_MAX, INT64_MAX, (uint64_t)1 << 62, UINT32_MAX, 1 << 20 };
    const size_t          length = bytes->length;
    asked                 said = { 0 };
    ask(&said, bytes, false), ask(&said, bytes, true);
    assert_true(said.taken > 0);
    for (size_t at = 0; at < length; at++) {
        const unsigned char was = (unsigned char)bytes->data[at];
        const unsigned char values[] = { (unsigned char)(was + 1), (unsigned char)(was - 1), 0, 255 };
        for (int i = 0; i < 4; i++) ask_with(&said, bytes, at, &values[i], 1);
    }
    for (size_t at = 8; at + 8 <= length; at += 4)
        for (size_t i = 0; i < sizeof hard / sizeof hard[0]; i++) {
            ask_with(&said, bytes, at, &hard[i], 4);
            if (at % 8 == 0) ask_with(&said, bytes, at, &hard[i], 8);
        }
    assert_true(said.taken > 100 && said.refused > 100);
    said = (asked){ 0 };
    for (size_t n = 0; n < length; n++) bytes->length = n, ask(&said, bytes, false);
    bytes->length = length;
    assert_int_equal(said.taken, 0);
}

/* Of one process, and of ranks. */
TEST(other_bytes_are_an_index_or_refused)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        char               *folder = new_folder();
        job                 j = { .folder = folder, .how = ranks > 1 ? COLUMNS : FIRST, .step = 7 };
        tm_text             text = { 0 };
        tm_arena           *arena = tm_arena_create();
        tm_checkpoint_index read;
        run_ranks(&j, ranks, save_rank, true);
        assert_ok(tm_file_read(path_in(folder, "step-00000007/index.bin"), 1 << 20, &text, err));
        const unsigned char *bytes = (const unsigned char *)text.data;
        assert_ok(tm_checkpoint_index_decode(bytes, text.length, arena, &read, err));
        unsigned char *again = calloc(1, text.length);
        assert_int_equal(tm_checkpoint_index_bytes(&read), text.length);
        tm_checkpoint_index_encode(&read, again);
        assert_memory_equal(again, bytes, text.length);
        ask_all(&text);
        free(again);
        tm_text_fini(&text);
        tm_arena_destroy(arena);
        test_tree_remove(folder);
    }
}

/* Of the fuzzer's seeds. Scalars of version 1 had no names: what stood at a place has the name that belongs to it. */
TEST(earlier_versions_are_read)
{
    static const char *const seeds[] = { "usual", "scalars", "version3" };
    static const char *const names[] = { "head_loss_count", "first_loss", "head_loss_mean", "head_loss_deviation" };
    for (int i = 0; i < 3; i++) {
        char                path[128];
        tm_text             seed = { 0 }, text = { 0 };
        tm_arena           *arena = tm_arena_create();
        tm_checkpoint_index read;
        uint32_t            n, version;
        double              values[4];
        snprintf(path, sizeof path, "tests/fuzz/corpus/checkpoint/%s", seeds[i]);
        assert_ok(tm_file_read(path, 1 << 20, &seed, err));
        const char *index = seed.data + 1 + TM_CHECKPOINT_SEAL_BYTES + sizeof n;
        memcpy(&n, index - sizeof n, sizeof n);
        memcpy(&version, index + 8, sizeof version);
        assert_int_equal(version, i + 1);
        tm_text_add_n(&text, index, n);
        assert_ok(tm_checkpoint_index_decode((const unsigned char *)index, n, arena, &read, err));
        if (i == 0) assert_ok(tm_checkpoint_scalars(&read.state, names, values, 4, err));
        if (i == 0) assert_true(values[0] == 4 && values[1] == 1 && values[2] == 2 && values[3] == 3);
        ask_all(&text);
        tm_text_fini(&seed), tm_text_fini(&text);
        tm_arena_destroy(arena);
    }
}

/* What is written is read; another byte is found by the checksum, or with a right one is another number of it. */
TEST(seals_are_read_as_written)
{
    enum { BYTES = TM_CHECKPOINT_SEAL_BYTES, END = BYTES - 8 };
    for (int kind = 0; kind < 4; kind++) {
        const tm_checkpoint_seal seal = { 7, 700, 0x1122334455667788, 520, kind & 1, kind & 2 };
        unsigned char            bytes[BYTES + 8] = { 0 }, again[BYTES + 8] = { 0 };
        tm_checkpoint_seal       read;
        tm_error                 err = { 0 };
        tm_checkpoint_seal_encode(&seal, bytes);
        for (size_t n = 0; n < sizeof bytes; n++)
            assert_int_equal(tm_checkpoint_seal_decode(bytes, n, &read, &err), n == BYTES ? TM_OK : TM_FORMAT);
        assert_int_equal(tm_checkpoint_seal_decode(bytes, BYTES, &read, &err), TM_OK);
        assert_true(read.step == 7 && read.index_bytes == 700 && read.index_hash == seal.index_hash);
        assert_true(read.data_bytes == 520 && read.in_pieces == (kind & 1) && read.safetensors == !!(kind & 2));
        for (size_t at = 16; at < BYTES; at++) { /* behind magic and version */
            bytes[at]++;
            assert_int_equal(tm_checkpoint_seal_decode(bytes, BYTES, &read, &err), TM_FORMAT);
            uint64_t hash = tm_hash(bytes, END);
            memcpy(bytes + END, &hash, sizeof hash);
            if (at >= END) continue;
            assert_int_equal(tm_checkpoint_seal_decode(bytes, BYTES, &read, &err), TM_OK);
            tm_checkpoint_seal_encode(&read, again);
            assert_memory_equal(again + 16, bytes + 16, END - 16);
        }
    }
}

/* 4 rows of 6 bytes, cut at random places, and one of the pieces put elsewhere: each byte once, or not covered. */
TEST(rectangles_cover_or_do_not)
{
    enum { TRIALS = 3000, MOST = 5 };
    tm_arena *arena = tm_arena_create();
    int       covering = 0;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        tm_checkpoint_piece p[MOST] = { { .rows = 4, .row_part = 6 } };
        size_t              n = 1;
        uint64_t            at = 0, cells[24] = { 0 };
        bool                once = true;
        while (n < 1 + trial % MOST) {
            tm_checkpoint_piece *a = &p[tm_random_u64(1, trial, at++) % n], *b = &p[n];
            bool                 rows = tm_random_u64(1, trial, at++) % 2;
            uint64_t            *size = rows ? &a->rows : &a->row_part, cut = tm_random_u64(1, trial, at++);
            *b = *a;
            if (*size < 2) continue;
            cut = 1 + cut % (*size - 1);
            *(rows ? &b->rows : &b->row_part) -= cut;
            *(rows ? &b->first_row : &b->first_byte) += cut;
            *size = cut;
            n++;
        }
        for (uint64_t moved = 0; moved < trial / MOST % 3; moved++) {
            tm_checkpoint_piece *a = &p[tm_random_u64(1, trial, at++) % n];
            a->first_row = tm_random_u64(1, trial, at++) % (5 - a->rows);
            a->first_byte = tm_random_u64(1, trial, at++) % (7 - a->row_part);
        }
        for (size_t i = 0; i < n; i++)
            for (uint64_t k = 0; k < p[i].rows * p[i].row_part; k++)
                cells[(p[i].first_row + k / p[i].row_part) * 6 + p[i].first_byte + k % p[i].row_part]++;
        for (int k = 0; k < 24; k++) once = once && cells[k] == 1;
        covering += once;
        if (tm_checkpoint_covered(24, 6, p, n, arena) != once) fail_msg("trial %d: is %d", (int)trial, !once);
    }
    assert_in_range(covering, TRIALS / 4, 3 * TRIALS / 4);
    /* Bytes that are one turn of the numbers more than there are: two halves of it at one place, and the whole. */
    const tm_checkpoint_piece turn[] = { { .rows = 1, .row_part = (uint64_t)1 << 63 },
                                         { .rows = 1, .row_part = (uint64_t)1 << 63 },
                                         { .rows = 4, .row_part = 6 } };
    assert_false(tm_checkpoint_covered(24, 6, turn, 3, arena));
    assert_true(tm_checkpoint_covered(0, 0, NULL, 0, arena));
    assert_false(tm_checkpoint_covered(8, 8, NULL, 0, arena));
    tm_arena_destroy(arena);
}
