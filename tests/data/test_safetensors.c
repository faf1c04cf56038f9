/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: every format there and back, shards, and files that lie. */
#include "data/safetensors.h"
#include "graph/value.h"
#include "support/refusal.h"
#include "support/folder.h"
#include "support/full_config.h"

#include "support/test.h"

/* A file of a header and `data` bytes 0, 1, 2, ...; the caller frees it. */
static uint8_t *file_of(const char *header, size_t data, size_t *size)
{
    size_t   n = strlen(header);
    uint8_t *bytes = malloc(8 + n + data);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(n >> 8 * i);
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < data; i++) bytes[8 + n + i] = (uint8_t)i;
    *size = 8 + n + data;
    return bytes;
}

static void refuse_bytes(const uint8_t *bytes, size_t size, const char *part)
{
    tm_safetensors *set;
    tm_error        err = { 0 };
    tm_status       st = tm_safetensors_parse("bad.safetensors", bytes, size, &set, &err);
    refusal_is_sound(&err);
    if (st != TM_FORMAT || !strstr(err.text, part) || !strstr(err.text, "'bad.safetensors'"))
        fail_msg("status %d, '%s', wanted '%s'", (int)st, err.text, part);
}

static void refuse(const char *header, size_t data, const char *part)
{
    size_t   size;
    uint8_t *bytes = file_of(header, data, &size);
    refuse_bytes(bytes, size, part);
    free(bytes);
}

#define ROW(dtype, shape, begin, end)                                                                                  \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

TEST(files_that_lie_are_refused_by_file_tensor_and_offset)
{
    for (size_t n = 0; n < 8; n++)
        refuse_bytes((const uint8_t *)"\2\0\0\0\0\0\0\0{}", n, "bytes, too few for a safetensors file");
    refuse("{\"a\":" ROW("F32", "[2]", 0, 8) "}", 7, "'a' is at bytes 0 to 8 of the data, which has 7");
    refuse("{\"a\":" ROW("F32", "[2]", 0, 8) "}", 12, "its tensors end at byte");
    refuse("{\"a\":" ROW("F32", "[2]", 4, 12) "}", 12, "'a' begins at byte 67 of the file, after a gap: after byte 63");
    refuse("{\"a\":" ROW("F32", "[2]", 0, 8) ",\"b\":" ROW("F32", "[2]", 4, 12) "}", 12, "within another");
    refuse("{\"a\":" ROW("F32", "[3]", 0, 8) "}", 8, "'a' at offset 0 has 8 bytes, but F32 of shape [3] takes 12");
    refuse("{\"a\":" ROW("F32", "[2]", 8, 0) "}", 8, "'a' is at bytes 8 to 0");
    refuse("{\"a\":" ROW("F32", "[-2]", 0, 8) "}", 8, "axis 0 of its shape");
    refuse("{\"a\":" ROW("F32", "[2.0]", 0, 8) "}", 8, "axis 0 of its shape");
    refuse("{\"a\":" ROW("F32", "[4294967296,4294967296]", 0, 8) "}", 8, "'a' is larger than any memory");
    refuse("{\"a\":" ROW("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "9 axes");
    refuse("{\"a\":" ROW("F4", "[3]", 0, 1) "}", 1, "ends within a byte (F4)");
    refuse("{\"a\":" ROW("F31", "[2]", 0, 8) "}", 8, "unknown dtype 'F31'");
    refuse("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "'a' has no dtype");
    refuse("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "'a' has no list 'shape'");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "'a' has no data_offsets");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}", 8, "'a' has no data_offsets");
    refuse("{\"a\":" ROW("F32", "[2]", 0, 99999999999999999999) "}", 8, "not JSON");
    refuse("{\"a\":[1]}", 0, "'a' is not described by an object");
    refuse("{\"\":" ROW("F32", "[2]", 0, 8) "}", 8, "name of a tensor is empty");
    refuse("{\"a\":" ROW("F32", "[2]", 0, 8) ",\"a\":" ROW("F32", "[2]", 0, 8) "}", 8, "duplicate");
    refuse("{\"a\\u0000b\":" ROW("F32", "[2]", 0, 8) "}", 8, "not JSON");
    refuse("{\"__metadata__\":{\"format\":1}}", 0, "'format' of __metadata__ is not a text");
    refuse("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    refuse("{\"a\":", 0, "not JSON");
    refuse("[]", 0, "does not begin with '{'");
    refuse("", 0, "does not begin with '{'");
    refuse_bytes((const uint8_t *)"1234", 4, "has 4 bytes, too few");
    refuse_bytes((const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "18446744073709551615 bytes");
    refuse_bytes((const uint8_t *)"\x03\0\0\0\0\0\0\0{}", 10, "should have 3 bytes");
}

TEST(what_is_allowed_is_read)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},\"b\":" ROW(
        "U16", "[2]", 2, 6) ",\"none\":" ROW("F32", "[0,3]", 2, 2) ",\"a\":" ROW("BF16", "[]", 0, 2) "}   ";
    size_t          size, n;
    uint8_t        *bytes = file_of(header, 6, &size);
    tm_safetensors *set;
    char            text[192];
    assert_ok(tm_safetensors_parse("x", bytes, size, &set, err));
    const tm_stored_tensor *all = tm_safetensors_list(set, &n), *b = tm_safetensors_find(set, "b");
    assert_int_equal(n, 3);
    assert_string_equal(all[0].name, "a");
    assert_true(all[0].rank == 0 && all[0].dtype == TM_BF16 && all[0].bytes == 2);
    assert_true(b && b->dtype == TM_DTYPE_COUNT && b->data[0] == 2 && b->offset == (int64_t)size - 4);
    assert_string_equal(b->dtype_name, "U16");
    assert_string_equal(tm_stored_shape_text(text, tm_safetensors_find(set, "none")), "[0, 3]");
    assert_string_equal(tm_safetensors_metadata(set, "format"), "pt");
    assert_null(tm_safetensors_metadata(set, "other"));
    assert_null(tm_safetensors_find(set, "c"));
    tm_safetensors_close(set);
    free(bytes);
}

/* One tensor of each format with a name of ours. */
TEST(every_format_is_written_and_read_back)
{
    static const struct {
        const char *name;
        tm_dtype    dtype;
    } table[] = {
#define X(name, bits, format) { name, format },
        TM_SAFETENSORS_DTYPES(X)
#undef X
    };
    enum { ROWS = sizeof table / sizeof table[0] };
    tm_tensor_heading        headings[ROWS];
    static const char *const metadata[][2] = { { "made by", "a \"test\"" }, { NULL, NULL } };
    const char              *path = test_in_folder("all.safetensors");
    tm_safetensors_writer   *writer;
    tm_safetensors          *set;
    size_t                   n = 0;
    for (size_t i = 0; i < ROWS; i++)
        if (table[i].dtype != TM_DTYPE_COUNT)
            headings[n++] =
                (tm_tensor_heading){ .name = table[i].name, .dtype = table[i].dtype, .rank = 2, .n = { 3, 4 } };
    assert_true(n > 10);
    assert_ok(tm_safetensors_create(path, headings, n, metadata, &writer, err));
    for (size_t i = 0; i < n; i++) {
        uint8_t values[96] = { 0 };
        for (int64_t k = 0; k < 12; k++) tm_value_set(values, headings[i].dtype, k, (double)(k % 3));
        tm_safetensors_write(writer, values, tm_tensor_bytes(tm_shape_2(3, 4), headings[i].dtype));
    }
    assert_false(access(path, F_OK) == 0); /* not there before it is complete */
    assert_ok(tm_safetensors_finish(writer, err));
    assert_ok(tm_safetensors_open(path, &set, err));
    assert_string_equal(tm_safetensors_metadata(set, "made by"), "a \"test\"");
    for (size_t i = 0; i < n; i++) {
        const tm_stored_tensor *t = tm_safetensors_find(set, headings[i].name);
        uint64_t                copy[12];
        assert_true(t && t->dtype == headings[i].dtype && t->rank == 2 && t->n[0] == 3 && t->n[1] == 4);
        memcpy(copy, t->data, t->bytes);
        for (int64_t k = 0; k < 12; k++)
            if (t->dtype != TM_E8M0 || k % 3) /* powers of two only */
                assert_true(tm_value_get(copy, t->dtype, k) == (double)(k % 3));
    }
    assert_ok(tm_safetensors_check(set, err));
    assert_int_equal(truncate(path, 100), 0);
    assert_refused(tm_safetensors_check(set, err), TM_INVALID, "");
    tm_safetensors_close(set);
}

static void write_shard(const char *name, const char *tensor)
{
    tm_tensor_heading      heading = { .name = tensor, .dtype = TM_F32, .rank = 1, .n = { 1 } };
    tm_safetensors_writer *writer;
    float                  value = 3;
    assert_ok(tm_safetensors_create(test_in_folder(name), &heading, 1, NULL, &writer, err));
    tm_safetensors_write(writer, &value, sizeof value);
    assert_ok(tm_safetensors_finish(writer, err));
}

static void refuse_index(const char *text, const char *part)
{
    tm_safetensors *set;
    tm_error        err = { 0 };
    const char     *path = test_file_write(test_folder(), "i.index.json", text);
    tm_status       st = tm_safetensors_open(path, &set, &err);
    refusal_is_sound(&err);
    if (st == TM_OK || !strstr(err.text, part)) fail_msg("status %d, '%s', wanted '%s'", (int)st, err.text, part);
}

TEST(shards_and_their_index_agree_or_are_refused)
{
    tm_safetensors *set;
    size_t          n;
    write_shard("one", "a");
    write_shard("two", "b");
    write_shard("three", "a");
    const char *path = test_file_write(test_folder(), "good.index.json",
                                       "{\"metadata\": {}, \"weight_map\": {\"a\": \"one\", \"b\": \"two\"}}");
    assert_ok(tm_safetensors_open(path, &set, err));
    assert_int_equal((tm_safetensors_list(set, &n), n), 2);
    tm_safetensors_close(set);
    refuse_index("{\"weight_map\": {\"a\": \"one\", \"b\": \"one\"}}", "tensor 'b' is in 'one', where it is not");
    refuse_index("{\"weight_map\": {\"b\": \"one\"}}", "tensor 'a' is not in the index");
    refuse_index("{\"weight_map\": {\"a\": \"one\", \"b\": \"two\", \"c\": \"three\"}}", "tensor 'a' is in");
    refuse_index("{\"weight_map\": {\"a\": \"two\", \"b\": \"one\"}}", "says that tensor 'a' is in 'two', it is in");
    refuse_index("{\"weight_map\": {\"a\": \"four\"}}", "four': No such file");
    refuse_index("{\"weight_map\": {\"a\": \"../one\"}}", "'../one' is not the name of a file beside");
    refuse_index("{\"weight_map\": {\"a\": \"..\"}}", "'..' is not the name of a file beside");
    refuse_index("{\"weight_map\": {\"a\": \"\"}}", "'' is not the name of a file beside");
    refuse_index("{\"weight_map\": {\"a\": 1}}", "says no file for tensor 'a'");
    refuse_index("{\"weight_map\": {}}", "no object 'weight_map'");
    refuse_index("{\"weight_map\": [\"one\"]}", "no object 'weight_map'");
    refuse_index("[]", "no object 'weight_map'");
    refuse_index("{\"weight_map\"", "i.index.json':1: not JSON");
    refuse_index("", "not JSON");
}

TESTS_IN_ORDER
TEST_FIXTURE(NULL, test_folder_teardown)
