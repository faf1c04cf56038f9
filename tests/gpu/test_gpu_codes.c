/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings whose products multiply codes, over stand-ins for the libraries: beside the same training with
 * values in the place of codes, on the same GPU and on the CPU; which products are codes, and why others are not. */
#include "device/backend.h"
#include "gpu/emulated.h"
#include "op/describe.h"
#include "op/quantize.h"
#include "support/training.h"

#include "support/test.h"

enum { STEPS = 3 };
/* FNUZ: formats of gfx942. WIDE: sizes are multiples of 128. OWN: without the library. AGAIN: the forward pass of each
 * block is computed again. */
enum { BF16 = 1, FNUZ = 2, WIDE = 4, OWN = 8, AGAIN = 16 };

typedef struct {
    const char     *device, *arch, *recipe;
    tm_model_family family;
    unsigned        how;
    int             products; /* of codes */
    const char     *words;    /* what is said of them; NULL: anything */
} job;

typedef struct {
    double   loss[STEPS], norm[STEPS];
    float   *record; /* after the first step */
    size_t   rows;
    uint64_t state;
    int      products, emulated;
    int      both, made; /* factors that one op gives both codes of; nodes whose factor is nowhere in memory */
    char     words[400];
} outcome;

static tm_step_options options_of(const job *j)
{
    tm_step_options o = test_family_options(j->family);
    o.shape.n_layers = 1;
    if (j->family != TM_FAMILY_GPT) o.shape.ffn_dim = 96;
    o.accumulation = 2;
    if (j->how & WIDE) {
        o.shape.dim = o.shape.ffn_dim = 128, o.shape.n_heads = 4, o.shape.n_kv_heads = 2;
        o.seq = 64;
    }
    if (j->family == TM_FAMILY_MIXTRAL)
        o.shape.moe.experts = 5, o.shape.moe.top_k = 2, o.shape.moe.ffn_dim = j->how & WIDE ? 128 : 48;
    if (j->how & BF16) o.precision = &tm_precision_bf16;
    if (j->how & AGAIN) o.recompute.every_n = 1;
    o.quantize = (tm_quantize){ .on = true, .switch_step = -1, .history = 4, .seed = 1 };
    o.quantize.recipe[0] = *tm_quantize_recipe_find(j->recipe);
    for (int f = 0; f < TM_FACTORS && j->how & FNUZ; f++) {
        uint8_t *format = &o.quantize.recipe[0].factor[f].format;
        *format = *format == TM_E5M2 ? TM_E5M2FNUZ : TM_E4M3FNUZ;
    }
    if (j->family == TM_FAMILY_MIXTRAL) o.quantize.experts = o.quantize.recipe[0];
    return o;
}

/* Values in the place of codes: a switch to the same recipe, which never comes. */
static void keep_values(tm_step_options *o)
{
    o->quantize.switch_step = 1000;
    o->quantize.recipe[1] = o->quantize.recipe[0];
}

static void count_nodes(const tm_plan *plan, outcome *out)
{
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t x = 0; x < plan->programs[p].count; x++) {
            const tm_node *node = plan->programs[p].instructions[x].node;
            bool           made = node->op == TM_OP_quantize_made;
            out->made += made;
            out->both += node->op == TM_OP_quantize_both || (made && node->out[TM_QUANTIZE_TURNED] != TM_NONE);
        }
}

/* apart: no program is a graph that is played, and each product's factors are quantized for it alone. */
static outcome train(const char *name, const job *j, bool values, bool apart)
{
    tm_device      *device = emulated_open(name);
    tm_step_options o = options_of(j);
    outcome         out = { .record = NULL };
    tm_text         words = { 0 };
    tm_device_own_kernels(device, j->how & OWN);
    if (values) keep_values(&o);
    if (apart && j->family != TM_FAMILY_GPT)
        device->info.fuses = false; /* else gelu's gradients add in another order */
    tm_trainer *trainer = test_trainer_open(device, &o, 7);
    tm_device_one_by_one(device, apart);
    for (int t = 1; t <= STEPS; t++) {
        test_batch batch = test_batch_random(o.micro_batch * o.accumulation, o.seq, o.shape.vocab_size, (uint64_t)t);
        tm_step_result result = test_step(trainer, t, 1e-3, 1, &batch);
        out.loss[t - 1] = result.loss, out.norm[t - 1] = result.grad_norm;
        test_batch_fini(&batch);
        if (t > 1) continue;
        const tm_quantized *made = &tm_trainer_step_of(trainer)->quantized;
        out.record = test_tensor_read(trainer, made->record);
        out.rows = made->n_rows;
    }
    out.state = test_state_hash(trainer);
    out.products = tm_trainer_step_of(trainer)->codes.products;
    out.emulated = tm_trainer_step_of(trainer)->codes.emulated;
    count_nodes(tm_trainer_step_of(trainer)->plan, &out);
    tm_step_codes(tm_trainer_step_of(trainer), &words);
    snprintf(out.words, sizeof out.words, "%s", words.data ? words.data : "");
    tm_text_fini(&words);
    tm_trainer_close(trainer);
    tm_device_close(device);
    return out;
}

/* Weights are the same in the first step: amax, scale and the shares of their codes are, bit for bit. */
static void compare_weights(const job *j, const outcome *a, const outcome *b, const char *what)
{
    tm_step_options     o = options_of(j);
    tm_device          *cpu = emulated_open("cpu");
    int                 same = 0;
    tm_trainer         *trainer = test_trainer_open(cpu, &o, 7);
    const tm_quantized *made = &tm_trainer_step_of(trainer)->quantized;
    assert_int_equal(a->rows, b->rows);
    for (size_t r = 0; r < a->rows; r++) {
        if (made->rows[r].factor != TM_FACTOR_W && made->rows[r].factor != TM_FACTOR_W_DX) continue;
        if (memcmp(a->record + 4 * r, b->record + 4 * r, 4 * sizeof(float)) != 0)
            fail_msg("%s: other codes of %s", what, made->rows[r].name);
        same++;
    }
    assert_true(same > 0);
    tm_trainer_close(trainer);
    tm_device_close(cpu);
}

/* With biases that are not 0. Returns the trainer's device. */
static tm_device *with_gradients(const char *name, const job *j, bool values, tm_trainer **trainer)
{
    tm_device      *device = emulated_open(name);
    tm_step_options o = options_of(j);
    test_batch      batch = test_batch_random(o.micro_batch * o.accumulation, o.seq, o.shape.vocab_size, 3);
    tm_device_own_kernels(device, j->how & OWN);
    if (values) keep_values(&o);
    *trainer = test_trainer_open(device, &o, 7);
    const tm_graph *graph = tm_trainer_step_of(*trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        size_t           n = strlen(tensor->name);
        if (tensor->role != TM_ROLE_PARAMETER || n < 5 || strcmp(tensor->name + n - 5, ".bias") != 0) continue;
        double *bias = test_values_read(*trainer, (tm_tensor_id)i);
        for (int64_t k = 0; k < tm_shape_elements(tensor->shape); k++) bias[k] = (double)(k * 7 % 11) / 4 - 1.25;
        test_values_write(*trainer, (tm_tensor_id)i, bias);
        free(bias);
    }
    test_gradients(*trainer, &batch);
    test_batch_fini(&batch);
    return device;
}

/* Of every weight, beside those of values in the place of codes (on the GPU, or on the CPU). */
static void gradients_are_alike(const job *j, bool on_cpu)
{
    tm_trainer *codes, *values;
    setenv("STANDIN_GPU_ARCH", j->arch, 1);
    tm_device      *first = with_gradients(j->device, j, false, &codes);
    tm_device      *second = with_gradients(on_cpu ? "cpu" : j->device, j, !on_cpu, &values);
    const tm_graph *a = tm_trainer_step_of(codes)->graph, *b = tm_trainer_step_of(values)->graph;
    int             compared = 0;
    assert_true(tm_trainer_step_of(codes)->codes.products > 0);
    for (size_t i = 0; i < a->n_tensors; i++) {
        tm_tensor_id g = a->tensors[i].gradient, h = TM_NONE;
        for (size_t k = 0; k < b->n_tensors && g != TM_NONE; k++)
            if (b->tensors[k].gradient != TM_NONE && strcmp(b->tensors[k].name, a->tensors[i].name) == 0)
                h = b->tensors[k].gradient;
        if (g == TM_NONE) continue;
        double off = test_relative_difference(codes, values, g, h);
        if (!(off <= (j->how & BF16 ? 0.1 : 0.03)))
            fail_msg("%s on %s: the gradient of %s is off by %g", j->recipe, j->arch, a->tensors[i].name, off);
        compared++;
    }
    assert_true(compared > 5);
    tm_trainer_close(codes), tm_trainer_close(values);
    tm_device_close(first), tm_device_close(second);
    unsetenv("STANDIN_GPU_ARCH");
}

FULL_TEST(gradients_of_codes_are_those_of_values)
{
    static const job jobs[] = { { "cuda", "sm_90", "fp8_tensorwise", TM_FAMILY_LLAMA, .how = 0 },
                                { "cuda", "sm_90", "fp8_rowwise", TM_FAMILY_LLAMA, .how = 0 },
                                { "hip", "gfx950", "fp8_tensorwise", TM_FAMILY_QWEN2,
                                  .how = BF16 }, /* biases of parts */
                                { "hip", "gfx950", "mxfp8_turbo", TM_FAMILY_LLAMA, .how = BF16 | WIDE },
                                { "hip", "gfx950", "mxfp4", TM_FAMILY_LLAMA, .how = BF16 | WIDE } };
    for (int k = 0; k < TM_COUNT_OF(jobs); k++)
        if (emulated_device(jobs[k].device)) gradients_are_alike(&jobs[k], k == 2);
}

/* In both programs of a step: of 4 linears all gradients, and where blocks are computed again, x and w of those that
 * are. Codes of 4 bits are made for each product. What an activation function makes is made on the way for the product
 * of each pass, and the gradient of a gate; that of gelu is added up for a bias, too. */
static void compare_both(const job *j, const outcome *together, const outcome *apart, const char *what)
{
    bool narrow = strncmp(j->recipe, "mxfp4", 5) == 0 || !j->products;
    int  wanted = narrow ? 0 : 2 * (j->how & AGAIN ? 4 + 2 * 3 : 4);
    if (together->both != wanted || (j->family != TM_FAMILY_GPT && apart->both != 0))
        fail_msg("%s: %d factors by one op, wanted %d; apart %d", what, together->both, wanted, apart->both);
    bool kept = narrow || j->family == TM_FAMILY_MIXTRAL;
    int  made = kept ? 0 : 2 * (j->family == TM_FAMILY_GPT ? 2 : 3);
    if (together->made != made || (j->family != TM_FAMILY_GPT && apart->made != 0))
        fail_msg("%s: %d factors that are made on the way, wanted %d; apart %d", what, together->made, made,
                 apart->made);
}

static void trains_on_codes(const job *j)
{
    char what[120];
    snprintf(what, sizeof what, "%s on %s %s%s", j->recipe, j->device, j->arch, j->how & BF16 ? ", bfloat16" : "");
    setenv("STANDIN_GPU_ARCH", j->arch, 1);
    outcome codes = train(j->device, j, false, false), again = train(j->device, j, false, true),
            values = train(j->device, j, true, false), cpu = train("cpu", j, false, false);
    if (codes.products != j->products || (j->words && strcmp(codes.words, j->words) != 0))
        fail_msg("%s: %d products of codes, %d emulated: %s", what, codes.products, codes.emulated, codes.words);
    assert_int_equal(values.products, 0);
    assert_int_equal(cpu.products + cpu.emulated, 0);
    assert_string_equal(cpu.words, "");
    if (codes.state != again.state || memcmp(codes.loss, again.loss, sizeof codes.loss) != 0)
        fail_msg("%s: other bits, launched one by one, with quantize for each product", what);
    if (memcmp(codes.record, again.record, 4 * codes.rows * sizeof *codes.record) != 0)
        fail_msg("%s: other records, with quantize for each product", what);
    compare_both(j, &codes, &again, what);
    if (!j->how & BF16 && !(fabs(codes.loss[0] - values.loss[0]) <= 1e-5))
        fail_msg("%s: the first loss is %.9g, of values %.9g", what, codes.loss[0], values.loss[0]);
    for (int t = 0; t < STEPS; t++) {
        double other[] = { values.loss[t], cpu.loss[t] };
        for (int k = 0; k < 2; k++)
            if (!(fabs(codes.loss[t] - other[k]) <= (j->how & BF16 ? 1e-2 : 1e-3)))
                fail_msg("%s, step %d: loss %.9g, %s %.9g", what, t + 1, codes.loss[t], k ? "on the CPU" : "of values",
                         other[k]);
        if (!(fabs(codes.norm[t] - values.norm[t]) <= (j->how & BF16 ? 2e-2 : 5e-3) * values.norm[t]))
            fail_msg("%s, step %d: norm %.9g, of values %.9g", what, t + 1, codes.norm[t], values.norm[t]);
    }
    compare_weights(j, &codes, &values, what);
    compare_weights(j, &codes, &cpu, what);
    free(codes.record), free(again.record), free(values.record), free(cpu.record);
    unsetenv("STANDIN_GPU_ARCH");
}

#define ALL "12 of 12 products multiply codes"
#define BY_OWN ALL ", 12 by own kernels; not by the library: own kernels are asked for (12)"

/* Fused weights have parts with scales of their own; a residual is added; blocks end within parts, as sizes are small;
 * biases of GPTs are those of parts; experts have scales of their own, of rows that are found on the GPU. */
static const job trainings[] = {
    { "cuda", "sm_90", "fp8_tensorwise", TM_FAMILY_LLAMA, 0, 12, ALL },
    { "cuda", "sm_89", "fp8_current", TM_FAMILY_LLAMA, BF16, .products = 12 },
    { "cuda", "sm_90", "fp8_blockwise", TM_FAMILY_LLAMA, 0, 12, ALL },
    { "cuda", "sm_90", "fp8_blockwise_turbo", TM_FAMILY_LLAMA, BF16, .products = 12 },
    { "cuda", "sm_90", "fp8_blockwise", TM_FAMILY_GPT, BF16 | WIDE, .products = 12 },
    { "cuda", "sm_100", "mxfp8", TM_FAMILY_LLAMA, BF16, .products = 12 },
    { "cuda", "sm_100", "mxfp8_turbo", TM_FAMILY_QWEN2, BF16 | WIDE, .products = 12 },
    { "cuda", "sm_90", "fp8_rowwise", TM_FAMILY_GPT, BF16, .products = 12 },
    { "cuda", "sm_89", "fp8_tensorwise", TM_FAMILY_LLAMA, OWN, 12, BY_OWN },
    { "cuda", "sm_90", "fp8_delayed", TM_FAMILY_GPT, OWN, .products = 12 },
    { "cuda", "sm_90", "fp8_tensorwise", TM_FAMILY_MIXTRAL, 0, .products = 12 },
    { "cuda", "sm_90", "fp8_delayed", TM_FAMILY_MIXTRAL, OWN, .products = 12 },
    { "cuda", "sm_90", "nvfp4", TM_FAMILY_LLAMA, BF16, .products = 0 }, /* of two levels, rotated, at random: values */
    { "hip", "gfx942", "fp8_delayed", TM_FAMILY_LLAMA, FNUZ | AGAIN, .products = 15 },
    { "hip", "gfx950", "fp8_rowwise", TM_FAMILY_LLAMA, BF16, .products = 12 },
    { "hip", "gfx950", "mxfp8", TM_FAMILY_LLAMA, WIDE, .products = 12 },
    { "hip", "gfx950", "mxfp8_turbo", TM_FAMILY_LLAMA, BF16 | WIDE, .products = 12 },
    { "hip", "gfx950", "mxfp4", TM_FAMILY_LLAMA, WIDE, .products = 12 },
    { "hip", "gfx950", "mxfp4_turbo", TM_FAMILY_LLAMA, BF16 | WIDE, .products = 12 },
    { "hip", "gfx942", "fp8_rowwise", TM_FAMILY_LLAMA, BF16 | FNUZ | OWN, 12, BY_OWN },
    { "hip", "gfx950", "fp8_blockwise", TM_FAMILY_LLAMA, OWN, 12, BY_OWN }, /* no library has them there */
    { "hip", "gfx942", "fp8_blockwise_turbo", TM_FAMILY_LLAMA, BF16 | FNUZ | WIDE | OWN, .products = 12 },
    { "hip", "gfx950", "fp8_current", TM_FAMILY_GPT, OWN, .products = 12 },
    { "hip", "gfx942", "fp8_delayed", TM_FAMILY_GPT, FNUZ, 12,
      ALL ", 4 by own kernels; not by the library: the library adds a bias to products of codes in bfloat16 only (4)" },
    { "hip", "gfx942", "fp8_rowwise", TM_FAMILY_MIXTRAL, FNUZ, 12,
      ALL ", 6 by own kernels; not by the library: no library multiplies codes of experts (6)" },
    { "hip", "gfx950", "fp8_current", TM_FAMILY_MIXTRAL, 0, .products = 12 },
    { "cuda", "sm_90", "mxfp8", TM_FAMILY_LLAMA, OWN, 12, BY_OWN },
    { "cuda", "sm_90", "fp8_blockwise", TM_FAMILY_MIXTRAL, WIDE, .products = 12 },
    { "hip", "gfx950", "mxfp8", TM_FAMILY_MIXTRAL, WIDE, 12,
      ALL ", 6 by own kernels; not by the library: no library multiplies codes of experts (6)" },
    { "hip", "gfx950", "mxfp4_turbo", TM_FAMILY_MIXTRAL, BF16 | WIDE, .products = 12 },
    { "hip", "gfx950", "mxfp4", TM_FAMILY_QWEN2, OWN | WIDE, 12, BY_OWN },
    { "cuda", "sm_120", "mxfp8_turbo", TM_FAMILY_MIXTRAL, BF16 | WIDE, .products = 12 },
    { "hip", "gfx942", "fp8_blockwise", TM_FAMILY_MIXTRAL, BF16 | FNUZ | WIDE, .products = 12 },
};

/* Every fourth one: a test has two minutes. */
static void train_from(int first)
{
    for (int k = first; k < TM_COUNT_OF(trainings); k += 4)
        if (emulated_device(trainings[k].device)) trains_on_codes(&trainings[k]);
}

FULL_TEST(trainings_on_codes_1)
{
    train_from(0);
}

FULL_TEST(trainings_on_codes_2)
{
    train_from(1);
}

FULL_TEST(trainings_on_codes_3)
{
    train_from(2);
}

FULL_TEST(trainings_on_codes_4)
{
    train_from(3);
}

static void is_said(const job *j)
{
    tm_device *device;
    tm_error   err = { 0 };
    tm_step   *step;
    tm_text    words = { 0 };
    setenv("STANDIN_GPU_ARCH", j->arch, 1);
    tm_step_options o = options_of(j);
    device = emulated_open(j->device);
    tm_device_own_kernels(device, j->how & OWN);
    tm_chooser chooser = tm_device_chooser(device);
    if (tm_step_create(&o, &chooser, &step, &err) != TM_OK) fail_msg("%s", err.text);
    tm_step_codes(step, &words);
    if (strcmp(words.data, j->words) != 0) fail_msg("%s on %s: %s", j->recipe, j->arch, words.data);
    assert_int_equal(tm_step_products(step) != NULL, step->codes.emulated > 0);
    tm_text_fini(&words);
    tm_step_destroy(step);
    tm_device_close(device);
    unsetenv("STANDIN_GPU_ARCH");
}

#define NO_CODES "0 of 12 products multiply codes; no codes: "

/* What is emulated, and what own kernels do, is said with the reason. */
TEST(what_others_do_is_said)
{
    static const job all[] = {
        { "cuda", "sm_80", "fp8_tensorwise", TM_FAMILY_LLAMA, BF16, 0,
          NO_CODES "products of codes need sm_89 or later (12)" },
        { "cuda", "sm_100", "fp8_rowwise", TM_FAMILY_LLAMA, BF16, 0,
          ALL ", 12 by own kernels; not by the library: scales of lines need sm_90, no other GPU (12)" },
        { "hip", "gfx942", "fp8_tensorwise", TM_FAMILY_LLAMA, BF16, 0,
          NO_CODES "gfx942 has formats of FNUZ only (quantize.fnuz) (12)" },
        { "cuda", "sm_90", "mxfp8", TM_FAMILY_LLAMA, BF16, 0,
          ALL ", 12 by own kernels; not by the library: scales of blocks of 32 need sm_100 to sm_110 (12)" },
        { "cuda", "sm_100", "fp8_blockwise", TM_FAMILY_LLAMA, BF16, 0,
          ALL ", 12 by own kernels; not by the library: scales of blocks of 128 need sm_90, no other GPU (12)" },
        { "cuda", "sm_100", "mxfp4", TM_FAMILY_LLAMA, BF16, 0,
          NO_CODES "cublasLt multiplies codes of 4 bits with scales of blocks of 16 only (12)" },
        { "cuda", "sm_100", "mxfp6_e3m2", TM_FAMILY_LLAMA, BF16, 0, NO_CODES "codes have 8 or 4 bits (12)" },
        { "cuda", "sm_100", "nvfp4", TM_FAMILY_LLAMA, BF16, 0,
          NO_CODES "scales of two levels are multiplied as values (12)" },
        { "hip", "gfx950", "fp8_blockwise", TM_FAMILY_LLAMA, BF16, 0,
          ALL ", 12 by own kernels; not by the library: hipBLASLt has no scales of blocks of 128 (12)" },
        { "hip", "gfx950", "mxfp8", TM_FAMILY_LLAMA, BF16, 0,
          ALL ", 11 by own kernels; not by the library: rows must be multiples of 16 and the depth one of 128 with "
              "scales of blocks of 32 (11)" },
        { "hip", "gfx950", "fp8_blockwise", TM_FAMILY_MIXTRAL, BF16, 0,
          "10 of 12 products multiply codes, 10 by own kernels; not by the library: hipBLASLt has no scales of blocks "
          "of "
          "128 (6), no library multiplies codes of experts (4); no codes: parts of experts that end within a block "
          "(2)" },
        { "cuda", "sm_90", "fp8_rowwise_with_gw_hp", TM_FAMILY_LLAMA, BF16, 0,
          "8 of 8 products multiply codes, 4 by own kernels; not by the library: the scale of a matrix beside scales "
          "of lines (4)" },
        { "hip", "gfx942", "fp8_rowwise", TM_FAMILY_LLAMA, BF16 | FNUZ | OWN, 0, BY_OWN },
    };
    for (int k = 0; k < TM_COUNT_OF(all); k++)
        if (emulated_device(all[k].device)) is_said(&all[k]);
}

/* PTX of an older one has no products of codes, and a driver would refuse it. */
FULL_TEST(an_old_compiler_multiplies_values)
{
    job j = { "cuda",
              "sm_90",
              "fp8_rowwise",
              TM_FAMILY_LLAMA,
              BF16 | OWN,
              0,
              NO_CODES "products of codes need NVRTC 12.4 (12)" };
    if (gpu_is_real() || !emulated_device("cuda")) skip();
    setenv("STANDIN_COMPILER_VERSION", "12.3", 1);
    is_said(&j);
    setenv("STANDIN_COMPILER_VERSION", "12.4", 1);
    j.words = BY_OWN;
    is_said(&j);
    unsetenv("STANDIN_COMPILER_VERSION");
}

/* A reference that is allowed is no library. */
TEST(references_are_not_asked)
{
    const job       j = { "cpu", "", "fp8_tensorwise", .family = TM_FAMILY_LLAMA };
    tm_device      *device;
    tm_error        err = { 0 };
    tm_step        *step;
    tm_step_options o = options_of(&j);
    assert_int_equal(tm_device_open("cpu", 2, &device, &err), TM_OK);
    tm_device_allow_reference(device, true);
    tm_chooser chooser = tm_device_chooser(device);
    if (tm_step_create(&o, &chooser, &step, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(step->codes.products + step->codes.emulated, 0);
    for (size_t p = 0; p < step->plan->n_programs; p++)
        for (size_t x = 0; x < step->plan->programs[p].count; x++)
            assert_true(step->plan->programs[p].instructions[x].node->op != TM_OP_scaled_mm);
    tm_step_destroy(step);
    tm_device_close(device);
}
