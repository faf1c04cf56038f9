/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say to each other in a step of each way to divide a model: all of a group make the same calls in the same
 * order, every message that is sent is received, and activations are as many as Megatron-LM's formula says. */
#include "op/attrs.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/step/step.h"

#include <stdlib.h>
#include <string.h>

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
    LLAMA   PP "--parallelism.pipeline_parallel_divide_head true ",
    GPT     PP "--parallelism.pipeline_parallel_divide_head true ",
};

enum { MOST_RANKS = 4, MOST_CALLS = 4000 };

typedef struct {
    const tm_node *node;
    int64_t        elements; /* of what is sent, or received */
} call;

typedef struct {
    tm_step *step;
    call     list[MOST_CALLS];
    size_t   n;
} calls;

static const tm_group_attr *group_of(const tm_node *node)
{
    switch (node->op) {
    case TM_OP_all_reduce:
    case TM_OP_reduce_scatter:
    case TM_OP_all_gather:
    case TM_OP_share:
        return node->attr;
    case TM_OP_exchange_counts:
    case TM_OP_send_rows:
    case TM_OP_return_rows:
        return &((const tm_exchange_attr *)node->attr)->group;
    default:
        return NULL;
    }
}

static const tm_message_attr *message_of(const tm_node *node, tm_op_id op)
{
    return node->op == op ? node->attr : NULL;
}

static void collect(calls *c, const tm_step_schedule *schedule)
{
    for (size_t w = 0; w < schedule->n; w++)
        for (int64_t k = 0; k < schedule->work[w].count || k == 0; k++)
            for (size_t x = 0; x < schedule->work[w].program->count; x++) {
                const tm_node *node = schedule->work[w].program->instructions[x].node;
                const bool     receives = node->op == TM_OP_receive;
                if (!group_of(node) && !receives && node->op != TM_OP_send) continue;
                assert_true(c->n < MOST_CALLS);
                const tm_tensor *t = tm_graph_at(c->step->graph, receives ? node->out[0] : node->in[0]);
                c->list[c->n++] = (call){ node, tm_shape_elements(t->shape) };
            }
}

/* The next call among these axes; NULL: there is no more. */
static const call *next_of(const calls *c, int64_t axes, size_t *at)
{
    for (; *at < c->n; (*at)++) {
        const tm_group_attr *g = group_of(c->list[*at].node);
        if (g && g->axes == axes) return &c->list[(*at)++];
    }
    return NULL;
}

/* Two ranks of a group: the same calls, of as many elements, that are called the same. */
static void same_calls(const tm_mesh *mesh, const calls *a, const calls *b, int64_t axes, int rank_b)
{
    for (size_t x = 0, y = 0;;) {
        const call *one = next_of(a, axes, &x), *other = next_of(b, axes, &y);
        if (!one && !other) return;
        assert_true(one && other && one->node->op == other->node->op && one->elements == other->elements);
        const tm_group_attr *g = group_of(one->node), *h = group_of(other->node);
        assert_memory_equal(g, h, sizeof *g);
        assert_true(g->what[0] && g->ranks == tm_mesh_group_size(mesh, (unsigned)axes));
        if (h == other->node->attr) continue;
        const tm_exchange_attr *e = one->node->attr, *f = other->node->attr;
        assert_true(e->rounds == f->rounds && e->round == f->round && e->round < e->rounds && e->pairs == f->pairs);
        assert_int_equal(f->rank, tm_mesh_group_rank(mesh, rank_b, (unsigned)axes));
    }
}

/* The next message to (sends) or from the rank of the group; NULL: there is no more. */
static const call *next_message(const calls *c, tm_op_id op, int64_t axes, int64_t peer, int64_t channel, size_t *at)
{
    for (; *at < c->n; (*at)++) {
        const tm_message_attr *m = message_of(c->list[*at].node, op);
        if (m && m->axes == axes && m->peer == peer && m->channel == channel) return &c->list[(*at)++];
    }
    return NULL;
}

/* What a rank sends another one of the group is what that one receives, in the order of a channel. */
static size_t same_messages(const tm_mesh *mesh, const calls *all, int from, int to, int64_t axes)
{
    size_t sent = 0;
    for (int64_t channel = 0; channel < 2; channel++)
        for (size_t x = 0, y = 0;; sent++) {
            const int64_t me = tm_mesh_group_rank(mesh, from, (unsigned)axes);
            const int64_t peer = tm_mesh_group_rank(mesh, to, (unsigned)axes);
            const call   *send = next_message(&all[from], TM_OP_send, axes, peer, channel, &x);
            const call   *receive = next_message(&all[to], TM_OP_receive, axes, me, channel, &y);
            if (!send && !receive) break;
            if (!send || !receive)
                fail_msg("%d to %d, channel %d: %s is alone", from, to, (int)channel, send ? "a send" : "a receive");
            const tm_message_attr *m = receive->node->attr;
            assert_true(send->elements == receive->elements && m->rows * m->columns == receive->elements);
            assert_string_equal(m->what, ((const tm_message_attr *)send->node->attr)->what);
            assert_int_equal(m->ranks, tm_mesh_group_size(mesh, (unsigned)axes));
        }
    return sent;
}

/* All pairs of ranks, for all sets of axes. Returns the messages. */
static size_t check_pairs(const tm_mesh *mesh, const calls *all)
{
    const int ranks = tm_mesh_ranks(mesh);
    size_t    sent = 0, messages = 0;
    for (int64_t axes = 1; axes < 1 << TM_AXES; axes++)
        for (int a = 0; a < ranks; a++)
            for (int b = 0; b < ranks; b++) {
                if (a == b || (axes >> TM_AXIS_EFSDP && axes & (TM_AXES_FSDP | 1 << TM_AXIS_TP)) ||
                    tm_mesh_group_color(mesh, a, (unsigned)axes) != tm_mesh_group_color(mesh, b, (unsigned)axes))
                    continue;
                same_calls(mesh, &all[a], &all[b], axes, b);
                sent += same_messages(mesh, all, a, b, axes);
            }
    for (int r = 0; r < ranks; r++)
        for (size_t k = 0; k < all[r].n; k++) messages += message_of(all[r].list[k].node, TM_OP_send) != NULL;
    assert_int_equal(messages, sent); /* none goes elsewhere */
    return sent;
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

static size_t check_step(const char *words, const tm_chooser *chooser)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    size_t         found = 0;
    if (test_read_run(config, words, &options, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    const tm_mesh *mesh = &options.step.layout.mesh;
    const int      ranks = tm_mesh_ranks(mesh);
    calls         *all = calloc(MOST_RANKS, sizeof *all);
    for (int evaluates = 0; evaluates < 2; evaluates++) {
        for (int r = 0; r < ranks; r++) {
            options.step.layout.rank = r;
            all[r].n = 0;
            if (tm_step_create(&options.step, chooser, &all[r].step, &err) != TM_OK)
                fail_msg("%s: %s", words, err.text);
            collect(&all[r], evaluates ? &all[r].step->evaluation : &all[r].step->training);
        }
        found += all[0].n + check_pairs(mesh, all);
        check_volume(words, &options.step.shape, &all[0], evaluates);
        for (int r = 0; r < ranks; r++) tm_step_destroy(all[r].step);
    }
    free(all);
    tm_config_destroy(config);
    return found;
}

TEST(ranks_say_the_same_to_each_other)
{
    tm_device *device = test_device_open("null", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (size_t i = 0; i < sizeof divided / sizeof divided[0]; i++) assert_true(check_step(divided[i], &chooser) > 4);
    for (size_t v = 0; v < sizeof volumes / sizeof volumes[0]; v++) {
        size_t i = 0;
        while (i < sizeof divided / sizeof divided[0] && strcmp(divided[i], volumes[v].words) != 0) i++;
        assert_true(i < sizeof divided / sizeof divided[0]);
    }
    tm_device_close(device);
}
