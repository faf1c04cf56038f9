/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks plan that share weights, gradients and the optimizer's state: how much of each a rank has, what is
 * gathered and reduced, when, and in which format. What they compute: tests/differential. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "graph/blocks.h"
#include "graph/nf4.h"

static const tm_sharing sharings[] = { TM_SHARE_OPTIMIZER, TM_SHARE_GRADIENTS, TM_SHARE_ALL };

static tm_step *plan_shared(tm_step_options o, const tm_chooser *chooser, tm_axis axis, int ranks, int rank)
{
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[axis] = ranks;
    o.layout.rank = rank;
    return test_step_plan(&o, chooser);
}

/* The parameters' adapters, or all of them: formats of the base in blocks, whose groups are not cut. */
static tm_step_options sharing_all(int kind)
{
    tm_step_options o = model_options(kind < 3 ? kind : 0);
    o.layout.reshard = true;
    o.layout.prefetch = 1;
    o.layout.sharing = TM_SHARE_ALL;
    if (kind < 3) return o;
    o.adapters = (tm_adapters){ .rank = 2, .alpha = 4, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "all-linear");
    o.adapters.base = kind == 3 ? TM_NF4_BLOCKS : kind == 4 ? TM_E4M3_BLOCKS : TM_DTYPE_COUNT;
    o.shape.dim = 96, o.shape.ffn_dim = 272, o.shape.head_dim = 48;
    return o;
}

/* Of each unit a rank has an equal share, in whole groups; of what is trained gradients, and two moments of what of it
 * is used. All together have every element once. */
TEST(a_rank_holds_its_share)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (int kind = 0; kind < 6; kind++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            tm_step_options o = sharing_all(kind);
            tm_step        *one = test_step_plan(&o, &chooser);
            size_t          trained = 0, base = 0, n = one->graph->n_tensors;
            int64_t         used = 0;
            for (size_t i = 0; i < n; i++) {
                const tm_tensor *t = &one->graph->tensors[i];
                if (t->role != TM_ROLE_PARAMETER || (t->base != TM_NONE)) continue;
                if (t->gradient != TM_NONE)
                    trained += (size_t)tm_shape_elements(t->shape);
                else
                    base += tm_tensor_bytes(t->shape, t->dtype);
            }
            size_t frozen = 0, units = 0;
            for (int r = 0; r < ranks; r++) {
                tm_step *step = plan_shared(o, &chooser, TM_AXIS_SHARD, ranks, r);
                size_t   wanted = 0;
                units = step->units.n_units;
                for (size_t u = 0; u < units; u++) {
                    const tm_unit *unit = &step->units.units[u];
                    int64_t        from = r * unit->share, to = from + unit->share;
                    int64_t        group = tm_dtype_blocked(unit->dtype) ? TM_NF4_GROUP : 16;
                    assert_true(unit->share % group == 0 && unit->share * ranks < unit->used + group * ranks);
                    wanted += tm_tensor_bytes(tm_shape_1(unit->share), unit->dtype);
                    if (!tm_units_trained(unit)) {
                        frozen += tm_tensor_bytes(tm_shape_1(unit->share), unit->dtype);
                        assert_true(unit->gradients == TM_NONE);
                        continue;
                    }
                    if (to > unit->used) to = unit->used;
                    wanted += 4 * (size_t)unit->share + (to > from ? 8 * (size_t)(to - from) : 0);
                    used += to > from ? to - from : 0;
                }
                assert_int_equal(state_bytes(step), wanted);
                tm_step_destroy(step);
            }
            assert_int_equal(used, trained);
            size_t slack = (2 * 4 + units * (size_t)ranks) * (kind == 3   ? TM_NF4_GROUP_BYTES
                                                              : kind == 4 ? TM_E4M3_GROUP_BYTES
                                                                          : 64);
            assert_true(frozen >= base && frozen <= base + (base > 0 ? slack : 0));
            tm_step_destroy(one);
        }
    tm_device_close(device);
}

/* Units of a layer, of several formats, are gathered once for its forward and once for its backward pass. */
TEST(units_of_a_layer_are_gathered_together)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (int kind = 3; kind < 6; kind++) {
        tm_step *step = plan_shared(sharing_all(kind), &chooser, TM_AXIS_SHARD, 2, 0);
        size_t   gathers = 0;
        for (size_t x = 0; x < step->first->count; x++)
            gathers += step->first->instructions[x].call.op == &tm_op_all_gather;
        assert_true(step->units.n_units > 4 && gathers >= step->units.n_units && gathers <= 2 * step->units.n_units);
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

/* --- updates of whole tensors --------------------------------------------------------------------------------------
 */

static tm_step_options with_update(const tm_optimizer *optimizer)
{
    tm_step_options o = model_options(0);
    o.shape.dim = 64, o.shape.ffn_dim = 96, o.shape.head_dim = 32; /* moments of 8 bits begin at 4096 elements */
    o.layout.reshard = true;
    o.optimizer = optimizer;
    o.hyper = (tm_hyper){ .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.95, .nesterov = true };
    o.hyper.beta2_decay = -0.8, o.hyper.eps1 = (double)NAN, o.hyper.eps2 = 1e-3, o.hyper.clip_threshold = 1;
    return o;
}

/* Bytes of the moments of a parameter. */
static size_t moment_bytes(const tm_step *step, tm_tensor_id id)
{
    const tm_tensor   *of = tm_graph_at(step->graph, id);
    tm_optimizer_state states[TM_MAX_STATES];
    tm_hyper           hyper = step->options.hyper;
    size_t             bytes = 0;
    hyper.in_block = of->layer >= 0;
    int n = step->options.optimizer->states(&hyper, of->shape, states);
    for (int k = 0; k < n; k++) {
        tm_dtype format = states[k].format == TM_STATE_BYTE        ? TM_U8
                          : states[k].format == TM_STATE_PARAMETER ? of->dtype
                          : states[k].format == TM_STATE_WIDE      ? step->options.precision->wide
                                                                   : step->options.precision->moment;
        bytes += tm_tensor_bytes(states[k].shape, format);
    }
    return bytes;
}

static size_t moments_here(const tm_step *step)
{
    size_t bytes = 0;
    for (size_t i = 0; i < step->graph->n_tensors; i++)
        if (step->graph->tensors[i].role == TM_ROLE_MOMENT) bytes += step->plan->places[i].bytes;
    return bytes;
}

/* Each tensor's moments are on one rank, as evenly as whole tensors can be. */
TEST(moments_are_dealt_out)
{
    enum { RANKS = 3 };
    static const tm_optimizer *const optimizers[] = { &tm_optimizer_muon, &tm_optimizer_adafactor,
                                                      &tm_optimizer_adamw8bit };
    tm_device                       *device = test_device_open("cpu", 1);
    tm_chooser                       chooser = tm_device_chooser(device);
    for (int kind = 0; kind < 3; kind++) {
        tm_step_options o = with_update(optimizers[kind]);
        tm_step        *alone = test_step_plan(&o, &chooser);
        size_t          sum = 0;
        int64_t         load[RANKS] = { 0 }, all = 0, largest = 0;
        o.layout.sharing = TM_SHARE_ALL;
        for (int r = 0; r < RANKS; r++) {
            tm_step *step = plan_shared(o, &chooser, TM_AXIS_SHARD, RANKS, r);
            size_t   wanted = 0;
            for (size_t u = 0; u < step->units.n_units; u++)
                for (size_t m = 0; m < step->units.units[u].n_members; m++) {
                    const tm_unit_member *member = &step->units.units[u].members[m];
                    assert_true(member->owner >= 0 && member->owner < RANKS);
                    if (member->owner == r) wanted += moment_bytes(step, member->parameter), load[r] += member->count;
                    if (r == 0) all += member->count;
                    if (member->count > largest) largest = member->count;
                }
            assert_int_equal(moments_here(step), wanted);
            sum += wanted;
            tm_step_destroy(step);
        }
        assert_int_equal(sum, moments_here(alone));
        for (int r = 0; r < RANKS; r++) assert_true(load[r] <= all / RANKS + largest);
        tm_step_destroy(alone);
    }
    tm_device_close(device);
}

/* What a unit's gradients and weights are gathered with before its update belongs to the layer of the unit. */
TEST(gathers_belong_to_the_layer_of_their_unit)
{
    for (size_t s = 1; s < sizeof sharings / sizeof sharings[0]; s++) {
        tm_step_options o = with_update(&tm_optimizer_muon);
        tm_device      *device = test_device_open("cpu", 1);
        tm_chooser      chooser = tm_device_chooser(device);
        size_t          found = 0;
        o.layout.mesh = tm_mesh_one();
        o.layout.mesh.degree[TM_AXIS_SHARD] = 2;
        o.layout.sharing = sharings[s];
        tm_step *step = test_step_plan(&o, &chooser);
        for (size_t u = 0; u < step->units.n_units; u++) {
            const tm_unit *unit = &step->units.units[u];
            for (size_t k = 0; k < step->graph->n_segments; k++)
                for (size_t x = 0; x < step->graph->segments[k]->n_nodes; x++) {
                    const tm_node *node = &step->graph->segments[k]->nodes[x];
                    if (node->op != TM_OP_all_gather || node->phase != TM_PHASE_UPDATE) continue;
                    if (node->in[0] != unit->gradients && node->in[0] != unit->weights) continue;
                    assert_int_equal(node->layer, unit->layer < INT32_MAX ? unit->layer : -1);
                    found++;
                }
        }
        assert_int_equal(found, step->units.n_units * s);
        tm_step_destroy(step);
        tm_device_close(device);
    }
}

/* --- copies ---------------------------------------------------------------------------------------------------------
 */

static int64_t reductions(const tm_step *step, const char *name)
{
    const tm_program *program = tm_plan_program(step->plan, name);
    int64_t           n = 0;
    for (size_t x = 0; program && x < program->count; x++) {
        const tm_instruction *i = &program->instructions[x];
        n += i->call.op == &tm_op_all_reduce && i->call.in[0].dtype == TM_F32;
        if (i->call.op == &tm_op_all_reduce) assert_int_equal(i->stream, TM_ON_COMMUNICATION);
    }
    return n;
}

/* In the last program of micro-batches, each unit once, while there is still something to compute; a tied table, whose
 * look-ups are summed apart, before the update. */
TEST(reductions_run_beside_the_backward_pass)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (int gpt = 0; gpt < 2; gpt++)
        for (int64_t accumulation = 1; accumulation <= 3; accumulation++) {
            tm_step_options o = model_options(gpt);
            o.accumulation = accumulation;
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_REPLICATE] = 2;
            tm_step          *step = test_step_plan(&o, &chooser);
            const tm_program *program = tm_plan_program(step->plan, accumulation > 1 ? "last" : "first");
            int64_t           units = (int64_t)step->units.n_units, late = gpt && accumulation > 1;
            assert_true((tm_plan_program(step->plan, "further") != NULL) == (accumulation == 3));
            assert_int_equal(reductions(step, program->name), units - late);
            assert_int_equal(reductions(step, "update"), late);
            assert_int_equal(reductions(step, "further"), 0);
            if (accumulation > 1) assert_int_equal(reductions(step, "first"), 0);
            size_t beside = 0;
            for (size_t x = 0; x + 1 < program->count; x++)
                beside += program->instructions[x].call.op == &tm_op_all_reduce &&
                          program->instructions[x + 1].stream == TM_ON_COMPUTE;
            assert_true(beside >= (size_t)units - 2);
            int64_t micro_batches = 0;
            for (size_t w = 0; w < step->training.n; w++)
                if (step->training.work[w].micro_batch >= 0) {
                    assert_int_equal(step->training.work[w].micro_batch, micro_batches);
                    micro_batches += step->training.work[w].count;
                }
            assert_int_equal(micro_batches, accumulation);
            tm_step_destroy(step);
        }
    tm_device_close(device);
}

/* --- tensors of which ranks have parts ------------------------------------------------------------------------------
 */
