/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters on the devices cuda and hip: frozen weights in blocks are decoded to the CPU's values, bit for bit;
 * trainings with LoRA, DoRA, dropout and frozen weights in 4 and 8 bits have the CPU's losses and norms within
 * rounding, and the same bits bound, launched one by one, timed, and a second time. */
#include "base/random.h"
#include "device/backend.h"
#include "gpu/emulated.h"
#include "graph/blocks.h"
#include "graph/value.h"
#include "op/describe.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static tm_device *opened(const char *name)
{
    tm_device *device;
    tm_error   err = { 0 };
    if (tm_device_open(name, 2, &device, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    return device;
}

/* --- weights in blocks ----------------------------------------------------------------------------------------------
 */

/* Of n elements, in which every code, every number of a map and scales of several sizes occur. */
static unsigned char *blocks_of(tm_dtype dtype, int64_t n)
{
    size_t         bytes = tm_blocked_bytes(dtype, n);
    unsigned char *data = malloc(bytes + 1);
    int64_t        step = dtype == TM_NF4_BLOCKS   ? TM_NF4_GROUP_BYTES
                          : dtype == TM_NF4_SCALED ? TM_SCALED_GROUP_BYTES
                                                   : TM_E4M3_GROUP_BYTES;
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)tm_random_u64(1, 2, i);
    for (size_t group = 0, first = 0; first < (size_t)n; first += TM_NF4_GROUP, group++) {
        float *head = (float *)(void *)(data + group * (size_t)step);
        for (int i = 0; i < (dtype == TM_NF4_BLOCKS ? 2 : TM_NF4_GROUP / TM_NF4_BLOCK); i++)
            head[i] = (float)tm_random_normal(3, group, (uint64_t)i);
        for (int i = 0; i < 256 && dtype == TM_NF4_BLOCKS; i++) ((unsigned char *)head)[8 + i] = (unsigned char)(i * 7);
    }
    return data;
}

typedef struct {
    tm_device       *device;
    const tm_kernel *kernel;
    tm_dtype         from, to;
    int64_t          n, shift; /* elements between an address of 256 bytes and the result */
} decoding;

static void *device_bytes(tm_device *device, const void *from, size_t bytes)
{
    tm_address at;
    tm_error   err = { 0 };
    if (tm_device_alloc(device, bytes, &at, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_device_write(device, at, from, bytes, &err), TM_OK);
    return (void *)at.at; // NOLINT(performance-no-int-to-ptr)
}

/* The result, with what stands before and behind it: the caller's to free. */
static char *decoded(const decoding *d, const unsigned char *blocks)
{
    size_t   element = tm_dtype_bytes(d->to), bytes = (size_t)(d->n + 2 * d->shift) * element;
    char    *image = memset(malloc(bytes), 0x77, bytes);
    void    *to = device_bytes(d->device, image, bytes);
    tm_call  call = { .op = &tm_op_cast, .device = d->device, .queue = d->device->queues[TM_ON_COMPUTE] };
    tm_error err = { 0 };
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    call.in[0] = (tm_view){ .shape = tm_shape_1(d->n), .dtype = d->from };
    call.in[0].data = device_bytes(d->device, blocks, tm_blocked_bytes(d->from, d->n));
    call.out[0] = (tm_view){ .shape = tm_shape_1(d->n), .dtype = d->to };
    call.out[0].data = (char *)to + (size_t)d->shift * element;
    assert_null(d->kernel->refuse(&call));
    tm_status st = d->kernel->prepare(d->device, &call, &call.state, &err);
    if (st == TM_OK) st = d->device->backend->prepared(d->device, &err);
    if (st == TM_OK) st = d->kernel->launch(&call, &err);
    if (st == TM_OK) st = tm_device_read(d->device, image, (tm_address){ (uintptr_t)to }, bytes, &err);
    if (st == TM_OK) st = tm_device_wait(d->device, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    d->kernel->release(call.state);
    tm_device_release(d->device, (tm_address){ (uintptr_t)call.in[0].data }, tm_blocked_bytes(d->from, d->n));
    tm_device_release(d->device, (tm_address){ (uintptr_t)to }, bytes);
    return image;
}

static bool is_nan_of(const char *bytes, tm_dtype dtype)
{
    return isnan(tm_value_get(bytes, dtype, 0));
}

static void check_decoding(const decoding *d)
{
    unsigned char *blocks = blocks_of(d->from, d->n);
    char          *image = decoded(d, blocks), wanted[4];
    size_t         element = tm_dtype_bytes(d->to);
    for (int64_t i = -d->shift; i < d->n + d->shift; i++) {
        const char *found = image + (size_t)(i + d->shift) * element;
        memset(wanted, 0x77, sizeof wanted);
        if (i >= 0 && i < d->n) tm_value_set(wanted, d->to, 0, (double)tm_blocked_value(d->from, blocks, i));
        if (memcmp(found, wanted, element) == 0) continue;
        if (i >= 0 && i < d->n && is_nan_of(found, d->to) && is_nan_of(wanted, d->to)) continue;
        fail_msg("%s of %lld elements to %s: %.9g at %lld, wanted %.9g", tm_dtype_name(d->from), (long long)d->n,
                 tm_dtype_name(d->to), tm_value_get(found, d->to, 0), (long long)i, tm_value_get(wanted, d->to, 0));
    }
    free(blocks);
    free(image);
}

static void blocks_are_decoded_on(const char *name)
{
    static const tm_dtype formats[] = { TM_NF4_BLOCKS, TM_NF4_SCALED, TM_E4M3_BLOCKS }, to[] = { TM_F32, TM_BF16 };
    static const int64_t  lengths[] = { 1, 7, 8, 63, 64, 65, 1001, 16384, 16385, 40003 };
    if (!emulated_device(name)) skip();
    setenv("STANDIN_GPU_UNITS", "1", 1); /* threads go on to further elements */
    tm_device *device = opened(name);
    for (int f = 0; f < 3; f++)
        for (int t = 0; t < 2; t++) {
            tm_call call = { .op = &tm_op_cast, .device = device };
            call.in[0] = (tm_view){ .shape = tm_shape_1(8), .dtype = formats[f] };
            call.out[0] = (tm_view){ .shape = tm_shape_1(8), .dtype = to[t] };
            decoding d = { device, device->backend->choose(device, &call, NULL), formats[f], to[t], 0, 0 };
            assert_non_null(d.kernel);
            for (int k = 0; k < TM_COUNT_OF(lengths); k++) {
                d.n = lengths[k], d.shift = k % 3 == 1 ? 3 : 0; /* also where it cannot be stored 16 bytes at a time */
                if (test_is_full() || d.n < 2000 || (f == 2 * t && d.n == 16385)) check_decoding(&d);
            }
        }
    tm_device_close(device);
    unsetenv("STANDIN_GPU_UNITS");
}

FULL_TEST(blocks_are_decoded_on_cuda)
{
    blocks_are_decoded_on("cuda");
}

FULL_TEST(blocks_are_decoded_on_hip)
{
    blocks_are_decoded_on("hip");
}

/* --- trainings ------------------------------------------------------------------------------------------------------
 */

enum { MOST_STEPS = 20, FEW_STEPS = 3 }; /* the third is timed as a whole */

typedef enum { BOUND, ONE_BY_ONE, WITH_LEDGER } way;

typedef struct {
    double   loss[MOST_STEPS], norm[MOST_STEPS], evaluation;
    uint64_t state;
} outcome;

typedef struct {
    const char         *what;
    bool                gpt;
    const tm_precision *precision;
    int64_t             rank;
    double              alpha, dropout;
    bool                dora;
    tm_dtype            base;
    const char         *targets;
    const char         *quick; /* device of the quick suite, and whether by own kernels: "cuda own"; NULL: neither */
} recipe;

static const recipe recipes[] = {
    { "LoRA", false, &tm_precision_f32, 4, 6, 0, false, TM_DTYPE_COUNT, "all-linear", "cuda" },
    { "LoRA", false, &tm_precision_bf16, 8, 16, 0, false, TM_DTYPE_COUNT, "all-linear", "hip own" },
    { "LoRA of two modules", false, &tm_precision_bf16, 3, 4, 0.2, false, TM_DTYPE_COUNT, "wq,wv", NULL },
    { "DoRA", true, &tm_precision_f32, 4, 6, 0.1, true, TM_DTYPE_COUNT, "all-linear", "hip" },
    { "DoRA of nf4", false, &tm_precision_bf16, 4, 8, 0, true, TM_NF4_BLOCKS, "all-linear", "cuda own" },
    { "QLoRA of nf4", true, &tm_precision_f32, 4, 6, 0.1, false, TM_NF4_BLOCKS, "all-linear", NULL },
    { "QLoRA of nf4", false, &tm_precision_bf16, 8, 16, 0.1, false, TM_NF4_BLOCKS, "all-linear", NULL },
    { "QLoRA of e4m3", false, &tm_precision_bf16, 8, 8, 0.1, false, TM_E4M3_BLOCKS, "all-linear", NULL },
    { "QLoRA of e4m3", false, &tm_precision_f32, 5, 7, 0, false, TM_E4M3_BLOCKS, "all-linear", NULL },
    { "output layer", false, &tm_precision_f32, 4, 6, 0.1, false, TM_DTYPE_COUNT, "wo,lm_head", "cuda own" },
    { "output layer", false, &tm_precision_bf16, 4, 8, 0, false, TM_NF4_BLOCKS, "wo,lm_head", NULL },
    { "bfloat16 weights", false, &tm_precision_f32, 4, 6, 0, false, TM_BF16, "all-linear", NULL },
};

static tm_step_options options_of(const recipe *r)
{
    tm_step_options o = r->gpt ? test_gpt_options() : test_llama_options();
    o.shape.n_layers = 1, o.shape.dim = 32, o.shape.head_dim = 16, o.shape.ffn_dim = 80;
    o.accumulation = 2;
    o.seq = 16;
    o.precision = r->precision;
    o.adapters = (tm_adapters){ .rank = r->rank, .alpha = r->alpha, .dropout = r->dropout, .base = r->base };
    o.adapters.dora = r->dora, o.adapters.place = "test", o.adapters.seed = 11;
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "%s", r->targets);
    return o;
}

/* b begins as zeros: here it does something from the first step on. */
static void fill_adapters(tm_trainer *trainer)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++)
        for (const tm_adapter *one = graph->tensors[i].adapter; one && one->b != TM_NONE; one = one->next) {
            int64_t n = tm_shape_elements(tm_graph_at(graph, one->b)->shape);
            double *values = test_values_read(trainer, one->b);
            for (int64_t k = 0; k < n; k++) values[k] = 0.1 * tm_random_normal(5, (uint64_t)one->b, (uint64_t)k);
            test_values_write(trainer, one->b, values);
            free(values);
        }
}

static outcome train(tm_device *device, const tm_step_options *o, int steps, way how)
{
    tm_trainer *trainer = test_trainer_open(device, o, 7);
    outcome     out = { .evaluation = 0 };
    tm_ledger   ledger = { 0 };
    fill_adapters(trainer);
    tm_device_one_by_one(device, how == ONE_BY_ONE);
    for (int t = 1; t <= steps; t++) {
        test_batch batch =
            test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, (uint64_t)t);
        tm_step_result result;
        tm_error       err = { 0 };
        tm_micro_batch fields = { .field = { batch.tokens, batch.targets } };
        test_begin(trainer, t, 1e-3, 1, o->micro_batch * o->accumulation * o->seq);
        if (tm_trainer_step(trainer, &fields, &result, how == WITH_LEDGER ? &ledger : NULL, &err) != TM_OK)
            fail_msg("step %d: %s", t, err.text);
        out.loss[t - 1] = result.loss, out.norm[t - 1] = result.grad_norm;
        test_batch_fini(&batch);
    }
    test_batch batch = test_batch_random(o->micro_batch, o->seq, o->shape.vocab_size, 99);
    out.evaluation = test_evaluate(trainer, batch.tokens, batch.targets);
    test_batch_fini(&batch);
    out.state = test_state_hash(trainer);
    tm_trainer_close(trainer);
    return out;
}

static void compare(const outcome *a, const outcome *b, int steps, double bound, const char *what)
{
    for (int t = 0; t < steps; t++)
        if (!(fabs(a->loss[t] - b->loss[t]) <= bound && fabs(a->norm[t] - b->norm[t]) <= bound * fabs(b->norm[t])))
            fail_msg("%s, step %d: loss %.9g, norm %.9g; on the CPU %.9g, %.9g", what, t + 1, a->loss[t], a->norm[t],
                     b->loss[t], b->norm[t]);
    if (!(fabs(a->evaluation - b->evaluation) <= bound * fabs(b->evaluation)))
        fail_msg("%s: evaluation %.9g, on the CPU %.9g", what, a->evaluation, b->evaluation);
}

/* ways: also whether all of them leave the same bits. */
static void train_on(tm_device *cpu, tm_device *gpu, const recipe *r, bool ways, const char *how)
{
    tm_step_options o = options_of(r);
    int             steps = test_is_full() ? MOST_STEPS : FEW_STEPS;
    char            what[100];
    snprintf(what, sizeof what, "%s, %s, on %s", r->what, r->precision->name, how);
    outcome wanted = train(cpu, &o, steps, BOUND), found = train(gpu, &o, steps, BOUND);
    compare(&found, &wanted, steps, r->precision == &tm_precision_f32 ? 1e-4 : 1e-2, what);
    if (!ways) return;
    outcome first = test_is_full() ? train(gpu, &o, FEW_STEPS, BOUND) : found;
    for (int k = BOUND; k <= WITH_LEDGER; k++) {
        outcome again = train(gpu, &o, FEW_STEPS, (way)k);
        if (memcmp(&again, &first, sizeof again) != 0) fail_msg("%s, way %d: other bits", what, k);
    }
}

/* Products by the maker's library, and by own kernels. */
static void adapters_train_on(const char *name)
{
    const char *variable = strcmp(name, "hip") == 0 ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT";
    int         trained = 0;
    if (!emulated_device(name)) skip();
    tm_device *cpu = opened("cpu");
    for (int own = 0; own < 2; own++) {
        char how[16];
        snprintf(how, sizeof how, "%s%s", name, own ? " own" : "");
        if (own) setenv(variable, "none", 1);
        tm_device *gpu = opened(name);
        for (int k = 0; k < TM_COUNT_OF(recipes); k++) {
            if (!test_is_full() && !(recipes[k].quick && strcmp(recipes[k].quick, how) == 0)) continue;
            train_on(cpu, gpu, &recipes[k], !test_is_full() || (k + own) % 2 == 0, how);
            trained++;
        }
        tm_device_close(gpu);
    }
    assert_true(trained >= 2);
    tm_device_close(cpu);
}

FULL_TEST(adapters_train_on_cuda)
{
    adapters_train_on("cuda");
}

FULL_TEST(adapters_train_on_hip)
{
    adapters_train_on("hip");
}
