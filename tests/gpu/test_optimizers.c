/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers on the devices cuda and hip, as machine code: what takes each
 * element by itself leaves the very bits of a CPU, also where it rounds by
 * chance; whole trainings by each of them have the CPU's losses, bound or not.
 */
#include "device/backend.h"
#include "gpu/called.h"
#include "gpu/emulated.h"
#include "gpu/trained.h"
#include "graph/value.h"
#include "op/attrs.h"
#include "op/dynamic.h"
#include "support/execute.h"
#include "support/training.h"

#include "support/test.h"

enum { SEED = 5, MOST_VALUES = 20000, QUICK_VALUES = 2000 };

/* --- one update
 * -----------------------------------------------------------------------------------------------------
 */

/* What an update is told of rounding and of the place in its tensor; SIZE_MAX:
 * it has none. */
static const struct {
    const tm_op *op;
    size_t       rounding, first;
} updates[] = {
    { &tm_op_adamw, offsetof(tm_adamw_attr, rounding), offsetof(tm_adamw_attr, first) },
    { &tm_op_sgd, offsetof(tm_sgd_attr, rounding), offsetof(tm_sgd_attr, first) },
    { &tm_op_adamw8, offsetof(tm_adamw8_attr, rounding), SIZE_MAX },
    { &tm_op_ema, SIZE_MAX, SIZE_MAX },
};

/* The inputs' values in the formats of the call. */
static void *image_of(const tm_view *view, const tm_view *from)
{
    void *image = calloc(1, tm_tensor_bytes(view->shape, view->dtype) + 8);
    for (int64_t e = 0, n = tm_shape_elements(view->shape); e < n; e++)
        tm_value_set(image, view->dtype, e, tm_value_get(from->data, from->dtype, e));
    return image;
}

/* A call of the example in this precision on both; values: what it works on, in
 * float64. */
static void same_bits(tm_device *cpu, tm_device *gpu, const tm_call *values, const tm_example *example,
                      const tm_precision *precision, int skew, const char *what)
{
    char   *wanted[TM_MAX_OUT], *found[TM_MAX_OUT], *image[TM_MAX_IN + TM_MAX_OUT] = { NULL };
    tm_call call = tm_example_call(values->op, example, precision);
    call.attr = example->attr;
    for (int k = 0; k < TM_MAX_IN; k++)
        if (tm_view_present(&call.in[k])) image[k] = image_of(&call.in[k], &values->in[k]);
    call_on(cpu, &call, image, 0, wanted);
    call_on(gpu, &call, image, skew, found);
    for (int k = 0; k < TM_MAX_IN; k++) free(image[k]);
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (!wanted[k]) continue;
        size_t bytes = tm_tensor_bytes(call.out[k].shape, call.out[k].dtype);
        for (size_t b = 0; b < bytes; b++)
            if (wanted[k][b] != found[k][b])
                fail_msg("%s on %s, %s, %s: byte %zu of output %d is %02x, a CPU's %02x", values->op->name,
                         gpu->info.name, precision->name, what, b, k, found[k][b] & 255, wanted[k][b] & 255);
        free(wanted[k]), free(found[k]);
    }
}

/* Moments that lie where one code ends and the next begins: of the first by
 * beta1 0 and a gradient that is the bound. */
static void codes_are_right_at_their_bounds(tm_device *cpu, tm_device *gpu)
{
    for (int definition = 0; definition < 2; definition++) {
        tm_example      example;
        tm_call         values;
        tm_adamw8_attr *attr = (void *)example.attr;
        float           map[TM_DYNAMIC_CODES], least[TM_DYNAMIC_CODES - 1];
        assert_true(tm_op_adamw8.example(1, &example) && tm_shape_elements(example.in[0]) == TM_DYNAMIC_CODES);
        attr->definition = definition;
        attr->beta1 = 0;
        tm_call_make(&values, &tm_op_adamw8, &example, SEED);
        tm_dynamic_map(true, map);
        tm_dynamic_bounds(map, definition == TM_ADAMW8_TORCHAO, least);
        for (int i = 0; i < TM_DYNAMIC_CODES; i++) {
            ((double *)values.in[1].data)[i] = i + 1 < TM_DYNAMIC_CODES ? (double)least[i] : 1;
            tm_value_set(values.in[2].data, values.in[2].dtype, i, TM_DYNAMIC_CODES / 2 - 1); /* 0 */
        }
        ((double *)values.in[7].data)[1] = 1;
        same_bits(cpu, gpu, &values, &example, &tm_precision_f32, 0, "at the bounds of codes");
        tm_call_free(&values);
    }
}

/* how: 0 to the nearest, 1 by chance, 2 by chance in a part that begins just
 * below 2^32. */
static void try_update(tm_device *cpu, tm_device *gpu, int u, int number, int how)
{
    static const tm_precision        moments = { "bfloat16-moments", TM_F32, TM_BF16, TM_F32, TM_BF16, TM_F32 };
    static const tm_precision *const precisions[] = { &tm_precision_bf16, &tm_precision_bf16_pure, &moments };
    const tm_op                     *op = updates[u].op;
    tm_example                       example;
    const int64_t                    stream = 0x7edcba9876543210, first = ((int64_t)1 << 32) - 5;
    if (!op->example(number, &example)) return;
    if (tm_shape_elements(example.in[0]) > (test_is_full() ? MOST_VALUES : QUICK_VALUES)) return;
    if (how > 0) memcpy(example.attr + updates[u].rounding, &stream, sizeof stream);
    if (how > 1) memcpy(example.attr + updates[u].first, &first, sizeof first);
    if (how > 0 && op->copy > 0) example.out[op->copy].rank = -1; /* a cast makes it */
    tm_call values;
    tm_call_make(&values, op, &example, SEED);
    /* a key beyond 32 bits; other scalars are near 0.5 */
    for (int k = 0; k < op->n_in; k++)
        if (example.role[k] == TM_ROLE_SCALAR && tm_shape_elements(example.in[k]) == TM_SCALAR_COUNT)
            ((double *)values.in[k].data)[TM_SCALAR_ROUNDING] = 4503599627370497.0;
    for (int p = 0; p < (op == &tm_op_adamw ? 3 : 2); p++) {
        char what[60];
        snprintf(what, sizeof what, "example %d, rounding %d", number, how);
        same_bits(cpu, gpu, &values, &example, precisions[p], number % 2 ? 0 : 2 + number, what);
        if (op == &tm_op_adamw && number == 4) same_bits(cpu, gpu, &values, &example, precisions[p], 0, what);
    }
    tm_call_free(&values);
}

static void updates_have_the_bits_of_a_cpu(const char *name)
{
    if (!emulated_device(name)) skip();
    tm_device *cpu = emulated_open("cpu"), *gpu = emulated_open(name);
    codes_are_right_at_their_bounds(cpu, gpu);
    for (int u = 0; u < (int)(sizeof updates / sizeof updates[0]); u++)
        for (int how = 0; how < 3; how++) {
            if ((how > 0 && updates[u].rounding == SIZE_MAX) || (how > 1 && updates[u].first == SIZE_MAX)) continue;
            for (int number = 0; number < (test_is_full() ? 12 : 5); number++) try_update(cpu, gpu, u, number, how);
        }
    tm_device_close(gpu);
    tm_device_close(cpu);
}

ON_BOTH(FULL_TEST, updates_have_the_bits_of_a_cpu, updates_have_the_bits_of_a_cpu(on))

/* --- trainings
 * ------------------------------------------------------------------------------------------------------
 */

typedef struct {
    const char         *what;
    const tm_precision *precisions[2];
    const tm_optimizer *optimizer;
    tm_hyper            hyper;
} training;

#define ADAM .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1
#define BOTH                                                                                                           \
    {                                                                                                                  \
        &tm_precision_f32, &tm_precision_bf16                                                                          \
    }
#define PURE                                                                                                           \
    {                                                                                                                  \
        &tm_precision_bf16_pure, NULL                                                                                  \
    }
static const training trainings[] = {
    { "SGD", BOTH, &tm_optimizer_sgd, { .momentum = 0.9, .nesterov = true } },
    { "Adafactor",
      BOTH,
      &tm_optimizer_adafactor,
      { .beta2_decay = -0.8, .eps1 = NAN, .eps2 = 1e-3, .clip_threshold = 1 } },
    { "AdamW8bit", BOTH, &tm_optimizer_adamw8bit, { ADAM, .definition = TM_DEFINED_TORCHAO } },
    { "Muon",
      BOTH,
      &tm_optimizer_muon,
      { ADAM, .momentum = 0.95, .nesterov = true, .definition = TM_DEFINED_TORCH, .scale = TM_MUON_ORIGINAL } },
    { "averages", { &tm_precision_f32, NULL }, &tm_optimizer_adamw, { ADAM, .ema_decay = 0.9 } },
    { "AdamW by chance", PURE, &tm_optimizer_adamw, { ADAM, .stochastic = true } },
    { "AdamW8bit by chance",
      PURE,
      &tm_optimizer_adamw8bit,
      { ADAM, .definition = TM_DEFINED_BITSANDBYTES, .stochastic = true } },
    { "Muon by chance",
      PURE,
      &tm_optimizer_muon,
      { ADAM, .momentum = 0.95, .definition = TM_DEFINED_MEGATRON, .scale = TM_MUON_SPECTRAL, .stochastic = true } },
    { "Kahan", PURE, &tm_optimizer_adamw, { ADAM, .kahan = true } },
    { "moments in bfloat16", { &tm_precision_bf16, NULL }, &tm_optimizer_adamw, { ADAM, .bf16_moments = true } },
};

static void compare(tm_device *cpu, tm_device *gpu, const training *of, const tm_precision *precision)
{
    enum { STEPS = 5 };
    tm_step_options o = test_llama_options();
    char            what[120];
    o.shape.n_layers = 1;
    o.shape.dim = 32, o.shape.head_dim = 16, o.shape.ffn_dim = 80, o.seq = 16;
    o.precision = precision;
    o.optimizer = of->optimizer;
    o.hyper = of->hyper;
    snprintf(what, sizeof what, "%s on %s, %s", of->what, gpu->info.name, precision->name);
    trained wanted = train(cpu, &o, STEPS, BOUND), found = train(gpu, &o, STEPS, BOUND),
            again = train(gpu, &o, STEPS, ONE_BY_ONE);
    compare_trained(&found, &wanted, &o, STEPS, what);
    if (memcmp(&again, &found, sizeof found) != 0) fail_msg("%s: one by one, other bits", what);
}

/* Products by the maker's library; those of Muon by own kernels, too. */
static void trains_as_a_cpu(const char *name)
{
    if (!emulated_device(name)) skip();
    tm_device *cpu = emulated_open("cpu"), *gpu = emulated_open(name);
    for (size_t i = 0; i < sizeof trainings / sizeof trainings[0]; i++)
        for (int p = 0; p < 2 && trainings[i].precisions[p]; p++)
            for (int own = 0; own < (trainings[i].optimizer == &tm_optimizer_muon ? 2 : 1); own++) {
                tm_device_own_kernels(gpu, own);
                compare(cpu, gpu, &trainings[i], trainings[i].precisions[p]);
            }
    tm_device_close(gpu);
    tm_device_close(cpu);
}

ON_BOTH(FULL_TEST, optimizers_train_as_on_a_cpu, trains_as_a_cpu(on))
