/* SPDX-License-Identifier: Apache-2.0 */
/* The first value of a step that is not finite: planted behind every instruction of small programs, in inputs and by
 * overflows, it is named. (A step that is looked at keeps its bits: test_replay_step.c; ranks: test_run_ranks.c.) */
#include "support/test.h"
#include "graph/value.h"
#include "step_cases.h"
#include "support/golden.h"
#include "train/trainer/locate.h"

#include <jansson.h>

/* --- a kernel that spoils what another one has computed ----------------------------------------------------------- */

static struct {
    const tm_kernel *real;
    tm_kernel        kernel;
    int              out; /* that is spoilt */
    int64_t          element;
    double           value;
} planted; /* kernels have no context */

static void spoil(const tm_call *call)
{
    const tm_view *view = &call->out[planted.out];
    assert_ok(tm_kernel_run(planted.real, call, err));
    int64_t columns = view->shape.rank > 0 ? view->shape.n[view->shape.rank - 1] : 1;
    int64_t at = planted.element / columns * tm_view_ld(view) + planted.element % columns;
    tm_value_set(view->data, view->dtype, at, planted.value);
}

/* Puts it behind an instruction. False: no output can hold the value. */
static bool plant(tm_instruction *i, double value)
{
    planted.real = i->kernel, planted.kernel = *i->kernel, planted.value = value;
    for (planted.out = 0; planted.out < TM_MAX_OUT; planted.out++) {
        const tm_view *view = &i->call.out[planted.out];
        if (i->node->out[planted.out] == TM_NONE || !tm_view_present(view)) continue;
        if (tm_dtype_floating(view->dtype) && tm_dtype_bits(view->dtype) >= 8) break;
    }
    if (planted.out == TM_MAX_OUT) return false;
    planted.element = tm_shape_elements(i->call.out[planted.out].shape) / 2;
    planted.kernel.launch = NULL;
    planted.kernel.run = spoil;
    i->kernel = &planted.kernel;
    return true;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* What is found in the first step, which must be something. */
static tm_nonfinite locate(tm_trainer *trainer, const tm_micro_batch *batch, const char *what)
{
    tm_step_result result;
    test_begin(trainer, 1, 1e-2, 1, batch->target_tokens);
    tm_locator *locator = tm_locator_open(trainer);
    assert_ok(tm_trainer_step(trainer, batch, &result, NULL, err));
    if (!tm_locator_found(locator)) fail_msg("%s: not seen", what);
    tm_nonfinite found = *tm_locator_found(locator);
    tm_locator_close(locator);
    return found;
}

static tm_nonfinite locate_random(tm_trainer *trainer, const char *what)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    test_batch             batch = test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, 1);
    tm_nonfinite           found = locate(
                  trainer, &(tm_micro_batch){ .field = { batch.tokens, batch.targets }, .target_tokens = batch.target_tokens },
                  what);
    test_batch_fini(&batch);
    return found;
}

enum { CASES = 12 };
static tm_step_options case_of(int k)
{
    static const tm_model_family families[] = { TM_FAMILY_LLAMA, TM_FAMILY_GPT, TM_FAMILY_QWEN2, TM_FAMILY_QWEN3 };
    tm_step_options              o = k < 4              ? test_family_options(families[k])
                                     : k == 4 || k == 5 ? experts_options()
                                                        : test_llama_options();
    if (k == 4 || k == 5) o.shape.moe.biased = true, o.shape.moe.bias_rate = 0.01;
    if (k == 6 || k == 7) o = quantized_options(k == 6 ? "fp8_delayed" : "nvfp4");
    if (k == 8 || k == 9) o = test_gpt_options(), o.accumulation = 2;
    if (k == 5 || k == 9) o.precision = &tm_precision_bf16;
    if (k == 10) o.precision = &tm_precision_bf16_pure, o.hyper.stochastic = true;
    if (k == 11) o.adapters = dropping_adapters();
    o.shape.n_layers = 1;
    o.shape.vocab_size = 40;
    o.seq = 8, o.micro_batch = 2;
    return o;
}

static void check_planted(tm_trainer *trainer, tm_program *program, size_t at, int number)
{
    static const char *const phases[] = { "forward", "backward", "update" };
    const tm_step           *step = tm_trainer_step_of(trainer);
    tm_instruction          *i = &program->instructions[at];
    int64_t                  micro_batch = -2; /* of the program's first run in a step */
    char                     what[100];
    snprintf(what, sizeof what, "planted in %s %zu (%s) of case %d", program->name, at, i->call.op->name, number);
    if (!plant(i, number % 2 ? (double)NAN : (double)INFINITY)) return;
    tm_nonfinite found = locate_random(trainer, what);
    i->kernel = planted.real;
    for (size_t k = step->training.n; k-- > 0;)
        if (step->training.work[k].program == program) micro_batch = step->training.work[k].micro_batch;
    const tm_tensor *tensor = tm_graph_at(step->graph, i->node->out[planted.out]);
    int64_t          columns = tensor->shape.rank > 0 ? tensor->shape.n[tensor->shape.rank - 1] : 1;
    if (strcmp(found.program, program->name) != 0 || found.instruction != (int64_t)at)
        fail_msg("%s: %s %lld (%s) is named", what, found.program, (long long)found.instruction, found.op);
    assert_string_equal(found.op, i->call.op->name);
    assert_string_equal(found.tensor, tensor->name);
    assert_string_equal(found.phase, phases[i->node->phase]);
    assert_int_equal(found.layer, i->node->layer);
    assert_int_equal(found.micro_batch, micro_batch < 0 ? -1 : micro_batch);
    assert_int_equal(found.row * columns + found.column, planted.element);
    assert_true(found.count == 1 && found.elements == tm_shape_elements(tensor->shape));
}

TEST(planted_behind_each_instruction_it_is_named)
{
    static const char *const programs[] = { "first", "further", "update" };
    tm_device               *device = test_device_open("cpu", 1);
    for (int k = 0; k < CASES; k += test_is_full() ? 1 : 4)
        for (int p = 0; p < 3; p++)
            for (size_t at = 0, n = 1; at < n; at++) {
                tm_step_options o = case_of(k);
                tm_trainer     *trainer = test_trainer_open(device, &o, 5);
                tm_program     *program = (tm_program *)tm_plan_program(tm_trainer_step_of(trainer)->plan, programs[p]);
                n = program ? program->count : 0;
                if (program) check_planted(trainer, program, at, k);
                tm_trainer_close(trainer);
            }
    tm_device_close(device);
}

/* One value of a weight or a state is another one. */
static void spoil_tensor(tm_trainer *trainer, const char *name, int64_t element, double value)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    size_t          t = 0;
    while (strcmp(graph->tensors[t].name, name) != 0) assert_true(++t < graph->n_tensors);
    double *values = test_values_read(trainer, (tm_tensor_id)t);
    values[element] = value;
    test_values_write(trainer, (tm_tensor_id)t, values);
    free(values);
}

/* Weights too large for the format: the product that overflows first is named, with its largest operand. And the root
 * of a negative second moment, of ordinary size. */
TEST(an_overflow_is_told_from_a_division_by_zero)
{
    tm_device *device = test_device_open("cpu", 1);
    for (int moment = 0; moment < 2; moment++) {
        tm_step_options o = case_of(6);
        o.quantize.on = false, o.precision = &tm_precision_f32;
        tm_trainer *trainer = test_trainer_open(device, &o, 5);
        if (moment) {
            spoil_tensor(trainer, "norm.weight.exp_avg_sq", 1, -1);
        } else {
            spoil_tensor(trainer, "layers.0.feed_forward.w2.weight", 0, 3e38);
            spoil_tensor(trainer, "layers.0.feed_forward.w13.weight", 5, 1e30);
        }
        tm_nonfinite found = locate_random(trainer, moment ? "a moment" : "weights");
        assert_string_equal(found.cause, moment ? TM_CAUSE_COMPUTED : TM_CAUSE_OVERFLOW);
        if (!moment) assert_true(found.largest >= 1e29 && strstr(found.tensor, "feed_forward"));
        if (moment) assert_true(strcmp(found.phase, "update") == 0 && strcmp(found.op, "adamw") == 0);
        tm_trainer_close(trainer);
    }
    tm_device_close(device);
}

/* A picture with one value that is not finite, and one with a value that is too large. */
TEST(a_value_of_the_batch_is_named)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options o = golden_flux_options(&tm_precision_f32);
    for (int huge = 0; huge < 2; huge++) {
        tm_trainer    *trainer = test_trainer_open(device, &o, 5);
        tm_micro_batch micro = { .target_tokens = o.micro_batch * o.seq };
        for (int f = 0; f < o.n_fields; f++) {
            int64_t n = tm_shape_elements(o.fields[f].shape) * o.micro_batch * o.accumulation;
            float  *values = malloc((size_t)n * sizeof *values);
            for (int64_t i = 0; i < n; i++) values[i] = huge ? 3e38F : (float)((i * 37 + f) % 101) / 101.0F - 0.5F;
            if (f == 0 && !huge) values[5] = INFINITY;
            micro.field[f] = values;
        }
        tm_nonfinite found = locate(trainer, &micro, "a picture");
        assert_string_equal(found.cause, huge ? TM_CAUSE_OVERFLOW : TM_CAUSE_INPUT);
        if (!huge) assert_true(found.count == 1 && found.value > 0 && strstr(found.tensor, o.fields[0].name));
        if (huge) assert_true(found.largest >= 1e19);
        for (int f = 0; f < o.n_fields; f++) free((void *)(uintptr_t)micro.field[f]);
        tm_trainer_close(trainer);
    }
    tm_device_close(device);
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

static const tm_nonfinite place = { .step = 7,
                                    .rank = 3,
                                    .ranks = 4,
                                    .located = true,
                                    .op = "linear",
                                    .layer = 2,
                                    .program = "first",
                                    .instruction = 11,
                                    .tensor = "t",
                                    .row = 12,
                                    .column = 13,
                                    .micro_batch = 1,
                                    .format = "f",
                                    .count = 5,
                                    .elements = 96,
                                    .phase = "forward",
                                    .value = -INFINITY,
                                    .largest = 8,
                                    .operand = "w",
                                    .repeated = true };

/* Every member of the struct is one of the JSON. */
TEST(a_place_as_json)
{
    tm_nonfinite f = place;
    for (int bare = 0; bare < 2; bare++) {
        tm_text text = { 0 }, line = { 0 };
        tm_json json = { .out = &text };
        if (bare) f.operand[0] = '\0', f.value = (double)NAN, f.repeated = false;
        snprintf(f.cause, sizeof f.cause, TM_CAUSE_OVERFLOW);
        tm_nonfinite_print(&f, &line);
        tm_json_open(&json, NULL, '{');
        tm_nonfinite_json(&f, "nonfinite", &json);
        tm_nonfinite_json(NULL, "none", &json);
        tm_json_close(&json, '}');
        json_t *found = json_loads(text.data, JSON_DECODE_INT_AS_REAL, NULL);
        json_t *wanted = json_pack(
            "{s:{s:f,s:s,s:b,s:f,s:s,s:s,s:s,s:s,s:f,s:s,s:f,s:s,s:f,s:[ff],s:f,s:f,s:s,s:f,s:s?,s:b},s:n}",
            "nonfinite", "step", 7., "place", line.data, "located", 1, "rank", 3., "cause", f.cause, "op", f.op,
            "tensor", f.tensor, "format", f.format, "layer", 2., "phase", f.phase, "micro_batch", 1., "program",
            f.program, "instruction", 11., "element", 12., 13., "count", 5., "elements", 96., "value",
            bare ? "nan" : "-inf", "largest_operand", 8., "operand", bare ? NULL : "w", "repeated", !bare, "none");
        if (!json_equal(found, wanted)) fail_msg("%s", text.data);
        json_decref(found), json_decref(wanted);
        tm_text_fini(&text), tm_text_fini(&line);
    }
}

TEST(a_place_in_words)
{
    static const struct {
        const char *cause;
        double      largest;
        const char *words;
    } rows[] = {
        { TM_CAUSE_WEIGHT, 8, "the weight was so before the step" },
        { TM_CAUSE_STATE, 8, "it was so before the step" },
        { TM_CAUSE_INPUT, 8, "the batch holds it" },
        { TM_CAUSE_RECEIVED, 8, "other ranks sent it, or the sum overflowed" },
        { TM_CAUSE_COMPUTED, (double)NAN, "its operands are 0" },
        { TM_CAUSE_COMPUTED, 8, "its operands are finite, the largest 8 in w" },
        { TM_CAUSE_OVERFLOW, 8, "its operands are finite, the largest 8 in w: an overflow" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int alone = 0; alone < 2; alone++) { /* outside of blocks, ranks and micro-batches */
            char         wanted[400];
            tm_text      text = { 0 };
            tm_nonfinite f = place;
            snprintf(f.cause, sizeof f.cause, "%s", rows[i].cause);
            f.largest = rows[i].largest;
            if (alone) f.ranks = 1, f.layer = f.micro_batch = -1;
            tm_nonfinite_print(&f, &text);
            snprintf(wanted, sizeof wanted,
                     "step 7, %st (linear%s, forward%s, program first, instruction 11): 5 of 96 values, first -inf at "
                     "row 12, column 13; %s",
                     alone ? "" : "rank 3, ", alone ? "" : ", layer 2", alone ? "" : ", micro-batch 1", rows[i].words);
            assert_string_equal(text.data, wanted);
            tm_text_fini(&text);
        }
}
