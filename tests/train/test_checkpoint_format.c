/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of index and completeness record of a checkpoint: what is written is read; of every byte and number that is
 * another one, with right checksums, what is taken is an index in itself, and says the same written again. */
#include "support/test.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "train/checkpoint/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is in an index -------------------------------------------------------------------------- */

static void add_index(tm_text *out, const tm_checkpoint_index *index)
{
    const tm_checkpoint_state *s = &index->state;
    tm_text_printf(out, "step %lld, samples %lld, seed %llu, config %llx, content %llx, %llu bytes, model '%s', '%s'",
                   (long long)s->step, (long long)s->samples_consumed, (unsigned long long)s->seed,
                   (unsigned long long)s->config_hash, (unsigned long long)s->content,
                   (unsigned long long)index->data_bytes, s->model, s->description);
    for (size_t i = 0; i < s->n_scalars; i++)
        tm_text_printf(out, "; %s = %.17g", s->scalars[i].name, s->scalars[i].value);
    for (size_t i = 0; i < index->n_files; i++)
        tm_text_printf(out, "; file %lld %llu", (long long)index->files[i].writer,
                       (unsigned long long)index->files[i].bytes);
    for (size_t i = 0; i < index->count; i++) {
        const tm_checkpoint_record *r = &index->records[i];
        tm_text_printf(out, "; %s %d", r->name, r->dtype);
        for (int a = 0; a < r->rank; a++) tm_text_printf(out, "%s%lld", a ? "x" : " ", (long long)r->n[a]);
        tm_text_printf(out, " %llu %llu", (unsigned long long)r->bytes, (unsigned long long)r->row_bytes);
        for (size_t k = 0; k < r->n_pieces; k++) {
            const tm_checkpoint_piece *p = &index->pieces[r->first_piece + k];
            tm_text_printf(out, ", %llu+%llu %llu+%llu at %llu of %u %llx", (unsigned long long)p->first_row,
                           (unsigned long long)p->rows, (unsigned long long)p->first_byte,
                           (unsigned long long)p->row_part, (unsigned long long)p->offset, p->file,
                           (unsigned long long)p->hash);
        }
    }
}

/* --- two indexes ---------------------------------------------------------------------------------- */

static void make_state(tm_checkpoint_state *s)
{
    *s = (tm_checkpoint_state){ .step = 7, .samples_consumed = 56, .seed = 3, .config_hash = 0x123456789abcdef };
    s->content = 0xfedcba987654321;
    strcpy(s->model, "a model");
    strcpy(s->description, "dim 8\nlayers 2\n");
    tm_checkpoint_add_scalar(s, "first_loss", 4.5);
    tm_checkpoint_add_scalar(s, "x", -1);
}

static tm_checkpoint_record record_of(const char *name, int dtype, int rank, uint64_t bytes, uint64_t row_bytes,
                                      size_t first, size_t n)
{
    tm_checkpoint_record r = { .name = name, .dtype = dtype, .rank = rank, .bytes = bytes, .row_bytes = row_bytes };
    r.first_piece = first, r.n_pieces = n;
    return r;
}

/* Of one process: tensors one behind the other, the last one empty. */
static tm_checkpoint_index make_plain(void)
{
    static tm_checkpoint_record records[3];
    static tm_checkpoint_file   file = { .writer = -1, .bytes = 192 };
    static tm_checkpoint_piece  pieces[] = { { .rows = 1, .row_part = 120, .offset = 0, .hash = 11 },
                                             { .rows = 1, .row_part = 64, .offset = 128, .hash = 12 },
                                             { .rows = 1, .row_part = 0, .offset = 192, .hash = 13 } };
    tm_checkpoint_index index = { .data_bytes = 192, .count = 3, .records = records, .n_files = 1, .n_pieces = 3 };
    records[0] = record_of("w", 3, 2, 120, 120, 0, 1), records[0].n[0] = 5, records[0].n[1] = 6;
    records[1] = record_of("w.m", 1, 4, 64, 64, 1, 1);
    for (int a = 0; a < 4; a++) records[1].n[a] = 2;
    records[2] = record_of("none", 0, 1, 0, 0, 2, 1);
    index.files = &file, index.pieces = pieces;
    make_state(&index.state);
    return index;
}

/* Of two ranks: a matrix in four rectangles, a vector in two runs, a scalar. */
static tm_checkpoint_index make_pieces(void)
{
    static tm_checkpoint_record records[3];
    static tm_checkpoint_file   files[] = { { .writer = 0, .bytes = 320 }, { .writer = 2, .bytes = 200 } };
    static tm_checkpoint_piece  pieces[] = { { 0, 3, 0, 8, 0, 21, 0 },    { 0, 3, 8, 16, 64, 22, 1 },
                                             { 3, 2, 0, 20, 128, 23, 0 }, { 3, 2, 20, 4, 128, 24, 1 },
                                             { 0, 1, 0, 10, 192, 25, 0 }, { 0, 1, 10, 6, 0, 26, 1 },
                                             { 0, 1, 0, 8, 256, 27, 0 } };
    tm_checkpoint_index index = { .data_bytes = 520, .count = 3, .records = records, .n_files = 2, .n_pieces = 7 };
    records[0] = record_of("matrix", 3, 2, 120, 24, 0, 4), records[0].n[0] = 5, records[0].n[1] = 6;
    records[1] = record_of("vector", 1, 1, 16, 16, 4, 2), records[1].n[0] = 8;
    records[2] = record_of("loss", 2, 0, 8, 8, 6, 1);
    index.files = files, index.pieces = pieces;
    make_state(&index.state);
    return index;
}

/* --- other bytes ------------------------------------------------------------------------------------------------- */

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

/* The index as a whole, or as the part of a rank. */
static void ask(asked *said, const tm_text *bytes, bool part)
{
    tm_arena           *arena = tm_arena_create();
    tm_checkpoint_index index = { 0 }, again = { 0 };
    tm_error            err = { 0 };
    unsigned char      *own = malloc(bytes->length ? bytes->length : 1); /* so that a sanitizer sees its end */
    assert_non_null(own);
    if (bytes->length) memcpy(own, bytes->data, bytes->length);
    tm_status st = part ? tm_checkpoint_part_decode(own, bytes->length, arena, &index, &err)
                        : tm_checkpoint_index_decode(own, bytes->length, arena, &index, &err);
    if (st == TM_OK) {
        tm_text        text = { 0 }, same = { 0 };
        size_t         n = tm_checkpoint_index_bytes(&index);
        unsigned char *written = calloc(1, n);
        said->taken++;
        check_index(&index, part);
        tm_checkpoint_index_encode(&index, written);
        st = part ? tm_checkpoint_part_decode(written, n, arena, &again, &err)
                  : tm_checkpoint_index_decode(written, n, arena, &again, &err);
        if (st != TM_OK) fail_msg("%s", err.text);
        add_index(&text, &index), add_index(&same, &again);
        assert_string_equal(text.data, same.data);
        tm_text_fini(&text), tm_text_fini(&same);
        free(written);
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

TEST(other_bytes_are_an_index_or_refused)
{
    static const char *const  seeds[] = { "usual", "scalars", "version3" }; /* of the fuzzer: of earlier versions */
    const tm_checkpoint_index indexes[] = { make_plain(), make_pieces() };
    for (int i = 0; i < 2; i++) {
        tm_text             text = { 0 }, wanted = { 0 }, found = { 0 };
        tm_arena           *arena = tm_arena_create();
        tm_checkpoint_index read;
        tm_error            err = { 0 };
        size_t              n = tm_checkpoint_index_bytes(&indexes[i]);
        unsigned char      *bytes = calloc(1, n);
        tm_checkpoint_index_encode(&indexes[i], bytes);
        tm_text_add_n(&text, (const char *)bytes, n);
        if (tm_checkpoint_index_decode(bytes, n, arena, &read, &err) != TM_OK) fail_msg("%s", err.text);
        add_index(&wanted, &indexes[i]), add_index(&found, &read);
        assert_string_equal(found.data, wanted.data);
        ask_all(&text);
        tm_text_fini(&text), tm_text_fini(&wanted), tm_text_fini(&found);
        tm_arena_destroy(arena);
        free(bytes);
    }
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        char     path[128];
        tm_text  seed = { 0 }, text = { 0 };
        tm_error err = { 0 };
        uint32_t n;
        snprintf(path, sizeof path, "tests/fuzz/corpus/checkpoint/%s", seeds[i]);
        assert_int_equal(tm_file_read(path, 1 << 20, &seed, &err), TM_OK);
        memcpy(&n, seed.data + 1 + TM_CHECKPOINT_SEAL_BYTES, sizeof n);
        tm_text_add_n(&text, seed.data + 1 + TM_CHECKPOINT_SEAL_BYTES + sizeof n, n);
        ask_all(&text);
        tm_text_fini(&seed);
        tm_text_fini(&text);
    }
}

/* --- one thing that is wrong ---------------------------------------------------------------------- */

enum { AT_NAME_BYTES = 24, AT_TEXT_BYTES = 72, AT_RECORDS = 160, RECORD_BYTES = 72 };

/* --- the completeness record ---------------------------------------------------------------------- */

/* What is written is read; another byte is found by the checksum, or with a right one is another number of it. */
TEST(seals_are_read_as_written)
{
    for (int kind = 0; kind < 4; kind++) {
        const tm_checkpoint_seal seal = { 7, 700, 0x1122334455667788, 520, kind & 1, kind & 2 };
        unsigned char            bytes[TM_CHECKPOINT_SEAL_BYTES + 8] = { 0 };
        const size_t             end = TM_CHECKPOINT_SEAL_BYTES - 8;
        tm_error                 err = { 0 };
        tm_checkpoint_seal       read;
        int                      others = 0;
        tm_checkpoint_seal_encode(&seal, bytes);
        assert_int_equal(tm_checkpoint_seal_decode(bytes, TM_CHECKPOINT_SEAL_BYTES, &read, &err), TM_OK);
        assert_true(read.step == 7 && read.index_bytes == 700 && read.index_hash == seal.index_hash);
        assert_true(read.data_bytes == 520 && read.in_pieces == (kind & 1) && read.safetensors == !!(kind & 2));
        for (size_t n = 0; n < TM_CHECKPOINT_SEAL_BYTES + 2; n++)
            if (n != TM_CHECKPOINT_SEAL_BYTES)
                assert_int_equal(tm_checkpoint_seal_decode(bytes, n, &read, &err), TM_FORMAT);
        for (size_t at = 0; at < TM_CHECKPOINT_SEAL_BYTES; at++)
            for (int repaired = 0; repaired < 2; repaired++)
                for (int by = -1; by < 2; by += 2) {
                    unsigned char own[sizeof bytes], again[sizeof bytes] = { 0 };
                    memcpy(own, bytes, sizeof own);
                    own[at] = (unsigned char)(own[at] + by);
                    uint64_t hash = tm_hash(own, end);
                    if (repaired && at < end) memcpy(own + end, &hash, sizeof hash);
                    tm_status st = tm_checkpoint_seal_decode(own, TM_CHECKPOINT_SEAL_BYTES, &read, &err);
                    if (!repaired || at >= end) assert_int_equal(st, TM_FORMAT);
                    if (st != TM_OK) continue;
                    tm_checkpoint_seal_encode(&read, again);
                    assert_memory_equal(again + 16, own + 16, end - 16); /* behind magic and version */
                    others++;
                }
        assert_true(others > 4 * 7);
    }
}

/* --- coverage ------------------------------------------------------------------------------------- */

/* first row, rows, first byte, bytes of a row: do they cover 4 rows of 6 bytes? */
TEST(rectangles_cover_or_do_not)
{
    static const struct {
        bool covers;
        int  n, of[4][4];
    } rows[] = {
        { true, 1, { { 0, 4, 0, 6 } } },
        { true, 2, { { 0, 4, 0, 2 }, { 0, 4, 2, 4 } } },
        { true, 2, { { 3, 1, 0, 6 }, { 0, 3, 0, 6 } } },
        { true, 4, { { 0, 2, 0, 3 }, { 2, 2, 3, 3 }, { 0, 2, 3, 3 }, { 2, 2, 0, 3 } } },
        { true, 4, { { 0, 1, 0, 6 }, { 1, 3, 0, 1 }, { 1, 3, 1, 2 }, { 1, 3, 3, 3 } } },
        { false, 1, { { 0, 3, 0, 6 } } },
        { false, 2, { { 0, 2, 0, 6 }, { 0, 2, 0, 6 } } },
        { false, 2, { { 0, 4, 0, 3 }, { 0, 4, 0, 3 } } },
        { false, 2, { { 0, 4, 0, 3 }, { 0, 4, 2, 3 } } },
        { false, 2, { { 0, 4, 0, 3 }, { 0, 4, 3, 2 } } },
        { false, 2, { { 0, 4, 0, 6 }, { 0, 4, 0, 6 } } },
        { false, 2, { { 0, 4, 1, 3 }, { 0, 4, 3, 3 } } },
        { false, 2, { { 1, 2, 0, 6 }, { 2, 2, 0, 6 } } },
        { false, 4, { { 0, 2, 0, 3 }, { 2, 2, 3, 3 }, { 0, 2, 0, 3 }, { 2, 2, 3, 3 } } },
        { false, 4, { { 0, 2, 0, 3 }, { 2, 2, 3, 3 }, { 0, 2, 3, 3 }, { 0, 2, 3, 3 } } },
        { true, 4, { { 0, 3, 0, 2 }, { 0, 1, 2, 4 }, { 1, 3, 2, 4 }, { 3, 1, 0, 2 } } },
        { false, 4, { { 1, 2, 1, 4 }, { 1, 2, 1, 4 }, { 0, 1, 0, 4 }, { 0, 1, 0, 4 } } }, /* odd corners, not its own */
        { false, 3, { { 0, 2, 0, 6 }, { 2, 2, 0, 3 }, { 1, 2, 3, 3 } } },
    };
    tm_arena *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_checkpoint_piece pieces[4] = { { 0 } };
        for (int k = 0; k < rows[i].n; k++)
            pieces[k] = (tm_checkpoint_piece){ .first_row = (uint64_t)rows[i].of[k][0],
                                               .rows = (uint64_t)rows[i].of[k][1],
                                               .first_byte = (uint64_t)rows[i].of[k][2],
                                               .row_part = (uint64_t)rows[i].of[k][3] };
        if (tm_checkpoint_covered(24, 6, pieces, (size_t)rows[i].n, arena) != rows[i].covers)
            fail_msg("row %zu: covers is not %d", i, rows[i].covers);
    }
    /* Bytes that are one turn of the numbers more than there are: two halves of it at one place, and the whole. */
    const tm_checkpoint_piece turn[] = { { .rows = 1, .row_part = (uint64_t)1 << 63 },
                                         { .rows = 1, .row_part = (uint64_t)1 << 63 },
                                         { .rows = 4, .row_part = 6 } };
    assert_false(tm_checkpoint_covered(24, 6, turn, 3, arena));
    assert_true(tm_checkpoint_covered(24, 6, turn + 2, 1, arena));
    assert_true(tm_checkpoint_covered(0, 0, NULL, 0, arena));
    assert_false(tm_checkpoint_covered(8, 8, NULL, 0, arena));
    assert_int_equal(tm_checkpoint_aligned(0), 0);
    assert_int_equal(tm_checkpoint_aligned(1), 64);
    assert_int_equal(tm_checkpoint_aligned(64), 64);
    assert_int_equal(tm_checkpoint_aligned(65), 128);
    tm_arena_destroy(arena);
}
