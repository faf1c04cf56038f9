/* SPDX-License-Identifier: Apache-2.0 */
/* FLUX.1 on the devices cuda and hip, whose kernels run as machine code: losses and norms of training are those of the
 * CPU within rounding, and the same bits however a program is launched; frozen encoders compute what diffusers and
 * transformers do (tests/encoder/data). */
#include "base/file.h"
#include "base/random.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "data/safetensors.h"
#include "device/backend.h"
#include "encoder/encoder.h"
#include "gpu/emulated.h"
#include "image/image.h"
#include "support/folder.h"
#include "support/golden.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { MOST_STEPS = 20, FEW_STEPS = 3, SAMPLES = 2 }; /* the third step is timed as a whole */

typedef enum { BOUND, ONE_BY_ONE, WITH_LEDGER } way;

typedef struct {
    double   loss[MOST_STEPS], norm[MOST_STEPS], evaluation;
    uint64_t state;
} outcome;

static tm_device *opened(const char *name)
{
    tm_device *device;
    tm_error   err = { 0 };
    if (tm_device_open(name, 1, &device, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    return device;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static tm_step_options options_of(const tm_precision *precision)
{
    tm_step_options o = golden_flux_options(precision);
    o.micro_batch = SAMPLES;
    o.accumulation = 2;
    o.shape.n_layers = o.shape.flux.n_single = 2;
    return o;
}

/* Random values of every field of `samples` samples; times are between 0 and 1. */
static tm_micro_batch fields_of(const tm_step_options *o, int64_t samples, uint64_t seed)
{
    tm_micro_batch batch = { .target_tokens = samples * o->seq };
    for (int f = 0; f < o->n_fields; f++) {
        int64_t n = samples * tm_shape_elements(o->fields[f].shape);
        float  *x = malloc((size_t)n * sizeof *x);
        assert_non_null(x);
        for (int64_t i = 0; i < n; i++)
            x[i] = strcmp(o->fields[f].name, "time") == 0 ? (float)tm_random_uniform(seed, (uint64_t)f, (uint64_t)i)
                                                          : (float)tm_random_normal(seed, (uint64_t)f, (uint64_t)i);
        batch.field[f] = x;
    }
    return batch;
}

static void release_fields(tm_micro_batch *batch)
{
    for (int f = 0; f < TM_MAX_FIELDS; f++) free((void *)(uintptr_t)batch->field[f]);
}

static outcome train(tm_device *device, const tm_step_options *o, int steps, way how)
{
    tm_trainer *trainer = test_trainer_open(device, o, 7);
    outcome     out = { .evaluation = 0 };
    tm_ledger   ledger = { 0 };
    tm_error    err = { 0 };
    golden_fill(trainer); /* the initial modulations are zeros */
    tm_device_one_by_one(device, how == ONE_BY_ONE);
    for (int t = 1; t <= steps; t++) {
        tm_step_result result;
        tm_micro_batch batch = fields_of(o, o->micro_batch * o->accumulation, (uint64_t)t);
        test_begin(trainer, t, 1e-3, 1, batch.target_tokens);
        if (tm_trainer_step(trainer, &batch, &result, how == WITH_LEDGER ? &ledger : NULL, &err) != TM_OK)
            fail_msg("step %d: %s", t, err.text);
        out.loss[t - 1] = result.loss, out.norm[t - 1] = result.grad_norm;
        release_fields(&batch);
    }
    tm_micro_batch batch = fields_of(o, o->micro_batch, 99);
    if (tm_trainer_evaluate(trainer, &batch, &out.evaluation, &err) != TM_OK) fail_msg("%s", err.text);
    release_fields(&batch);
    out.state = test_state_hash(trainer);
    assert_int_equal(ledger.count > 0, how == WITH_LEDGER);
    tm_trainer_close(trainer);
    return out;
}

static void compare(const outcome *a, const outcome *b, int steps, double bound, const char *what)
{
    for (int t = 0; t < steps; t++)
        if (!(fabs(a->loss[t] - b->loss[t]) <= bound * fmax(1, fabs(b->loss[t])) &&
              fabs(a->norm[t] - b->norm[t]) <= bound * fabs(b->norm[t])))
            fail_msg("%s, step %d: loss %.9g, norm %.9g; on the CPU %.9g, %.9g", what, t + 1, a->loss[t], a->norm[t],
                     b->loss[t], b->norm[t]);
    if (!(fabs(a->evaluation - b->evaluation) <= bound * fabs(b->evaluation)))
        fail_msg("%s: evaluation %.9g, on the CPU %.9g", what, a->evaluation, b->evaluation);
    assert_true(fabs(b->loss[0] - b->loss[steps - 1]) > bound * fabs(b->loss[0])); /* it has learnt */
}

static void trains(const char *name, const tm_precision *precision, bool own)
{
    tm_step_options o = options_of(precision);
    int             steps = test_is_full() ? MOST_STEPS : FEW_STEPS;
    const char     *variable = strcmp(name, "hip") == 0 ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT";
    char            what[120];
    if (!emulated_device(name)) skip();
    if (own) setenv(variable, "none", 1);
    snprintf(what, sizeof what, "%s, %s, %s", name, precision->name, own ? "own products" : "products by the library");
    tm_device *cpu = opened("cpu"), *gpu = opened(name);
    outcome    wanted = train(cpu, &o, steps, BOUND), found = train(gpu, &o, steps, BOUND);
    compare(&found, &wanted, steps, precision == &tm_precision_f32 ? 1e-4 : 1e-2, what);
    outcome first = test_is_full() ? train(gpu, &o, FEW_STEPS, BOUND) : found;
    for (int how = test_is_full() ? BOUND : ONE_BY_ONE; how <= WITH_LEDGER && (test_is_full() || how < 2); how++) {
        outcome again = train(gpu, &o, FEW_STEPS, (way)how);
        if (memcmp(&again, &first, sizeof again) != 0) fail_msg("%s, way %d: other bits", what, how);
    }
    tm_device_close(gpu);
    tm_device_close(cpu);
}

#define TRAINS(maker, format, kernels, is_own)                                                                         \
    static void flux_trains_on_##maker##_in_##format##_by_##kernels(void **state)                                      \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        trains(#maker, &tm_precision_##format, is_own);                                                                \
    }
TRAINS(cuda, f32, library, false)
TRAINS(cuda, f32, own, true)
TRAINS(cuda, bf16, library, false)
TRAINS(cuda, bf16, own, true)
TRAINS(hip, f32, library, false)
TRAINS(hip, f32, own, true)
TRAINS(hip, bf16, library, false)
TRAINS(hip, bf16, own, true)

/* --- encoders ----------------------------------------------------------------------------------------------------- */

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
        tm_device *device = opened(name);
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

static void encoders_on_cuda(void **state)
{
    (void)state;
    encoders_on("cuda");
}

static void encoders_on_hip(void **state)
{
    (void)state;
    encoders_on("hip");
}

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

static void a_picture_is_drawn_on_cuda(void **state)
{
    (void)state;
    draws_on("cuda");
}

static void a_picture_is_drawn_on_hip(void **state)
{
    (void)state;
    draws_on("hip");
}

static const struct CMUnitTest tests[] = { full_test(flux_trains_on_cuda_in_bf16_by_library),
                                           full_test(flux_trains_on_hip_in_f32_by_own),
                                           full_test(flux_trains_on_cuda_in_f32_by_library),
                                           full_test(flux_trains_on_cuda_in_f32_by_own),
                                           full_test(flux_trains_on_cuda_in_bf16_by_own),
                                           full_test(flux_trains_on_hip_in_f32_by_library),
                                           full_test(flux_trains_on_hip_in_bf16_by_library),
                                           full_test(flux_trains_on_hip_in_bf16_by_own),
                                           full_test(encoders_on_cuda),
                                           full_test(encoders_on_hip),
                                           full_test(a_picture_is_drawn_on_cuda),
                                           full_test(a_picture_is_drawn_on_hip) };

TEST_TABLE(tests)
TEST_FIXTURE(NULL, test_folder_teardown)
