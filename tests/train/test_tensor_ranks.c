/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that divide the matrices of a model (tensor parallel): they follow one rank with the same samples, alone and
 * beside copies and shards; have the same bits every time; hold their part; and go on from each other's checkpoints. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "support/full_config.h"

/* Llama, GPT, a model with what sets others apart (head norms, biases, sinks, tied), all with four heads. */
enum { KINDS = 4 };
static tm_step_options options_of_kind(int kind)
{
    tm_step_options o = kind == 1 || kind == 3 ? test_gpt_options() : test_llama_options();
    o.shape.dim = 32, o.shape.ffn_dim = 64, o.shape.head_dim = 16, o.micro_batch = 1, o.seq = 16;
    o.shape.n_heads = o.shape.n_kv_heads = 4;
    if (kind == 0) o.shape.n_heads = 8;
    if (kind == 2) o.shape.qk_norm = o.shape.sinks = o.shape.tied = true, o.shape.bias = TM_BIAS_ALL;
    if (kind > 0) o.loss_chunk = 5;
    if (kind == 3) o.shape.tied = false, o.shape.vocab_size = 91; /* the last rank has fewer classes */
    return o;
}

static job start(int kind, int tensor, int replicate, int shard, int steps)
{
    job j = { .o = options_of_kind(kind), .replicate = replicate, .shard = shard, .tensor = tensor, .steps = steps };
    j.rate = 2e-3, j.max_norm = 1;
    j.o.layout.sharing = shard > 1 ? TM_SHARE_ALL : TM_SHARE_COPIES;
    j.o.layout.reshard = true;
    return j;
}

static void divided_matrices_follow_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        job alone = run_alone(options_of_kind(kind), 1, 1, MOST_STEPS);
        for (int tensor = 2; tensor <= (kind == 3 ? 2 : 4); tensor *= 2)
            for (int whole = 0; whole < 2; whole++) {
                char what[80];
                job  j = start(kind, tensor, 1, 1, MOST_STEPS);
                j.o.layout.whole_rows = whole;
                run_job(&j);
                snprintf(what, sizeof what, "kind %d, %d ranks, %s rows", kind, tensor, whole ? "whole" : "divided");
                check_follows_one(&j, &alone, what, 2e-5);
            }
    }
}

/* Copies and shards of models that are divided, several micro-batches, recomputation, bfloat16. */
static void layouts_compose(void **state)
{
    static const struct {
        int replicate, shard, sharing;
    } beside[] = { { 2, 1, TM_SHARE_COPIES },
                   { 1, 2, TM_SHARE_ALL },
                   { 1, 2, TM_SHARE_OPTIMIZER },
                   { 1, 2, TM_SHARE_GRADIENTS },
                   { 2, 2, TM_SHARE_ALL } };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t b = 0; b < sizeof beside / sizeof beside[0]; b++) {
            char   what[80];
            int    ranks = beside[b].replicate * beside[b].shard, steps = b < 2 && kind < 2 ? MOST_STEPS : 4;
            job    j = start(kind, 2, beside[b].replicate, beside[b].shard, steps);
            size_t variant = ((size_t)kind + b) % 3;
            j.o.layout.sharing = (tm_sharing)beside[b].sharing;
            j.o.layout.prefetch = 1;
            if (variant > 0) j.o.accumulation = 2;
            if (variant > 1) j.o.recompute = (tm_recompute){ .cheap = true, .every_n = 1 };
            job alone = run_alone(j.o, ranks, 1, steps);
            run_job(&j);
            snprintf(what, sizeof what, "kind %d, 2 x %d copies x %d shards (%d)", kind, beside[b].replicate,
                     beside[b].shard, beside[b].sharing);
            check_follows_one(&j, &alone, what, 2e-5);
        }
}

static void bfloat16_is_close_and_repeats(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        job j = start(0, 2, 1, 1, 8), again;
        j.o.precision = &tm_precision_bf16;
        j.o.layout.whole_rows = whole;
        job alone = run_alone(j.o, 1, 1, 8);
        again = j;
        run_job(&j);
        run_job(&again);
        assert_true(apart(&j, &alone) < 4e-3);
        assert_true(again.weights[0] == j.weights[0]);
    }
}

static void runs_repeat_bit_for_bit(void **state)
{
    (void)state;
    job once = start(1, 4, 1, 2, 5), twice = once;
    run_job(&once);
    run_job(&twice);
    for (int t = 0; t < 5; t++) assert_true(once.loss[t] == twice.loss[t] && once.norm[t] == twice.norm[t]);
    assert_true(once.weights[0] == twice.weights[0]);
}

/* A value depends on its place in the whole parameter: every cut begins with the same model. */
static void all_begin_with_the_same_weights(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        job alone = run_alone(options_of_kind(kind), 1, 1, 0);
        for (int tensor = 2; tensor <= (kind == 3 ? 2 : 4); tensor *= 2)
            for (int shard = 1; shard <= 2; shard++) {
                job j = start(kind, tensor, 1, shard, 0);
                run_job(&j);
                if (j.weights[0] != alone.weights[0])
                    fail_msg("kind %d, %d ranks x %d shards begin with other weights", kind, tensor, shard);
            }
    }
}

static void gradients_agree_in_double_precision(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int whole = 0; whole < 2; whole++) {
            char what[40];
            job  j = start(kind, 2, 1, 1, 1);
            j.o.layout.whole_rows = whole;
            snprintf(what, sizeof what, "kind %d, %s rows", kind, whole ? "whole" : "divided");
            check_sgd_step(j, 1, what);
        }
}

/* What a rank holds is what its plan says, and its part of the model. */
static void a_rank_holds_its_part(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        job        whole = run_alone(options_of_kind(kind), 1, 1, 1), j = start(kind, 2, 1, 1, 1);
        tm_device *device = test_device_open("cpu", 1);
        tm_chooser chooser = tm_device_chooser(device);
        run_job(&j);
        for (int r = 0; r < 2; r++) {
            tm_step_options o = j.o;
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_TP] = 2;
            o.layout.rank = r;
            tm_step *step = test_step_plan(&o, &chooser);
            size_t   here = 0, cut = 0;
            assert_int_equal(step->plan->arena_bytes, j.arena[r]);
            for (size_t i = 0; i < step->graph->n_tensors; i++) {
                const tm_tensor *t = &step->graph->tensors[i];
                if (t->role != TM_ROLE_PARAMETER) continue;
                here += (size_t)tm_shape_elements(t->shape);
                if (t->cut) cut += (size_t)tm_shape_elements(t->shape);
            }
            assert_int_equal(here + cut, whole.states[0] / 16);
            assert_true(j.states[r] >= 16 * here && j.states[r] < 16 * here + 16 * here / 20);
            tm_step_destroy(step);
        }
        tm_device_close(device);
    }
}

/* One of several layouts, from `load` to step `steps`, saved to `save`. */
static job run_layout(int kind, int which, int begin, int steps, const char *load, const char *save)
{
    static const struct {
        int tensor, replicate, shard;
    } all[] = { { 2, 1, 1 }, { 1, 1, 1 }, { 4, 1, 1 }, { 2, 1, 2 }, { 1, 1, 4 }, { 4, 1, 2 } };
    job j = start(kind, all[which].tensor, all[which].replicate, all[which].shard, steps);
    j.o.accumulation = 4 / all[which].shard;
    j.begin = begin, j.load = load, j.save = save;
    run_any(&j);
    return j;
}

/* From 2 ranks to one, to 4, to shards of parts and back: the same weights, and a run that goes on. */
static void any_layout_goes_on_from_any_other(void **state)
{
    enum { LAYOUTS = 6 };
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        job whole = run_layout(kind, 1, 0, 4, NULL, NULL);
        for (int a = 0; a < LAYOUTS; a++) {
            char *folder = test_tree_make();
            job   saved = run_layout(kind, a, 0, 2, NULL, folder);
            for (int b = 0; b < LAYOUTS; b++) {
                bool on = (a + b) % 3 == 1;
                job  loaded = run_layout(kind, b, 2, on ? 4 : 2, folder, NULL);
                if (!on && loaded.weights[0] != saved.weights[0])
                    fail_msg("kind %d, layout %d of %d: other weights", kind, b, a);
                for (int t = 2; on && t < 4; t++)
                    if (!(fabs(loaded.loss[t] - whole.loss[t]) <= 1e-5 * whole.loss[t]) ||
                        !(fabs(loaded.norm[t] - whole.norm[t]) <= 1e-4 * whole.norm[t]))
                        fail_msg("kind %d, layout %d goes on from %d: step %d: loss %.9g, wanted %.9g; norm %.9g, "
                                 "wanted %.9g",
                                 kind, b, a, t + 1, loaded.loss[t], whole.loss[t], loaded.norm[t], whole.norm[t]);
            }
            test_tree_remove(folder);
        }
    }
}

static void ranks_write_what_one_rank_writes(void **state)
{
    (void)state;
    char *path = test_tree_make();
    test_file_write(path, "a.txt", "the quick brown fox jumps over the lazy dog, and the dog sleeps on in the sun");
    for (int kind = 0; kind < 2; kind++)
        for (int tensor = 2; tensor <= 4; tensor *= 2) {
            job j = start(kind, tensor, 1, 1, 0);
            j.o.shape.vocab_size = 258, j.o.sample = true;
            check_writes(j, path);
        }
    test_tree_remove(path);
}

static void what_cannot_be_divided_is_refused(void **state)
{
    (void)state;
    tm_step_options o = options_of_kind(0);
    tensor_refused(o, 3, TM_INVALID, "parallelism.tensor_parallel_degree 3 does not divide model.n_heads, which is 8");
    tensor_refused(o, 8, TM_INVALID, "model.n_kv_heads, which is 4");
    o.shape.ffn_dim = 65;
    tensor_refused(o, 2, TM_INVALID, "model.ffn_dim, which is 65");
    o = options_of_kind(0);
    o.seq = 15;
    tensor_refused(o, 2, TM_INVALID, "parallelism.enable_sequence_parallel false");
    o = options_of_kind(0);
    o.optimizer = &tm_optimizer_muon;
    tensor_refused(o, 2, TM_UNSUPPORTED, "(optimizer.name) cannot be combined with matrices that ranks divide");
    o = options_of_kind(0);
    o.hyper.stochastic = true;
    tensor_refused(o, 2, TM_UNSUPPORTED, "optimizer.bf16_stochastic_round");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(divided_matrices_follow_one_rank),
    cmocka_unit_test(layouts_compose),
    cmocka_unit_test(bfloat16_is_close_and_repeats),
    cmocka_unit_test(runs_repeat_bit_for_bit),
    cmocka_unit_test(all_begin_with_the_same_weights),
    cmocka_unit_test(gradients_agree_in_double_precision),
    cmocka_unit_test(a_rank_holds_its_part),
    full_test(any_layout_goes_on_from_any_other),
    cmocka_unit_test(ranks_write_what_one_rank_writes),
    cmocka_unit_test(what_cannot_be_divided_is_refused),
};

TM_TESTS(tests, NULL, NULL)
