/* SPDX-License-Identifier: Apache-2.0 */
/* The precision pass: which weights are cast, where, how long the copies live, and in which formats everything is. */
#include "support/training.h"

#include <string.h>

#include "support/test.h"

static tm_step *step_of(tm_model_family family, const tm_precision *precision, tm_recompute recompute)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_device_allow_reference(device, precision == &tm_precision_f64);
    tm_step_options options = family == TM_FAMILY_GPT ? test_gpt_options() : test_llama_options();
    options.shape.n_layers = 3;
    options.accumulation = 2;
    options.precision = precision;
    options.recompute = recompute;
    tm_step *step = test_step_plan(&options, &chooser);
    tm_device_close(device);
    return step;
}

static size_t count_casts(const tm_program *program)
{
    size_t casts = 0;
    for (size_t x = 0; x < program->count; x++) casts += program->instructions[x].node->op == TM_OP_cast;
    return casts;
}

TEST(one_format_needs_no_casts)
{
    static const tm_precision *const same[] = { &tm_precision_f32, &tm_precision_f64, &tm_precision_bf16_pure };
    for (int family = 0; family < 2; family++)
        for (int p = 0; p < 3; p++) {
            tm_step *step = step_of((tm_model_family)family, same[p], (tm_recompute){ .every_n = 1 });
            assert_int_equal(count_casts(step->first) + count_casts(step->further) + count_casts(step->update) +
                                 count_casts(step->evaluate),
                             0);
            tm_step_destroy(step);
        }
}

/* Kernels see parameters in the compute format, through a copy, unless they read any format. */
static void check_inputs(const tm_step *step, const tm_program *program)
{
    for (size_t x = 0; x < program->count; x++) {
        const tm_node *node = program->instructions[x].node;
        const tm_op   *op = tm_op_get(node->op);
        for (int i = 0; i < op->n_in; i++) {
            if (node->in[i] == TM_NONE || node->op == TM_OP_cast) continue;
            const tm_tensor *tensor = tm_graph_at(step->graph, node->in[i]);
            bool             any = op->any_dtype_in >> i & 1;
            bool             rounds = node->rounded >> i & program->instructions[x].kernel->rounds >> i & 1;
            if (rounds) assert_true(tensor->role == TM_ROLE_PARAMETER && tensor->dtype == TM_F32);
            if (tensor->role == TM_ROLE_PARAMETER && !any && !rounds)
                fail_msg("%s %zu: %s reads '%s' without a cast", program->name, x, op->name, tensor->name);
            if (tensor->role == TM_ROLE_WEIGHT_COPY && any)
                fail_msg("%s %zu: %s has a cast of '%s' that it does not need", program->name, x, op->name,
                         tensor->name);
            if (tensor->role == TM_ROLE_WEIGHT_COPY || tensor->role == TM_ROLE_ACTIVATION)
                assert_int_equal(tensor->dtype, step->options.precision->compute);
        }
    }
}

/* A cast reads a whole parameter and stands right where it is first needed; its copy lives in one layer and phase. */
static void check_copies(const tm_step *step, int32_t index)
{
    const tm_program *program = &step->plan->programs[index];
    for (size_t x = 0; x < program->count; x++) {
        const tm_node *cast = program->instructions[x].node;
        if (cast->op != TM_OP_cast) continue;
        const tm_tensor *from = tm_graph_at(step->graph, cast->in[0]), *to = tm_graph_at(step->graph, cast->out[0]);
        const tm_place  *place = &step->plan->places[cast->out[0]];
        assert_true(from->role == TM_ROLE_PARAMETER && from->dtype == TM_F32 && to->role == TM_ROLE_WEIGHT_COPY &&
                    to->dtype == TM_BF16);
        assert_true(tm_shape_equal(from->shape, to->shape) && from->layer == to->layer);
        assert_true(place->first == (int32_t)x && place->last > (int32_t)x);
        for (int32_t y = place->first; y <= place->last; y++)
            if (program->instructions[y].node->layer != cast->layer ||
                program->instructions[y].node->phase != cast->phase)
                fail_msg("%s: the copy of '%s' outlives its layer", program->name, from->name);
        size_t between = 0; /* other casts of the same node may stand in between */
        for (size_t y = x + 1; y < program->count; y++) {
            const tm_node *user = program->instructions[y].node;
            bool           uses = false;
            for (int i = 0; i < TM_MAX_IN; i++) uses |= user->in[i] == cast->out[0];
            if (uses) break;
            between += user->op != TM_OP_cast;
        }
        assert_int_equal(between, 0);
    }
}

TEST(casts_stand_where_they_are_needed)
{
    static const tm_recompute policies[] = { { 0 }, { .cheap = true }, { .cheap = true, .every_n = 1 } };
    for (int family = 0; family < 2; family++)
        for (int r = 0; r < 3; r++) {
            tm_step *step = step_of((tm_model_family)family, &tm_precision_bf16, policies[r]);
            assert_true(count_casts(step->first) > 0 && count_casts(step->first) == count_casts(step->further) &&
                        count_casts(step->evaluate) > 0);
            assert_int_equal(count_casts(step->update), 0);
            for (int32_t p = 0; p < (int32_t)step->plan->n_programs; p++) {
                if (&step->plan->programs[p] == step->update) continue;
                check_inputs(step, &step->plan->programs[p]);
                check_copies(step, p);
            }
            tm_step_destroy(step);
        }
}

/* bfloat16 halves the kept activations; the casts add less than a layer's weights. */
TEST(activations_take_at_most_60_percent_of_float32)
{
    size_t kept[2] = { 0 };
    for (int bf16 = 0; bf16 < 2; bf16++) {
        tm_step *step = step_of(TM_FAMILY_LLAMA, bf16 ? &tm_precision_bf16 : &tm_precision_f32, (tm_recompute){ 0 });
        for (size_t i = 0; i < step->plan->n_classes; i++)
            if (strcmp(step->plan->by_class[i].name, "activations") == 0)
                kept[bf16] = (size_t)step->plan->by_class[i].value;
        tm_step_destroy(step);
    }
    assert_true(kept[1] > 0 && (double)kept[1] <= 0.6 * (double)kept[0]);
}
