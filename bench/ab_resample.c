/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of `trainmark ab` made from one recorded session of A against A: how often it sees a difference.
 *
 *     ab_resample SESSION.jsonl TRIALS PERCENT SECONDS [SEED]
 *
 * A trial is a window of SECONDS of the record, at a random place, with all its turns in their order: drift, bursts and
 * autocorrelation stay as they were. In each round the three processes, which all ran the same, get the names A, B and
 * A again at random; B's times are multiplied by 1 + PERCENT / 100. The trial is then judged as a live session is, with
 * the same looks at the same moments and the same rule that may end it early. Prints one line:
 *
 *     trials N slower N faster N none N not_judged N held N half_width PERCENT floor PERCENT pairs MEAN
 *
 * held: in how many the interval of B / A holds the truth, 1 + PERCENT / 100.
 */
#include "base/arena.h"
#include "base/file.h"
#include "base/random.h"
#include "apps/bench/ab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const tm_ab_session *session;
    int64_t             *first; /* turn with which each unit begins, and the end: units + 1 */
    int64_t              units; /* rounds */
    double               factor;
    uint64_t             seed;
} trials;

static void find_units(trials *t)
{
    const tm_ab_turn *turns = t->session->turns;
    int64_t           n = t->session->n_turns;
    t->first = tm_alloc((size_t)(n + 2) * sizeof *t->first);
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || turns[i].round != turns[i - 1].round) t->first[t->units++] = i;
    }
    t->first[t->units] = n;
}

static tm_paired_result one_trial(const trials *t, int64_t window, uint64_t trial)
{
    static const int     orders[6][TM_AB_SIDES] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                                    { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    const tm_ab_session *s = t->session;
    uint64_t             stream = tm_random_stream("bench.ab_resample") + trial;
    int64_t              from = (int64_t)tm_random_below(t->seed, stream, 0, (uint64_t)(t->units - window + 1));
    tm_pair             *pairs = tm_alloc((size_t)(s->n_turns + 1) * sizeof *pairs);
    tm_paired_result     r = tm_paired_judge(pairs, 0, 0);
    int64_t              n = 0;
    for (int64_t u = from; u < from + window; u++) {
        uint64_t draw = (uint64_t)(u - from) + 1;
        int64_t  more;
        tm_pair *these = tm_ab_pairs(s, t->first[u], t->first[u + 1], orders[tm_random_below(t->seed, stream, draw, 6)],
                                     t->factor, &more);
        if (more > 0) memcpy(pairs + n, these, (size_t)more * sizeof *pairs);
        free(these);
        n += more;
        r = tm_paired_judge(pairs, n, s->least_difference);
        if (tm_paired_enough(&r, s->target > 0 ? s->target : 0.01, s->least_pairs)) break;
    }
    free(pairs);
    return r;
}

static int run(const trials *t, long n, double seconds)
{
    int64_t window = (int64_t)floor((double)t->units * seconds / t->session->seconds);
    int64_t seen[4] = { 0 }, held = 0;
    double  half = 0, floors = 0, pairs = 0;
    if (window < 1 || window > t->units) {
        fprintf(stderr, "the session has %lld round(s) in %.0f s: too short for windows of %.0f s\n",
                (long long)t->units, t->session->seconds, seconds);
        return 4;
    }
    for (long i = 0; i < n; i++) {
        tm_paired_result r = one_trial(t, window, (uint64_t)i);
        seen[r.verdict]++;
        held += r.b.lo <= t->factor && t->factor <= r.b.hi;
        half += r.half_width;
        floors += r.floor;
        pairs += (double)r.pairs;
    }
    printf("trials %ld slower %lld faster %lld none %lld not_judged %lld held %lld half_width %.3f floor %.3f pairs "
           "%.1f\n",
           n, (long long)seen[TM_PAIRED_SLOWER], (long long)seen[TM_PAIRED_FASTER],
           (long long)seen[TM_PAIRED_NO_DIFFERENCE], (long long)seen[TM_PAIRED_TOO_SHORT], (long long)held,
           100 * half / (double)n, 100 * floors / (double)n, pairs / (double)n);
    return 0;
}

int main(int argc, char **argv)
{
    tm_error      err = { 0 };
    tm_text       text = { 0 };
    tm_ab_session session = { 0 };
    long          n = argc > 4 ? strtol(argv[2], NULL, 10) : 0;
    double        percent = argc > 4 ? strtod(argv[3], NULL) : 0, seconds = argc > 4 ? strtod(argv[4], NULL) : 0;
    if (n < 1 || !(seconds > 0) || !(percent > -100)) {
        fprintf(stderr, "usage: ab_resample SESSION.jsonl TRIALS PERCENT SECONDS [SEED]\n");
        return 2;
    }
    tm_status st = tm_file_read(argv[1], 1 << 30, &text, &err);
    if (st == TM_OK) st = tm_ab_session_parse(text.data, argv[1], &session, &err);
    if (st == TM_OK && strcmp(session.a, session.b) != 0)
        st = tm_fail(&err, TM_INVALID, "A and B of '%s' are not the same; record a session of A against A", argv[1]);
    int code = tm_status_exit_code(st);
    if (st == TM_OK) {
        trials t = { .session = &session,
                     .factor = 1 + percent / 100,
                     .seed = argc > 5 ? strtoull(argv[5], NULL, 10) : 1 };
        find_units(&t);
        code = run(&t, n, seconds);
        free(t.first);
    } else {
        fprintf(stderr, "ab_resample: %s\n", err.text);
    }
    tm_ab_session_fini(&session);
    tm_text_fini(&text);
    return code;
}
