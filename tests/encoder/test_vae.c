/* SPDX-License-Identifier: Apache-2.0 */
/* The autoencoder of pictures, against diffusers (tests/encoder/data, by tools/vae_parity.py). */
#include "base/file.h"
#include "base/text.h"
#include "data/safetensors.h"
#include "encoder/encoder.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/folder.h"
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

TEST(one_picture_is_as_among_others_and_threads_change_nothing)
{
    expected       e = read_expected(folders[0]);
    tm_error       err = { 0 };
    float         *mean[2], *logvar[2];
    tm_frozen_size one = e.size;
    one.batch = 1;
    for (int k = 0; k < 2; k++) {
        tm_device *device;
        mean[k] = numbers(e.n[MEAN]), logvar[k] = numbers(e.n[LOGVAR]);
        assert_int_equal(tm_device_open("cpu", 1 + 2 * k, &device, &err), TM_OK);
        tm_frozen *vae = open_vae(device, folders[0], TM_FROZEN_VAE_ENCODE, k ? &one : &e.size, TM_F32);
        for (int64_t b = 0; b < (k ? e.size.batch : 1); b++)
            assert_int_equal(tm_frozen_encode(vae, e.value[PIXELS] + b * (e.n[PIXELS] / e.size.batch),
                                              mean[k] + b * (e.n[MEAN] / e.size.batch),
                                              logvar[k] + b * (e.n[MEAN] / e.size.batch), &err),
                             TM_OK);
        tm_frozen_close(vae);
        tm_device_close(device);
    }
    assert_memory_equal(mean[0], mean[1], (size_t)e.n[MEAN] * sizeof(float));
    assert_memory_equal(logvar[0], logvar[1], (size_t)e.n[MEAN] * sizeof(float));
    for (int k = 0; k < 2; k++) free(mean[k]), free(logvar[k]);
    release(&e);
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

/* --- refusals ----------------------------------------------------------------------------------------------------- */

/* A copy of the first folder with one text of config.json replaced. */
static void config_with(const char *folder, const char *before, const char *after)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    char     path[300];
    snprintf(path, sizeof path, "%s/config.json", folders[0]);
    assert_int_equal(tm_file_read(path, 1 << 20, &text, &err), TM_OK);
    char *at = strstr(text.data, before);
    assert_non_null(at);
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - text.data), text.data, after, at + strlen(before));
    fclose(f);
    tm_text_fini(&text);
}

TEST(what_would_compute_something_else_is_refused)
{
    static const struct {
        const char *before, *after;
        tm_status   status;
        const char *says;
    } cases[] = {
        { "\"act_fn\": \"silu\"", "\"act_fn\": \"relu\"", TM_UNSUPPORTED, "'act_fn' is relu" },
        { "    \"DownEncoderBlock2D\",", "    \"AttnDownEncoderBlock2D\",", TM_UNSUPPORTED,
          "'down_block_types' is AttnDown" },
        { "    \"UpDecoderBlock2D\",", "    \"AttnUpDecoderBlock2D\",", TM_UNSUPPORTED, "'up_block_types' is AttnUp" },
        { "\"in_channels\": 3", "\"in_channels\": 4", TM_UNSUPPORTED, "'in_channels' is 4" },
        { "\"latents_mean\": null", "\"latents_mean\": [0.5]", TM_UNSUPPORTED, "'latents_mean' is" },
        { "\"norm_num_groups\": 4", "\"norm_num_groups\": 3", TM_FORMAT, "not a multiple of 'norm_num_groups' 3" },
        { "\"sample_size\": 32", "\"sample_size\": 32, \"spatial\": 1", TM_UNSUPPORTED, "'spatial'" },
        { "AutoencoderKL", "AutoencoderTiny", TM_UNSUPPORTED, "AutoencoderTiny" },
        { "\"layers_per_block\": 1", "\"layers_per_block\": 2", TM_INVALID, "has no weights" },
    };
    char          *folder = test_tree_make();
    tm_device     *device;
    tm_error       err = { 0 };
    tm_frozen_size size = { .batch = 1, .height = 16, .width = 16 };
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_error   own = { 0 };
        tm_frozen *vae;
        config_with(folder, cases[i].before, cases[i].after);
        assert_int_equal(tm_frozen_open(device, folder, TM_FROZEN_VAE_ENCODE, &size, TM_F32, &vae, &own),
                         cases[i].status);
        assert_null(vae);
        if (!strstr(own.text, cases[i].says)) fail_msg("'%s' lacks '%s'", own.text, cases[i].says);
    }
    for (int k = 0; k < 2; k++) {
        tm_error       own = { 0 };
        tm_frozen     *vae;
        tm_frozen_size odd = { .batch = 1, .height = k ? 16 : 20, .width = k ? 0 : 16 };
        assert_int_equal(tm_frozen_open(device, folders[0], TM_FROZEN_VAE_DECODE, &odd, TM_F32, &vae, &own),
                         TM_INVALID);
        assert_non_null(strstr(own.text, k ? "width is a multiple of 8" : "height is a multiple of 8"));
    }
    tm_device_close(device);
    test_tree_remove(folder);
}
