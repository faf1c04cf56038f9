/* SPDX-License-Identifier: Apache-2.0 */
#include "train/pipeline/pipeline.h"

#include "base/arena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *other;
    int         least, most;
} orders[] = {
#define X(id, name, other, least, most) { name, other, least, most },
    TM_PIPELINE_ROWS(X)
#undef X
};

const char *tm_pipeline_name(tm_pipeline_order order)
{
    return orders[order].name;
}

const char *tm_pipeline_title(const tm_pipeline *p)
{
    return p->order == TM_PIPELINE_LISTED ? p->list->file : tm_pipeline_name(p->order);
}

bool tm_pipeline_parts(const tm_pipeline *p)
{
    return p->order == TM_PIPELINE_LISTED ? p->list->parts
                                          : p->order == TM_PIPELINE_INTERLEAVED_ZERO || tm_pipeline_is_v(p);
}

bool tm_pipeline_is_v(const tm_pipeline *p)
{
    return p->order == TM_PIPELINE_LISTED ? p->list->v : p->order == TM_PIPELINE_ZBV || p->order == TM_PIPELINE_DUAL_V;
}

int64_t tm_pipeline_first(const tm_pipeline_action *actions, size_t n, int chunk)
{
    size_t k = 0;
    while (k < n && (actions[k].chunk != chunk || actions[k].kind == TM_DO_FORWARD)) k++;
    TM_ASSERT(k < n);
    return actions[k].micro_batch;
}

tm_status tm_pipeline_find(const char *name, const char *place, tm_pipeline_order *out, tm_error *err)
{
    for (int o = 0; o < TM_PIPELINE_LISTED; o++) {
        if (strcasecmp(name, orders[o].name) != 0 && strcasecmp(name, orders[o].other) != 0) continue;
        *out = (tm_pipeline_order)o;
        return TM_OK;
    }
    tm_text names = { 0 };
    for (int o = 0; o < TM_PIPELINE_LISTED; o++) tm_text_printf(&names, "%s%s", o ? ", " : "", orders[o].name);
    tm_fail(err, TM_UNSUPPORTED, "parallelism.pipeline_parallel_schedule (%s): '%s' is not supported; these are: %s",
            place, name, names.data);
    tm_text_fini(&names);
    return TM_UNSUPPORTED;
}

/* Micro-batches that each chunk works on before the next one does. */
static int64_t round_of(const tm_pipeline *p)
{
    int64_t rounds = p->micro_batches / p->ranks > 1 ? p->micro_batches / p->ranks : 1;
    return p->micro_batches / rounds;
}

static tm_status check_list(const tm_pipeline *p, tm_error *err)
{
    const char *const key = "parallelism.pipeline_parallel_schedule_csv";
    if (!p->list) return tm_fail(err, TM_INVALID, "%s is not given", key);
    TM_ASSERT(p->list->ranks == p->ranks);
    if (p->chunks != p->list->chunks)
        return tm_fail(err, TM_INVALID,
                       "%s: %s has %d stages on each rank, and the model is cut into %d; change "
                       "parallelism.pipeline_parallel_layers_per_stage or module_fqns_per_model_part",
                       key, p->list->file, p->list->chunks, p->chunks);
    if (p->micro_batches != p->list->micro_batches)
        return tm_fail(err, TM_INVALID,
                       "%s: %s has %lld micro-batches, and a step has %lld; set training.grad_accumulation (or "
                       "parallelism.pipeline_parallel_microbatch_size) so that there are as many",
                       key, p->list->file, (long long)p->list->micro_batches, (long long)p->micro_batches);
    return TM_OK;
}

tm_status tm_pipeline_check(const tm_pipeline *p, tm_error *err)
{
    const char *name = tm_pipeline_name(p->order);
    int         least = orders[p->order].least, most = orders[p->order].most;
    TM_ASSERT(p->ranks >= 1 && p->chunks >= 1 && p->micro_batches >= 1);
    if (p->ranks > TM_PIPELINE_RANKS)
        return tm_fail(err, TM_INVALID, "parallelism.pipeline_parallel_degree is %d; there may be %d", p->ranks,
                       TM_PIPELINE_RANKS);
    if (p->order == TM_PIPELINE_LISTED) return check_list(p, err);
    if (p->chunks < least || p->chunks > most)
        return tm_fail(err, TM_INVALID,
                       "parallelism.pipeline_parallel_schedule %s has %s%d stages on each rank, found %d; change "
                       "parallelism.pipeline_parallel_layers_per_stage or module_fqns_per_model_part, or take %s",
                       name, least == most ? "" : "at least ", least, p->chunks,
                       p->chunks == 1 ? tm_pipeline_name(TM_PIPELINE_1F1B) : tm_pipeline_name(TM_PIPELINE_INTERLEAVED));
    int64_t rounds = p->micro_batches / p->ranks > 1 ? p->micro_batches / p->ranks : 1;
    bool    loops = p->order == TM_PIPELINE_INTERLEAVED || p->order == TM_PIPELINE_INTERLEAVED_ZERO;
    if (loops && p->micro_batches % rounds != 0)
        return tm_fail(err, TM_INVALID,
                       "parallelism.pipeline_parallel_schedule %s needs a multiple of %lld micro-batches on %d ranks, "
                       "found %lld; a multiple of %d is always one (training.grad_accumulation)",
                       name, (long long)rounds, p->ranks, (long long)p->micro_batches, p->ranks);
    if (p->order == TM_PIPELINE_DUAL_V && p->micro_batches < 2 * p->ranks)
        return tm_fail(err, TM_INVALID,
                       "parallelism.pipeline_parallel_schedule %s needs at least %d micro-batches, one for each stage, "
                       "found %lld (training.grad_accumulation)",
                       name, 2 * p->ranks, (long long)p->micro_batches);
    return TM_OK;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

int tm_pipeline_stage(const tm_pipeline *p, int rank, int chunk)
{
    if (tm_pipeline_is_v(p)) return chunk == 0 ? rank : 2 * p->ranks - 1 - rank;
    return rank + chunk * p->ranks;
}

int tm_pipeline_rank(const tm_pipeline *p, int stage)
{
    if (tm_pipeline_is_v(p) && stage >= p->ranks) return 2 * p->ranks - 1 - stage;
    return stage % p->ranks;
}

tm_status tm_pipeline_cut(int64_t layers, int stages, int64_t first_less, int64_t last_less, tm_stage *out,
                          tm_error *err)
{
    int64_t all = layers + first_less + last_less, each = all / stages, more = all % stages, at = 0;
    TM_ASSERT(stages >= 1 && layers >= 1);
    for (int s = 0; s < stages; s++) {
        int64_t own = each + (s < more) - (s == 0 ? first_less : 0) - (s == stages - 1 ? last_less : 0);
        if (own < 0 || (each == 0 && own == 0))
            return tm_fail(err, TM_INVALID,
                           "%lld blocks cannot be cut into %d stages of a pipeline, the embedding counted as %lld and "
                           "the head as %lld blocks (parallelism.pipeline_parallel_first_stage_less_layers, "
                           "_last_stage_less_layers): stage %d would have %lld; take fewer stages "
                           "(parallelism.pipeline_parallel_degree) or count them less",
                           (long long)layers, stages, (long long)first_less, (long long)last_less, s, (long long)own);
        out[s] = (tm_stage){
            .first = (int)at, .end = (int)(at + own), .begins = s == 0, .ends = s == stages - 1, .number = s
        };
        at += own;
    }
    TM_ASSERT(at == layers);
    return TM_OK;
}

void tm_pipeline_cut_at(int64_t layers, int stages, const int *first, tm_stage *out)
{
    for (int s = 0; s < stages; s++)
        out[s] = (tm_stage){ .first = first[s],
                             .end = s + 1 < stages ? first[s + 1] : (int)layers,
                             .begins = s == 0,
                             .ends = s == stages - 1,
                             .number = s };
}

/* --- orders ------------------------------------------------------------------------------------------------------- */

enum { QUEUE = TM_PIPELINE_RANKS };
typedef struct {
    const tm_pipeline  *p;
    tm_pipeline_action *list;
    size_t              n;
    int64_t             done[4][TM_MAX_CHUNKS]; /* actions of a kind and chunk so far: the next micro-batch */
    int                 queue[QUEUE];           /* chunks whose weights wait, in a ring */
    size_t              queued, taken;
} writer;

/* The next micro-batch of the chunk; those that there are not (some orders begin with more) are left out. */
static void put(writer *w, tm_pipeline_kind kind, int chunk)
{
    int64_t micro_batch = w->done[kind][chunk]++;
    if (micro_batch < w->p->micro_batches) w->list[w->n++] = (tm_pipeline_action){ kind, chunk, micro_batch };
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void write_gpipe(writer *w)
{
    for (int64_t m = 0; m < w->p->micro_batches; m++) put(w, TM_DO_FORWARD, 0);
    for (int64_t m = 0; m < w->p->micro_batches; m++) put(w, TM_DO_BACKWARD, 0);
}

/* One forward, one backward, over the chunks in turn: `round` micro-batches of each. A rank begins with as many
 * forwards as it takes until its first backward can be there. Weight gradients follow `rank` input gradients later. */
static void write_loop(writer *w, int rank)
{
    const tm_pipeline *p = w->p;
    const int64_t      all = p->micro_batches * p->chunks, round = round_of(p);
    const bool         parts = tm_pipeline_parts(p);
    const int64_t      after = p->ranks - 1 - rank;
    int64_t            ahead =
        p->chunks == 1 && !parts ? after : (p->chunks - 1) * round + (parts && p->chunks == 1 ? 1 : 2) * after;
    int64_t backward = 0, weights = 0;
    ahead = smaller(ahead, all);
    for (int64_t forward = 0; backward < all;) {
        if (forward < all) put(w, TM_DO_FORWARD, (int)(forward / round % p->chunks));
        forward++;
        if (forward <= ahead) continue;
        put(w, parts ? TM_DO_INPUT : TM_DO_BACKWARD, (int)(p->chunks - 1 - backward / round % p->chunks));
        backward++;
        if (!parts || backward <= rank) continue;
        put(w, TM_DO_WEIGHT, (int)(p->chunks - 1 - weights / round % p->chunks));
        weights++;
    }
    for (; parts && weights < all; weights++) put(w, TM_DO_WEIGHT, (int)(p->chunks - 1 - weights / round % p->chunks));
}

static void put_both(writer *w, int chunk)
{
    put(w, TM_DO_INPUT, chunk);
    put(w, TM_DO_WEIGHT, chunk);
}

/* The V of zero-bubble schedules (Qi et al. 2024): chunk 0 goes down the ranks, chunk 1 up again. */
static void write_v(writer *w, int rank)
{
    const int     ranks = w->p->ranks;
    const int64_t m = w->p->micro_batches > 2 * ranks - 1 ? w->p->micro_batches : 2 * ranks - 1;
    int64_t(*done)[TM_MAX_CHUNKS] = w->done;
    for (int k = 0; k < 2 * (ranks - rank) - 1; k++) put(w, TM_DO_FORWARD, 0);
    for (int k = 0; k < rank; k++) put(w, TM_DO_FORWARD, 1), put(w, TM_DO_FORWARD, 0);
    for (int k = 0; k < ranks - rank; k++) put(w, TM_DO_FORWARD, 1), put_both(w, 1);
    while (done[TM_DO_FORWARD][1] < done[TM_DO_FORWARD][0] || done[TM_DO_FORWARD][0] < m) {
        if (done[TM_DO_FORWARD][0] < m) put(w, TM_DO_FORWARD, 0);
        put_both(w, 0);
        put(w, TM_DO_FORWARD, 1);
        put_both(w, 1);
    }
    for (int k = 0; k < rank; k++) put(w, TM_DO_INPUT, 0), put(w, TM_DO_INPUT, 1);
    for (int k = 0; k < ranks - rank; k++) put_both(w, 0);
    while (done[TM_DO_WEIGHT][1] < done[TM_DO_INPUT][1]) put(w, TM_DO_WEIGHT, 1);
    while (done[TM_DO_WEIGHT][0] < done[TM_DO_INPUT][0]) put(w, TM_DO_WEIGHT, 0);
}

/* The next backward: whole, or of the inputs, and then its weights wait in the queue. */
static void put_backward(writer *w, int chunk, bool whole)
{
    if (!whole) {
        put(w, TM_DO_INPUT, chunk);
        TM_ASSERT(w->queued < w->taken + QUEUE);
        w->queue[w->queued++ % QUEUE] = chunk;
        return;
    }
    w->done[TM_DO_BACKWARD][chunk] = w->done[TM_DO_INPUT][chunk]++;
    w->done[TM_DO_WEIGHT][chunk]++;
    put(w, TM_DO_BACKWARD, chunk);
}

static void put_waiting(writer *w)
{
    if (w->taken < w->queued) put(w, TM_DO_WEIGHT, w->queue[w->taken++ % QUEUE]);
}

/* DualPipe (DeepSeek-AI 2024) cut in half: while a micro-batch goes down the V, another one comes back up. Forward of
 * one chunk stands beside backward of the other, whose messages travel meanwhile. Gradients of weights are left for
 * later only where the pipeline fills and drains. */
static void write_dual_v(writer *w, int rank)
{
    const int after = w->p->ranks - 1 - rank, turns = rank + 1;
    for (int k = 0; k < 2 * after; k++) put(w, TM_DO_FORWARD, 0);
    for (int k = 0; k < turns; k++) put(w, TM_DO_FORWARD, 0), put(w, TM_DO_FORWARD, 1);
    for (int k = 0; k < after; k++) {
        put_backward(w, 1, false);
        put_waiting(w);
        put(w, TM_DO_FORWARD, 1);
    }
    for (int64_t k = 0; k < w->p->micro_batches - 2 * w->p->ranks + turns; k++) {
        put(w, TM_DO_FORWARD, 0);
        put_backward(w, 1, true);
        put(w, TM_DO_FORWARD, 1);
        put_backward(w, 0, true);
    }
    for (int k = 0; k < after; k++) {
        put_backward(w, 1, true);
        put(w, TM_DO_FORWARD, 1);
        put_backward(w, 0, true);
    }
    for (int k = 0; k < turns; k++) { /* the second half leaves weights for later */
        put_backward(w, 1, k < (turns + 1) / 2);
        put_backward(w, 0, k < turns / 2);
    }
    for (int k = 0; k < after; k++) {
        put_waiting(w);
        put_backward(w, 0, false);
    }
    for (int k = 0; k < turns; k++) put_waiting(w);
}

tm_pipeline_action *tm_pipeline_actions(const tm_pipeline *p, int rank, size_t *n)
{
    writer w = { .p = p };
    size_t most = (size_t)(p->micro_batches * p->chunks) * 3;
    TM_ASSERT(p->chunks <= TM_MAX_CHUNKS && rank >= 0 && rank < p->ranks);
    w.list = tm_alloc(most * sizeof *w.list);
    if (p->order == TM_PIPELINE_LISTED) {
        TM_ASSERT(p->list->n[rank] <= most);
        memcpy(w.list, p->list->actions[rank], (w.n = p->list->n[rank]) * sizeof *w.list);
    }
    if (p->order == TM_PIPELINE_GPIPE)
        write_gpipe(&w);
    else if (p->order == TM_PIPELINE_ZBV)
        write_v(&w, rank);
    else if (p->order == TM_PIPELINE_DUAL_V)
        write_dual_v(&w, rank);
    else if (p->order != TM_PIPELINE_LISTED)
        write_loop(&w, rank);
    *n = w.n;
    return w.list;
}

/* --- simulation --------------------------------------------------------------------------------------------------- */

enum { PARTS = 3 }; /* forward, input, weight: a whole backward is the last two */

typedef struct {
    const tm_pipeline         *p;
    const tm_pipeline_lengths *lengths;
    double                    *ended; /* by stage, micro-batch and part; NAN: not yet */
} clocks;

static double *ended(const clocks *c, int stage, int64_t micro_batch, int part)
{
    return &c->ended[((int64_t)stage * c->p->micro_batches + micro_batch) * PARTS + part];
}

/* When what stage `from` gives is at stage `to`. */
static double arrives(const clocks *c, int from, int to, int64_t micro_batch, int part)
{
    double sent = *ended(c, from, micro_batch, part);
    bool   stays = tm_pipeline_rank(c->p, from) == tm_pipeline_rank(c->p, to);
    return stays || !c->lengths->message ? sent : sent + c->lengths->message(c->lengths->context, from, to);
}

/* When what an action needs is there; NAN: not known yet. */
static double ready(const clocks *c, int rank, const tm_pipeline_action *a)
{
    int    stage = tm_pipeline_stage(c->p, rank, a->chunk), last = c->p->ranks * c->p->chunks - 1;
    double forward = *ended(c, stage, a->micro_batch, 0);
    if (a->kind == TM_DO_FORWARD) return stage == 0 ? 0 : arrives(c, stage - 1, stage, a->micro_batch, 0);
    if (a->kind == TM_DO_WEIGHT) return *ended(c, stage, a->micro_batch, 1);
    if (stage == last || isnan(forward)) return forward;
    return arrives(c, stage + 1, stage, a->micro_batch, 1);
}

/* Marks its ends: a whole backward gives the input's gradient at its very end where it is one program. */
static double run(clocks *c, int rank, const tm_pipeline_action *a, size_t k, double begin)
{
    const tm_pipeline_lengths *l = c->lengths;
    int                        stage = tm_pipeline_stage(c->p, rank, a->chunk);
    int                        from = a->kind == TM_DO_FORWARD ? 0 : a->kind == TM_DO_WEIGHT ? 2 : 1;
    int                        to = a->kind == TM_DO_BACKWARD ? 2 : from;
    double                     end = begin + l->length(l->context, rank, k, false);
    for (int part = from; part <= to; part++) *ended(c, stage, a->micro_batch, part) = end;
    if (a->kind == TM_DO_BACKWARD && tm_pipeline_parts(c->p))
        *ended(c, stage, a->micro_batch, 1) = begin + l->length(l->context, rank, k, true);
    return end;
}

static int64_t count_live(const tm_pipeline_action *actions, size_t n)
{
    int64_t live = 0, most = 0;
    for (size_t k = 0; k < n; k++) {
        live += actions[k].kind == TM_DO_FORWARD;
        if (live > most) most = live;
        live -= actions[k].kind == TM_DO_BACKWARD || actions[k].kind == TM_DO_WEIGHT;
    }
    return most;
}

void tm_pipeline_simulate_each(const tm_pipeline *p, const tm_pipeline_lengths *lengths, tm_pipeline_times *out)
{
    size_t cells = (size_t)(p->ranks * p->chunks) * (size_t)p->micro_batches * PARTS, next[TM_PIPELINE_RANKS] = { 0 };
    clocks c = { p, lengths, tm_alloc(cells * sizeof(double)) };
    double now[TM_PIPELINE_RANKS] = { 0 }, work[TM_PIPELINE_RANKS] = { 0 }, most = 0;
    bool   moved = true, all = true;
    *out = (tm_pipeline_times){ 0 };
    TM_ASSERT(p->ranks <= TM_PIPELINE_RANKS);
    for (size_t k = 0; k < cells; k++) c.ended[k] = (double)NAN;
    for (int r = 0; r < p->ranks; r++) {
        out->actions[r] = tm_pipeline_actions(p, r, &out->n[r]);
        out->begin[r] = tm_alloc(out->n[r] * sizeof(double));
        for (size_t k = 0; k < out->n[r]; k++) out->begin[r][k] = (double)NAN;
        out->live[r] = count_live(out->actions[r], out->n[r]);
    }
    while (moved) {
        moved = false;
        for (int r = 0; r < p->ranks; r++)
            for (; next[r] < out->n[r]; next[r]++) {
                double when = ready(&c, r, &out->actions[r][next[r]]);
                if (isnan(when)) break;
                out->begin[r][next[r]] = fmax(when, now[r]);
                now[r] = run(&c, r, &out->actions[r][next[r]], next[r], out->begin[r][next[r]]);
                work[r] += now[r] - out->begin[r][next[r]];
                moved = true;
            }
    }
    for (int r = 0; r < p->ranks; r++) {
        all = all && next[r] == out->n[r];
        out->end = fmax(out->end, now[r]);
        most = fmax(most, work[r]);
    }
    if (!all) out->end = (double)NAN;
    out->idle = out->end - most;
    free(c.ended);
}

/* All stages alike. */
typedef struct {
    const tm_pipeline_costs *costs;
    const tm_pipeline_times *times;
} alike;

static double length_alike(const void *context, int rank, size_t k, bool input)
{
    const alike             *a = context;
    const tm_pipeline_costs *costs = a->costs;
    tm_pipeline_kind         kind = a->times->actions[rank][k].kind;
    return kind == TM_DO_FORWARD          ? costs->forward
           : kind == TM_DO_INPUT || input ? costs->input
           : kind == TM_DO_WEIGHT         ? costs->weight
                                          : costs->input + costs->weight;
}

void tm_pipeline_simulate(const tm_pipeline *p, const tm_pipeline_costs *costs, tm_pipeline_times *out)
{
    alike same = { costs, out };
    tm_pipeline_simulate_each(p, &(tm_pipeline_lengths){ length_alike, NULL, &same }, out);
}

void tm_pipeline_times_fini(tm_pipeline_times *times)
{
    for (int r = 0; r < TM_PIPELINE_RANKS; r++) {
        free(times->begin[r]);
        free(times->actions[r]);
    }
    *times = (tm_pipeline_times){ 0 };
}

/* --- the grid ----------------------------------------------------------------------------------------------------- */

static void print_rank(const tm_pipeline *p, const tm_pipeline_times *t, int rank, int width, int columns, tm_text *out)
{
    static const char letter[] = { 'F', 'B', 'I', 'W' };
    int               most = (columns - 8) / width, at = 0;
    tm_text_printf(out, "  rank %-2d", rank);
    for (size_t k = 0; k < t->n[rank]; k++) {
        const tm_pipeline_action *a = &t->actions[rank][k];
        char                      cell[32];
        int                       begin = (int)t->begin[rank][k], takes = a->kind == TM_DO_BACKWARD ? 2 : 1;
        if (begin + takes > most) {
            tm_text_add(out, " ...");
            break;
        }
        tm_text_printf(out, "%*s", (begin - at) * width, "");
        int n = snprintf(cell, sizeof cell, "%c%lld", letter[a->kind], (long long)a->micro_batch + 1);
        if (p->chunks > 1) snprintf(cell + n, sizeof cell - (size_t)n, ".%d", a->chunk + 1);
        tm_text_printf(out, "%-*s", takes * width, cell);
        at = begin + takes;
    }
    while (out->data[out->length - 1] == ' ') out->data[--out->length] = '\0';
    tm_text_add(out, "\n");
}

void tm_pipeline_print(const tm_pipeline *p, int columns, tm_text *out)
{
    tm_pipeline_times t;
    char              cell[32];
    int width = snprintf(cell, sizeof cell, "F%lld", (long long)p->micro_batches) + 1 + (p->chunks > 1 ? 2 : 0) +
                (p->chunks > 9);
    tm_pipeline_simulate(p, &(tm_pipeline_costs){ 1, 1, 1 }, &t);
    tm_text_printf(out, "pipeline    %s: %d ranks x %d stage%s, %lld micro-batches; idle %.1f %% of a step\n",
                   tm_pipeline_title(p), p->ranks, p->chunks, p->chunks > 1 ? "s" : "", (long long)p->micro_batches,
                   100 * t.idle / t.end);
    tm_text_add(out,
                "            (all stages alike, gradients of inputs and of weights as long as the forward pass)\n");
    for (int r = 0; r < p->ranks; r++) print_rank(p, &t, r, width, columns, out);
    tm_pipeline_times_fini(&t);
}
