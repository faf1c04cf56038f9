/* SPDX-License-Identifier: Apache-2.0 */
/* The encoders of text, against transformers (tests/encoder/data, by tools/encoder_parity.py). */
#include "data/safetensors.h"
#include "encoder/encoder.h"

#include "support/test.h"

typedef struct {
    const char    *folder;
    tm_frozen_kind kind;
    int64_t        layers;
} text_case;

static const text_case cases[] = {
    { "tests/encoder/data/clip_largest", TM_FROZEN_CLIP, 2 },
    { "tests/encoder/data/clip_first", TM_FROZEN_CLIP, 2 },
    { "tests/encoder/data/t5_gated", TM_FROZEN_T5, 2 },
    { "tests/encoder/data/t5_relu", TM_FROZEN_T5, 2 },
};

/* What transformers computed. */
typedef struct {
    int64_t  batch, tokens, n;
    int32_t *ids;
    float   *out, largest;
} expected;

static expected read_expected(const char *folder)
{
    char            path[200];
    tm_safetensors *files;
    tm_error        err = { 0 };
    expected        e = { 0 };
    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    if (tm_safetensors_open(path, &files, &err) != TM_OK) fail_msg("%s", err.text);
    const tm_stored_tensor *ids = tm_safetensors_find(files, "ids"), *out = tm_safetensors_find(files, "out");
    e.batch = ids->n[0];
    e.tokens = ids->n[1];
    e.n = (int64_t)(out->bytes / sizeof(float));
    e.ids = malloc(ids->bytes);
    e.out = malloc(out->bytes);
    memcpy(e.ids, ids->data, ids->bytes);
    memcpy(e.out, out->data, out->bytes);
    for (int64_t i = 0; i < e.n; i++) e.largest = fmaxf(e.largest, fabsf(e.out[i]));
    tm_safetensors_close(files);
    return e;
}

static tm_frozen *open_encoder(tm_device *device, const text_case *c, const expected *e, tm_dtype compute)
{
    tm_frozen_size size = { .batch = e->batch, .tokens = e->tokens };
    tm_frozen     *encoder;
    tm_error       err = { 0 };
    if (tm_frozen_open(device, c->folder, c->kind, &size, compute, &encoder, &err) != TM_OK) fail_msg("%s", err.text);
    return encoder;
}

/* The largest difference, as a part of the largest value. */
static double difference(const char *device_name, const text_case *c, tm_dtype compute)
{
    expected   e = read_expected(c->folder);
    tm_device *device;
    tm_error   err = { 0 };
    float     *out = malloc((size_t)e.n * sizeof *out), *again = malloc((size_t)e.n * sizeof *out);
    double     most = 0;
    assert_int_equal(tm_device_open(device_name, 2, &device, &err), TM_OK);
    tm_frozen *encoder = open_encoder(device, c, &e, compute);
    assert_int_equal(tm_frozen_text(encoder, e.ids, out, &err), TM_OK);
    assert_int_equal(tm_frozen_text(encoder, e.ids, again, &err), TM_OK);
    assert_memory_equal(out, again, (size_t)e.n * sizeof *out);
    assert_int_equal(e.n % tm_frozen_facts_of(encoder)->width, 0);
    for (int64_t i = 0; i < e.n; i++) most = fmax(most, fabs((double)out[i] - (double)e.out[i]));
    tm_frozen_close(encoder);
    tm_device_close(device);
    free(out);
    free(again);
    free(e.ids);
    free(e.out);
    return most / (double)e.largest;
}

TEST(transformers_computes_the_same)
{
    static const char *const devices[] = { "cpu", "reference", "late" };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
            double most = difference(devices[d], &cases[i], TM_F32);
            print_message("%s on %s: %.2g\n", cases[i].folder, devices[d], most);
            assert_true(most < 1e-5);
        }
}

/* A layer rounds about 12 tensors and 6 weights to 8 bits, each by 2^-9 of a value at most and 2^-9 / sqrt(3) as a root
 * mean square; such errors are independent, and five deviations are beyond all of a few hundred values. */
TEST(bfloat16_is_as_near_as_its_roundings)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double most = difference("cpu", &cases[i], TM_BF16);
        double bound = 5 * sqrt(18.0 * (double)cases[i].layers + 4) * 0x1p-9 / sqrt(3);
        print_message("%s in bfloat16: %.2g of %.2g\n", cases[i].folder, most, bound);
        assert_true(most < bound);
        assert_true(most > 1e-4); /* it is bfloat16 */
    }
}
