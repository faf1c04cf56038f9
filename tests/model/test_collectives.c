/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say to each other in a step of each way to divide a model: all of a group make the same calls in the same
 * order, every message gets where it is meant to, no order stops, and activations are as many as formulas say. */
#include "op/attrs.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/step/step.h"

#include "support/test.h"

#define COMMON                                                                                                         \
    "--training.local_batch_size 2 --training.threads 1 --validation.enable false --optimizer.name SGD "               \
    "--model.n_layers 2 "
#define SHORT COMMON "--training.seq_len 16 "
#define LLAMA "tiny-llama --model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 48 " SHORT
#define MIXTURE                                                                                                        \
    LLAMA "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 24 "           \
          "--model.moe_aux_loss 0.1 "
#define MLA                                                                                                            \
    LLAMA "--model.family deepseek --model.n_kv_heads null --model.kv_lora_rank 16 --model.qk_nope_head_dim 12 "       \
          "--model.qk_rope_head_dim 4 --model.v_head_dim 8 "
#define GPT "gpt-small --model.dim 32 --model.n_heads 4 " SHORT
#define FLUX "tiny-flux --model.dim 64 --model.n_heads 2 " COMMON
#define TP "--parallelism.ranks 2 --parallelism.tensor_parallel_degree 2 "
#define WHOLE TP "--parallelism.enable_sequence_parallel false "
#define CP "--parallelism.ranks 2 --parallelism.context_parallel_degree 2 "
#define RING CP "--parallelism.context_parallel_rotate_method alltoall "
#define EP "--parallelism.ranks 2 --parallelism.expert_parallel_degree 2 "
#define COPIES "--parallelism.ranks 2 --parallelism.data_parallel_replicate_degree 2 "
#define PP "--parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 2 "

static const char *const divided[] = {
    LLAMA TP,
    LLAMA WHOLE,
    LLAMA CP,
    LLAMA RING,
    LLAMA PP,
    LLAMA "--parallelism.ranks 2 --parallelism.data_parallel_shard_degree 2 ",
    LLAMA COPIES,
    LLAMA "--parallelism.ranks 4 --parallelism.tensor_parallel_degree 2 --parallelism.context_parallel_degree 2 ",
    GPT     TP,
    GPT     PP "--model.tied false ",
    FLUX    TP,
    FLUX    CP,
    MLA     TP,
    MIXTURE EP,
    MIXTURE WHOLE,
    MIXTURE EP "--parallelism.expert_parallel_capacity 0.5 ",
    MIXTURE PP,
    LLAMA   PP "--optimizer.groups=[{\"params\":\"layers.0.*|tok_*\",\"trained\":\"false\"}] ",
    LLAMA   PP "--parallelism.pipeline_parallel_divide_head true ",
    GPT     PP "--parallelism.pipeline_parallel_divide_head true ",
};

enum { MOST_RANKS = 4, MOST_CALLS = 4000, CHANNELS = 2, SLOTS = 32 };

typedef struct {
    const tm_node *node;
    int64_t        elements; /* of what is sent, or received */
    int64_t        micro_batch;
} call;

typedef struct {
    tm_step *step;
    call     list[MOST_CALLS];
    size_t   n, at;
} calls;

typedef struct {
    const char *words;
    tm_mesh     mesh;
    calls       rank[MOST_RANKS];
    struct {
        size_t      sent, received;
        const call *waiting[SLOTS];
    } lane[MOST_RANKS][MOST_RANKS][CHANNELS];
} world;

static const tm_group_attr *group_of(const tm_node *node)
{
    switch (node->op) {
    case TM_OP_all_reduce:
    case TM_OP_reduce_scatter:
    case TM_OP_all_gather:
    case TM_OP_share:
    case TM_OP_pass_on:
        return node->attr;
    case TM_OP_exchange_counts:
    case TM_OP_send_rows:
    case TM_OP_return_rows:
        return &((const tm_exchange_attr *)node->attr)->group;
    default:
        return NULL;
    }
}

static void collect(calls *c, const tm_step_schedule *schedule)
{
    for (size_t w = 0; w < schedule->n; w++)
        for (int64_t k = 0; k < schedule->work[w].count; k++)
            for (size_t x = 0; x < schedule->work[w].program->count; x++) {
                const tm_node *node = schedule->work[w].program->instructions[x].node;
                const bool     receives = node->op == TM_OP_receive;
                if (!group_of(node) && !receives && node->op != TM_OP_send) continue;
                assert_true(c->n < MOST_CALLS);
                const tm_tensor *t = tm_graph_at(c->step->graph, receives ? node->out[0] : node->in[0]);
                c->list[c->n++] = (call){ node, tm_shape_elements(t->shape), schedule->work[w].micro_batch + k };
            }
}

/* --- how they meet ------------------------------------------------------------------------------------------------ */

static const call *next_of(const world *w, int rank)
{
    const calls *c = &w->rank[rank];
    return c->at < c->n ? &c->list[c->at] : NULL;
}

static bool share_group(const world *w, int a, int b, int64_t axes)
{
    return tm_mesh_group_color(&w->mesh, a, (unsigned)axes) == tm_mesh_group_color(&w->mesh, b, (unsigned)axes);
}

/* Two ranks of a group make the same call, of as many elements, that is called the same. */
static void same_calls(const world *w, const call *one, const call *other, int other_rank)
{
    const tm_group_attr *g = group_of(one->node), *h = group_of(other->node);
    if (one->node->op != other->node->op || one->elements != other->elements || memcmp(g, h, sizeof *g) != 0)
        fail_msg("%s: '%s' of %lld elements meets '%s' of %lld", w->words, g->what, (long long)one->elements, h->what,
                 (long long)other->elements);
    assert_true(g->what[0] && g->ranks == tm_mesh_group_size(&w->mesh, (unsigned)g->axes));
    if (h == other->node->attr) return;
    const tm_exchange_attr *e = one->node->attr, *f = other->node->attr;
    assert_true(e->rounds == f->rounds && e->round == f->round && e->round < e->rounds && e->pairs == f->pairs);
    assert_int_equal(f->rank, tm_mesh_group_rank(&w->mesh, other_rank, (unsigned)g->axes));
}

/* A call of a group is over when all of it are at their calls among these axes. */
static bool meet(world *w, int rank)
{
    const call   *own = next_of(w, rank);
    const int64_t axes = group_of(own->node)->axes;
    for (int k = 0; k < tm_mesh_ranks(&w->mesh); k++) {
        const call *other = next_of(w, k);
        if (!share_group(w, rank, k, axes)) continue;
        if (!other || !group_of(other->node) || group_of(other->node)->axes != axes) return false;
    }
    for (int k = 0; k < tm_mesh_ranks(&w->mesh); k++) {
        if (k == rank || !share_group(w, rank, k, axes)) continue;
        same_calls(w, own, next_of(w, k), k);
        w->rank[k].at++;
    }
    w->rank[rank].at++;
    return true;
}

/* A send waits until there is room for it, a receive until something is there, which must be what it is meant for. */
static bool pass(world *w, int rank)
{
    const call            *own = next_of(w, rank);
    const tm_message_attr *m = own->node->attr;
    int                    peer = 0;
    while (!share_group(w, rank, peer, m->axes) || tm_mesh_group_rank(&w->mesh, peer, (unsigned)m->axes) != m->peer)
        peer++;
    assert_true(peer != rank && m->ranks == tm_mesh_group_size(&w->mesh, (unsigned)m->axes));
    const bool sends = own->node->op == TM_OP_send;
    int        from = sends ? rank : peer, to = sends ? peer : rank;
    size_t    *sent = &w->lane[from][to][m->channel].sent, *received = &w->lane[from][to][m->channel].received;
    if (sends) {
        assert_true(m->waiting >= 1 && m->waiting <= SLOTS);
        if (*sent - *received >= (size_t)m->waiting) return false;
        w->lane[from][to][m->channel].waiting[(*sent)++ % SLOTS] = own;
    } else {
        if (*sent == *received) return false;
        const call            *other = w->lane[from][to][m->channel].waiting[(*received)++ % SLOTS];
        const tm_message_attr *theirs = other->node->attr;
        if (other->elements != own->elements || m->rows * m->columns != own->elements ||
            other->micro_batch != own->micro_batch || strcmp(theirs->what, m->what) != 0)
            fail_msg("%s: rank %d sends '%s' of micro-batch %lld, rank %d receives '%s' of %lld", w->words, from,
                     theirs->what, (long long)other->micro_batch, to, m->what, (long long)own->micro_batch);
    }
    w->rank[rank].at++;
    return true;
}

/* All ranks come to their ends, and all that is sent is received. */
static void check_ends(world *w)
{
    const int ranks = tm_mesh_ranks(&w->mesh);
    memset(w->lane, 0, sizeof w->lane);
    for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < ranks; r++)
            while (next_of(w, r) && (group_of(next_of(w, r)->node) ? meet(w, r) : pass(w, r))) any = true;
    }
    for (int r = 0; r < ranks; r++)
        if (next_of(w, r)) fail_msg("%s: rank %d stops at call %zu of %zu", w->words, r, w->rank[r].at, w->rank[r].n);
    for (int k = 0; k < ranks * ranks * CHANNELS; k++) {
        const int from = k / CHANNELS / ranks, to = k / CHANNELS % ranks;
        assert_int_equal(w->lane[from][to][k % CHANNELS].sent, w->lane[from][to][k % CHANNELS].received);
    }
}

/* Elements that a rank gives to calls of an op in a step, and in an evaluation. N rows, C columns, L layers, P
 * parameters; Korthikanti et al. 2022: matrices divided among R ranks gather and scatter all rows twice in a layer, and
 * at one end of the model. Keys and values are half as wide as C each, a token goes to two experts. */
enum { N = 32, C = 32, L = 2, R = 2, P = 19616, TWICE = 2 * L + 1 };
static const struct {
    const char *words;
    tm_op_id    op;
    int64_t     wanted[2];
} volumes[] = {
    { LLAMA TP, TM_OP_reduce_scatter, { 2 * TWICE * N * C, TWICE *N *C } },
    { LLAMA TP, TM_OP_all_gather, { 2 * TWICE * N * C / R + 3 * N, TWICE *N *C / R + 3 * N } },
    { GPT TP, TM_OP_reduce_scatter, { 2 * TWICE * N * C, TWICE *N *C } },
    { LLAMA WHOLE, TM_OP_all_reduce, { 2 * TWICE * N * C + 1, TWICE *N *C } }, /* and the norm's square */
    { LLAMA CP, TM_OP_reduce_scatter, { P + L * N * C, 0 } },
    { LLAMA CP, TM_OP_all_gather, { P / R + (P - 2 * 64 * C - C) / R + L * N * C / R, P / R + L *N *C / R } },
    { LLAMA RING, TM_OP_reduce_scatter, { P, 0 } },
    { LLAMA RING,
      TM_OP_all_gather,
      { P / R + (P - 2 * 64 * C - C) / R, P / R } }, /* blocks again, not what is around */
    { LLAMA COPIES, TM_OP_all_reduce, { P + 1, 0 } },
    { LLAMA PP, TM_OP_send, { 2 * N * C, N *C } }, /* two micro-batches */
    { MIXTURE EP, TM_OP_send_rows, { 2 * L * 2 * N * C, L * 2 * N *C } },
    { MIXTURE EP, TM_OP_return_rows, { 2 * L * R * 2 * N * C, L *R * 2 * N *C } },
    { MIXTURE EP "--parallelism.expert_parallel_capacity 0.5 ",
      TM_OP_return_rows,
      { 2 * L * R * 2 * N * C, L *R * 2 * N *C } },
};

static void check_volume(const char *words, const tm_model_shape *shape, const calls *c, int evaluates)
{
    for (size_t i = 0; i < sizeof volumes / sizeof volumes[0]; i++) {
        int64_t sum = 0;
        if (strcmp(volumes[i].words, words) != 0) continue;
        if (strstr(words, LLAMA) == words && !strstr(words, MIXTURE)) assert_int_equal(tm_model_parameters(shape), P);
        for (size_t k = 0; k < c->n; k++) sum += c->list[k].node->op == volumes[i].op ? c->list[k].elements : 0;
        if (sum != volumes[i].wanted[evaluates])
            fail_msg("%s: %s of %lld elements, wanted %lld", words, tm_op_get(volumes[i].op)->name, (long long)sum,
                     (long long)volumes[i].wanted[evaluates]);
    }
}

/* Two steps one after the other, and an evaluation; false: the words are refused. */
static bool check_step(const char *words, const tm_chooser *chooser)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    bool           read = test_read_run(config, words, &options, &err) == TM_OK;
    world         *w = calloc(1, sizeof *w);
    w->words = words;
    w->mesh = options.step.layout.mesh;
    for (int r = 0; read && r < tm_mesh_ranks(&w->mesh); r++) {
        options.step.layout.rank = r;
        read = tm_step_create(&options.step, chooser, &w->rank[r].step, &err) == TM_OK;
    }
    for (int evaluates = 0; read && evaluates < 2; evaluates++) {
        for (int r = 0; r < tm_mesh_ranks(&w->mesh); r++) {
            calls *c = &w->rank[r];
            c->n = c->at = 0;
            collect(c, evaluates ? &c->step->evaluation : &c->step->training);
            if (r == 0) check_volume(words, &options.step.shape, c, evaluates);
            if (!evaluates) collect(c, &c->step->training);
        }
        assert_true(evaluates || w->rank[0].n > 4);
        check_ends(w);
    }
    for (int r = 0; r < MOST_RANKS; r++) tm_step_destroy(w->rank[r].step);
    free(w);
    tm_config_destroy(config);
    return read;
}

TEST(ranks_say_the_same_to_each_other)
{
    tm_device *device = test_device_open("null", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (size_t i = 0; i < sizeof divided / sizeof divided[0]; i++) assert_true(check_step(divided[i], &chooser));
    for (size_t v = 0; v < sizeof volumes / sizeof volumes[0]; v++) {
        size_t i = 0;
        while (i < sizeof divided / sizeof divided[0] && strcmp(divided[i], volumes[v].words) != 0) i++;
        assert_true(i < sizeof divided / sizeof divided[0]);
    }
    tm_device_close(device);
}

/* Messages as libraries of GPUs send them (device/gpu/messages.c): one by one, with little room for those that wait. */
TEST(every_order_of_a_pipeline_ends)
{
    tm_device *device = test_device_open("null", 1);
    tm_chooser chooser = tm_device_chooser(device);
    int        tried = 0;
    for (int order = 0; order < TM_PIPELINE_LISTED; order++)
        for (int ranks = 2; ranks <= MOST_RANKS; ranks *= 2)
            for (int chunks = 1; chunks <= 2; chunks++)
                for (int more = 0; more < 4; more++) {
                    char words[900];
                    snprintf(words, sizeof words,
                             LLAMA "--parallelism.ranks %d --parallelism.pipeline_parallel_degree %d "
                                   "--parallelism.pipeline_parallel_schedule %s --model.n_layers %d "
                                   "--parallelism.pipeline_parallel_layers_per_stage 1 --training.grad_accumulation %d "
                                   "--parallelism.pipeline_parallel_first_stage_less_layers 0 --model.vocab_size 256 "
                                   "--parallelism.pipeline_parallel_last_stage_less_layers %s "
                                   "--model.tied %s --parallelism.pipeline_parallel_divide_head %s",
                             ranks, ranks, tm_pipeline_name((tm_pipeline_order)order), ranks * chunks - more / 2,
                             2 * ranks, more & 2 ? "null" : "0", more & 1 ? "true" : "false",
                             more & 2 ? "true" : "false");
                    tried += check_step(words, &chooser);
                }
    print_message("# %d orders\n", tried);
    assert_true(tried >= 40);
    tm_device_close(device);
}
