/* SPDX-License-Identifier: Apache-2.0 */
/* The first value of a step that is not finite: planted behind every instruction of small programs, in inputs
 * and by overflows, it is named. (A step that is looked at keeps its bits: test_replay_step.c.) */

#include "support/test.h"
#include "graph/value.h"
#include "step_cases.h"
#include "support/golden.h"
#include "support/training.h"
#include "train/trainer/locate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- a kernel that spoils what another one has computed ----------------------------------------------------------- */

typedef struct {
    const tm_kernel *real;
    tm_kernel        kernel;
    int              out; /* that is spoilt */
    int64_t          element;
    double           value;
} spoiler;

static spoiler planted; /* kernels have no context */

static void spoil(const tm_call *call)
{
    const tm_view *view = &call->out[planted.out];
    tm_error       err = { 0 };
    if (tm_kernel_run(planted.real, call, &err) != TM_OK) fail_msg("%s", err.text);
    int64_t columns = view->shape.rank > 0 ? view->shape.n[view->shape.rank - 1] : 1;
    int64_t at = planted.element / columns * tm_view_ld(view) + planted.element % columns;
    tm_value_set(view->data, view->dtype, at, planted.value);
}

/* Puts it behind an instruction. False: no output can hold the value. */
static bool plant(tm_instruction *i, double value)
{
    planted = (spoiler){ .real = i->kernel, .kernel = *i->kernel, .value = value };
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

static tm_micro_batch fed(const test_batch *batch)
{
    return (tm_micro_batch){ .field = { batch->tokens, batch->targets }, .target_tokens = batch->target_tokens };
}

static test_batch batch_of(const tm_step_options *o, uint64_t seed)
{
    return test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, seed);
}

/* Step t, looked at. *found: NULL says nothing was. */
static tm_step_result looked_step(tm_trainer *trainer, int64_t t, double rate, const test_batch *batch,
                                  tm_nonfinite *found, bool *any)
{
    tm_step_result result = { 0 };
    tm_error       err = { 0 };
    tm_micro_batch micro = fed(batch);
    test_begin(trainer, t, rate, 1, batch->target_tokens);
    tm_locator *locator = tm_locator_open(trainer);
    if (tm_trainer_step(trainer, &micro, &result, NULL, &err) != TM_OK) fail_msg("%s", err.text);
    *any = tm_locator_found(locator) != NULL;
    if (*any) *found = *tm_locator_found(locator);
    tm_locator_close(locator);
    return result;
}

static tm_step_options tiny(tm_step_options o)
{
    o.shape.n_layers = 1;
    o.shape.vocab_size = 40;
    o.seq = 8, o.micro_batch = 2;
    return o;
}

enum { CASES = 12 };
static tm_step_options case_of(int k)
{
    static const tm_model_family families[] = { TM_FAMILY_LLAMA, TM_FAMILY_GPT, TM_FAMILY_QWEN2, TM_FAMILY_QWEN3 };
    tm_step_options              o = k < 4              ? test_family_options(families[k])
                                     : k == 4 || k == 5 ? experts_options()
                                                        : test_llama_options();
    if (k == 4 || k == 5) o.shape.moe.biased = true, o.shape.moe.bias_rate = 0.01;
    if (k == 6) o = quantized_options("fp8_delayed");
    if (k == 7) o = quantized_options("nvfp4");
    if (k == 8 || k == 9) o = test_gpt_options(), o.accumulation = 2;
    if (k == 5 || k == 9) o.precision = &tm_precision_bf16;
    if (k == 10) o.precision = &tm_precision_bf16_pure, o.hyper.stochastic = true;
    if (k == 11) o.adapters = dropping_adapters();
    return o;
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

/* Number of the program's run in a step that has instruction `at` first: its micro-batch. */
static int64_t micro_batch_of(const tm_step *step, const tm_program *program)
{
    for (size_t i = 0; i < step->training.n; i++)
        if (step->training.work[i].program == program)
            return step->training.work[i].micro_batch < 0 ? -1 : step->training.work[i].micro_batch;
    return -2;
}

static void check_planted(const tm_step_options *o, tm_device *device, const char *program_name, size_t at, int number)
{
    tm_trainer     *trainer = test_trainer_open(device, o, 5);
    const tm_step  *step = tm_trainer_step_of(trainer);
    tm_program     *program = (tm_program *)tm_plan_program(step->plan, program_name);
    tm_instruction *i = &program->instructions[at];
    test_batch      batch = batch_of(o, 1);
    tm_nonfinite    found;
    bool            any;
    if (plant(i, number % 2 ? (double)NAN : (double)INFINITY)) {
        const tm_kernel *real = planted.real;
        looked_step(trainer, 1, 1e-2, &batch, &found, &any);
        i->kernel = real;
        const tm_tensor *tensor = tm_graph_at(step->graph, i->node->out[planted.out]);
        int64_t          columns = tensor->shape.rank > 0 ? tensor->shape.n[tensor->shape.rank - 1] : 1;
        if (!any) fail_msg("planted in %s %zu (%s) of case %d: not seen", program_name, at, i->call.op->name, number);
        if (strcmp(found.program, program_name) != 0 || found.instruction != (int64_t)at)
            fail_msg("planted in %s %zu (%s) of case %d: %s %lld (%s) is named", program_name, at, i->call.op->name,
                     number, found.program, (long long)found.instruction, found.op);
        assert_string_equal(found.op, i->call.op->name);
        assert_string_equal(found.tensor, tensor->name);
        assert_int_equal(found.layer, i->node->layer);
        assert_int_equal(found.micro_batch, micro_batch_of(step, program));
        assert_int_equal(found.row * columns + found.column, planted.element);
        assert_int_equal(found.count, 1);
        assert_int_equal(found.elements, tm_shape_elements(tensor->shape));
        static const char *const phases[] = { "forward", "backward", "update" };
        assert_string_equal(found.phase, phases[i->node->phase]);
    }
    test_batch_fini(&batch);
    tm_trainer_close(trainer);
}

TEST(planted_behind_each_instruction_it_is_named)
{
    static const char *const programs[] = { "first", "further", "update" };
    tm_device               *device = test_device_open("cpu", 1);
    for (int k = 0; k < CASES; k += test_is_full() ? 1 : 4) {
        tm_step_options o = tiny(case_of(k));
        tm_trainer     *trainer = test_trainer_open(device, &o, 5);
        size_t          counts[3];
        for (int p = 0; p < 3; p++) {
            const tm_program *program = tm_plan_program(tm_trainer_step_of(trainer)->plan, programs[p]);
            counts[p] = program ? program->count : 0;
        }
        tm_trainer_close(trainer);
        for (int p = 0; p < 3; p++)
            for (size_t at = 0; at < counts[p]; at++) check_planted(&o, device, programs[p], at, k);
    }
    tm_device_close(device);
}

/* The parameter of that name, and its values with one replaced. */
static void spoil_weight(tm_trainer *trainer, const char *name, int64_t element, double value)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensors[t].role != TM_ROLE_PARAMETER || strcmp(graph->tensors[t].name, name) != 0) continue;
        double *values = test_values_read(trainer, (tm_tensor_id)t);
        values[element] = value;
        test_values_write(trainer, (tm_tensor_id)t, values);
        free(values);
        return;
    }
    fail_msg("there is no weight %s", name);
}

typedef struct {
    tm_device   *device;
    tm_trainer  *trainer;
    test_batch   batch;
    tm_nonfinite found;
} located;

static located begin_located(const tm_step_options *o)
{
    located l = { .device = test_device_open("cpu", 1), .batch = batch_of(o, 1) };
    l.trainer = test_trainer_open(l.device, o, 5);
    return l;
}

/* One step, which is not finite. */
static tm_step_result locate(located *l, double rate)
{
    bool           any;
    tm_step_result result = looked_step(l->trainer, 1, rate, &l->batch, &l->found, &any);
    assert_true(any);
    return result;
}

static void end_located(located *l)
{
    test_batch_fini(&l->batch);
    tm_trainer_close(l->trainer);
    tm_device_close(l->device);
}

/* Weights too large for the format: the product that overflows first is named, with its largest operand. */
TEST(an_overflow_is_told_from_a_division_by_zero)
{
    tm_step_options o = tiny(test_llama_options());
    located         l = begin_located(&o);
    spoil_weight(l.trainer, "layers.0.feed_forward.w2.weight", 0, 3e38);
    spoil_weight(l.trainer, "layers.0.feed_forward.w13.weight", 5, 1e30);
    locate(&l, 1e-2);
    assert_string_equal(l.found.cause, TM_CAUSE_OVERFLOW);
    assert_true(l.found.largest >= 1e29 && strstr(l.found.tensor, "feed_forward"));
    end_located(&l);
    /* The root of a negative second moment, of ordinary size. */
    l = begin_located(&o);
    const tm_graph *graph = tm_trainer_step_of(l.trainer)->graph;
    int             spoilt = 0;
    for (size_t t = 0; t < graph->n_tensors && !spoilt; t++) {
        const tm_tensor *tensor = &graph->tensors[t];
        if (tensor->role != TM_ROLE_MOMENT || !strstr(tensor->name, "norm.weight")) continue;
        double *values = test_values_read(l.trainer, (tm_tensor_id)t);
        bool    second = strstr(tensor->name, "exp_avg_sq") != NULL;
        values[1] = -1;
        if (second) test_values_write(l.trainer, (tm_tensor_id)t, values);
        spoilt = second;
        free(values);
    }
    assert_true(spoilt);
    locate(&l, 1e-2);
    assert_string_equal(l.found.cause, TM_CAUSE_COMPUTED);
    assert_string_equal(l.found.phase, "update");
    assert_string_equal(l.found.op, "adamw");
    end_located(&l);
}

/* --- inputs ------------------------------------------------------------------------------------------------------- */

/* A picture with one value that is not finite, and one with a value that is too large. */
TEST(a_value_of_the_batch_is_named)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options o = golden_flux_options(&tm_precision_f32);
    for (int huge = 0; huge < 2; huge++) {
        tm_trainer    *trainer = test_trainer_open(device, &o, 5);
        tm_micro_batch micro = { .target_tokens = o.micro_batch * o.seq };
        tm_step_result result;
        tm_error       err = { 0 };
        for (int f = 0; f < o.n_fields; f++) {
            int64_t n = tm_shape_elements(o.fields[f].shape) * o.micro_batch * o.accumulation;
            float  *values = malloc((size_t)n * sizeof *values);
            assert_int_equal(o.fields[f].dtype, TM_F32);
            for (int64_t i = 0; i < n; i++) values[i] = (float)((i * 37 + f) % 101) / 101.0F - 0.5F;
            if (f == 0 && !huge) values[5] = INFINITY;
            for (int64_t i = 0; huge && i < n; i++) values[i] = 3e38F;
            micro.field[f] = values;
        }
        test_begin(trainer, 1, 1e-3, 1, micro.target_tokens);
        tm_locator *locator = tm_locator_open(trainer);
        assert_int_equal(tm_trainer_step(trainer, &micro, &result, NULL, &err), TM_OK);
        const tm_nonfinite *found = tm_locator_found(locator);
        assert_non_null(found);
        assert_string_equal(found->cause, huge ? TM_CAUSE_OVERFLOW : TM_CAUSE_INPUT);
        if (!huge) assert_true(found->count == 1 && found->value > 0 && strstr(found->tensor, o.fields[0].name));
        if (huge) assert_true(found->largest >= 1e19);
        tm_locator_close(locator);
        for (int f = 0; f < o.n_fields; f++) free((void *)(uintptr_t)micro.field[f]);
        tm_trainer_close(trainer);
    }
    tm_device_close(device);
}

TEST(of_ranks_the_one_that_computed_it_is_told)
{
    tm_nonfinite own = { .rank = 0, .located = true, .order = 7, .cause = TM_CAUSE_COMPUTED };
    tm_error     err = { 0 };
    bool         any = true;
    assert_int_equal(tm_locate_agree(NULL, &own, &any, &err), TM_OK);
    assert_true(any && own.order == 7);
    any = false;
    assert_int_equal(tm_locate_agree(NULL, &own, &any, &err), TM_OK);
    assert_false(any);
}
