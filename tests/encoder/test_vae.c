/* SPDX-License-Identifier: Apache-2.0 */
/* The autoencoder of pictures, against diffusers (tests/encoder/data, by tools/vae_parity.py). */
#include "data/safetensors.h"
#include "encoder/encoder.h"
#include "graph/graph.h"

#include "support/test.h"

static const char *const folders[] = { "tests/encoder/data/vae_four", "tests/encoder/data/vae_two",
                                       "tests/encoder/data/vae_old" };
enum { FOLDERS = sizeof folders / sizeof folders[0] };

typedef enum { PIXELS, MEAN, LOGVAR, LATENTS, DECODED, TENSORS } tensor_name;

/* What diffusers computed. */
typedef struct {
    tm_frozen_size size;
    int64_t        channels, n[TENSORS];
    float         *value[TENSORS];
} expected;

static expected read_expected(const char *folder)
{
    static const char *const names[TENSORS] = { "pixels", "mean", "logvar", "latents", "decoded" };
    char                     path[200];
    tm_safetensors          *files;
    tm_error                 err = { 0 };
    expected                 e = { 0 };
    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    if (tm_safetensors_open(path, &files, &err) != TM_OK) fail_msg("%s", err.text);
    for (int i = 0; i < TENSORS; i++) {
        const tm_stored_tensor *t = tm_safetensors_find(files, names[i]);
        if (i == PIXELS) e.size = (tm_frozen_size){ .batch = t->n[0], .height = t->n[1], .width = t->n[2] };
        if (i == MEAN) e.channels = t->n[1];
        e.n[i] = (int64_t)(t->bytes / sizeof(float));
        e.value[i] = malloc(t->bytes);
        assert_non_null(e.value[i]);
        memcpy(e.value[i], t->data, t->bytes);
    }
    tm_safetensors_close(files);
    return e;
}

static void release(expected *e)
{
    for (int i = 0; i < TENSORS; i++) free(e->value[i]);
}

static float *numbers(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    return x;
}

/* The largest difference, as a part of the largest value. */
static double apart(const expected *e, tensor_name name, const float *got)
{
    double most = 0, largest = 0;
    for (int64_t i = 0; i < e->n[name]; i++) {
        double d = fabs((double)got[i] - (double)e->value[name][i]);
        if (!(d <= most)) most = d;
        largest = fmax(largest, fabs((double)e->value[name][i]));
    }
    return most / largest;
}

static tm_frozen *open_vae(tm_device *device, const char *folder, tm_frozen_kind kind, const tm_frozen_size *size,
                           tm_dtype compute)
{
    tm_frozen *vae;
    tm_error   err = { 0 };
    if (tm_frozen_open(device, folder, kind, size, compute, &vae, &err) != TM_OK) fail_msg("%s", err.text);
    return vae;
}

/* Of the encoder: the mean and the logarithm of the variance, whichever is further off; of the decoder. */
static void differences(const char *device_name, int threads, const char *folder, tm_dtype compute, double out[2])
{
    expected   e = read_expected(folder);
    tm_device *device;
    tm_error   err = { 0 };
    float     *mean = numbers(e.n[MEAN]), *logvar = numbers(e.n[LOGVAR]), *pixels = numbers(e.n[PIXELS]);
    assert_int_equal(tm_device_open(device_name, threads, &device, &err), TM_OK);
    tm_frozen *encoder = open_vae(device, folder, TM_FROZEN_VAE_ENCODE, &e.size, compute);
    assert_int_equal(tm_frozen_facts_of(encoder)->channels, e.channels);
    assert_int_equal(tm_frozen_encode(encoder, e.value[PIXELS], mean, logvar, &err), TM_OK);
    assert_int_equal(tm_frozen_decode(encoder, e.value[LATENTS], pixels, &err), TM_INVALID);
    tm_frozen_close(encoder);
    out[0] = fmax(apart(&e, MEAN, mean), apart(&e, LOGVAR, logvar));
    err = (tm_error){ 0 };
    tm_frozen *decoder = open_vae(device, folder, TM_FROZEN_VAE_DECODE, &e.size, compute);
    assert_int_equal(tm_frozen_decode(decoder, e.value[LATENTS], pixels, &err), TM_OK);
    assert_int_equal(tm_frozen_encode(decoder, e.value[PIXELS], mean, logvar, &err), TM_INVALID);
    tm_frozen_close(decoder);
    out[1] = apart(&e, DECODED, pixels);
    tm_device_close(device);
    free(mean), free(logvar), free(pixels);
    release(&e);
}

TEST(diffusers_computes_the_same)
{
    static const char *const devices[] = { "cpu", "reference", "late" };
    for (size_t i = 0; i < FOLDERS; i++)
        for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
            double most[2];
            differences(devices[d], 2, folders[i], TM_F32, most);
            print_message("%s on %s: encoded %.2g, decoded %.2g\n", folders[i], devices[d], most[0], most[1]);
            assert_true(most[0] < 1e-5 && most[1] < 1e-5);
        }
}

/* Stored results and weights are rounded to 8 bits: each by 2^-9 of a value at most, 2^-9 / sqrt(3) as a root mean
 * square. The decoder of four resolutions has 2 + 4 x 2 resnets of 4 results and 2 weights, an attention of 5 and 2,
 * and 4 further convolutions and a norm of 2: below 80 such errors. They are independent; five deviations are beyond
 * all of a few thousand values. */
TEST(bfloat16_is_as_near_as_its_roundings)
{
    const double bound = 5 * sqrt(80) * 0x1p-9 / sqrt(3);
    for (size_t i = 0; i < FOLDERS; i++) {
        double most[2];
        differences("cpu", 2, folders[i], TM_BF16, most);
        print_message("%s in bfloat16: encoded %.2g, decoded %.2g of %.2g\n", folders[i], most[0], most[1], bound);
        for (int k = 0; k < 2; k++) {
            assert_true(most[k] < bound);
            assert_true(most[k] > 1e-4); /* it is bfloat16 */
        }
    }
}

TEST(running_allocates_nothing)
{
    expected   e = read_expected(folders[1]);
    tm_device *device;
    tm_error   err = { 0 };
    float     *pixels = numbers(e.n[PIXELS]);
    assert_int_equal(tm_device_open("cpu", 2, &device, &err), TM_OK);
    tm_frozen         *vae = open_vae(device, folders[1], TM_FROZEN_VAE_DECODE, &e.size, TM_F32);
    unsigned long long before = tm_alloc_count();
    assert_int_equal(tm_frozen_decode(vae, e.value[LATENTS], pixels, &err), TM_OK);
    assert_int_equal(tm_alloc_count(), before);
    tm_frozen_close(vae);
    tm_device_close(device);
    free(pixels);
    release(&e);
}
