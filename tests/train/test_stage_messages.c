/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between stages as libraries of GPUs send them: those of a channel from one rank to another go one by one, in
 * the order in which both sides call them, and a send waits until there is room for it (device/gpu/messages.c). In the
 * plan of every order each receive then gets what was meant for it, and no order stops. */
#include "support/test.h"
#include "support/training.h"

#include "op/attrs.h"
#include "train/pipeline/pipeline.h"
#include "train/step/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, CHANNELS = 2, SLOTS = 32 };

/* What a rank does that others take part in. */
typedef struct {
    enum { SENDS, RECEIVES, ALL } kind;
    int     peer, channel;
    int64_t bytes, micro_batch;
    int     dtype;
    char    what[64];
} event;

typedef struct {
    event *list;
    size_t n, room, at;
} events;

static void add(events *e, const event *one)
{
    if (e->n == e->room) {
        e->room = e->room ? 2 * e->room : 64;
        e->list = realloc(e->list, e->room * sizeof *e->list);
        assert_non_null(e->list);
    }
    e->list[e->n++] = *one;
}

/* --- how they meet ------------------------------------------------------------------------------------------------ */

typedef struct {
    events rank[MOST];
    int    ranks, slots;
    struct {
        size_t sent, received, waiting[SLOTS]; /* places in the sender's list */
    } lane[MOST][MOST][CHANNELS];
    const char *words;
} world;

static void check_same(const world *w, int from, int to, const event *s, const event *r)
{
    if (s->bytes != r->bytes || s->dtype != r->dtype || s->micro_batch != r->micro_batch ||
        strcmp(s->what, r->what) != 0)
        fail_msg("%s: rank %d sends '%s' of micro-batch %lld (%lld bytes), and rank %d receives '%s' of %lld (%lld)",
                 w->words, from, s->what, (long long)s->micro_batch, (long long)s->bytes, to, r->what,
                 (long long)r->micro_batch, (long long)r->bytes);
}

static bool all_there(const world *w)
{
    for (int r = 0; r < w->ranks; r++)
        if (w->rank[r].at == w->rank[r].n || w->rank[r].list[w->rank[r].at].kind != ALL) return false;
    return true;
}

/* Takes the next event of a rank if nothing holds it. */
static bool turn(world *w, int r)
{
    events *e = &w->rank[r];
    if (e->at == e->n) return false;
    const event *x = &e->list[e->at];
    if (x->kind == ALL) {
        if (!all_there(w)) return false;
        for (int k = 0; k < w->ranks; k++) w->rank[k].at++;
        return true;
    }
    int    from = x->kind == SENDS ? r : x->peer, to = x->kind == SENDS ? x->peer : r;
    size_t sent = w->lane[from][to][x->channel].sent, received = w->lane[from][to][x->channel].received;
    if (x->kind == SENDS) {
        if (sent - received >= (size_t)w->slots) return false;
        w->lane[from][to][x->channel].waiting[sent % SLOTS] = e->at;
        w->lane[from][to][x->channel].sent++;
    } else {
        if (sent == received) return false;
        check_same(w, from, to, &w->rank[from].list[w->lane[from][to][x->channel].waiting[received % SLOTS]], x);
        w->lane[from][to][x->channel].received++;
    }
    e->at++;
    return true;
}

/* Do all ranks come to their ends, and is all received that was sent? */
static bool ends(world *w)
{
    memset(w->lane, 0, sizeof w->lane);
    for (int r = 0; r < w->ranks; r++) w->rank[r].at = 0;
    for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < w->ranks; r++)
            while (turn(w, r)) any = true;
    }
    for (int r = 0; r < w->ranks; r++)
        if (w->rank[r].at < w->rank[r].n) return false;
    for (int a = 0; a < w->ranks; a++)
        for (int b = 0; b < w->ranks * CHANNELS; b++)
            if (w->lane[a][b / CHANNELS][b % CHANNELS].sent != w->lane[a][b / CHANNELS][b % CHANNELS].received)
                return false;
    return true;
}

static void forget(world *w)
{
    for (int r = 0; r < MOST; r++) free(w->rank[r].list);
    free(w);
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static void collect_program(events *out, const tm_program *program, int64_t micro_batch, int *slots)
{
    for (size_t i = 0; i < program->count; i++) {
        const tm_instruction  *x = &program->instructions[i];
        const tm_op           *op = x->call.op;
        const tm_message_attr *message = x->call.attr;
        const tm_group_attr   *group = x->call.attr;
        bool                   sends = op == &tm_op_send;
        if (sends) *slots = (int)message->waiting;
        if (op == &tm_op_all_reduce && group->axes & 1 << TM_AXIS_PP) add(out, &(event){ .kind = ALL });
        if (!sends && op != &tm_op_receive) continue;
        const tm_view *v = sends ? &x->call.in[0] : &x->call.out[0];
        event          e = { .kind = sends ? SENDS : RECEIVES,
                             .peer = (int)message->peer,
                             .channel = (int)message->channel,
                             .bytes = (int64_t)tm_tensor_bytes(v->shape, v->dtype),
                             .dtype = (int)v->dtype,
                             .micro_batch = micro_batch };
        snprintf(e.what, sizeof e.what, "%s", message->what);
        add(out, &e);
    }
}

static void collect(events *out, const tm_step_schedule *schedule, int *slots)
{
    for (size_t i = 0; i < schedule->n; i++)
        for (int64_t k = 0; k < schedule->work[i].count; k++)
            collect_program(out, schedule->work[i].program, schedule->work[i].micro_batch + k, slots);
}

/* Two steps and an evaluation. */
static void plan_ends(const tm_pipeline *p, bool tied, bool divide_head, const tm_chooser *chooser)
{
    tm_step_options o = test_llama_options();
    world          *w = calloc(1, sizeof *w);
    tm_error        err = { 0 };
    char            words[120];
    o.shape.n_layers = p->ranks * p->chunks;
    o.shape.vocab_size = 256;
    o.shape.tied = tied;
    o.accumulation = p->micro_batches;
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_PP] = p->ranks;
    o.layout.order = p->order;
    o.layout.chunks = p->chunks;
    o.layout.divide_head = divide_head;
    o.layout.head_blocks = divide_head ? 2 : 0;
    w->ranks = p->ranks;
    snprintf(words, sizeof words, "%s, %d ranks of %d stages, %lld micro-batches%s%s", tm_pipeline_title(p), p->ranks,
             p->chunks, (long long)p->micro_batches, tied ? ", tied" : "", divide_head ? ", a divided head" : "");
    w->words = words;
    assert_int_equal(tm_mesh_fill(&o.layout.mesh, p->ranks, &err), TM_OK);
    for (int r = 0; r < p->ranks; r++) {
        tm_step *step;
        o.layout.rank = r;
        if (tm_step_create(&o, chooser, &step, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
        for (int t = 0; t < 2; t++) collect(&w->rank[r], &step->training, &w->slots);
        collect(&w->rank[r], &step->evaluation, &w->slots);
        tm_step_destroy(step);
    }
    assert_true(w->rank[0].n > 4 && w->slots >= 1 && w->slots <= SLOTS);
    if (!ends(w)) fail_msg("%s: it stops", words);
    forget(w);
}

TEST(every_order_of_a_plan_ends)
{
    tm_device *device = test_device_open("null", 1);
    tm_chooser chooser = tm_device_chooser(device);
    int        tried = 0;
    for (int order = 0; order < TM_PIPELINE_LISTED; order++)
        for (int ranks = 2; ranks <= (test_is_full() ? 8 : 4); ranks *= 2)
            for (int chunks = 1; chunks <= 2; chunks++)
                for (int k = 0; k < 4; k++) {
                    tm_pipeline p = {
                        .order = (tm_pipeline_order)order, .ranks = ranks, .chunks = chunks, .micro_batches = 2 * ranks
                    };
                    tm_error err = { 0 };
                    if (tm_pipeline_check(&p, &err) != TM_OK || (k > 1 && chunks == 1 && ranks > 2)) continue;
                    plan_ends(&p, k & 1, k & 2, &chooser);
                    tried++;
                }
    assert_true(tried >= 40);
    tm_device_close(device);
}

/* --- orders ------------------------------------------------------------------------------------------------------- */
