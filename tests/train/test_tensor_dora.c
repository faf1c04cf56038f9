/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of divided matrices that need more than their own part of one: DoRA, whose lengths are those of whole rows;
 * the output layer, whose logits no rank has all of; images, of whose single blocks a rank has two runs of columns of
 * one matrix. All as test_tensor_adapters.c. */
#include "support/test.h"
#include "adapters_fixture.h"
#include "graph/value.h"
#include "support/full_config.h"

enum { LLAMA, GPT, BIASES, LATENT, PATTERN, OUTPUT, IMAGES, TURNED_IMAGES, TURNED_OUTPUT, KINDS };
static const char *const names[] = { "Llama",
                                     "GPT",
                                     "head norms, biases",
                                     "DeepSeek",
                                     "several ranks",
                                     "output layer",
                                     "FLUX",
                                     "FLUX with DoRA",
                                     "output layer with DoRA" };

static bool images(int kind)
{
    return kind == IMAGES || kind == TURNED_IMAGES;
}

static const tm_pattern_value patterns[] = { { "k_proj", 2 }, { "down_proj", 8 } };

static tm_step_options options_of(int kind)
{
    static const char *const targets[] = { "all-linear", "all-linear", "wqkv,o_proj,w2,gate_proj",
                                           "all-linear", "all-linear", "q_proj,down_proj,lm_head",
                                           "all-linear", "all-linear", "q_proj,down_proj,lm_head" };
    tm_step_options          o = kind == GPT ? test_gpt_options() : test_llama_options();
    o.shape.dim = 32, o.shape.ffn_dim = 64, o.shape.head_dim = 16, o.micro_batch = 1, o.seq = 16;
    o.shape.n_heads = o.shape.n_kv_heads = 4;
    if (kind == LLAMA) o.shape.n_heads = 8;
    if (kind == BIASES) o.shape.qk_norm = o.shape.tied = true, o.shape.bias = TM_BIAS_ALL;
    if (kind == LATENT) o = mixture_options(DEEPSEEK);
    if (images(kind)) o = shareable(3);
    o.adapters = lora(targets[kind]);
    o.adapters.dora = kind != OUTPUT && kind != IMAGES;
    if (kind == PATTERN) o.adapters.ranks = patterns, o.adapters.n_ranks = 2;
    if (kind == OUTPUT || kind == TURNED_OUTPUT) o.loss_chunk = 5, o.shape.vocab_size = 91; /* the last have less */
    if (images(kind)) o.adapters.rank = 2, o.adapters.alpha = 4;
    if (kind == TURNED_IMAGES) o.adapters.exclude = "lin"; /* rows of zeros have no direction */
    return o;
}

static int most_ranks(int kind)
{
    return kind == LATENT || images(kind) ? 2 : 4;
}

/* What FLUX begins with as zeros lets nothing through while it is frozen. */
static void wake(const job *j, tm_trainer *trainer)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    (void)j;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        bool             sleeps = strstr(t->name, "mod.lin.weight") || strstr(t->name, "modulation.lin.weight") ||
                      strcmp(t->name, "final_layer.linear.weight") == 0;
        if (t->role != TM_ROLE_PARAMETER || t->adapts != TM_NONE || !sleeps) continue;
        int64_t n = tm_shape_elements(t->shape);
        size_t  size = tm_dtype_bytes(t->dtype);
        char   *values = malloc((size_t)n * size);
        CHECK(!t->cut);
        for (int64_t k = 0; k < n; k++)
            tm_value_set(values, t->dtype, k, 0.3 * tm_random_normal(9, tm_random_stream(t->name), (uint64_t)k));
        CHECK_OK(tm_trainer_write(trainer, (tm_tensor_id)i, 0, values, (size_t)n * size, err));
        free(values);
    }
}

static job job_of(int kind, int tensor, int shard, int steps)
{
    job j = start(options_of(kind), tensor, 1, shard, steps);
    if (images(kind)) j.change = wake;
    return j;
}

static void adapters_follow_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int dropped = 0; dropped < 2; dropped++) {
            job j = job_of(kind, 1, 1, MOST_STEPS);
            if (dropped && kind != LLAMA && kind != OUTPUT && kind != TURNED_OUTPUT && !images(kind)) continue;
            j.o.adapters.dropout = dropped * 0.25;
            job alone = alone_with(&j, 1);
            for (int tensor = 2; tensor <= most_ranks(kind); tensor *= 2)
                for (int whole = 0; whole < (images(kind) ? 1 : 2); whole++) {
                    char what[96];
                    j.tensor = tensor;
                    j.o.layout.whole_rows = whole;
                    run_job(&j);
                    snprintf(what, sizeof what, "%s%s, %d ranks, %s rows", names[kind], dropped ? ", dropout" : "",
                             tensor, whole ? "whole" : "divided");
                    check_follows_one(&j, &alone, what, 1e-4);
                }
        }
}

/* Copies, shards, sequences in parts, several micro-batches, recomputation; with dropout, where it is built. */
static void layouts_compose(void **state)
{
    static const struct {
        int replicate, shard, context, sharing;
    } beside[] = { { 2, 1, 1, TM_SHARE_COPIES }, { 1, 2, 1, TM_SHARE_ALL }, { 1, 1, 2, TM_SHARE_ALL } };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t b = 0; b < sizeof beside / sizeof beside[0]; b++) {
            char   what[96];
            int    ranks = beside[b].replicate * beside[b].shard;
            size_t variant = ((size_t)kind + b) % 3;
            job    j = job_of(kind, 2, beside[b].shard, 6);
            j.o.adapters.dropout = images(kind) && beside[b].context > 1 ? 0 : 0.25;
            if (variant > 0) j.o.accumulation = 2;
            if (variant > 1) j.o.recompute = (tm_recompute){ .cheap = true, .every_n = 1 };
            j.o.micro_batch = images(kind) ? j.o.micro_batch : 2;
            j.replicate = beside[b].replicate, j.context = beside[b].context;
            j.o.layout.sharing = (tm_sharing)beside[b].sharing;
            j.o.layout.prefetch = 1;
            job alone = alone_with(&j, ranks);
            run_job(&j);
            snprintf(what, sizeof what, "%s, 2 x %d copies x %d shards x %d parts", names[kind], beside[b].replicate,
                     beside[b].shard, beside[b].context);
            check_follows_one(&j, &alone, what, 1e-4);
        }
}

static void gradients_agree_in_double_precision(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int whole = 0; whole < (images(kind) ? 1 : 2); whole++) {
            char what[96];
            job  j = job_of(kind, 2, 1, 1);
            j.o.layout.whole_rows = whole;
            j.o.adapters.dropout = 0.25;
            snprintf(what, sizeof what, "%s, %s rows", names[kind], whole ? "whole" : "divided");
            check_sgd_step(j, 1, what);
        }
}

/* Lengths are those of whole rows, in every format of the base. */
static void all_begin_with_the_same_weights(void **state)
{
    static const tm_dtype bases[] = { TM_DTYPE_COUNT, TM_BF16, TM_NF4_BLOCKS, TM_E4M3_BLOCKS };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t b = 0; b < 4; b++) {
            job alone = job_of(kind, 1, 1, 0);
            if (b > 1 && kind != LLAMA && !images(kind)) continue;
            if (b > 1 && kind == LLAMA)
                alone.o.shape.dim = alone.o.shape.ffn_dim = 256, alone.o.shape.n_kv_heads = 8,
                alone.o.shape.head_dim = 32;
            if (b > 1 && images(kind)) {
                alone.o.shape.dim = 128, alone.o.shape.head_dim = 64, alone.o.shape.ffn_dim = 256;
                alone.o.shape.flux.axes[0] = 16, alone.o.shape.flux.axes[1] = 24, alone.o.shape.flux.axes[2] = 24;
            }
            alone.o.adapters.base = bases[b];
            alone.change = NULL;
            rank_body(NULL, &alone);
            for (int tensor = 2; tensor <= most_ranks(kind); tensor *= 2)
                for (int shard = 1; shard <= 2; shard++) {
                    job j = start(alone.o, tensor, 1, shard, 0);
                    run_job(&j);
                    if (j.weights[0] != alone.weights[0])
                        fail_msg("%s, base %d, %d x %d ranks begin with other weights", names[kind], (int)b, tensor,
                                 shard);
                }
        }
}

/* Of a matrix of which a rank has rows it has their lengths, of one with columns those of all rows. The b of two runs
 * of columns of one matrix is one. What a rank uses is what its plan says (ranks_fixture.h). */
static void a_rank_holds_its_part(void **state)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        job             j = job_of(kind, 2, 1, 1);
        tm_step_options o = j.o;
        int64_t         r = o.adapters.rank, C = o.shape.dim, F = o.shape.ffn_dim, D = o.shape.head_dim;
        int64_t         q = o.shape.n_heads * D, kv = o.shape.n_kv_heads * D, wanted = 0;
        int64_t         rows = 3 * r * C + (q + 2 * kv) / 2 * (r + 1) + 2 * r * C + 2 * F / 2 * (r + 1);
        int64_t         columns = r * q / 2 + C * (r + 1) + r * F / 2 + C * (r + 1);
        /* of a stream mod, qkv, proj, mlp.0, mlp.2; of a single block qkv, mlp, linear2, mod */
        int64_t stream = 7 * C * r + (3 * C + 3 * C / 2) * r + (C / 2 + C) * r + (C + F / 2) * r + (F / 2 + C) * r;
        int64_t single = (3 * C + 3 * C / 2) * r + (C + F / 2) * r + ((C + F) / 2 + C) * r + 4 * C * r;
        if (kind == LLAMA) wanted = o.shape.n_layers * (rows + columns);
        if (kind == OUTPUT) wanted = o.shape.n_layers * (r * C + q / 2 * r + r * F / 2 + C * r) + r * C + 46 * r;
        if (kind == TURNED_OUTPUT)
            wanted = o.shape.n_layers * (r * C + q / 2 * (r + 1) + r * F / 2 + C * (r + 1)) + r * C + 46 * (r + 1);
        if (kind == IMAGES) wanted = 2 * stream + single;
        run_job(&j);
        for (int rank = 0; rank < 2; rank++) {
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_TP] = 2;
            o.layout.rank = rank;
            tm_step          *step = test_step_plan(&o, &chooser);
            tm_adapters_facts facts = tm_adapters_describe(step->graph);
            if (kind == OUTPUT && rank == 1) wanted -= r; /* 45 classes */
            if (kind == TURNED_OUTPUT && rank == 1) wanted -= r + 1;
            if (wanted > 0 && facts.trained != wanted)
                fail_msg("%s: %lld are trained, wanted %lld", names[kind], (long long)facts.trained, (long long)wanted);
            if (kind == IMAGES) assert_int_equal(facts.modules, 2 * 7 + 6);
            assert_int_equal(step->plan->arena_bytes, j.arena[rank]);
            tm_step_destroy(step);
        }
    }
    tm_device_close(device);
}

static void any_layout_goes_on_from_any_other(void **state)
{
    static const int kinds[] = { LLAMA, PATTERN, OUTPUT, TURNED_IMAGES, TURNED_OUTPUT };
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        layouts_go_on(options_of(kinds[k]), most_ranks(kinds[k]), images(kinds[k]) ? wake : NULL, names[kinds[k]]);
}

/* With an adapter of the output layer that has learnt something. */
static void ranks_write_what_one_rank_writes(void **state)
{
    char *path = test_tree_make(), *folder = test_tree_make();
    (void)state;
    test_file_write(path, "a.txt", "the quick brown fox jumps over the lazy dog, and the dog sleeps on in the sun");
    for (int tensor = 2; tensor <= 8; tensor *= 2) {
        bool turned = tensor == 8; /* of two ranks */
        job  learnt = job_of(turned ? TURNED_OUTPUT : OUTPUT, 1, 1, 4), j;
        learnt.o.shape.vocab_size = 258, learnt.o.sample = true, learnt.rate = 0.3;
        learnt.save = folder;
        rank_body(NULL, &learnt);
        j = learnt;
        j.tensor = turned ? 2 : tensor, j.load = folder, j.save = NULL, j.begin = 4;
        check_writes(j, path);
    }
    test_tree_remove(folder);
    test_tree_remove(path);
}

/* FLUX begins with matrices of zeros, whose rows have no direction: they stay what they are. */
static void rows_of_zeros_turn_nowhere(void **state)
{
    (void)state;
    for (int tensor = 1; tensor <= 2; tensor++) {
        job j = start(options_of(TURNED_IMAGES), tensor, 1, 1, 2);
        j.o.adapters.exclude = NULL;
        run_job(&j);
        for (int i = 0; i < 2; i++)
            if (!isfinite(j.loss[i]) || !isfinite(j.norm[i]))
                fail_msg("%d ranks, step %d: loss %g, norm %g", tensor, i, j.loss[i], j.norm[i]);
    }
}

static void what_is_not_built_is_refused(void **state)
{
    (void)state;
    tm_step_options o = options_of(OUTPUT);
    o.shape.tied = true;
    tensor_refused(o, 2, TM_UNSUPPORTED, "names the output layer, which is the table of embeddings");
}

static const struct CMUnitTest tests[] = {
    full_test(adapters_follow_one_rank),
    full_test(layouts_compose),
    cmocka_unit_test(gradients_agree_in_double_precision),
    full_test(all_begin_with_the_same_weights),
    cmocka_unit_test(a_rank_holds_its_part),
    full_test(any_layout_goes_on_from_any_other),
    cmocka_unit_test(ranks_write_what_one_rank_writes),
    cmocka_unit_test(rows_of_zeros_turn_nowhere),
    cmocka_unit_test(what_is_not_built_is_refused),
};

TM_TESTS(tests, NULL, NULL)
