/* SPDX-License-Identifier: Apache-2.0 */
/* Who is named by made-up times: a rank that is slow soon, in each of 20 runs; nobody in runs where none is slow, be
 * their noise heavy, in bursts, or drifting.
 */
#include "support/test.h"

#include "base/arena.h"
#include "base/random.h"
#include "stats/stragglers.h"

enum { MOST_RANKS = 64 };

/* A run whose steps take `step_seconds`. */
typedef struct {
    int      ranks, slow;       /* slow: the rank; -1: none */
    double   by, noise;         /* shares of a step */
    int      slow_from;         /* step */
    double   step_seconds;      /* 0: 1 */
    double   heavy;             /* probability that a step of a rank takes up to ten times as long */
    int      burst;             /* on average every so many steps another program runs beside a rank for 5 of them */
    bool     burst_seen;        /* and the rank is known to have been delayed */
    double   drift;             /* all ranks change by so much within 100 steps, by turns */
    double   waited;            /* by each rank in each step, by the slow one half as much */
    double   taken[MOST_RANKS]; /* share of each step that other programs take of the rank's processor */
    double   late[MOST_RANKS];  /* delay in a rank's waits: it is woken late */
    int      stages;            /* roles; 0: 1. Each stage has its own length */
    uint64_t seed;
} world;

static double uniform(const world *w, int stream, int64_t i)
{
    return tm_random_uniform(w->seed, (uint64_t)stream, (uint64_t)i);
}

/* Of rank r in a step: more than half of it backward, the slowness in forward. */
static void make_times(const world *w, int64_t step, int r, tm_rank_times *t)
{
    double unit = w->step_seconds > 0 ? w->step_seconds : 1, delayed = 0;
    int    stages = w->stages ? w->stages : 1, stage = r * stages / w->ranks;
    double own = (1 + 0.5 * stage) * (1 + w->noise * tm_random_normal(w->seed, (uint64_t)r, (uint64_t)step));
    double slow = r == w->slow && step >= w->slow_from ? w->by : 0;
    own *= 1 + w->drift * sin(6.283 * (double)step / 100);
    if (uniform(w, 100 + r, step) < w->heavy) own *= 1 + 9 * uniform(w, 200 + r, step);
    if (w->burst && uniform(w, 300 + r, step / 5) < 5.0 / w->burst) delayed = own;
    delayed += own * w->taken[r];
    memset(t, 0, sizeof *t);
    t->busy[TM_RANK_DATA] = 0.05 * own * unit;
    t->busy[TM_RANK_FORWARD] = (0.3 * own + slow * own) * unit;
    t->busy[TM_RANK_BACKWARD] = (0.65 * own + delayed) * unit;
    t->delayed = w->burst && !w->burst_seen ? 0 : (delayed + w->late[r]) * unit;
    t->waited = (r == w->slow ? 0.5 : 1) * w->waited * unit;
    t->seconds = 2 * unit;
}

/* Of the first alarm about a rank, or NULL. *step: at which. */
typedef struct {
    int64_t      step;
    int          n; /* alarms; those about other programs do not count */
    tm_straggler first;
    int          disturbed;
    tm_straggler disturbance;
} heard;

static heard run(const world *w, int64_t steps)
{
    static tm_rank_times times[MOST_RANKS];
    static tm_straggler  named[MOST_RANKS];
    int                  role[MOST_RANKS];
    heard                h = { .step = -1 };
    for (int r = 0; r < w->ranks; r++) role[r] = r * (w->stages ? w->stages : 1) / w->ranks;
    tm_stragglers *s = tm_stragglers_open(w->ranks, role);
    for (int64_t step = 1; step <= steps; step++) {
        for (int r = 0; r < w->ranks; r++) make_times(w, step, r, &times[r]);
        int n = tm_stragglers_feed(s, step, times, named);
        for (int i = 0; i < n; i++) {
            if (named[i].disturbed) {
                if (h.disturbed++ == 0) h.disturbance = named[i];
                continue;
            }
            if (h.n++ == 0) h.first = named[i], h.step = step;
        }
    }
    tm_stragglers_close(s);
    return h;
}

/* ---- those that are slow ---- */

static void named_within(const world *given, int64_t steps)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world w = *given;
        w.seed = seed;
        heard h = run(&w, w.slow_from + steps - 1 + (w.slow_from == 0));
        if (h.n == 0)
            fail_msg("%g %% of %d ranks, seed %d: not named within %d steps", 100 * w.by, w.ranks, (int)seed,
                     (int)steps);
        assert_int_equal(h.first.rank, w.slow);
        assert_string_equal(h.first.phase, "forward");
        assert_true(h.first.low <= h.first.behind && h.first.behind <= h.first.high);
        if (fabs(h.first.behind - w.by) > 0.03) fail_msg("%g, found %g", w.by, h.first.behind);
    }
}

TEST(ten_percent_are_named_within_20_steps)
{
    static const int ranks[] = { 2, 3, 4, 8, 16 };
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        named_within(&(world){ .ranks = ranks[i], .slow = ranks[i] - 1, .by = 0.1, .noise = 0.02 }, 20);
    named_within(&(world){ .ranks = 8, .slow = 5, .by = 0.1, .noise = 0.02, .stages = 2 }, 20);
}

TEST(three_percent_are_named_within_200_steps)
{
    static const int ranks[] = { 2, 4, 16, 64 };
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        named_within(&(world){ .ranks = ranks[i], .slow = 1, .by = 0.03, .noise = 0.02 }, 200);
}

/* A bet that lost for long begins anew. */
TEST(who_becomes_slow_is_named_too)
{
    named_within(&(world){ .ranks = 4, .slow = 2, .by = 0.1, .noise = 0.02, .slow_from = 1000 }, 64);
    named_within(&(world){ .ranks = 2, .slow = 0, .by = 0.03, .noise = 0.02, .slow_from = 1000 }, 400);
}

TEST(what_changes_is_told_again)
{
    static tm_rank_times times[2];
    tm_straggler         named[2];
    int                  told = 0;
    double               last = 0;
    tm_stragglers       *s = tm_stragglers_open(2, (int[]){ 0, 0 });
    for (int64_t step = 1; step <= 600; step++) {
        world w = { .ranks = 2,
                    .slow = 1,
                    .by = step < 200   ? 0.1
                          : step < 400 ? 0.3
                                       : 0,
                    .noise = 0.01,
                    .waited = 0.1 };
        for (int r = 0; r < 2; r++) make_times(&w, step, r, &times[r]);
        if (tm_stragglers_feed(s, step, times, named) == 0) continue;
        assert_true(named[0].rank == 1 && named[0].again == (told > 0));
        told++;
        last = named[0].behind;
    }
    assert_true(told >= 3 && told <= 5);
    assert_true(fabs(last) < 0.02);
    assert_int_equal(tm_stragglers_found(s, named), 1);
    assert_true(named[0].waited_seconds > 59 && named[0].waited_seconds < 60.1);
    tm_stragglers_close(s);
}

/* ---- those that are not ---- */

static void nobody_is_named(const char *what, world w, int runs, int64_t steps)
{
    w.slow = -1;
    for (w.seed = 1; w.seed <= (uint64_t)runs; w.seed++) {
        heard h = run(&w, steps);
        if (h.n > 0)
            fail_msg("%s, seed %d: rank %d named at step %d, %g %%", what, (int)w.seed, h.first.rank, (int)h.step,
                     100 * h.first.behind);
    }
}

enum { RUNS = 1000, FEW = 100 };

TEST(nobody_is_named_by_chance)
{
    nobody_is_named("noise of 2 %", (world){ .ranks = 2, .noise = 0.02 }, RUNS, 60);
    nobody_is_named("noise of 20 %", (world){ .ranks = 2, .noise = 0.2 }, RUNS / 2, 60);
    nobody_is_named("eight ranks", (world){ .ranks = 8, .noise = 0.05 }, FEW, 200);
    nobody_is_named("heavy tails", (world){ .ranks = 3, .noise = 0.02, .heavy = 0.2 }, RUNS / 4, 60);
    nobody_is_named("a drift of all", (world){ .ranks = 4, .noise = 0.02, .drift = 0.3 }, FEW, 300);
    nobody_is_named("long runs", (world){ .ranks = 2, .noise = 0.03 }, 20, 10000);
    nobody_is_named("pipelines", (world){ .ranks = 4, .noise = 0.02, .stages = 2 }, FEW, 200);
    nobody_is_named("each its own stage", (world){ .ranks = 4, .noise = 0.02, .stages = 4 }, 10, 200);
}

TEST(other_programs_make_nobody_slow)
{
    nobody_is_named("bursts", (world){ .ranks = 2, .noise = 0.02, .burst = 60, .burst_seen = true }, FEW, 300);
    nobody_is_named("bursts that nobody sees", (world){ .ranks = 2, .noise = 0.02, .burst = 400 }, FEW, 300);
    nobody_is_named("a third of a processor", (world){ .ranks = 2, .noise = 0.02, .taken = { 0.5 } }, FEW, 300);
    nobody_is_named("woken late", (world){ .ranks = 2, .noise = 0.02, .late = { 0.3 }, .waited = 1 }, FEW, 300);
    /* Delays that may lie in waits, and do not. */
    nobody_is_named("others have the processor", (world){ .ranks = 2, .noise = 0.02, .taken = { 0, 5 }, .waited = 6 },
                    FEW, 300);
    /* What is left of it in a rank's own time may be the caches: it has to last for 10 s. */
    world w = { .ranks = 2, .slow = 1, .noise = 0.02, .by = 0.1, .taken = { 0.5, 0.5 }, .step_seconds = 0.01 };
    assert_int_equal(run(&w, 450).n, 0); /* 9 s */
    assert_int_equal(run(&w, 650).n, 1);
    /* Most of what it is behind is not its own. */
    heard both = run(&(world){ .ranks = 2, .slow = 1, .noise = 0.02, .by = 0.1, .taken = { 0, 0.5 } }, 200);
    assert_true(both.n == 0 && both.disturbed == 1 && both.disturbance.rank == 1);
    heard h = run(&(world){ .ranks = 3, .slow = -1, .noise = 0.02, .taken = { 0, 0.5 }, .step_seconds = 0.1 }, 200);
    assert_true(h.n == 0 && h.disturbed == 1 && h.disturbance.rank == 1 && fabs(h.disturbance.behind - 0.5) < 0.05);
}

TEST(all_alike_is_nobody)
{
    nobody_is_named("no noise", (world){ .ranks = 2 }, 1, 300);
    nobody_is_named("one rank", (world){ .ranks = 1, .noise = 0.02 }, 1, 100);
    heard h = run(&(world){ .ranks = 2, .slow = 1, .by = 0.1 }, 20); /* nor is any needed */
    assert_true(h.n == 1 && h.first.rank == 1 && fabs(h.first.behind - 0.1) < 1e-9);
    assert_int_equal(run(&(world){ .ranks = 2, .slow = 1, .by = 0.015, .noise = 0.001 }, 500).n, 0);
}

TEST(it_is_told_in_words)
{
    char         text[TM_STRAGGLER_TEXT];
    tm_straggler s = { .rank = 5,
                       .host = "b",
                       .since = 12,
                       .behind = 0.102,
                       .low = 0.096,
                       .high = 0.109,
                       .phase = "forward",
                       .waited_seconds = 4.1 };
    assert_string_equal(tm_straggler_text(&s, text),
                        "rank 5 on b is slow: 10.2 % (9.6 .. 10.9) behind the others, most in forward; each waited "
                        "4.1 s since step 12");
    s.disturbed = true;
    assert_non_null(
        strstr(tm_straggler_text(&s, text), "rank 5 on b shares its processor with other programs: 10.2 %"));
}
