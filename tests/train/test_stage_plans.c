/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank of a pipeline plans: its blocks, messages and slots, its piece of the output layer, its rows of low
 * precision; gradients go as far back as something is trained. What stages compute: tests/differential. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "support/full_config.h"
#include "train/run/run.h"
#include "train/step/stages.h"

#include <unistd.h>

typedef struct {
    int               model, stages, chunks;
    tm_pipeline_order order;
    int64_t           micro_batches;
    int               steps;
    double            max_norm;
} layout;

static tm_step_options options_of(const layout *l)
{
    tm_step_options o = model_options(l->model);
    int             blocks = l->stages * l->chunks + (l->stages * l->chunks > 2);
    o.shape.n_layers = blocks;
    o.accumulation = l->micro_batches;
    o.layout.order = l->order;
    o.layout.chunks = l->chunks;
    o.layout.first_less = o.layout.last_less = l->stages * l->chunks > blocks - 2 ? 0 : 1;
    return o;
}

static int64_t class_bytes(const tm_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n_classes; i++)
        if (strcmp(plan->by_class[i].name, name) == 0) return plan->by_class[i].value;
    return 0;
}

/* What lies in slots is told by what it is, whatever program is the largest; padding is what placement loses. */
TEST(memory_of_slots_is_told_by_what_it_is)
{
    static const layout layouts[] = { { 0, 2, 1, TM_PIPELINE_1F1B, 4, 1, 1 },
                                      { 1, 2, 2, TM_PIPELINE_INTERLEAVED, 4, 1, 1 },
                                      { 0, 2, 2, TM_PIPELINE_ZBV, 4, 1, 1 },
                                      { 1, 4, 2, TM_PIPELINE_DUAL_V, 8, 1, 1 } };
    tm_device          *device = test_device_open("cpu", 1);
    tm_chooser          chooser = tm_device_chooser(device);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        for (int rank = 0; rank < layouts[i].stages; rank++) {
            tm_step_options o = options_of(&layouts[i]);
            tm_step        *step = NULL;
            tm_error        err = { 0 };
            o.seq = 64;
            if (plan_stage(o, &chooser, layouts[i].stages, rank, &step, &err) != TM_OK) fail_msg("%s", err.text);
            int64_t sum = 0, padding = class_bytes(step->plan, "padding");
            int64_t slots = (int64_t)step->graph->slots * (int64_t)step->plan->spaces[TM_SPACE_DEVICE].slot_bytes;
            for (size_t c = 0; c < step->plan->n_classes; c++) sum += step->plan->by_class[c].value;
            print_message("# layout %d, rank %d: %lld bytes, %lld in slots, %lld of padding\n", (int)i, rank,
                          (long long)sum, (long long)slots, (long long)padding);
            assert_int_equal(sum, step->plan->arena_bytes);
            assert_true(padding < sum / 50);
            assert_true(class_bytes(step->plan, "activations") >= slots * 9 / 10);
            tm_step_destroy(step);
        }
    tm_device_close(device);
}

/* --- by words ------------------------------------------------------------------------------------------------------
 */

#define BLOCKS                                                                                                         \
    "tiny-llama --model.n_layers 4 --model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 64 "          \
    "--model.vocab_size 96 --training.seq_len 16 --training.local_batch_size 1 --training.grad_accumulation 4 "        \
    "--validation.enable false "
#define STAGES(n) "--parallelism.ranks " #n " --parallelism.pipeline_parallel_degree " #n " "
#define GROUP(patterns, more) "--optimizer.groups=[{\"params\":\"" patterns "\"," more "}] "
#define FROZEN "\"trained\":\"false\""

/* The step that rank `rank` plans, or NULL and what is said. */
static tm_step *plan_words(const char *words, const tm_chooser *chooser, int rank, tm_error *err)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_step       *step = NULL;
    *err = (tm_error){ 0 };
    if (test_read_run(config, words, &options, err) == TM_OK) {
        options.step.layout.rank = rank;
        if (tm_step_create(&options.step, chooser, &step, err) != TM_OK) step = NULL;
    }
    tm_config_destroy(config);
    return step;
}

static size_t count_sends(const tm_step *step, tm_phase phase)
{
    size_t n = 0;
    for (size_t i = 0; i < step->training.n; i++) {
        const tm_program *program = step->training.work[i].program;
        for (size_t x = 0; x < program->count; x++)
            n += program->instructions[x].call.op == &tm_op_send && program->instructions[x].node->phase == phase;
    }
    return n;
}

/* Gradients go as far back as something is trained, in whichever stage that is: four stages of one block. */
TEST(nothing_goes_below_what_is_trained)
{
    static const struct {
        const char *words;
        int         below; /* the first rank that gives no gradient back */
    } wanted[] = {
        { "", 0 },
        { GROUP("layers.1.*|layers.2.*|layers.3.*|norm.weight|output.weight|tok_*", FROZEN), 0 },
        { GROUP("layers.*|norm.weight|output.weight", FROZEN), 0 },
        { GROUP("layers.0.*|layers.1.*|layers.2.*|tok_*", FROZEN), 3 },
        { GROUP("layers.*|tok_*", FROZEN), 3 },
        { GROUP("layers.0.*|layers.1.*|tok_*", FROZEN), 2 },
        { "--lora.rank 2 --lora.targets all-linear ", 0 },
        { "--lora.rank 2 --lora.targets all-linear --lora.layers 3 ", 3 },
        { "--lora.rank 2 --lora.targets all-linear " GROUP("layers.0.*", FROZEN), 1 },
    };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        for (int rank = 0; rank < 4; rank++) {
            char     words[1500];
            tm_error err;
            snprintf(words, sizeof words, BLOCKS STAGES(4) "%s", wanted[i].words);
            tm_step *step = plan_words(words, &chooser, rank, &err);
            if (!step) fail_msg("%s: %s", words, err.text);
            size_t back = rank > wanted[i].below ? 4 : 0;
            if (count_sends(step, TM_PHASE_BACKWARD) != back)
                fail_msg("%s: rank %d sends %zu gradients, wanted %zu", wanted[i].words, rank,
                         count_sends(step, TM_PHASE_BACKWARD), back);
            assert_int_equal(count_sends(step, TM_PHASE_FORWARD), rank < 3 ? 4 : 0);
            tm_step_destroy(step);
        }
    tm_device_close(device);
}

/* A rank has rows of its own linears only, or of all experts of its stage; each has the names of all, in one order. */
TEST(rows_of_low_precision_are_those_of_the_whole_model)
{
#define EXPERTS                                                                                                        \
    "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "                 \
    "--quantize.experts_recipe fp8_rowwise "
    static const struct {
        const char *words, *layout;
        int         ranks;
        bool        apart; /* each row is on one rank; else each on all, `elsewhere` where it is another's */
    } wanted[] = {
        { "", STAGES(4), 4, true },
        { "--quantize.output_recipe fp8_rowwise ", STAGES(4), 4, true },
        { "--first_last_layers_bf16 true ", STAGES(4), 4, true },
        { EXPERTS, STAGES(4), 4, true },
        { "", "--parallelism.ranks 2 --parallelism.tensor_parallel_degree 2 ", 2, false },
        { EXPERTS, "--parallelism.ranks 2 --parallelism.tensor_parallel_degree 2 ", 2, false },
        { EXPERTS, "--parallelism.ranks 2 --parallelism.expert_parallel_degree 2 ", 2, false },
    };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        char     words[1500];
        size_t   rows = 0, elsewhere = 0;
        tm_error err;
        snprintf(words, sizeof words, BLOCKS "--quantize.recipe fp8_rowwise %s", wanted[i].words);
        tm_step *one = plan_words(words, &chooser, 0, &err);
        if (!one) fail_msg("%s: %s", words, err.text);
        strncat(words, wanted[i].layout, sizeof words - strlen(words) - 1);
        for (int rank = 0; rank < wanted[i].ranks; rank++) {
            size_t   all;
            tm_step *step = plan_words(words, &chooser, rank, &err);
            if (!step) fail_msg("%s: %s", words, err.text);
            const tm_quantized     *q = &step->quantized;
            const tm_quantized_row *row = tm_quantized_all(q, &all);
            assert_int_equal(all, one->quantized.n_rows);
            for (size_t k = 0; k < all; k++) {
                assert_string_equal(row[k].name, one->quantized.rows[k].name);
                assert_true(row[k].factor == one->quantized.rows[k].factor);
            }
            for (size_t k = 0; k < q->n_rows; k++) {
                size_t place = q->places ? (size_t)q->places[k] : k;
                assert_string_equal(q->rows[k].name, row[place].name);
                elsewhere += q->rows[k].elsewhere;
            }
            assert_true((q->record != TM_NONE) == (q->n_rows > 0));
            rows += q->n_rows;
            tm_step_destroy(step);
        }
        size_t n = one->quantized.n_rows;
        if (rows != (wanted[i].apart ? n : (size_t)wanted[i].ranks * n))
            fail_msg("%s: %zu rows, of %zu", words, rows, n);
        assert_true((elsewhere > 0) == (strstr(wanted[i].layout, "expert") != NULL));
        tm_step_destroy(one);
    }
    tm_device_close(device);
}

/* A rank has its rows of the output layer, and products with these; of a table the first one has all, too. */
TEST(a_rank_has_its_piece_of_the_output_layer)
{
    static const struct {
        const char *words;
        int         ranks;
        bool        v; /* the last stage is on the first rank */
    } forms[] = {
        { STAGES(2), 2, false },
        { STAGES(2) "--model.tied true ", 2, false },
        { STAGES(2) "--parallelism.pipeline_parallel_schedule Interleaved1F1B ", 2, false },
        { STAGES(2) "--parallelism.pipeline_parallel_schedule ZBVZeroBubble --model.tied true ", 2, true },
        { STAGES(3) "--model.n_layers 5 --training.grad_accumulation 6 "
                    "--parallelism.pipeline_parallel_schedule DualPipeV ",
          3, true },
    };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        int64_t next = 0, elements = 0, copies = 0, whole = 0, table = 0;
        for (int r = 0; r < forms[i].ranks; r++) {
            char     words[1500];
            tm_error err;
            snprintf(words, sizeof words, BLOCKS "%s --parallelism.pipeline_parallel_divide_head true", forms[i].words);
            tm_step *step = plan_words(words, &chooser, forms[i].v ? forms[i].ranks - 1 - r : r, &err);
            if (!step) fail_msg("%s: %s", words, err.text);
            const tm_model_shape *shape = &step->options.shape;
            const tm_stage       *stage = tm_parallel_piece(&step->model.parallel);
            const tm_tensor      *head = tm_graph_at(step->graph, step->model.head);
            assert_int_equal(stage->piece, r);
            assert_int_equal(stage->pieces, forms[i].ranks);
            assert_int_equal(stage->class_first, next);
            next = stage->class_end;
            assert_true(head->shape.n[0] == next - stage->class_first && head->twin == shape->tied);
            assert_true((step->model.norm_w != TM_NONE) == (r == 0));
            for (size_t k = 0; k < step->graph->n_tensors; k++) {
                const tm_tensor *t = &step->graph->tensors[k];
                if (t->role != TM_ROLE_PARAMETER) continue;
                *(t->twin ? &copies : &elements) += tm_shape_elements(t->shape);
            }
            assert_true((tm_plan_program(step->plan, "table") != NULL) == shape->tied);
            whole = tm_model_parameters(shape), table = shape->tied ? shape->vocab_size * shape->dim : 0;
            tm_step_destroy(step);
        }
        assert_int_equal(next, 96);
        assert_int_equal(elements, whole);
        assert_int_equal(copies, table);
    }
    tm_device_close(device);
}
