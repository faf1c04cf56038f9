/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of matrices that ranks divide (tensor parallel): they follow one rank with the same samples, drop what it
 * drops, hold their part, and go on from each other's checkpoints. */
#include "support/test.h"
#include "graph/blocks.h"
#include "adapters_fixture.h"

enum { LLAMA, GPT, HEADS, LATENT, MIXTURE, EXPERTS, KINDS };
static const char *const names[] = { "Llama", "GPT", "head norms, biases", "DeepSeek", "Mixtral", "experts" };

/* Heads for four ranks. Adapters of parts of fused matrices, of a whole one, and of what files call one matrix. */
static tm_step_options adapted(int kind)
{
    static const char *const targets[] = {
        "all-linear", "all-linear",           "wqkv,o_proj,w2,gate_proj",
        "all-linear", "q_proj,v_proj,o_proj", "k_proj,experts.gate_up_proj,experts.down_proj"
    };
    tm_step_options o = kind == GPT ? test_gpt_options() : test_llama_options();
    o.shape.dim = 32, o.shape.ffn_dim = 64, o.shape.head_dim = 16, o.micro_batch = 1, o.seq = 16;
    o.shape.n_heads = o.shape.n_kv_heads = 4;
    if (kind == LLAMA) o.shape.n_heads = 8;
    if (kind == HEADS) o.shape.qk_norm = o.shape.sinks = o.shape.tied = true, o.shape.bias = TM_BIAS_ALL;
    if (kind == LATENT) o = mixture_options(DEEPSEEK);
    if (kind == MIXTURE || kind == EXPERTS) o.shape.moe = model_options(2).shape.moe;
    o.adapters = lora(targets[kind]);
    if (kind == HEADS) o.adapters.rslora = true, o.adapters.alpha = 2;
    return o;
}

static int most_ranks(int kind)
{
    return kind == LATENT ? 2 : 4;
}

static void adapters_follow_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int dropped = 0; dropped < 2; dropped++) {
            tm_step_options o = adapted(kind);
            o.adapters.dropout = kind == EXPERTS ? 0 : dropped * 0.25;
            job j = start(o, 1, 1, 1, MOST_STEPS), alone = alone_with(&j, 1);
            for (int tensor = 2; tensor <= most_ranks(kind); tensor *= 2)
                for (int whole = 0; whole < 2; whole++) {
                    char what[96];
                    j = start(o, tensor, 1, 1, MOST_STEPS);
                    j.o.layout.whole_rows = whole;
                    run_job(&j);
                    snprintf(what, sizeof what, "%s%s, %d ranks, %s rows", names[kind], dropped ? ", dropout" : "",
                             tensor, whole ? "whole" : "divided");
                    check_follows_one(&j, &alone, what, 1e-4);
                }
        }
}

/* Copies, shards, sequences in parts, several micro-batches, recomputation; with dropout. */
static void layouts_compose(void **state)
{
    static const struct {
        int  replicate, shard, context, sharing;
        bool ring;
    } beside[] = { { 2, 1, 1, TM_SHARE_COPIES, false },    { 1, 2, 1, TM_SHARE_ALL, false },
                   { 1, 2, 1, TM_SHARE_OPTIMIZER, false }, { 1, 2, 1, TM_SHARE_GRADIENTS, false },
                   { 1, 1, 2, TM_SHARE_ALL, false },       { 1, 2, 2, TM_SHARE_ALL, true } };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t b = 0; b < sizeof beside / sizeof beside[0]; b++) {
            tm_step_options o = adapted(kind);
            char            what[96];
            int             ranks = beside[b].replicate * beside[b].shard;
            size_t          variant = ((size_t)kind + b) % 3;
            o.adapters.dropout = kind == EXPERTS ? 0 : 0.25;
            if (variant > 0) o.accumulation = 2;
            if (variant > 1) o.recompute = (tm_recompute){ .cheap = true, .every_n = 1 };
            o.micro_batch = 2;
            job j = start(o, 2, beside[b].replicate, beside[b].shard, b == 0 ? MOST_STEPS : 6);
            j.context = beside[b].context;
            j.o.layout.sharing = (tm_sharing)beside[b].sharing;
            j.o.layout.prefetch = 1;
            j.o.layout.ring = beside[b].ring;
            job alone = alone_with(&j, ranks);
            run_job(&j);
            snprintf(what, sizeof what, "%s, 2 x %d copies x %d shards (%d) x %d parts", names[kind],
                     beside[b].replicate, beside[b].shard, beside[b].sharing, beside[b].context);
            check_follows_one(&j, &alone, what, 1e-4);
        }
}

static void gradients_agree_in_double_precision(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int whole = 0; whole < 2; whole++) {
            char what[96];
            job  j = start(adapted(kind), 2, 1, 1, 1);
            j.o.layout.whole_rows = whole;
            j.o.adapters.dropout = kind == EXPERTS ? 0 : 0.25;
            snprintf(what, sizeof what, "%s, %s rows", names[kind], whole ? "whole" : "divided");
            check_sgd_step(j, 1, what);
        }
}

/* Values depend on the place in whole matrices, however a and b begin. */
static void all_begin_with_the_same_weights(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int how = 0; how < 3; how++) {
            tm_step_options o = adapted(kind);
            o.adapters.gaussian = how == 1;
            o.adapters.xavier = how == 2;
            o.adapters.base = how == 1 ? TM_BF16 : TM_DTYPE_COUNT;
            job alone = ranks_job(o, 1, 1, TM_SHARE_COPIES, 0);
            rank_body(NULL, &alone);
            for (int tensor = 2; tensor <= most_ranks(kind); tensor *= 2) {
                job j = start(o, tensor, 1, 2, 0);
                run_job(&j);
                if (j.weights[0] != alone.weights[0])
                    fail_msg("%s, %d ranks begin with other weights", names[kind], tensor);
            }
        }
}

/* Matrices of more than one group of blocks, and of parts of one, cut along blocks. */
static tm_step_options quantized(int kind, tm_dtype base)
{
    tm_step_options o = adapted(kind);
    o.shape.dim = 128, o.shape.head_dim = 32, o.shape.ffn_dim = 256;
    o.shape.n_heads = o.shape.n_kv_heads = 4;
    if (kind == MIXTURE || kind == EXPERTS) o.shape.moe.ffn_dim = 128;
    o.adapters.base = base;
    return o;
}

/* The values are those that one rank decodes: the base is quantized as a whole, and its blocks are divided. */
static void a_base_of_blocks_is_that_of_one_rank(void **state)
{
    static const tm_dtype bases[] = { TM_NF4_BLOCKS, TM_E4M3_BLOCKS };
    static const int      kinds[] = { LLAMA, GPT, EXPERTS };
    (void)state;
    for (size_t k = 0; k < 3; k++)
        for (size_t b = 0; b < 2; b++) {
            char what[96];
            int  steps = k == 0 ? MOST_STEPS : 6;
            job  j = start(quantized(kinds[k], bases[b]), 2, 1, 1, steps), alone = alone_with(&j, 1), begin = alone;
            run_job(&j);
            snprintf(what, sizeof what, "%s, %s", names[kinds[k]], tm_dtype_name(bases[b]));
            check_follows_one(&j, &alone, what, 1e-4);
            begin.steps = 0;
            rank_body(NULL, &begin);
            for (int shard = 1; shard <= 2; shard++) {
                j = start(quantized(kinds[k], bases[b]), 2, 1, shard, 0);
                run_job(&j);
                if (j.weights[0] != begin.weights[0]) fail_msg("%s, %d shards: another base", what, shard);
            }
        }
    tm_step_options o = quantized(LLAMA, TM_NF4_BLOCKS);
    o.shape.ffn_dim = 96;
    tensor_refused(o, 2, TM_UNSUPPORTED, "of 'layers.0.feed_forward.w2.weight' a rank has a part");
}

/* Casts of a step's programs that read a weight as it is held. */
static int casts_of(const tm_step *step, tm_dtype held)
{
    int n = 0;
    for (size_t p = 0; p < step->plan->n_programs; p++)
        for (size_t x = 0; x < step->plan->programs[p].count; x++) {
            const tm_instruction *i = &step->plan->programs[p].instructions[x];
            n += i->call.op == &tm_op_cast && i->call.in[0].dtype == held;
        }
    return n;
}

static void decoded_as_a_whole_one(const tm_chooser *chooser, tm_dtype base, tm_dtype part)
{
    tm_step_options o = quantized(LLAMA, base);
    o.precision = &tm_precision_bf16;
    tm_step *alone = test_step_plan(&o, chooser);
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_TP] = 2;
    tm_step *divided = test_step_plan(&o, chooser);
    int      whole = casts_of(alone, base);
    assert_int_equal(casts_of(divided, part), whole);
    if (part != base) assert_int_equal(casts_of(divided, base), 0);
    print_message("# %s: %d decoded copies of whole matrices\n", tm_dtype_name(base), whole);
    tm_step_destroy(alone);
    tm_step_destroy(divided);
}

/* Where products decode blocks on the way, they do so with the parts that ranks have. */
static void parts_of_a_base_are_decoded_as_a_whole_one(void **state)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    (void)state;
    decoded_as_a_whole_one(&chooser, TM_NF4_BLOCKS, TM_NF4_SCALED);
    decoded_as_a_whole_one(&chooser, TM_E4M3_BLOCKS, TM_E4M3_BLOCKS);
    tm_device_close(device);
}

/* Of a column-parallel matrix a rank has all of a and its rows of b, of a row-parallel one its columns of a and all of
 * b; what it uses is what its plan says (ranks_fixture.h). */
static void a_rank_holds_its_part(void **state)
{
    (void)state;
    tm_step_options o = adapted(LLAMA);
    job             j = start(o, 2, 1, 1, 1);
    tm_device      *device = test_device_open("cpu", 1);
    tm_chooser      chooser = tm_device_chooser(device);
    int64_t         r = o.adapters.rank, C = o.shape.dim, F = o.shape.ffn_dim, D = o.shape.head_dim;
    int64_t         q = o.shape.n_heads * D, kv = o.shape.n_kv_heads * D;
    int64_t         rows = 3 * r * C + (q + 2 * kv) / 2 * r + 2 * r * C + 2 * F / 2 * r;
    int64_t         columns = r * q / 2 + C * r + r * F / 2 + C * r;
    run_job(&j);
    for (int rank = 0; rank < 2; rank++) {
        j.o.layout.mesh = tm_mesh_one();
        j.o.layout.mesh.degree[TM_AXIS_TP] = 2;
        j.o.layout.rank = rank;
        tm_step *step = test_step_plan(&j.o, &chooser);
        assert_int_equal(tm_adapters_describe(step->graph).trained, o.shape.n_layers * (rows + columns));
        assert_int_equal(step->plan->arena_bytes, j.arena[rank]);
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

static void any_layout_goes_on_from_any_other(void **state)
{
    (void)state;
    for (int kind = GPT; kind < KINDS; kind += kind == GPT ? 1 : EXPERTS - HEADS)
        layouts_go_on(adapted(kind), 4, NULL, names[kind]);
}

/* Wasteful, and what PEFT does: a rank above the rows and columns of a matrix, of experts, too. */
static void a_rank_above_the_sizes_follows_one_rank(void **state)
{
    static const int kinds[] = { LLAMA, EXPERTS };
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        tm_step_options o = adapted(kinds[k]);
        o.adapters.rank = 40;
        job j = start(o, 2, 1, 1, 6), alone = alone_with(&j, 1);
        run_job(&j);
        check_follows_one(&j, &alone, names[kinds[k]], 1e-4);
    }
}

static const struct CMUnitTest tests[] = {
    full_test(adapters_follow_one_rank),
    full_test(layouts_compose),
    cmocka_unit_test(gradients_agree_in_double_precision),
    full_test(all_begin_with_the_same_weights),
    full_test(a_base_of_blocks_is_that_of_one_rank),
    cmocka_unit_test(parts_of_a_base_are_decoded_as_a_whole_one),
    cmocka_unit_test(a_rank_holds_its_part),
    full_test(any_layout_goes_on_from_any_other),
    cmocka_unit_test(a_rank_above_the_sizes_follows_one_rank),
};

TM_TESTS(tests, NULL, NULL)
