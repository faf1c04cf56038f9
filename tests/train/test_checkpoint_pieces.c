/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks have written becomes one index, or is refused; and any rectangle of a tensor comes out of the pieces that
 * it lies in, byte by byte, from files in the memory of the test. */
#include "support/test.h"
#include "base/hash.h"
#include "checkpoint_fixture.h"
#include "train/checkpoint/format.h"

/* --- one index out of those of ranks ------------------------------------------------------------------ */

enum { RANKS = 3, MOST = 4 };
typedef struct {
    tm_checkpoint_index  index;
    tm_checkpoint_record records[MOST];
    tm_checkpoint_piece  pieces[MOST];
    tm_checkpoint_file   file;
} part;

static void add_record(part *p, const char *name, uint64_t bytes, uint64_t row_bytes, tm_checkpoint_piece piece)
{
    tm_checkpoint_index *index = &p->index;
    index->records[index->count++] = (tm_checkpoint_record){ .name = name,
                                                             .dtype = 3,
                                                             .rank = 2,
                                                             .n = { (int64_t)(bytes / row_bytes), (int64_t)row_bytes },
                                                             .bytes = bytes,
                                                             .row_bytes = row_bytes,
                                                             .first_piece = index->n_pieces,
                                                             .n_pieces = piece.rows > 0 };
    if (piece.rows > 0) index->pieces[index->n_pieces++] = piece;
}

/* Of a rank: some rows of `w`, the whole of `own`, `late` in columns; nothing of `other`. */
static void make_part(part *p, int rank)
{
    static const char *const own[] = { "own.0", "own.1", "own.2" };
    *p = (part){ .file = { .writer = rank, .bytes = 640 } };
    p->index = (tm_checkpoint_index){
        .data_bytes = 640, .records = p->records, .pieces = p->pieces, .files = &p->file, .n_files = 1
    };
    tm_checkpoint_state *s = &p->index.state;
    *s = (tm_checkpoint_state){ .step = 4, .samples_consumed = 8, .seed = 5, .config_hash = 6, .content = 7 };
    strcpy(s->model, "m");
    strcpy(s->description, "dim 8\n");
    uint64_t r = (uint64_t)rank;
    add_record(p, "w", 60, 10, (tm_checkpoint_piece){ 2 * r, 2, 0, 10, 64 * r, 100 + r, 0 });
    add_record(p, own[rank], 8, 8, (tm_checkpoint_piece){ 0, 1, 0, 8, 256, 200 + r, 0 });
    add_record(p, "late", 36, 9, (tm_checkpoint_piece){ 0, 4, 3 * r, 3, 320, 300 + r, 0 });
    add_record(p, "other", 6, 6, (tm_checkpoint_piece){ 0, rank == 1, 0, 6, 384, 400, 0 });
}

static tm_status merge(part parts[RANKS], tm_arena *arena, tm_checkpoint_index *out, tm_error *err)
{
    unsigned char *bytes[RANKS];
    size_t         lengths[RANKS];
    for (int r = 0; r < RANKS; r++) {
        lengths[r] = tm_checkpoint_index_bytes(&parts[r].index);
        bytes[r] = tm_arena_take(arena, lengths[r]);
        tm_checkpoint_index_encode(&parts[r].index, bytes[r]);
    }
    return tm_checkpoint_merge(bytes, lengths, RANKS, arena, out, err);
}

TEST(ranks_have_one_index)
{
    static const char *const names[] = { "late", "other", "own.0", "own.1", "own.2", "w" };
    static const size_t      n[] = { 3, 1, 1, 1, 1, 3 };
    part                     parts[RANKS];
    tm_arena                *arena = tm_arena_create();
    tm_checkpoint_index      out;
    tm_error                 err = { 0 };
    for (int r = 0; r < RANKS; r++) make_part(&parts[r], r);
    if (merge(parts, arena, &out, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(out.count, 6);
    assert_int_equal(out.n_files, 3);
    assert_int_equal(out.n_pieces, 10);
    assert_int_equal(out.data_bytes, 3 * 640);
    assert_int_equal(out.state.step, 4);
    assert_string_equal(out.state.description, "dim 8\n");
    for (size_t i = 0, first = 0; i < out.count; first += n[i++]) {
        assert_string_equal(out.records[i].name, names[i]);
        assert_int_equal(out.records[i].n_pieces, n[i]);
        assert_int_equal(out.records[i].first_piece, first);
    }
    for (int r = 0; r < RANKS; r++) {
        const tm_checkpoint_piece *late = &out.pieces[r], *w = &out.pieces[7 + r];
        assert_true(late->file == (uint32_t)r && late->hash == (uint64_t)(300 + r) &&
                    late->first_byte == (uint64_t)(3 * r));
        assert_true(w->file == (uint32_t)r && w->hash == (uint64_t)(100 + r) && w->first_row == (uint64_t)(2 * r));
        assert_int_equal(out.files[r].writer, r);
    }
    assert_true(out.pieces[3].file == 1 && out.pieces[3].hash == 400); /* of `other` */
    /* A rank without a file: those behind it have other numbers. */
    parts[0].index.n_files = parts[0].index.n_pieces = 0;
    for (size_t i = 0; i < parts[0].index.count; i++) parts[0].records[i].n_pieces = 0;
    parts[0].index.count = 0, parts[0].index.data_bytes = 0;
    parts[1].pieces[0] = (tm_checkpoint_piece){ 0, 4, 0, 10, 0, 5, 0 };
    parts[1].pieces[2].first_byte = 0, parts[1].pieces[2].row_part = 6;
    if (merge(parts, arena, &out, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(out.n_files, 2);
    assert_int_equal(out.files[0].writer, 1);
    assert_int_equal(out.pieces[out.n_pieces - 1].file, 1);
    tm_arena_destroy(arena);
}

/* --- rectangles out of pieces ------------------------------------------------------------------------- */

enum { FILES = 2, FILE_BYTES = 4096, ROWS = 7, ROW_BYTES = 22 };
typedef struct {
    unsigned char data[FILES][FILE_BYTES];
    int           open; /* descriptors that are not closed */
} memory_files;

static int memory_open(void *context, const char *path)
{
    memory_files *m = context;
    const char   *name = strrchr(path, '/');
    m->open++;
    assert_true(name && strncmp(path, "dir/", 4) == 0);
    return strcmp(name, "/tensors-00000.bin") == 0 ? 5 : strcmp(name, "/tensors-00003.bin") == 0 ? 6 : -1;
}

static int memory_close(void *context, int fd)
{
    assert_in_range(fd, 5, 6);
    ((memory_files *)context)->open--;
    return 0;
}

static ssize_t memory_read(void *context, int fd, void *data, size_t bytes, int64_t offset)
{
    memory_files *m = context;
    size_t        some = bytes > 5 ? 5 : bytes; /* as little as a system may give */
    assert_true(offset >= 0 && offset + (int64_t)bytes <= FILE_BYTES);
    memcpy(data, m->data[fd - 5] + offset, some);
    return (ssize_t)some;
}

static unsigned char value(uint64_t row, uint64_t byte)
{
    return (unsigned char)(1 + row * ROW_BYTES + byte);
}

/* Pieces of every kind: whole rows, columns, a corner. */
static const tm_checkpoint_piece cut[] = {
    { 0, 2, 0, 22, 0, 0, 0 },  { 2, 3, 0, 9, 64, 0, 1 },   { 2, 1, 9, 13, 128, 0, 0 },
    { 3, 2, 9, 5, 192, 0, 1 }, { 3, 2, 14, 8, 256, 0, 0 }, { 5, 2, 0, 22, 320, 0, 1 },
};
enum { CUT = sizeof cut / sizeof cut[0] };

static void put_piece(memory_files *m, tm_checkpoint_piece *p)
{
    unsigned char *at = m->data[p->file] + p->offset, *to = at;
    for (uint64_t r = 0; r < p->rows; r++)
        for (uint64_t b = 0; b < p->row_part; b++) *to++ = value(p->first_row + r, p->first_byte + b);
    p->hash = tm_hash(at, (size_t)(to - at));
}

TEST(every_rectangle_comes_out)
{
    memory_files         files = { .open = 0 };
    tm_checkpoint_io     io = { .context = &files, .open = memory_open, .close = memory_close, .read_at = memory_read };
    tm_checkpoint_piece  pieces[CUT];
    tm_checkpoint_file   of[FILES] = { { 0, FILE_BYTES }, { 3, FILE_BYTES } };
    tm_checkpoint_record record = { .name = "w", .bytes = ROWS * ROW_BYTES, .row_bytes = ROW_BYTES, .n_pieces = CUT };
    tm_checkpoint_index  index = { .count = 1, .records = &record, .n_files = FILES, .files = of, .pieces = pieces };
    tm_checkpoint_reader reader;
    tm_arena            *arena = tm_arena_create();
    tm_error             err = { 0 };
    memcpy(pieces, cut, sizeof cut);
    for (int i = 0; i < CUT; i++) put_piece(&files, &pieces[i]);
    tm_checkpoint_reader_open(&reader, &io, arena, "dir", &index);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t rows = 1; row + rows <= ROWS; rows++)
            for (size_t byte = 0; byte < ROW_BYTES; byte += 3)
                for (size_t part_bytes = 1; byte + part_bytes <= ROW_BYTES; part_bytes += 5 - byte % 2) {
                    unsigned char        got[ROWS * ROW_BYTES + 8];
                    tm_checkpoint_tensor to = { .name = "w", .bytes = rows * part_bytes };
                    memset(got, 0xEE, sizeof got);
                    to.part = (tm_checkpoint_part){ ROWS * ROW_BYTES, ROW_BYTES, row, rows, byte, part_bytes };
                    place(&to, got);
                    if (tm_checkpoint_fetch(&reader, &record, &to, &err) != TM_OK) fail_msg("%s", err.text);
                    for (size_t i = 0; i < sizeof got; i++)
                        assert_int_equal(got[i],
                                         i < to.bytes ? value(row + i / part_bytes, byte + i % part_bytes) : 0xEE);
                }
    /* The whole, which says nothing of parts. */
    unsigned char        whole[ROWS * ROW_BYTES];
    tm_checkpoint_tensor all = { .name = "w", .bytes = sizeof whole };
    place(&all, whole);
    assert_int_equal(tm_checkpoint_fetch(&reader, &record, &all, &err), TM_OK);
    for (size_t i = 0; i < sizeof whole; i++) assert_int_equal(whole[i], value(i / ROW_BYTES, i % ROW_BYTES));
    assert_null(tm_checkpoint_same_piece(&index, &record, &all));
    for (int i = 0; i < CUT; i++) {
        unsigned char              got[ROWS * ROW_BYTES];
        const tm_checkpoint_piece *p = &pieces[i];
        tm_checkpoint_tensor       to = { .name = "w", .bytes = (size_t)(p->rows * p->row_part) };
        to.part =
            (tm_checkpoint_part){ ROWS * ROW_BYTES,      ROW_BYTES,          (size_t)p->first_row, (size_t)p->rows,
                                  (size_t)p->first_byte, (size_t)p->row_part };
        place(&to, got);
        assert_ptr_equal(tm_checkpoint_same_piece(&index, &record, &to), p);
        assert_int_equal(tm_checkpoint_read_piece(&reader, &record, p, &to, &err), TM_OK);
        assert_memory_equal(got, files.data[p->file] + p->offset, to.bytes);
        assert_int_equal(tm_checkpoint_read_piece(&reader, &record, p, NULL, &err), TM_OK);
        to.part.rows++; /* another rectangle */
        assert_true(tm_checkpoint_same_piece(&index, &record, &to) != p);
    }
    /* Another byte: which file, whose checksum. */
    char words[160];
    files.data[1][pieces[5].offset + 3] ^= 1;
    uint64_t found = tm_hash(files.data[1] + pieces[5].offset, 44);
    assert_int_equal(tm_checkpoint_read_piece(&reader, &record, &pieces[5], NULL, &err), TM_FORMAT);
    snprintf(words, sizeof words,
             "tensor 'w' in tensors-00003.bin does not match its checksum (found %016llx, wanted %016llx)",
             (unsigned long long)found, (unsigned long long)pieces[5].hash);
    assert_string_equal(err.text, words);
    assert_int_equal(files.open, 1);
    tm_checkpoint_reader_close(&reader);
    assert_int_equal(files.open, 0);
    tm_arena_destroy(arena);
}
