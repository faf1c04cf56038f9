/* SPDX-License-Identifier: Apache-2.0 */
/* The recompute pass: what is kept, where copies stand, what memory it saves, and that no gradient changes. */
#include "support/training.h"

#include "support/test.h"

static tm_step *step_of(tm_model_family family, tm_recompute recompute, int64_t layers)
{
    tm_step_options options = family == TM_FAMILY_GPT ? test_gpt_options() : test_llama_options();
    options.shape.n_layers = layers;
    options.micro_batch = 4;
    options.seq = 128;
    options.recompute = recompute;
    tm_step *step = test_step_of(&options);
    return step;
}

/* Index of the node of the first program that makes a tensor, or -1. */
static int32_t maker_of(const tm_step *step, tm_tensor_id id)
{
    for (size_t x = 0; x < step->first->count; x++)
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (step->first->instructions[x].node->out[k] == id) return (int32_t)x;
    return -1;
}

static bool layer_recomputes(const tm_recompute *policy, int layer)
{
    return layer >= 0 && policy->every_n > 0 && layer % policy->every_n == 0 &&
           (policy->layers == 0 || layer < policy->layers);
}

static bool recomputes(const tm_recompute *policy, const tm_node *forward, tm_role role)
{
    if (layer_recomputes(policy, forward->layer)) return true;
    return policy->cheap && tm_op_get(forward->op)->cheap && role == TM_ROLE_ACTIVATION;
}

/* What backward nodes read of the forward pass is what the policy keeps; returns how many nodes were recomputed. */
static size_t check_kept(const tm_step *step, const tm_recompute *policy)
{
    size_t copies = 0;
    for (size_t x = 0; x < step->first->count; x++) {
        const tm_node *node = step->first->instructions[x].node;
        copies += node->recomputed;
        if (node->phase != TM_PHASE_BACKWARD) {
            assert_false(node->recomputed);
            continue;
        }
        for (int i = 0; i < TM_MAX_IN; i++) {
            int32_t made = node->in[i] == TM_NONE ? -1 : maker_of(step, node->in[i]);
            if (made < 0) continue; /* a weight, a token */
            const tm_node *maker = step->first->instructions[made].node;
            tm_role        role = tm_graph_at(step->graph, node->in[i])->role;
            if (maker->phase != TM_PHASE_FORWARD || (role != TM_ROLE_ACTIVATION && role != TM_ROLE_STATISTIC)) continue;
            bool inside = maker->layer == node->layer || !layer_recomputes(policy, maker->layer);
            if (inside && recomputes(policy, maker, role))
                fail_msg("%s of layer %d reads what the forward %s kept", tm_op_get(node->op)->name, node->layer,
                         tm_op_get(maker->op)->name);
        }
    }
    return copies;
}

/* A layer is computed again only when the backward pass has come down to it. */
static void check_late(const tm_step *step)
{
    int lowest = 1 << 20;
    for (size_t x = 0; x < step->first->count; x++) {
        const tm_node *node = step->first->instructions[x].node;
        if (node->phase != TM_PHASE_BACKWARD || node->layer < 0) continue;
        if (node->layer > lowest)
            fail_msg("%s of layer %d comes after layer %d", tm_op_get(node->op)->name, node->layer, lowest);
        lowest = node->layer;
    }
    assert_int_equal(lowest, 0);
}

TEST(policies_keep_what_they_say)
{
    static const tm_recompute policies[] = { { 0 },
                                             { .cheap = true },
                                             { .every_n = 1 },
                                             { .every_n = 2 },
                                             { .every_n = 3 },
                                             { .cheap = true, .every_n = 2 },
                                             { .every_n = 1, .layers = 2 } };
    for (int family = 0; family < 2; family++)
        for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
            tm_step *step = step_of((tm_model_family)family, policies[i], 4);
            size_t   copies = check_kept(step, &policies[i]);
            if ((copies > 0) != (policies[i].cheap || policies[i].every_n > 0))
                fail_msg("policy %zu: %zu nodes are recomputed", i, copies);
            check_late(step);
            tm_step_destroy(step);
        }
}

/* As the reference systems define it: attention and every second product are kept (qkv as three, gate and up as two),
 * all else of every block is computed again. Counted by hand, per layer. */
TEST(by_op_keeps_what_is_named)
{
    static const tm_recompute named = { .every_n = 1, .save = { [TM_OP_attention] = 1, [TM_OP_linear] = 2 } };
    static const tm_recompute products = { .every_n = 1, .save = { [TM_OP_linear] = 1 } };
    for (int f = 0; f < 2; f++) {
        bool     gpt = (tm_model_family)f == TM_FAMILY_GPT;
        tm_step *step = step_of((tm_model_family)f, named, 3);
        int      again[TM_OP_COUNT] = { 0 };
        for (size_t x = 0; x < step->first->count; x++) {
            const tm_node *node = step->first->instructions[x].node;
            if (!node->recomputed) continue;
            again[node->op]++;
            if (node->op == TM_OP_linear) /* the output projection */
                assert_non_null(strstr(tm_graph_at(step->graph, node->in[1])->name, gpt ? "attn.c_proj" : "wo"));
        }
        assert_int_equal(again[TM_OP_attention], 0);
        assert_int_equal(again[TM_OP_linear], 3);
        assert_int_equal(again[gpt ? TM_OP_layernorm : TM_OP_rmsnorm], 2 * 3);
        assert_int_equal(again[gpt ? TM_OP_gelu : TM_OP_swiglu], 3);
        assert_int_equal(again[TM_OP_rope], gpt ? 0 : 3);
        check_late(step);
        size_t bytes = step->first->live_peak;
        tm_step_destroy(step);
        step = step_of((tm_model_family)f, products, 3);
        int attention = 0;
        for (size_t x = 0; x < step->first->count; x++) {
            const tm_node *node = step->first->instructions[x].node;
            attention += node->recomputed && node->op == TM_OP_attention;
            assert_false(node->recomputed && node->op == TM_OP_linear);
        }
        assert_int_equal(attention, 3);
        tm_step_destroy(step);
        tm_step *none = step_of((tm_model_family)f, (tm_recompute){ 0 }, 3),
                *full = step_of((tm_model_family)f, (tm_recompute){ .every_n = 1 }, 3);
        assert_true(bytes < none->first->live_peak && bytes > full->first->live_peak);
        tm_step_destroy(none);
        tm_step_destroy(full);
    }
}

static size_t transient_bytes(tm_model_family family, tm_recompute recompute, int64_t layers)
{
    tm_step *step = step_of(family, recompute, layers);
    size_t   most = 0;
    for (size_t x = 0; x < step->first->count; x++) { /* also what lies where gradients come later */
        size_t live = (step->first->instructions[x].call.workspace_bytes + 63) / 64 * 64;
        for (size_t i = 0; i < step->graph->n_tensors; i++) {
            const tm_place *p = &step->plan->places[i];
            bool            own = p->program >= 0 && &step->plan->programs[p->program] == step->first && p->shares < 0;
            if (own && p->first <= (int32_t)x && (int32_t)x <= p->last) live += (p->bytes + 63) / 64 * 64;
        }
        if (live > most) most = live;
    }
    tm_step_destroy(step);
    return most;
}

TEST(memory_falls_with_what_is_recomputed)
{
    for (int f = 0; f < 2; f++) {
        tm_model_family family = (tm_model_family)f;
        size_t          none = transient_bytes(family, (tm_recompute){ 0 }, 8),
               cheap = transient_bytes(family, (tm_recompute){ .cheap = true }, 8);
        size_t second = transient_bytes(family, (tm_recompute){ .every_n = 2 }, 8),
               full = transient_bytes(family, (tm_recompute){ .every_n = 1 }, 8);
        assert_true(cheap < none && second < none && full < second);
        /* a further layer, wholly recomputed, costs its input only: N x C numbers */
        size_t more = transient_bytes(family, (tm_recompute){ .every_n = 1 }, 9);
        assert_int_equal(more - full, 4 * 128 * 64 * sizeof(float));
    }
}
