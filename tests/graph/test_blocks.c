/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of E4M3 and of NF4: what is stored against what was given, blocks that are copied into other groups, and what
 * bitsandbytes makes of three matrices (tools/make_nf4_fixture.py), bit for bit. */
#include "base/random.h"
#include "graph/blocks.h"
#include "graph/graph.h"
#include "graph/nf4.h"
#include "graph/value.h"
#include "support/golden.h"
#include "support/json.h"

#include "support/test.h"

/* Every float32 of 16 bits and their neighbours, and halves between two codes. */
TEST(codes_are_the_nearest)
{
    for (uint32_t high = 0; high < 0x10000; high++)
        for (uint32_t low = 0; low < 3; low++) {
            uint32_t bits = high << 16 | (low == 2 ? 0xffff : low);
            float    value;
            uint8_t  wanted = 0;
            memcpy(&value, &bits, sizeof value);
            if (isnan(value)) {
                assert_int_equal(tm_e4m3_code(value) & 0x7f, 0x7f);
                continue;
            }
            double kept = fmax(-448, fmin(448, (double)value));
            tm_value_set(&wanted, TM_E4M3, 0, kept);
            if (tm_e4m3_code(value) != wanted)
                fail_msg("%a: code %02x, wanted %02x", (double)value, tm_e4m3_code(value), wanted);
        }
    for (uint8_t code = 0; code < 0x7e; code++) { /* halfway: to even */
        uint8_t next = (uint8_t)(code + 1);
        float   half = (float)((tm_value_get(&code, TM_E4M3, 0) + tm_value_get(&next, TM_E4M3, 0)) / 2);
        assert_int_equal(tm_e4m3_code(half), code % 2 ? next : code);
        assert_int_equal(tm_e4m3_code(-half), 0x80 | (code % 2 ? next : code));
    }
}

typedef struct {
    const float   *values;
    unsigned char *stored;
} memory;

static void give(void *context, int64_t first, int64_t n, float *out)
{
    memcpy(out, ((const memory *)context)->values + first, (size_t)n * sizeof *out);
}

static tm_status take(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    (void)err;
    memcpy(((memory *)context)->stored + offset, bytes, n);
    return TM_OK;
}

TEST(stored_values_are_near)
{
    static const int64_t sizes[] = { 1, 63, 64, 65, 16384, 16385, 3 * 16384 + 100, 70 * 16384 + 1 };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t        n = sizes[s];
        size_t         bytes = tm_tensor_bytes(tm_shape_1(n), TM_E4M3_BLOCKS);
        float         *values = calloc((size_t)n, sizeof *values);
        unsigned char *one = calloc(bytes, 1), *two = calloc(bytes, 1);
        for (int64_t i = 0; i < n; i++)
            values[i] = i % 640 < 64 ? 0 : (float)(0.02 * tm_random_normal(1, 2, (uint64_t)i)); /* blocks of zeros */
        tm_nf4_io a = { give, take, &(memory){ values, one }, 1 }, b = { give, take, &(memory){ values, two }, 3 };
        assert_ok(tm_blocked_store(TM_E4M3_BLOCKS, &a, n, err));
        assert_ok(tm_blocked_store(TM_E4M3_BLOCKS, &b, n, err));
        assert_memory_equal(one, two, bytes);
        for (int64_t block = 0; block < n; block += TM_E4M3_BLOCK) {
            int64_t end = block + TM_E4M3_BLOCK < n ? block + TM_E4M3_BLOCK : n;
            float   most = 0;
            for (int64_t i = block; i < end; i++) most = fmaxf(most, fabsf(values[i]));
            for (int64_t i = block; i < end; i++) {
                double is = tm_value_get(one, TM_E4M3_BLOCKS, i), was = (double)values[i];
                /* Half a step of three bits, or of the smallest number of the block. */
                assert_true(fabs(is - was) <= fmax(fabs(was) / 16, (double)most / 448 / 1024) * 1.000001);
                if (most > 0 && fabs(was) >= (double)most) assert_true(fabs(is / was - 1) < 1e-6);
                if (!(most > 0)) assert_true(!(is > 0) && !(is < 0));
            }
        }
        free(values), free(one), free(two);
    }
}

/* Blocks of NF4 copied into other groups keep their values, bit for bit; those of E4M3, too. */
TEST(copied_blocks_keep_their_values)
{
    enum { N = 3 * 16384 + 640 };
    static const tm_dtype from[] = { TM_NF4_BLOCKS, TM_E4M3_BLOCKS }, to[] = { TM_NF4_SCALED, TM_E4M3_BLOCKS };
    float                *values = calloc(N, sizeof *values);
    for (int64_t i = 0; i < N; i++)
        values[i] = (float)(0.02 * (double)(1 + i / 64 % 7) * tm_random_normal(1, 2, (uint64_t)i));
    for (int k = 0; k < 2; k++) {
        unsigned char *stored = calloc(tm_blocked_bytes(from[k], N), 1), *part = calloc(tm_blocked_bytes(to[k], N), 1);
        tm_nf4_io      io = { give, take, &(memory){ values, stored }, 1 };
        assert_ok(tm_blocked_store(from[k], &io, N, err));
        for (int64_t i = 64, j = 0; i < N - 64; i += 2 * 192, j += 192) { /* every second run of three blocks */
            tm_blocked_copy(from[k], stored, i, to[k], part, j, 192);
            for (int64_t e = 0; e < 192 && i + e < N; e++) {
                double is = tm_value_get(part, to[k], j + e), was = tm_value_get(stored, from[k], i + e);
                if (is < was || is > was) fail_msg("element %d: %.9g, wanted %.9g", (int)(i + e), is, was);
            }
        }
        free(stored), free(part);
    }
    assert_int_equal(tm_blocked_bytes(TM_NF4_SCALED, 16384), TM_SCALED_GROUP_BYTES);
    assert_int_equal(tm_blocked_bytes(TM_NF4_SCALED, 16385), TM_SCALED_GROUP_BYTES + TM_SCALED_HEAD + 1);
    free(values);
}

/* --- NF4 ---------------------------------------------------------------------------------------------------------- */

static uint8_t *quantize(float *values, int64_t n, int threads)
{
    uint8_t  *out = malloc(tm_nf4_bytes(n));
    tm_nf4_io io = { give, take, &(memory){ values, out }, threads };
    assert_ok(tm_nf4_store(&io, n, err));
    return out;
}

static uint8_t *hex(const json_t *object, const char *key, size_t *n)
{
    const char *text = json_string_value(json_object_get(object, key));
    assert_non_null(text);
    *n = strlen(text) / 2;
    uint8_t *out = malloc(*n + 1);
    for (size_t i = 0; i < *n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return out;
}

static float bits(const json_t *value)
{
    uint32_t whole = (uint32_t)json_integer_value(value);
    float    out;
    memcpy(&out, &whole, sizeof out);
    return out;
}

/* Values are 0.3 unit(name, i)^3, rounded to float32. */
static void matrix(const json_t *m)
{
    int64_t       n = (int64_t)json_integer_value(json_object_get(m, "n"));
    const char   *name = json_string_value(json_object_get(m, "name"));
    const json_t *nested = json_object_get(m, "nested_absmax");
    size_t        n_codes, n_q, n_decoded;
    uint8_t *codes = hex(m, "codes", &n_codes), *q = hex(m, "absmax", &n_q), *decoded = hex(m, "decoded", &n_decoded);
    float   *values = malloc((size_t)n * sizeof *values), mean = bits(json_object_get(m, "offset"));
    uint8_t *theirs = malloc(tm_nf4_bytes(n));
    for (int64_t i = 0; i < n; i++) {
        double u = golden_unit(name, (uint32_t)i);
        values[i] = (float)(0.3 * u * u * u);
    }
    assert_int_equal(n_codes, (n + 1) / 2);
    assert_int_equal(n_q, (n + 63) / 64);
    /* Its parts, decoded by us. */
    for (int64_t g = 0; g * TM_NF4_GROUP < n; g++) {
        int64_t left = n - g * TM_NF4_GROUP;
        tm_nf4_pack(mean, bits(json_array_get(nested, (size_t)g)), q + g * 256, codes + g * 8192,
                    left < TM_NF4_GROUP ? left : TM_NF4_GROUP, theirs + g * TM_NF4_GROUP_BYTES);
    }
    size_t kept = n_decoded / 4; /* the first ones, and every 97th: the file is small */
    for (size_t k = 0; k < kept; k++) {
        float   wanted;
        int64_t i = k < 256 ? (int64_t)k : 256 + 97 * (int64_t)(k - 256);
        memcpy(&wanted, decoded + 4 * k, sizeof wanted);
        float found = tm_nf4_value(theirs, i);
        if (memcmp(&found, &wanted, sizeof found) != 0)
            fail_msg("%s: element %lld is %a, wanted %a", name, (long long)i, (double)found, (double)wanted);
    }
    /* Our own quantization: its codes and scales; the mean may be rounded otherwise. */
    uint8_t *ours = quantize(values, n, 2), *alone = quantize(values, n, 1);
    assert_memory_equal(ours, alone, tm_nf4_bytes(n));
    int64_t other = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t at = (size_t)(i / TM_NF4_GROUP) * TM_NF4_GROUP_BYTES + TM_NF4_HEAD + (size_t)(i % TM_NF4_GROUP) / 2;
        other += (ours[at] ^ theirs[at]) >> (i % 2 ? 0 : 4) & 15 ? 1 : 0;
    }
    assert_int_equal(other, 0);
    float own;
    memcpy(&own, ours, sizeof own);
    assert_true(fabsf(own - mean) <= 2e-7f * mean);
    free(codes), free(q), free(decoded), free(values), free(theirs), free(ours), free(alone);
}

TEST(what_bitsandbytes_makes)
{
    json_t *root = test_json("tests/graph/nf4.json"), *m;
    size_t  i;
    float   map[256];
    tm_nf4_map(map);
    const json_t *wanted = json_object_get(root, "map");
    assert_int_equal(json_array_size(wanted), 256);
    for (size_t k = 0; k < 256; k++) {
        float value = bits(json_array_get(wanted, k));
        if (memcmp(&value, &map[k], sizeof value) != 0)
            fail_msg("entry %zu is %a, wanted %a", k, (double)map[k], (double)value);
    }
    assert_int_equal(json_array_size(json_object_get(root, "matrices")), 3);
    json_array_foreach(json_object_get(root, "matrices"), i, m) matrix(m);
    json_decref(root);
}

/* Groups of NF4 end with a piece where that is whole groups. */
TEST(runs_of_groups)
{
    tm_graph *g = tm_graph_create(&tm_precision_f32);
    tm_piece  even[] = { { .name = "a", .row = 0, .rows = 2 }, { .name = "b", .row = 2, .rows = 4 } };
    tm_piece  odd[] = { { .name = "a", .row = 0, .rows = 1 }, { .name = "b", .row = 1, .rows = 3 } };
    int64_t   group = TM_NF4_GROUP;
    tm_tensor w = *tm_graph_at(g, tm_graph_parameter(g, "w", tm_shape_2(6, group), even, 2));
    tm_tensor v = *tm_graph_at(g, tm_graph_parameter(g, "v", tm_shape_2(4, group / 2), odd, 2));
    assert_int_equal(tm_nf4_run_end(&w, 0), 2 * group);
    assert_int_equal(tm_nf4_run_end(&w, 5 * group), 6 * group);
    assert_int_equal(tm_nf4_run_end(&v, 0), 2 * group); /* a ends within a group */
    tm_graph_destroy(g);
}
