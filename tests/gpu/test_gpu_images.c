/* SPDX-License-Identifier: Apache-2.0 */
/* Images on the devices cuda and hip, whose kernels run as machine code: frozen encoders compute what diffusers and
 * transformers do (tests/encoder/data), and so does `trainmark generate`. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "data/safetensors.h"
#include "encoder/encoder.h"
#include "gpu/emulated.h"
#include "image/image.h"
#include "support/folder.h"

#include "support/test.h"

/* Numbers of a file, and the largest of them. */
typedef struct {
    float  *value; /* to free */
    int64_t n;
    double  largest;
} numbers;

static numbers numbers_of(tm_safetensors *file, const char *name)
{
    const tm_stored_tensor *t = tm_safetensors_find(file, name);
    assert_non_null(t);
    numbers x = { .value = malloc(t->bytes), .n = (int64_t)(t->bytes / sizeof(float)) };
    assert_non_null(x.value);
    memcpy(x.value, t->data, t->bytes);
    for (int64_t i = 0; i < x.n; i++) x.largest = fmax(x.largest, fabs((double)x.value[i]));
    return x;
}

static void check_near(const float *found, numbers wanted, double bound, const char *what)
{
    double most = 0;
    for (int64_t i = 0; i < wanted.n; i++) {
        double d = fabs((double)found[i] - (double)wanted.value[i]) / wanted.largest;
        if (!(d <= most)) most = d;
    }
    print_message("# %s: %.2g of %.2g\n", what, most, bound);
    if (!(most <= bound)) fail_msg("%s: %.3g of the largest value, bound %.3g", what, most, bound);
}

static tm_safetensors *expected_of(const char *folder)
{
    char            path[200];
    tm_safetensors *file;
    tm_error        err = { 0 };
    snprintf(path, sizeof path, "tests/encoder/data/%s/expected.safetensors", folder);
    if (tm_safetensors_open(path, &file, &err) != TM_OK) fail_msg("%s", err.text);
    return file;
}

static tm_frozen *encoder_of(tm_device *device, const char *folder, tm_frozen_kind kind, const tm_frozen_size *size,
                             tm_dtype compute)
{
    char       path[200];
    tm_frozen *encoder;
    tm_error   err = { 0 };
    snprintf(path, sizeof path, "tests/encoder/data/%s", folder);
    if (tm_frozen_open(device, path, kind, size, compute, &encoder, &err) != TM_OK) fail_msg("%s", err.text);
    return encoder;
}

/* Float32: as on CPUs. Bfloat16: five deviations of so many independent roundings (tests/encoder). */
static double bound_of(tm_dtype compute, double roundings)
{
    return compute == TM_F32 ? 1e-5 : 5 * sqrt(roundings) * 0x1p-9 / sqrt(3);
}

static void check_text(tm_device *device, const char *folder, tm_frozen_kind kind, tm_dtype compute)
{
    tm_safetensors         *file = expected_of(folder);
    const tm_stored_tensor *ids = tm_safetensors_find(file, "ids");
    numbers                 wanted = numbers_of(file, "out");
    tm_frozen_size          size = { .batch = ids->n[0], .tokens = ids->n[1] };
    float                  *out = malloc((size_t)wanted.n * sizeof *out);
    tm_error                err = { 0 };
    tm_frozen              *encoder = encoder_of(device, folder, kind, &size, compute);
    int32_t                *copy = malloc(ids->bytes);
    assert_non_null(copy);
    memcpy(copy, ids->data, ids->bytes);
    if (tm_frozen_text(encoder, copy, out, &err) != TM_OK) fail_msg("%s: %s", folder, err.text);
    check_near(out, wanted, bound_of(compute, 18 * 2 + 4), folder);
    tm_frozen_close(encoder);
    tm_safetensors_close(file);
    free(wanted.value), free(copy), free(out);
}

static void check_vae(tm_device *device, const char *folder, tm_dtype compute)
{
    tm_safetensors         *file = expected_of(folder);
    const tm_stored_tensor *shape = tm_safetensors_find(file, "pixels");
    tm_frozen_size          size = { .batch = shape->n[0], .height = shape->n[1], .width = shape->n[2] };
    numbers                 pixels = numbers_of(file, "pixels"), mean = numbers_of(file, "mean");
    numbers                 logvar = numbers_of(file, "logvar"), latents = numbers_of(file, "latents"),
            decoded = numbers_of(file, "decoded");
    float     *found[] = { malloc((size_t)mean.n * sizeof(float)), malloc((size_t)logvar.n * sizeof(float)),
                           malloc((size_t)decoded.n * sizeof(float)) };
    tm_error   err = { 0 };
    tm_frozen *encoder = encoder_of(device, folder, TM_FROZEN_VAE_ENCODE, &size, compute);
    if (tm_frozen_encode(encoder, pixels.value, found[0], found[1], &err) != TM_OK) fail_msg("%s", err.text);
    tm_frozen_close(encoder);
    tm_frozen *decoder = encoder_of(device, folder, TM_FROZEN_VAE_DECODE, &size, compute);
    if (tm_frozen_decode(decoder, latents.value, found[2], &err) != TM_OK) fail_msg("%s", err.text);
    tm_frozen_close(decoder);
    check_near(found[0], mean, bound_of(compute, 80), folder);
    check_near(found[1], logvar, bound_of(compute, 80), folder);
    check_near(found[2], decoded, bound_of(compute, 80), folder);
    for (int k = 0; k < 3; k++) free(found[k]);
    free(pixels.value), free(mean.value), free(logvar.value), free(latents.value), free(decoded.value);
    tm_safetensors_close(file);
}

static void encoders_on(const char *name)
{
    if (!emulated_device(name)) skip();
    for (int own = 0; own < (test_is_full() ? 2 : 1); own++) {
        if (own) setenv(strcmp(name, "hip") == 0 ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT", "none", 1);
        tm_device *device = emulated_open(name);
        for (int p = 0; p < 2; p++) {
            tm_dtype compute = p ? TM_BF16 : TM_F32;
            check_text(device, "clip_largest", TM_FROZEN_CLIP, compute);
            check_text(device, "t5_gated", TM_FROZEN_T5, compute);
            if (!test_is_full()) continue;
            check_text(device, "clip_first", TM_FROZEN_CLIP, compute);
            check_text(device, "t5_relu", TM_FROZEN_T5, compute);
            check_vae(device, "vae_two", compute);
            check_vae(device, "vae_four", compute);
            check_vae(device, "vae_old", compute);
        }
        tm_device_close(device);
    }
}

ON_BOTH(FULL_TEST, encoders, encoders_on(on))

/* --- drawing ------------------------------------------------------------------------------------------------------ */

#define PIPELINE "tests/encoder/pipeline/"

/* `trainmark generate` draws what diffusers does (tools/flux_pipeline.py), each pixel within 1 of 255. */
static void draws_on(const char *name)
{
    const char *out = test_in_folder("drawn.png");
    const char *words[] = {
        "trainmark", "generate", PIPELINE "model", "--prompt", "a photo of a cat", "-o", out,
        "--seed",    "7",        "--size",         "32",       "--steps",          "4",  "--guidance",
        "3.5",       "-q",       "--text-tokens",  "12",       "--device",         name
    };
    tm_text  bytes = { 0 };
    tm_image picture;
    tm_error err = { 0 };
    if (!emulated_device(name)) skip();
    if (tm_cli_dispatch((int)(sizeof words / sizeof words[0]), (char **)(uintptr_t)words, &err) != TM_OK ||
        tm_file_read(out, 1 << 20, &bytes, &err) != TM_OK ||
        tm_image_decode(out, bytes.data, bytes.length, &picture, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_safetensors *file;
    if (tm_safetensors_open(PIPELINE "drawn.safetensors", &file, &err) != TM_OK) fail_msg("%s", err.text);
    numbers wanted = numbers_of(file, "plain");
    assert_int_equal(wanted.n, (int64_t)picture.height * picture.width * 3);
    for (int64_t i = 0; i < wanted.n; i++)
        if (!(fabs(255 * (double)wanted.value[i] - picture.pixels[i]) <= 1))
            fail_msg("%s: pixel %d is %d, diffusers has %g", name, (int)i, picture.pixels[i],
                     255 * (double)wanted.value[i]);
    free(wanted.value);
    tm_safetensors_close(file);
    tm_image_fini(&picture);
    tm_text_fini(&bytes);
}

ON_BOTH(FULL_TEST, a_picture_is_drawn, draws_on(on))

TEST_FIXTURE(NULL, test_folder_teardown)
