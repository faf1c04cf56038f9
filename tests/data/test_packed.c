/* SPDX-License-Identifier: Apache-2.0 */
/* Packed sequences: the bytes that numpy writes, what is read back, and pickles that would take more than an honest
 * one. Damage: test_damage.c. */
#include "base/arena.h"
#include "base/hash.h"
#include "data/packed.h"
#include "../support/folder.h"
#include "../support/full_config.h"

#include "support/test.h"

enum { HEADER = 128 };

static int32_t id_of(int64_t row, int64_t t)
{
    return (int32_t)((t * 7 + row * 13) % 32000);
}

static uint8_t mask_of(int64_t row, int64_t t)
{
    return (row + t) % 3 != 0;
}

/* Writes the file of the formulas above; its bytes, to be freed, and their number. */
static uint8_t *written(int64_t rows, int64_t width, size_t *size)
{
    int32_t *ids = tm_alloc((size_t)(rows * width) * sizeof *ids);
    uint8_t *masks = tm_alloc((size_t)(rows * width));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t t = 0; t < width; t++) {
            ids[r * width + t] = id_of(r, t);
            masks[r * width + t] = mask_of(r, t);
        }
    assert_ok(tm_packed_write(test_in_folder("x.npy"), rows, width, ids, masks, err));
    free(ids);
    free(masks);
    struct stat info;
    assert_int_equal(stat(test_in_folder("x.npy"), &info), 0);
    *size = (size_t)info.st_size;
    uint8_t *bytes = tm_alloc(*size);
    FILE    *f = fopen(test_in_folder("x.npy"), "rb");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, *size, f), *size);
    fclose(f);
    return bytes;
}

/* Hashes of what numpy 1.26.4 saves for the same rows: np.save(path, np.array([{...}, ...])). */
static const struct {
    int64_t  rows, width;
    size_t   size;
    uint64_t hash;
} by_numpy[] = {
    { 3, 4, 620, 0x0ef4930642dc8288 },        { 1, 5, 461, 0xc0f3983c56dee7a2 },
    { 2, 1, 500, 0x0d2b882cdb289f65 },        { 1001, 3, 102781, 0xebad21f276db05ad },
    { 40, 1001, 243555, 0xdac8fdae32c3daf8 }, { 173, 8192, 8521136, 0x2ffb55f1aca5afa0 },
};
enum { BY_NUMPY = sizeof by_numpy / sizeof by_numpy[0] };

TEST(the_writer_gives_the_bytes_of_numpy)
{
    for (int i = 0; i < BY_NUMPY; i++) {
        size_t   size;
        uint8_t *bytes = written(by_numpy[i].rows, by_numpy[i].width, &size);
        assert_int_equal(size, by_numpy[i].size);
        assert_true(tm_hash(bytes, size) == by_numpy[i].hash);
        free(bytes);
    }
}

static void expect_refusal(const uint8_t *bytes, size_t size, const char *what)
{
    tm_packed packed;
    tm_error  err = { 0 };
    uint8_t  *exact = tm_alloc(size ? size : 1); /* so that reading beyond the end is seen */
    memcpy(exact, bytes, size);
    assert_int_equal(tm_packed_parse("x.npy", exact, size, &packed, &err), TM_FORMAT);
    assert_int_equal(tm_status_exit_code(err.status), 4);
    if (!strstr(err.text, what)) fail_msg("wanted '%s' in: %s", what, err.text);
    assert_null(packed.row);
    free(exact);
}

/* A header and a pickle of its own. */
static void expect_pickle_refused(int64_t rows, const void *pickle, size_t size, const char *what)
{
    uint8_t *bytes = tm_alloc(128 + size);
    memset(bytes, ' ', 128);
    memcpy(bytes, "\x93NUMPY\x01\0\x76\0", 10);
    int n = sprintf((char *)bytes + 10, "{'descr': '|O', 'fortran_order': False, 'shape': (%lld,), }", (long long)rows);
    bytes[10 + n] = ' ';
    bytes[127] = '\n';
    memcpy(bytes + 128, pickle, size);
    expect_refusal(bytes, 128 + size, what);
    free(bytes);
}

#define PICKLE(rows, text, what) expect_pickle_refused(rows, text, sizeof(text) - 1, what)

TEST(no_pickle_takes_more_than_an_honest_one)
{
    enum { MANY = 100000 };
    uint8_t *many = tm_alloc(MANY);
    memset(many, 'N', MANY);
    expect_pickle_refused(1, many, MANY, "byte 4224, opcode 0x4E (NONE): more than 4096 values on the stack");
    memset(many, ']', MANY);
    expect_pickle_refused(1, many, MANY, "opcode 0x5D (EMPTY_LIST): too many objects for the 1 rows of the header");
    many[0] = 'N';
    for (int i = 1; i + 5 <= MANY; i += 5) {
        many[i] = 'r';
        for (int k = 0; k < 4; k++) many[i + 1 + k] = (uint8_t)(i / 5 >> 8 * k);
    }
    expect_pickle_refused(2, many, MANY, "opcode 0x72 (LONG_BINPUT): too many memo entries for the 2 rows");
    PICKLE(1, "B\xff\xff\xff\xff....", "opcode 0x42 (BINBYTES): the file ends within its argument");
    PICKLE(1, "(NNNNNNNNNNt.", "a tuple of more than 9 elements");
    PICKLE(1, "b", "nothing on the stack to work on");
    PICKLE(1, "](K\0K\1](K\0ee.", "a list");
    PICKLE(1, "\x80\3N\x80\3", "a second protocol");
    free(many);
}

TEST_FIXTURE(NULL, test_folder_teardown)
