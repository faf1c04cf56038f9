/* SPDX-License-Identifier: Apache-2.0 */
/* Every rule of verdict.h, on both sides of its edge. */
#include "support/test.h"
#include "train/run/verdict.h"

enum { LOSSES = 100 };
static const double nothing = (double)NAN;

/* Losses that fall from `from` to `to` over the run, straight. */
static tm_evidence evidence_of(const char *source, double *losses, double from, double to)
{
    for (int i = 0; i < LOSSES; i++) losses[i] = from + (to - from) * i / (LOSSES - 1);
    return (tm_evidence){ .gate = tm_source_traits_of(source)->gate,
                          .losses = losses,
                          .n_losses = LOSSES,
                          .total_steps = LOSSES,
                          .finite = true,
                          .validation = nothing,
                          .validation_error = nothing,
                          .floor = 2,
                          .validation_floor = 2,
                          .unigram_entropy = 3,
                          .compressed = nothing,
                          .target_gap = 0.05,
                          .step_variation = 0.02 };
}

/* `word` is in the reason; one that ends with '$' ends it. */
static bool says(const char *reason, const char *word)
{
    const size_t n = strlen(word), all = strlen(reason);
    if (n == 0 || word[n - 1] != '$') return strstr(reason, word) != NULL;
    return all >= n - 1 && strncmp(reason + all - (n - 1), word, n - 1) == 0;
}

static void expect(const tm_evidence *e, tm_verdict wanted, const char *word)
{
    char reason[TM_REASON_BYTES];
    memset(reason, 'x', sizeof reason);
    tm_verdict got = tm_verdict_of(e, reason);
    assert_non_null(memchr(reason, 0, sizeof reason));
    if (got != wanted || !says(reason, word))
        fail_msg("%s (%s), wanted %s and '%s'", tm_verdict_name(got), reason, tm_verdict_name(wanted), word);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

#define VALID TM_VERDICT_VALID
#define INVALID TM_VERDICT_INVALID
#define NOISY TM_VERDICT_NOISY
#define NOT_JUDGED TM_VERDICT_NOT_JUDGED

/* What a run was like: its source ("*": each of synthetic, mock, text), its losses from the first to the last one, and
 * members of the evidence. The floor is 2 and single tokens give 3, if a row does not say otherwise. */
typedef struct {
    const char *like;
    tm_verdict  wanted;
    const char *says;
} row;

static const row rows[] = {
    /* numbers that are not finite: few steps and noise are no excuse */
    { "* 4 2.01 finite=0", INVALID, "not finite" },
    { "* 4 2.01 finite=0 n=1 variation=1", INVALID, "not finite" },
    { "* 4 4 finite=0 interrupted=1", INVALID, "not finite" },
    /* few steps are not judged, but a goal that was reached early is, and what leaks at any time */
    { "* 4 3.5 n=49", NOT_JUDGED, "49" },
    { "synthetic 4 3.5 n=49 total=50", VALID, "fell" }, /* a run that goes on counts the steps before */
    { "mock 4 2.5 validation=2.6 total=20", NOT_JUDGED, "20 steps" },
    { "text 4 2.5 validation=2.6 total=20", NOT_JUDGED, "20 steps" },
    { "synthetic 4 2.5 n=0", NOT_JUDGED, "0 steps" },
    { "synthetic 4 2.1 n=30 validation=2.04 must=1", VALID, "within" },
    { "synthetic 4 2.1 n=30 validation=2.04", NOT_JUDGED, "30 steps are too few" },
    { "synthetic 4 2.1 n=30 validation=1.96", NOT_JUDGED, "30 steps are too few" },
    { "synthetic 4 2.1 n=30 validation=1.5", INVALID, "leaks" },
    /* below the entropy: by five errors, an unknown one counts as 0.01 */
    { "synthetic 4 1", INVALID, "leaks" },
    { "synthetic 4 2.01 validation=1.94", INVALID, "leaks" },
    { "synthetic 4 2.01 validation=1.96", VALID, "within" },
    { "synthetic 4 2.01 validation=1.96 error=0.001", INVALID, "leaks" },
    { "synthetic 4 2.01 validation=1.91 error=0.02", VALID, "within" },
    { "synthetic 4 2.01 validation=1.89 error=0.02", INVALID, "leaks" },
    /* the goal is the entropy and the gap, which must mean something */
    { "synthetic 4 2.3 must=1 validation=2.049", VALID, "within 0.05" },
    { "synthetic 4 2.3 must=1 validation=2.051", INVALID, "did not come within 0.05" },
    { "synthetic 4 2.3 validation=2.051", VALID, "fell" },
    { "synthetic 4 2.3 validation=2.051 gap=0.06", VALID, "within 0.06" },
    { "synthetic 4 3.5 gap=10 validation=3.5", INVALID, "not below what single tokens give, 3.0000" },
    { "synthetic 4 3.5 gap=10 validation=2.995", INVALID, "not below what single tokens give" },
    { "synthetic 4 3.5 gap=10 validation=2.98", VALID, "within 10 nat" },
    /* progress: the means of the ends, not the last loss, decide */
    { "synthetic 4 4", INVALID, "no progress" },
    { "synthetic 4 4.5", INVALID, "no progress" },
    { "synthetic 4 3.99", INVALID, "no progress" }, /* half a per cent of the way */
    { "synthetic 4 3.95", VALID, "fell" },
    { "synthetic 4 4 scatter=0.2", INVALID, "no progress" },
    { "synthetic 4.6 4.6 scatter=0.2 tail=-0.1", INVALID, "" }, /* the last batches happen to be easier */
    /* uniform tokens teach ln V only */
    { "mock 3.6 3 floor=nan", VALID, "ln V" },
    { "mock 3.6 3.3", VALID, "ln V is 3.0000$" },  /* not there, but closer */
    { "mock 3.05 3.1", VALID, "ln V is 3.0000$" }, /* never far from it */
    { "mock 3.6 3.9", INVALID, "does not come closer" },
    { "mock 3.6 3.61", INVALID, "does not come closer" },
    { "mock 3.6 3.61 scatter=0.05 tail=0.02", VALID, "ln V" }, /* farther by less than batches scatter */
    { "mock 3.6 3.61 scatter=0.05 tail=0.32", INVALID, "does not come closer" },
    { "mock 3.5 1", INVALID, "leaks" },
    { "mock 3.5 2.6", INVALID, "leaks" }, /* closer to ln V than at first, from the wrong side */
    /* text must beat its single tokens; images, without tokens, no prediction; and no text a compressor by far */
    { "text 5 2.5 floor=nan", VALID, "held-out loss" },
    { "text 5 2.5 floor=nan validation=3.01", INVALID, "nothing was learned" },
    { "text 5 2.5 floor=nan validation=2.99", VALID, "2.99" },
    { "text 5 3.5 floor=nan", INVALID, "nothing was learned" },
    { "text 5 2.5 images=1 unigram=2 validation=1.9375", VALID,
      "held-out loss 1.9375, without any prediction 2.0000$" },
    { "text 5 2.5 images=1 unigram=2 validation=2", INVALID,
      "held-out loss 2.0000, without any prediction 2.0000: nothing was learned$" },
    { "text 5 2.5 images=1 unigram=nan validation=2", NOT_JUDGED, "no data is held out to compare with" },
    { "text 5 0.097 validation=0.097", VALID, "held-out loss 0.0970" },
    { "text 5 0.097 validation=0.097 compressed=1.66", INVALID, "a fifth of what a compressor needs, 1.6600" },
    { "text 5 0.097 validation=0.34 compressed=1.66", VALID, "held-out loss 0.3400" },
    { "text 5 0.097 validation=0.001", VALID, "held-out loss 0.0010" },
    /* noise: it excuses nothing */
    { "* 3.5 2.9 variation=0.099", VALID, "" },
    { "* 3.5 2.9 variation=0.11", NOISY, "step times vary by 11 %" },
    { "* 3.5 2.9 variation=nan", VALID, "" },
    { "synthetic 4 4 variation=1", INVALID, "no progress" },
    { "synthetic 4 4 variation=1 n=10", NOT_JUDGED, "10 steps" },
    { "synthetic 3.5 2.9 machine=valid", VALID, "loss fell" },
    { "synthetic 3.5 2.9 machine=not-judged", VALID, "loss fell" }, /* too short: no reason to doubt */
    { "synthetic 3.5 2.9 machine=noisy", NOISY, "floor 2.0000; other work took 90 %" },
    { "synthetic 3.5 2.9 machine=noisy variation=0.2", NOISY, "; step times vary by 20 %; other work took 90 %" },
    { "synthetic 3.5 2.9 machine=invalid", INVALID,
      "; but the figures do not measure this machine: other work took 90 %" },
    { "synthetic 3.5 2.9 machine=invalid n=10", NOT_JUDGED, "10 steps" },
    { "synthetic 4 4 machine=noisy", INVALID, "no progress" },
    /* what is faster than physics, and numbers that cannot be compared */
    { "synthetic 3.5 2.9 impossible=1", INVALID, "the fastest step took nothing" },
    { "synthetic 3.5 2.9 impossible=1 n=10", INVALID, "the fastest step took nothing" },
    { "text 5 2.5 unigram=nan", NOT_JUDGED, "data.validation_fraction" },
    { "mock 5 2.5 unigram=nan", INVALID, "" },
    { "synthetic 4 3 validation=inf must=1", INVALID, "" },
    { "synthetic 4 3 floor=nan", INVALID, "" },
    /* a run that was stopped has not failed; what is wrong at any time still is */
    { "* 4 4", INVALID, "" },
    { "* 4 4 interrupted=1", NOT_JUDGED, "interrupted after step 100" },
    { "synthetic 4 3 must=1 interrupted=1", NOT_JUDGED, "did not come within" },
    { "synthetic 4 3 must=1 interrupted=1 validation=1", INVALID, "leaks" },
    { "synthetic 4 3 must=1 interrupted=1 validation=2.04", VALID, "within" },
    /* what was no training, however the losses look; but few steps are not judged at all */
    { "synthetic 4 2.01 validation=2.01", VALID, "within" },
    { "synthetic 4 2.01 validation=2.01 unreal=1", INVALID, "no weight has moved" },
    { "mock 4 3 unreal=1", INVALID, "no weight has moved" },
    { "synthetic 4 3 unreal=1 total=20", NOT_JUDGED, "too few" },
    { "synthetic 4 3 unreal=1 total=20 validation=2.04", INVALID, "no weight has moved" },
    { "synthetic 4 3 unreal=1 total=20 validation=2.04 must=1", INVALID, "no weight has moved" },
    { "synthetic 4 3 slow=3", NOT_JUDGED, "slowed down by 3 % on purpose (debug.slowdown_pct); loss fell" },
    { "synthetic 4 3 slow=3 validation=1", INVALID,
      "slowed down by 3 % on purpose (debug.slowdown_pct); loss 1.0000 is below" },
    /* pairs: the first loss is known, and it falls on pairs that are held out, too */
    { "preference 0.7 0.4 start=0.6931 first=0.6931", VALID, "loss fell from 0." },
    { "preference 0.7 0.4 start=0.6931 first=0.6931 validation=0.69", VALID, ", held-out 0.6900" },
    { "preference 0.7 0.4 start=0.6931 first=0.6931 validation=0.6931", INVALID,
      "held-out loss 0.6931, without training 0.6931: what was learned holds" },
    { "preference 0.7 0.4 start=nan first=0.6931 validation=0.6931", VALID, ", held-out 0.6931" },
    { "preference 0.7 0.4 start=4 first=4.000049", VALID, "loss fell" },
    { "preference 0.7 0.4 start=4 first=3.999951", VALID, "loss fell" },
    { "preference 0.7 0.4 start=4 first=4.000051", INVALID, "wanted 4.000000: the model that begins is not what" },
    { "preference 0.7 0.4 start=4 first=3.999949", INVALID, "wanted 4.000000: the model that begins is not what" },
    { "preference 0.7 0.7001", INVALID, "no progress: the mean loss went from" },
    /* where no certificate says what training losses are, those of new samples do: a tenth, and what they scatter */
    { "synthetic 4 2.5 validation=3.4 error=0.01", VALID, "loss fell" },
    { "synthetic 4 2.5 validation=3.4 error=0.01 unproven=1", INVALID, "are far below the held-out loss, 3.4000" },
    { "synthetic 4 2.5 validation=2.8 error=0.01 unproven=1", VALID, "loss fell" },
    { "synthetic 4 2.5 validation=2.2 error=0.01 unproven=1", VALID, "loss fell" }, /* dropout */
    { "synthetic 4 2.5 validation=3.4 error=0.01 unproven=1 validation_floor=2.5", VALID, "loss fell" },
    { "synthetic 4 2.5 unproven=1", VALID, "loss fell" },
    { "synthetic 4 2.5 validation=3.4 error=0.01 unproven=1 scatter=0.5", VALID, "loss fell" },
    /* steps that are not steady; resumed after step 1,000 index 60 is step 1,061; too few steps to tell are no fault */
    { "synthetic 3.5 2.9 drift=1/0/0 reached=1", VALID, "" },
    { "synthetic 3.5 2.9 drift=-7/-9/-4", NOISY, "; the step time drifts by -7.0 %" },
    { "synthetic 3.5 2.9 drift=7/4/9 shift=12 total=1100", NOISY, "; the step time changed by +12.0 % at step 1061" },
    { "synthetic 3.5 2.9 drift=0/-1/1", NOISY, "; steady state was not reached" },
    { "synthetic 3.5 2.9 drift=nan/-1/1", VALID, "" },
    /* the last few steps of a run that goes on show no progress of their own: those of the beginning are beside them */
    { "synthetic 3.05 3 n=1 total=100", INVALID, "no progress" },
    { "synthetic 3.05 3 n=5 total=100", INVALID, "no progress" },
    { "synthetic 3.05 3 n=1 total=100 head=3.96/0.03/9", VALID, "fell" },
    { "synthetic 3.05 3 n=20 total=100 head=3.96/0.03/9", VALID, "fell" },
    { "synthetic 3.05 3 n=5 total=100 head=3.96/0.03/4", INVALID, "no progress" }, /* too few to say anything */
    { "synthetic 3.05 3.049 n=4 total=100 head=3.001/0.03/9", NOT_JUDGED, "since the checkpoint" },
    { "synthetic 3.05 3.049 n=5 total=100 head=3.001/0.03/9", INVALID, "no progress" },
    /* losses that rise again since a checkpoint: five of the beginning are enough to tell, and 50 steps */
    { "synthetic 2.9 3.1 head=4/0.1/5 n=49 total=400", VALID, "fell" },
    { "synthetic 2.9 3.1 head=4/0.1/5 n=50 total=400", INVALID, "rose from 2.9" },
    { "preference 2.9 3.1 head=4/0.1/5 n=50 total=400", INVALID, "rose from 2.9" },
    /* one loss since then scatters as those of the beginning, three errors of sqrt(0.04 / 5 + 0.04) are needed */
    { "synthetic 3.3405 3 head=4/0.2/5 n=1 total=400", VALID, "fell" },
    { "synthetic 3.3449 3 head=4/0.2/5 n=1 total=400", NOT_JUDGED, "" },
};

static tm_verdict verdict_named(const char *name)
{
    const tm_verdict all[] = { VALID, INVALID, NOISY, NOT_JUDGED };
    int              i = 0;
    while (strcmp(name, tm_verdict_name(all[i])) != 0) assert_true(++i < 4);
    return all[i];
}

static void set_member(tm_evidence *e, double *losses, const char *name, const char *text)
{
    const double value = strtod(text, NULL);
    const struct {
        const char *name;
        double     *number;
        bool       *flag;
    } members[] = { { "validation", &e->validation, NULL },
                    { "error", &e->validation_error, NULL },
                    { "floor", &e->floor, NULL },
                    { "validation_floor", &e->validation_floor, NULL },
                    { "unigram", &e->unigram_entropy, NULL },
                    { "compressed", &e->compressed, NULL },
                    { "gap", &e->target_gap, NULL },
                    { "variation", &e->step_variation, NULL },
                    { "start", &e->start, NULL },
                    { "first", &e->first_loss, NULL },
                    { "slow", &e->slowdown_pct, NULL },
                    { "finite", NULL, &e->finite },
                    { "must", NULL, &e->must_reach_target },
                    { "interrupted", NULL, &e->interrupted },
                    { "images", NULL, &e->images },
                    { "unproven", NULL, &e->unproven } };
    bool known = false;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (strcmp(name, members[i].name) != 0) continue;
        if (members[i].number) *members[i].number = value;
        if (members[i].flag) *members[i].flag = value > 0;
        known = true;
    }
    if (strcmp(name, "floor") == 0) e->validation_floor = value;
    if (strcmp(name, "n") == 0) e->n_losses = e->total_steps = (int64_t)value, known = true;
    if (strcmp(name, "total") == 0) e->total_steps = (int64_t)value, known = true;
    if (strcmp(name, "unreal") == 0) e->not_training = "no weight has moved", known = true;
    if (strcmp(name, "impossible") == 0) e->impossible = "the fastest step took nothing", known = true;
    static tm_steady steady;
    if (strcmp(name, "drift") == 0) {
        steady = (tm_steady){ .warmup = 50 };
        known = sscanf(text, "%lf/%lf/%lf", &steady.drift, &steady.drift_lo, &steady.drift_hi) == 3;
        e->steady = &steady;
    }
    if (strcmp(name, "reached") == 0) steady.reached = known = true;
    if (strcmp(name, "shift") == 0) steady.shift = value, steady.shift_at = 60, known = true;
    if (strcmp(name, "head") == 0) {
        int n = 0;
        known = sscanf(text, "%lf/%lf/%d", &e->head.mean, &e->head.deviation, &n) == 3;
        e->head.n = n;
    }
    if (strcmp(name, "machine") == 0)
        e->machine = verdict_named(text), e->machine_reason = "other work took 90 %", known = true;
    for (int i = 0; i < LOSSES && strcmp(name, "scatter") == 0; i++, known = true) losses[i] += i % 2 ? value : -value;
    for (int i = LOSSES - 10; i < LOSSES && strcmp(name, "tail") == 0; i++, known = true) losses[i] += value;
    if (!known) fail_msg("no member: %s", name);
}

static void expect_row(const row *r, const char *source)
{
    double losses[LOSSES];
    char   words[200], *rest = words, *word, *from, *to;
    snprintf(words, sizeof words, "%s", r->like);
    word = strsep(&rest, " "), from = strsep(&rest, " "), to = strsep(&rest, " ");
    tm_evidence e = evidence_of(source ? source : word, losses, strtod(from, NULL), strtod(to, NULL));
    while ((word = strsep(&rest, " "))) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value = '\0';
        set_member(&e, losses, word, value + 1);
    }
    print_message("# %s\n", r->like);
    expect(&e, r->wanted, r->says);
}

TEST(rules_hold_on_both_sides_of_their_edges)
{
    static const char *const sources[] = { "synthetic", "mock", "text" };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int k = 0; k < (rows[i].like[0] == '*' ? 3 : 1); k++)
            expect_row(&rows[i], rows[i].like[0] == '*' ? sources[k] : NULL);
}

/* The beginning is the first tenth of a run: its mean, and how far its losses scatter. */
TEST(the_head_is_what_the_first_losses_are)
{
    tm_loss_head head = { 0 };
    while (head.n < tm_loss_head_limit(LOSSES - 2)) head = tm_loss_head_add(head, head.n % 2 ? 4 : 3);
    assert_true(head.n == 9 && fabs(head.mean - 31. / 9) < 1e-12 &&
                fabs(head.deviation - sqrt(20. / 81 * 9 / 8)) < 1e-12);
}
