/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of NF4: codes of the golden block, and what bitsandbytes makes of two matrices (tools/make_nf4_fixture.py):
 * its codes, scales and decoded values, bit for bit. */
#include "base/hash.h"
#include "graph/nf4.h"
#include "graph/value.h"
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include <jansson.h>

typedef struct {
    float   *values;
    uint8_t *out;
} memory;

static void give(void *context, int64_t first, int64_t n, float *out)
{
    memcpy(out, ((memory *)context)->values + first, (size_t)n * sizeof *out);
}

static tm_status take(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    (void)err;
    memcpy(((memory *)context)->out + offset, bytes, n);
    return TM_OK;
}

static uint8_t *quantize(float *values, int64_t n, int threads)
{
    memory    m = { values, malloc(tm_nf4_bytes(n)) };
    tm_nf4_io io = { give, take, &m, threads };
    tm_error  err = { 0 };
    assert_int_equal(tm_nf4_store(&io, n, &err), TM_OK);
    return m.out;
}

TEST(the_golden_block)
{
    static const uint8_t wanted[32] = { 0x0E, 0x11, 0xCF, 0xE2, 0xF2, 0x1C, 0x80, 0x8A, 0x01, 0x7E, 0xEA,
                                        0xD0, 0xC1, 0x3D, 0x2A, 0x6C, 0x61, 0xAE, 0x78, 0x41, 0x0D, 0x10,
                                        0xD0, 0x1F, 0xE9, 0xE3, 0xC5, 0x31, 0xDE, 0xE1, 0x61, 0x24 };
    float                values[64], most = 0;
    for (uint32_t i = 0; i < 64; i++) {
        values[i] = (float)golden_unit("nf4", i);
        most = fmaxf(most, fabsf(values[i]));
    }
    uint8_t *packed = quantize(values, 64, 1);
    assert_memory_equal(packed + TM_NF4_HEAD, wanted, sizeof wanted);
    /* One block: its scale is the mean, exactly. */
    assert_true(fabs((double)most - 0.998748779) < 1e-8);
    float code[16];
    tm_nf4_codes(code);
    for (int64_t i = 0; i < 64; i++) {
        unsigned nibble = i % 2 ? wanted[i / 2] & 15u : wanted[i / 2] >> 4;
        float    value = code[nibble] * most;
        assert_true(!(tm_nf4_value(packed, i) != value));
        assert_true(!(tm_value_get(packed, TM_NF4_BLOCKS, i) != (double)value));
    }
    free(packed);
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
    json_error_t problem;
    json_t      *root = json_load_file("tests/graph/nf4.json", 0, &problem), *m;
    size_t       i;
    float        map[256];
    if (!root) fail_msg("tests/graph/nf4.json: %s", problem.text);
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
