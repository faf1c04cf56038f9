/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/replay.c - every debug.replay-th step of a run has its gradients computed twice (train/trainer/replay.h).
 * The time that this takes belongs to no step. A difference makes the run invalid (docs/silent-errors.md). */
#include "train/run/run_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "stats/silent.h"
#include "train/parallel/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a run that is judged the first repeated step is one of the first so many: short ones have one, too. */
enum { EARLY = 10 };

/* Of a device with memory of its own so much is read back in a step; of others all is compared in place. */
static const int64_t most_read = (int64_t)64 << 20;

void run_replay_open(run *r)
{
    const tm_run_options *o = r->options;
    const tm_device_info *device = tm_device_describe(r->device);
    if (o->replay == 0 || o->turn_fd || !device->computes) return;
    uint64_t among = (uint64_t)(o->replay < EARLY ? o->replay : EARLY);
    r->replay.of = tm_replay_create(r->trainer, o->seed, device->own_memory ? most_read : 0);
    r->replay.first = o->replay;
    if (o->steps >= TM_JUDGED_STEPS && 2 * o->steps >= o->replay)
        r->replay.first = 1 + (int64_t)tm_random_below(o->seed, tm_random_stream("replayed step"), 0, among);
    r->replay.told.every = o->replay;
}

static bool repeated(const run *r, int64_t step)
{
    return r->replay.of && step >= r->replay.first && (step - r->replay.first) % r->options->replay == 0;
}

tm_status run_replay_begin(run *r, int64_t step, tm_error *err)
{
    if (!repeated(r, step)) return TM_OK;
    int64_t begin = tm_now_ns();
    TM_TRY(tm_replay_begin(r->replay.of, step, err));
    r->replay.begun_ns = tm_now_ns() - begin;
    r->timing.begin_ns += r->replay.begun_ns;
    return TM_OK;
}

/* --- a difference ------------------------------------------------------------------------------------------------- */

/* What a rank tells the others. */
typedef struct {
    tm_replay_difference found;
    tm_replay_products   products;
    char                 host[64], device[64];
} told_by_rank;

static told_by_rank own_words(const run *r, const tm_replay_difference *found, const tm_replay_products *products)
{
    told_by_rank out = { .found = *found, .products = *products };
    if (run_world(r))
        snprintf(out.host, sizeof out.host, "%.63s", tm_comm_place_of(run_world(r), run_rank(r->options)).host_name);
    else if (gethostname(out.host, sizeof out.host - 1) != 0)
        snprintf(out.host, sizeof out.host, "unknown");
    snprintf(out.device, sizeof out.device, "%.63s", tm_device_describe(r->device)->text);
    return out;
}

static tm_replay_mismatch mismatch_of(const told_by_rank *all, int ranks, int64_t step)
{
    static const char *const wrong[] = {
        [TM_REPLAY_UNDECIDED] = "undecided", [TM_REPLAY_FIRST_WRONG] = "first", [TM_REPLAY_SECOND_WRONG] = "second"
    };
    tm_replay_mismatch out = { .step = step, .rank = -1, .sure = true };
    int                shown = -1, own = 0;
    for (int k = 0; k < ranks; k++) {
        out.sure = out.sure && all[k].found.traced;
        if (all[k].found.own && own++ == 0) out.rank = k;
        if (!all[k].found.differs) continue;
        out.ranks++;
        if (shown < 0 || k == out.rank) shown = k;
    }
    out.sure = out.sure && own == 1;
    if (!out.sure) out.rank = shown;
    snprintf(out.host, sizeof out.host, "%s", all[out.rank].host);
    snprintf(out.device, sizeof out.device, "%s", all[out.rank].device);
    const tm_replay_difference *found = &all[shown].found;
    snprintf(out.tensor, sizeof out.tensor, "%s", found->tensor);
    snprintf(out.op, sizeof out.op, "%s", found->op);
    out.layer = found->layer, out.first = found->first, out.end = found->end, out.bits = found->bits;
    out.tensors = found->tensors, out.parts = found->parts;
    out.wrong = wrong[found->wrong];
    return out;
}

static void say(const run *r, const tm_replay_mismatch *m, char out[TM_REASON_BYTES])
{
    int n =
        snprintf(out, TM_REASON_BYTES, "step %lld: its gradients were computed twice on the same inputs and differ%s",
                 (long long)m->step, run_world(r) ? ", " : " ");
    if (run_world(r))
        n += snprintf(out + n, TM_REASON_BYTES - (size_t)n, m->sure ? "by rank %d " : "also on rank %d ", m->rank);
    n += snprintf(out + n, TM_REASON_BYTES - (size_t)n,
                  "(%s, host %s): %s, written by %s, elements %lld to %lld, at least %d bit%s; in all %lld tensor%s, "
                  "%lld part%s of %d bytes",
                  m->device, m->host, m->tensor, m->op, (long long)m->first, (long long)m->end - 1, m->bits,
                  m->bits == 1 ? "" : "s", (long long)m->tensors, m->tensors == 1 ? "" : "s", (long long)m->parts,
                  m->parts == 1 ? "" : "s", TM_REPLAY_PART_BYTES);
    if (strcmp(m->wrong, "undecided") == 0)
        n += snprintf(out + n, TM_REASON_BYTES - (size_t)n, "; a third computation agrees with neither");
    else
        n += snprintf(out + n, TM_REASON_BYTES - (size_t)n, "; by a third computation the %s one was wrong", m->wrong);
    if (!m->sure)
        snprintf(out + n, TM_REASON_BYTES - (size_t)n,
                 "; %d of %d ranks differ, and what they exchange does not show which was wrong: it may be another one",
                 m->ranks, run_ranks(r->options));
}

/* The first product that is not that of its factors. Behind what differs, if something does. */
static void say_product(const run *r, const told_by_rank *all, int64_t step, char out[TM_REASON_BYTES])
{
    int    rank = 0;
    size_t n = strlen(out);
    while (rank < run_ranks(r->options) && all[rank].products.wrong == 0) rank++;
    if (rank == run_ranks(r->options)) return;
    const tm_replay_products *p = &all[rank].products;
    snprintf(out + n, TM_REASON_BYTES - n,
             "%sstep %lld: %s of %s (layer %d) on rank %d (%s, host %s) is not the product of its factors: row %lld, "
             "columns from %lld on add up to %.9g, wanted %.9g within %.2g",
             n ? "; " : "", (long long)step, p->op, p->tensor, p->layer, rank, all[rank].device, all[rank].host,
             (long long)p->how.row, (long long)p->how.column, p->how.found, p->how.wanted, p->how.bound);
}

/* Every rank comes here after a difference on any of them. */
static tm_status look_closer(run *r, int64_t step, const tm_micro_batch *batch, tm_replay_difference *own,
                             const tm_replay_products *products, char reason[TM_REASON_BYTES], tm_error *err)
{
    tm_replay_told *told = &r->replay.told;
    const int       ranks = run_ranks(r->options);
    TM_TRY(tm_replay_decide(r->replay.of, batch, own, err));
    told_by_rank words = own_words(r, own, products), *all = tm_alloc((size_t)ranks * sizeof *all);
    tm_status    st = TM_OK;
    all[0] = words;
    if (run_world(r)) st = agree_gather(run_world(r), "what differs", &words, sizeof words, all, err);
    if (st == TM_OK) {
        bool differs = false;
        for (int k = 0; k < ranks; k++) differs = differs || all[k].found.differs;
        reason[0] = '\0';
        if (differs) {
            tm_replay_mismatch m = mismatch_of(all, ranks, step);
            say(r, &m, reason);
            if (told->n_mismatches < TM_REPLAY_MISMATCHES) told->mismatches[told->n_mismatches] = m;
            told->n_mismatches++;
        }
        say_product(r, all, step, reason);
        if (!r->replay.reason[0]) memcpy(r->replay.reason, reason, sizeof r->replay.reason);
        if (run_rank(r->options) == 0) tm_warn("%s", reason);
    }
    free(all);
    return st;
}

/* --- a repeated step ---------------------------------------------------------------------------------------------- */

tm_status run_replay(run *r, int64_t step, const tm_micro_batch *batch, tm_error *err)
{
    enum { DIFFERS, BYTES, OF_BYTES, COMPUTED_NS, PRODUCTS, WRONG, SUMS };
    tm_replay_compared   compared;
    tm_replay_difference found;
    tm_replay_told      *told = &r->replay.told;
    char                 reason[TM_REASON_BYTES];
    if (!repeated(r, step)) return TM_OK;
    TM_TRY(tm_device_wait(r->device, err)); /* what is queued of the step belongs to it */
    int64_t begin = tm_now_ns();
    TM_TRY(tm_replay_compare(r->replay.of, batch, &compared, &found, err));
    int64_t sums[SUMS] = { found.differs,
                           compared.bytes,
                           compared.of_bytes,
                           (int64_t)(compared.computed * 1e9),
                           compared.products.products,
                           compared.products.wrong };
    TM_TRY(agree_sum(run_world(r), "whether a repeated step differs", sums, SUMS, err));
    bool fails = sums[DIFFERS] > 0 || sums[WRONG] > 0;
    if (fails) TM_TRY(look_closer(r, step, batch, &found, &compared.products, reason, err));
    double seconds = (double)(tm_now_ns() - begin + r->replay.begun_ns) * 1e-9;
    double share = sums[OF_BYTES] > 0 ? (double)sums[BYTES] / (double)sums[OF_BYTES] : 0;
    told->steps++;
    told->bytes += sums[BYTES];
    told->products += sums[PRODUCTS];
    told->wrong_products += sums[WRONG];
    told->seconds += seconds;
    told->device_seconds += 2 * share * (double)sums[COMPUTED_NS] * 1e-9; /* of both computations */
    tm_event event = { .kind = TM_EVENT_REPLAYED };
    event.replayed =
        (tm_replayed){ .step = step, .bytes = sums[BYTES], .seconds = seconds, .reason = fails ? reason : NULL };
    tm_event_emit(r->bus, &event);
    r->timing.begin_ns += tm_now_ns() - begin;
    return TM_OK;
}

tm_replay_told run_replay_told(const run *r)
{
    tm_replay_told told = r->replay.told;
    told.cost_percent = r->timing.all_seconds > 0 ? 100 * told.seconds / r->timing.all_seconds : (double)NAN;
    told.excluded_per_hour = told.n_mismatches + told.wrong_products == 0
                                 ? tm_silent_excluded(told.device_seconds, TM_REPLAY_CONFIDENCE)
                                 : (double)NAN;
    return told;
}
