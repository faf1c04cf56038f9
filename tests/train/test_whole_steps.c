/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of whole training steps, as each pass and the planner leave them, to the letter: every op with its
 * operands, formats, costs, kernels, lifetimes and places, where each tensor lies, and in which order the programs run.
 * Small ones are written out, of others a checksum of each program. After a change that is meant:
 * TM_RECORD=1 build/release/tests/train/test_whole_steps; git diff tests/train/whole-steps.txt */
#include "base/hash.h"
#include "device/device.h"
#include "graph/plan.h"
#include "support/full_config.h"
#include "support/training.h"
#include "support/whole.h"
#include "train/run.h"
#include "train/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 2 --model.ffn_dim 64 "          \
    "--training.seq_len 16 --training.local_batch_size 2 --training.threads 1 --validation.enable false "
#define MIXTRAL TINY "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "
#define DEEPSEEK                                                                                                       \
    TINY "--model.family deepseek --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "           \
         "--model.n_shared_experts 1 --model.n_dense_layers 1 --model.kv_lora_rank 16 --model.qk_nope_head_dim 16 "    \
         "--model.qk_rope_head_dim 16 --model.v_head_dim 16 "

static const struct {
    const char *words;
    int         degree[TM_AXES]; /* 0: 1 */
    tm_sharing  sharing;
    bool        whole, sequences, reshard; /* whole: written out */
} steps[] = {
    { .words = TINY, .whole = true },
    { .words = TINY "--model.tied true --model.qk_norm true" },
    { .words = TINY "--training.dtype bfloat16 --training.mixed_precision_param bfloat16" },
    { .words = TINY "--training.dtype bfloat16 --training.regime pure" },
    { .words = TINY "--activation_checkpoint.mode full --loss.chunk_tokens 7" },
    { .words = TINY "--activation_checkpoint.mode selective" },
    { .words = TINY "--quantize.recipe fp8_tensorwise" },
    { .words = TINY "--lora.rank 2 --lora.alpha 6 --lora.dropout 0.25 --lora.targets wq,wv" },
    { .words = TINY "--optimizer.name muon" },
    { .words = TINY "--optimizer.name adafactor" },
    { .words = TINY "--optimizer.name sgd" },
    { .words = TINY "--optimizer.name adamw8bit" },
    { .words = TINY "--training.grad_accumulation 4 --training.separate_sums 2" },
    { .words = TINY "--validation.enable true --validation.steps 2 --validation.seq_len 24" },
    { .words = MIXTRAL "--model.moe_aux_loss 0.01" },
    { .words = DEEPSEEK },
    { .words = DEEPSEEK, .degree = { [TM_AXIS_TP] = 2 } },
    { .words = DEEPSEEK, .degree = { [TM_AXIS_TP] = 2 }, .sequences = true },
    { .words = MIXTRAL, .degree = { [TM_AXIS_SHARD] = 2, [TM_AXIS_EP] = 2 }, .sharing = TM_SHARE_ALL },
    { .words = TINY, .degree = { [TM_AXIS_TP] = 2 } },
    { .words = TINY, .degree = { [TM_AXIS_TP] = 2 }, .sequences = true },
    { .words = TINY, .degree = { [TM_AXIS_CP] = 2, [TM_AXIS_SHARD] = 1 } },
    { .words = TINY, .degree = { [TM_AXIS_PP] = 2 } },
    { .words = TINY, .degree = { [TM_AXIS_SHARD] = 2 }, .sharing = TM_SHARE_ALL, .reshard = true },
    { .words = TINY, .degree = { [TM_AXIS_SHARD] = 2 }, .sharing = TM_SHARE_ALL },
    { .words = TINY, .degree = { [TM_AXIS_SHARD] = 3 } },
    { .words = TINY, .degree = { [TM_AXIS_REPLICATE] = 2 } },
    { .words = "tiny-flux --training.local_batch_size 2 --training.threads 1 --validation.steps 1 --model.dim 64 "
               "--model.n_heads 2" },
    { .words = "gpt-small --model.n_layers 2 --model.dim 32 --model.n_heads 2 --training.seq_len 16 "
               "--training.local_batch_size 2 --training.threads 1 --validation.enable false" },
};

static void add_sum(tm_text *out, const char *name, const tm_text *text)
{
    tm_text_printf(out, "    %s: %016llx\n", name, (unsigned long long)tm_hash(text->data, text->length));
}

/* What tm_plan_print says nothing of. */
static void add_nodes(tm_text *out, const tm_segment *segment)
{
    for (size_t i = 0; i < segment->n_nodes; i++) {
        const tm_node *n = &segment->nodes[i];
        tm_text_printf(out, "    %s %s %d phase %d keep %d%s:", tm_op_get(n->op)->name, n->module ? n->module : "-",
                       n->layer, n->phase, n->keep, n->recomputed ? " again" : "");
        for (int k = 0; k < TM_MAX_IN; k++) tm_text_printf(out, " %d", n->in[k]);
        tm_text_add(out, " to");
        for (int k = 0; k < TM_MAX_OUT; k++) tm_text_printf(out, " %d", n->out[k]);
        tm_text_printf(out, "; %zu, %x %x\n", n->attr_bytes, n->accumulate, n->rounded);
    }
}

static void add_tensors(tm_text *out, const tm_step *step)
{
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        const tm_place   place = tm_plan_place(step->plan, (tm_tensor_id)i);
        char             shape[96];
        tm_text_printf(out, "    %s %s %s role %d layer %d %d%d%d; %d %d %d %lld %lld %d twin %d sums %x; ", t->name,
                       tm_dtype_name(t->dtype), tm_shape_text(shape, t->shape), t->role, t->layer, t->trained,
                       t->as_stored, t->head, t->gradient, t->lookup_gradient, t->base, (long long)t->offset,
                       (long long)t->ld, t->space, t->twin, t->sums);
        tm_text_printf(out, "at %zu, %zu, %d %d-%d %d %x\n", place.offset, place.bytes, place.program, place.first,
                       place.last, place.shares, place.streams);
    }
}

static void add_schedule(tm_text *out, const char *name, const tm_step_schedule *s)
{
    tm_text_printf(out, "  %s:", name);
    for (size_t i = 0; i < s->n; i++)
        tm_text_printf(out, " %s %lld %lld %d,", s->work[i].program->name, (long long)s->work[i].micro_batch,
                       (long long)s->work[i].count, s->work[i].slot);
    tm_text_add(out, "\n");
}

static void add_step(tm_text *out, const tm_step *step, const tm_chooser *chooser, bool whole)
{
    tm_text programs = { 0 }, tensors = { 0 };
    tm_plan_print(step->plan, chooser, &programs);
    add_tensors(&tensors, step);
    if (whole)
        tm_text_printf(out, "%s%s", programs.data, tensors.data);
    else
        add_sum(out, "programs", &programs), add_sum(out, "tensors", &tensors);
    for (size_t s = 0; s < step->graph->n_segments; s++) {
        tm_text nodes = { 0 };
        add_nodes(&nodes, step->graph->segments[s]);
        if (whole && nodes.data)
            tm_text_printf(out, "  %s:\n%s", step->graph->segments[s]->name, nodes.data);
        else if (nodes.data)
            add_sum(out, step->graph->segments[s]->name, &nodes);
        tm_text_fini(&nodes);
    }
    add_schedule(out, "training", &step->training);
    add_schedule(out, "evaluation", &step->evaluation);
    add_schedule(out, "validation", &step->validation);
    tm_text_fini(&programs);
    tm_text_fini(&tensors);
}

static void steps_are_as_recorded(void **state)
{
    tm_text    out = { 0 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_error   err = { 0 };
    (void)state;
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        tm_config     *config = test_full_config();
        tm_run_options options;
        int            ranks = 1;
        err = (tm_error){ 0 };
        if (test_read_run(config, steps[i].words, &options, &err) != TM_OK)
            fail_msg("%s: %s", steps[i].words, err.text);
        tm_layout *layout = &options.step.layout;
        layout->mesh = tm_mesh_one();
        for (int a = 0; a < TM_AXES; a++)
            if (steps[i].degree[a]) layout->mesh.degree[a] = steps[i].degree[a];
        for (int a = 0; a < TM_AXES; a++)
            if (a != TM_AXIS_EP) ranks *= layout->mesh.degree[a];
        if (tm_mesh_fill(&layout->mesh, ranks, &err) != TM_OK) fail_msg("%s: %s", steps[i].words, err.text);
        layout->sharing = steps[i].sharing;
        layout->reshard = steps[i].reshard;
        layout->whole_rows = !steps[i].sequences;
        for (layout->rank = 0; layout->rank<ranks; layout->rank += ranks> 1 ? ranks - 1 : 1) {
            tm_step *step;
            size_t   known = strncmp(steps[i].words, TINY, strlen(TINY)) == 0 ? strlen(TINY) : 0;
            tm_text_printf(&out, "\n%s%s: rank %d of", known ? "tiny " : "", steps[i].words + known, layout->rank);
            for (int a = 0; a < TM_AXES; a++) tm_text_printf(&out, " %d", layout->mesh.degree[a]);
            tm_text_printf(&out, ", sharing %d, reshard %d, whole rows %d\n", layout->sharing, layout->reshard,
                           layout->whole_rows);
            tm_status st = tm_step_create(&options.step, &chooser, &step, &err);
            if (st != TM_OK) {
                tm_text_printf(&out, "  exit %d: %s\n", tm_status_exit_code(st), err.text);
                break;
            }
            add_step(&out, step, &chooser, steps[i].whole);
            tm_step_destroy(step);
        }
        tm_config_destroy(config);
    }
    tm_device_close(device);
    whole_is("tests/train/whole-steps.txt", &out);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps_are_as_recorded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
