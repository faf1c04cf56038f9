/* SPDX-License-Identifier: Apache-2.0 */
/* What is planned so that steps are fast and small, which no loss shows: when ranks talk, what is kept, what is left
 * out. (Numbers: tests/differential; how much ranks say to each other: tests/model/test_collectives.c.) */
#include "words.h"
#include "layout_words.h"
#include "graph/passes/passes.h"
#include "op/attrs.h"

static tm_step *plan(const char *words, int rank)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = plan_words(words, rank, &chooser);
    tm_device_close(device);
    return step;
}

static int count(const tm_program *program, tm_op_id op)
{
    int n = 0;
    for (size_t x = 0; program && x < program->count; x++) n += program->instructions[x].node->op == op;
    return n;
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

/* In the last program of micro-batches, each unit once, beside what is computed; a tied table, whose look-ups are
 * summed apart, before the update. */
TEST(sums_run_beside_the_backward_pass)
{
    for (int tied = 0; tied < 2; tied++)
        for (int passes = 1; passes <= 3; passes++) {
            char words[900];
            snprintf(words, sizeof words,
                     TINY R(2) COPIES(2) "--parallelism.data_parallel_shard_degree 1 --model.tied %s "
                                         "--training.grad_accumulation %d",
                     tied ? "true" : "false", passes);
            tm_step          *step = plan(words, 0);
            const tm_program *program = tm_plan_program(step->plan, passes > 1 ? "last" : "first");
            const int         units = (int)step->units.n_units, late = tied && passes > 1;
            int               beside = 0;
            for (size_t x = 0; x + 1 < program->count; x++)
                beside += program->instructions[x].call.op == &tm_op_all_reduce &&
                          program->instructions[x].stream == TM_ON_COMMUNICATION &&
                          program->instructions[x + 1].stream == TM_ON_COMPUTE;
            assert_int_equal(count(program, TM_OP_all_reduce), units - late);
            assert_in_range(beside, units - 2, units);
            assert_int_equal(count(step->update, TM_OP_all_reduce), 1 + late); /* with what is counted */
            assert_int_equal(count(tm_plan_program(step->plan, "further"), TM_OP_all_reduce), 0);
            tm_step_destroy(step);
        }
}

/* Units of a layer, of several formats, once for its forward and once for its backward pass. */
TEST(units_of_a_layer_are_gathered_together)
{
    static const char *const formats[] = { "nf4", "float8_e4m3", "bfloat16" };
    for (int f = 0; f < 3; f++) {
        char words[900];
        snprintf(words, sizeof words,
                 TINY R(2) "--lora.rank 2 --lora.targets all-linear --model.dim 96 --model.ffn_dim 272 "
                           "--model.head_dim 48 --model.n_heads 2 --lora.base_format %s",
                 formats[f]);
        tm_step  *step = plan(words, 0);
        const int units = (int)step->units.n_units;
        assert_true(units > 4);
        assert_in_range(count(step->first, TM_OP_all_gather), units, 2 * units);
        tm_step_destroy(step);
    }
}

/* No pair of a query and a key is computed twice, ranks have as many, and a ring takes less memory than gathered keys.
 */
TEST(sequences_are_shared_alike)
{
#define LONG TINY "--training.seq_len 512 --model.n_kv_heads 4 --training.local_batch_size 1 "
    tm_step *whole = plan(LONG, 0);
    double   pairs[2][8] = { { 0 } }, all = 0;
    size_t   arena[2] = { 0 };
    for (int ring = 0; ring < 2; ring++)
        for (int rank = 0; rank < 8; rank++) {
            tm_step *step = plan(
                ring ? LONG R(8) CP(8) "--parallelism.context_parallel_rotate_method alltoall" : LONG R(8) CP(8), rank);
            for (size_t x = 0; x < step->first->count; x++)
                if (step->first->instructions[x].call.op == &tm_op_attention)
                    pairs[ring][rank] += step->first->instructions[x].cost.flops;
            if (step->plan->arena_bytes > arena[ring]) arena[ring] = step->plan->arena_bytes;
            tm_step_destroy(step);
            assert_true(pairs[ring][rank] == pairs[ring][0]);
        }
    for (size_t x = 0; x < whole->first->count; x++)
        if (whole->first->instructions[x].call.op == &tm_op_attention) all += whole->first->instructions[x].cost.flops;
    assert_true(pairs[0][0] == all / 8 && pairs[1][0] >= all / 8 && pairs[1][0] < all / 4);
    assert_true(arena[1] < arena[0]);
    tm_step_destroy(whole);
}

/* Gradients of weights and nothing else are sent in half as many bytes. */
TEST(sums_in_bfloat16_are_of_gradients)
{
    static const char *const layouts[] = { R(2) COPIES(2), R(2), R(2) STRATEGY "optim ", R(4) COPIES(2) };
    for (int l = 0; l < 4; l++) {
        double wire[2] = { 0 };
        int    sums = 0;
        for (int narrow = 0; narrow < 2; narrow++) {
            char words[900];
            snprintf(words, sizeof words, TINY "%s--training.mixed_precision_reduce %s", layouts[l],
                     narrow ? "bfloat16" : "float32");
            tm_step *step = plan(words, 0);
            for (size_t p = 0; p < step->plan->n_programs; p++)
                for (size_t x = 0; x < step->plan->programs[p].count; x++) {
                    const tm_instruction *i = &step->plan->programs[p].instructions[x];
                    if (i->call.op != &tm_op_all_reduce && i->call.op != &tm_op_reduce_scatter) continue;
                    bool wide = i->call.in[0].dtype == TM_F64;
                    assert_int_equal(((const tm_group_attr *)i->call.attr)->narrow, narrow && !wide);
                    if (!wide) wire[narrow] += i->cost.wire, sums++;
                }
            tm_step_destroy(step);
        }
        assert_true(sums > 4 && wire[1] == wire[0] / 2);
    }
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

static int count_sends(const tm_step *step, tm_phase phase)
{
    int n = 0;
    for (size_t i = 0; i < step->training.n; i++)
        for (size_t x = 0; x < step->training.work[i].program->count; x++) {
            const tm_node *node = step->training.work[i].program->instructions[x].node;
            n += node->op == TM_OP_send && node->phase == phase;
        }
    return n;
}

/* Gradients go as far back as something is trained, in whichever stage that is: four stages of one block. */
TEST(nothing_goes_below_what_is_trained)
{
#define FROZEN(patterns) "--optimizer.groups=[{\"params\":\"" patterns "\",\"trained\":\"false\"}] "
    static const struct {
        const char *words;
        int         below; /* the first rank that gives no gradient back */
    } wanted[] = {
        { "", 0 },
        { FROZEN("layers.1.*|layers.2.*|layers.3.*|norm.weight|output.weight|tok_*"), 0 },
        { FROZEN("layers.*|norm.weight|output.weight"), 0 },
        { FROZEN("layers.*|tok_*"), 3 },
        { FROZEN("layers.0.*|layers.1.*|tok_*"), 2 },
        { "--lora.rank 2 --lora.targets all-linear ", 0 },
        { "--lora.rank 2 --lora.targets all-linear --lora.layers 3 ", 3 },
        { "--lora.rank 2 --lora.targets all-linear " FROZEN("layers.0.*"), 1 },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        for (int rank = 0; rank < 4; rank++) {
            char words[1500];
            snprintf(words, sizeof words, TINY "--model.n_layers 4 " PP(4) R(4) "--training.grad_accumulation 4 %s",
                     wanted[i].words);
            tm_step *step = plan(words, rank);
            int      back = count_sends(step, TM_PHASE_BACKWARD), forth = count_sends(step, TM_PHASE_FORWARD);
            if (back != (rank > wanted[i].below ? 4 : 0) || forth != (rank < 3 ? 4 : 0))
                fail_msg("%s: rank %d sends %d and %d", wanted[i].words, rank, forth, back);
            tm_step_destroy(step);
        }
}

/* What lies in slots is told by what it is; padding is what placement loses. */
TEST(memory_of_slots_is_told_by_what_it_is)
{
    static const char *const orders[] = { "1F1B", "Interleaved1F1B", "ZBVZeroBubble", "DualPipeV" };
    for (int i = 0; i < 4; i++)
        for (int rank = 0; rank < 2; rank++) {
            char words[900];
            snprintf(words, sizeof words,
                     TINY "--model.n_layers 4 --model.dim 64 --training.seq_len 64 " PP(2)
                         R(2) "--training.grad_accumulation 4 --parallelism.pipeline_parallel_schedule %s",
                     orders[i]);
            tm_step *step = plan(words, rank);
            int64_t  sum = 0, padding = 0, activations = 0;
            int64_t  slots = (int64_t)step->graph->slots * (int64_t)step->plan->spaces[TM_SPACE_DEVICE].slot_bytes;
            for (size_t c = 0; c < step->plan->n_classes; c++) {
                const tm_named_i64 *class = &step->plan->by_class[c];
                sum += class->value;
                if (strcmp(class->name, "padding") == 0) padding = class->value;
                if (strcmp(class->name, "activations") == 0) activations = class->value;
            }
            assert_int_equal(sum, step->plan->arena_bytes);
            assert_true(slots > 0 && padding < sum / 50 && activations >= slots * 9 / 10);
            tm_step_destroy(step);
        }
}

/* --- updates and copies ------------------------------------------------------------------------------------------- */

/* Updates within the backward pass: the same instructions, no gradients from step to step, offloaded ones stay so. */
TEST(early_updates_keep_no_gradients)
{
    static const char *const models[] = { "", "--training.dtype bfloat16 --training.offload all ",
                                          "--model.tied true --activation_checkpoint.mode full " };
    for (int m = 0; m < 3; m++) {
        char words[900];
        snprintf(words, sizeof words, TINY "--training.max_norm 0 %s", models[m]);
        tm_step *plain = plan(words, 0);
        strcat(words, "--optimizer.early_step_in_backward true");
        tm_step             *early = plan(words, 0);
        const tm_space_plan *space = &plain->plan->spaces[TM_SPACE_DEVICE];
        assert_true(space->gradient_bytes > 0 && early->plan->spaces[TM_SPACE_DEVICE].gradient_bytes == 0);
        assert_true(early->plan->persistent_bytes < plain->plan->persistent_bytes - space->gradient_bytes / 2);
        assert_true(early->plan->arena_bytes < plain->plan->arena_bytes);
        for (int s = TM_SPACE_DEVICE + 1; s < TM_SPACE_COUNT; s++)
            assert_int_equal(early->plan->spaces[s].arena_bytes, plain->plan->spaces[s].arena_bytes);
        for (int op = 0; op < TM_OP_COUNT; op++)
            assert_int_equal(count(early->first, (tm_op_id)op) + count(early->update, (tm_op_id)op),
                             count(plain->first, (tm_op_id)op) + count(plain->update, (tm_op_id)op));
        assert_int_equal(count(early->update, TM_OP_adamw) + count(early->update, TM_OP_square_sum), 0);
        tm_step_destroy(early), tm_step_destroy(plain);
    }
}

static int count_casts(const tm_step *step, const tm_program *program)
{
    int n = 0;
    for (size_t x = 0; x < program->count; x++) {
        const tm_node *node = program->instructions[x].node;
        n += node->op == TM_OP_cast && tm_graph_at(step->graph, node->in[0])->role == TM_ROLE_PARAMETER;
    }
    return n;
}

static tm_step *plan_copies(const char *words, bool copies, int64_t room)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser own = tm_device_chooser(device);
    own.weight_copies = copies;
    own.room = room;
    tm_step *step = plan_words(words, 0, &own);
    tm_device_close(device);
    return step;
}

/* Copies of weights in the format of products: programs read them, the optimizer writes them, if it can; where nobody
 * wants them, nothing is cast, or the plan were too large, there are none. */
TEST(programs_read_copies_of_weights)
{
#define NARROW TINY "--training.dtype bfloat16 --training.grad_accumulation 2 "
    static const char *const models[] = { NARROW, NARROW "--model.tied true --training.ema_decay 0.5",
                                          NARROW "--activation_checkpoint.mode full", NARROW "--optimizer.name SGD" };
    for (int m = 0; m < 4; m++) {
        tm_step *step = plan_copies(models[m], true, 0), *none = plan_copies(models[m], false, 0);
        int64_t  room = (int64_t)step->plan->arena_bytes;
        tm_step *fits = plan_copies(models[m], true, room), *casts = plan_copies(models[m], true, room - 1);
        int      made = count_casts(step, step->copies), copies = 0;
        for (size_t i = 0; i < step->graph->n_tensors; i++)
            copies += step->graph->tensors[i].role == TM_ROLE_COPY && step->graph->tensors[i].base == TM_NONE;
        assert_true(made > 4 && made == copies);
        for (size_t p = 0; p < step->plan->n_programs; p++) {
            const tm_program *program = &step->plan->programs[p];
            int               own = program == step->copies || (program == step->update && m == 3) ? made : 0;
            assert_int_equal(count_casts(step, program), own);
        }
        assert_true(fits->copies && !casts->copies && !none->copies);
        assert_true(casts->plan->arena_bytes == none->plan->arena_bytes && (int64_t)none->plan->arena_bytes < room);
        tm_step_destroy(step), tm_step_destroy(none), tm_step_destroy(fits), tm_step_destroy(casts);
    }
    tm_step *wide = plan_copies(TINY, true, 0);
    assert_null(wide->copies);
    tm_step_destroy(wide);
}

/* A part of a weight becomes the same part of its copy. */
TEST(parts_are_those_of_copies)
{
    const tm_chooser chooser = { .weight_copies = true };
    const tm_piece   piece = { .name = "b", .rows = 6 };
    tm_graph        *graph = tm_graph_create(&tm_precision_bf16);
    tm_graph_segment(graph, "first");
    tm_tensor_id b = tm_graph_parameter(graph, "b", tm_shape_1(6), &piece, 1);
    tm_tensor_id part = tm_graph_run(graph, "part", b, 2, tm_shape_1(3));
    tm_tensor_id x = tm_graph_tensor(graph, "x", TM_ROLE_ACTIVATION, tm_shape_2(4, 3));
    tm_tensor_id in[TM_MAX_IN] = { x, x, part }, out[TM_MAX_OUT] = { TM_NONE };
    tm_graph_add(graph, TM_OP_add_bias, NULL, 0, in, out, 0);
    tm_precision_pass(graph);
    tm_resident_pass(graph, &chooser);
    const tm_tensor *read = tm_graph_at(graph, graph->segment->nodes[0].in[2]);
    const tm_node   *made = &graph->segments[1]->nodes[0];
    assert_true(graph->segment->n_nodes == 1 && graph->n_segments == 2 && graph->segments[1]->n_nodes == 1);
    assert_true(made->op == TM_OP_cast && made->in[0] == b && made->out[0] == read->base);
    assert_true(read->role == TM_ROLE_COPY && read->offset == 2 && tm_shape_elements(read->shape) == 3);
    tm_graph_destroy(graph);
}
