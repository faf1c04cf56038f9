/* SPDX-License-Identifier: Apache-2.0 */
/* results/verify_verdict.c - a run judged again: the rules are those of a run (train/run/verdict.h,
 * system/validity.h), the facts those that its files hold. */
#include "results/check.h"
#include "stats/silent.h"
#include "system/validity.h"
#include "train/run/verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number(const results_check *c, const char *path)
{
    return tm_result_number(c->run, path);
}

/* --- certificate -------------------------------------------------------------------------------------------------- */

static tm_certificate certificate_of(const results_check *c, const char *name)
{
    json_t        *tree = results_member(results_tree(c->run), name), *losses = json_object_get(tree, "losses");
    tm_certificate out = { .done = json_is_true(json_object_get(tree, "done")),
                           .groups = (int)json_integer_value(json_object_get(tree, "groups")),
                           .expected = json_number_value(json_object_get(tree, "expected")),
                           .measured = json_number_value(json_object_get(tree, "measured")),
                           .band = json_number_value(json_object_get(tree, "band")),
                           .evaluated = json_is_number(json_object_get(tree, "evaluated_loss")),
                           .step_loss = json_number_value(json_object_get(tree, "step_loss")),
                           .evaluated_loss = json_number_value(json_object_get(tree, "evaluated_loss")),
                           .loss_band = json_number_value(json_object_get(tree, "loss_band")),
                           .loss_agrees = json_is_true(json_object_get(tree, "loss_agrees")),
                           .gradients = json_is_true(json_object_get(tree, "gradients")),
                           .looked_ahead = json_is_true(json_object_get(tree, "looked_ahead")),
                           .causal = json_is_true(json_object_get(tree, "causal")),
                           .context = json_is_true(json_object_get(tree, "context")),
                           .rows = json_is_true(json_object_get(tree, "rows")),
                           .losses = json_string_value(losses) };
    const char    *reason = json_string_value(json_object_get(tree, "reason"));
    if (!json_is_number(json_object_get(tree, "measured"))) out.measured = (double)NAN; /* null: not finite */
    if (reason) snprintf(out.reason, sizeof out.reason, "%s", reason);
    return out;
}

/* The two losses that it compared. */
static void check_loss(results_check *c, const char *name, const tm_certificate *it)
{
    char path[80];
    if (!it->evaluated) return;
    snprintf(path, sizeof path, "%s/loss_agrees", name);
    results_check_truth(c, path, fabs(it->step_loss - it->evaluated_loss) <= it->loss_band);
    static const char *const seen[] = { "step_loss", "evaluated_loss", "loss_band" };
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", name, seen[i]);
        results_check_seen(c, path);
    }
}

/* Its members among each other. */
static void check_certificate(results_check *c, const char *name, const tm_certificate *it)
{
    char path[80], written[80], again[80];
    check_loss(c, name, it);
    if (!it->done && !it->looked_ahead) return;
    snprintf(path, sizeof path, "%s/gradients", name);
    if (it->done && it->gradients) {
        snprintf(written, sizeof written, "true");
        snprintf(again, sizeof again, "off by %.3g", fabs(it->measured - it->expected));
        bool agrees = tm_certificate_agrees(it);
        results_check_row(c, path, written, agrees ? "true" : again, agrees);
        snprintf(path, sizeof path, "%s/measured", name);
        results_check_seen(c, path);
        snprintf(path, sizeof path, "%s/band", name);
        results_check_seen(c, path);
    } else if (it->done) {
        results_check_seen(c, path);
    }
    snprintf(path, sizeof path, "%s/reason", name);
    if (!tm_certificate_fails(it)) return;
    results_check_row(c, path, it->reason[0] ? it->reason : "null", it->reason[0] ? it->reason : "a reason",
                      it->reason[0] != '\0');
}

/* One that is not done has no numbers. */
static void check_done(results_check *c, const char *name, const tm_certificate *it)
{
    char    path[80];
    json_t *tree = results_member(results_tree(c->run), name);
    bool numbers = json_is_number(json_object_get(tree, "expected")) || json_is_number(json_object_get(tree, "band"));
    snprintf(path, sizeof path, "%s/done", name);
    if (it->done || numbers) results_check_truth(c, path, numbers);
}

/* Certificates of updates and of the data: what they found fits what they say of it. */
typedef struct {
    bool        fails;
    const char *reason; /* NULL: none */
} finding;

static finding check_update(results_check *c)
{
    json_t *tree = results_member(results_tree(c->run), "certificate/update");
    finding out = { .reason = tm_result_string(c->run, "certificate/update/reason") };
    if (!json_is_object(tree) || json_array_size(json_object_get(tree, "steps")) == 0) return out;
    const double largest = json_number_value(json_object_get(tree, "largest"));
    const bool   within = json_is_number(json_object_get(tree, "largest")) && largest <= 1;
    out.fails = !json_is_true(json_object_get(tree, "agrees"));
    if (!out.fails) results_check_truth(c, "certificate/update/agrees", within && !out.reason);
    results_check_seen(c, "certificate/update/largest");
    results_check_seen(c, "certificate/update/reason");
    return out;
}

static finding check_data(results_check *c)
{
    enum { APART };
    static const char *const members[] = { [APART] = "apart", "fed", "once", "stored" };
    finding                  out = { .reason = tm_result_string(c->run, "certificate_data/reason") };
    if (!tm_result_true(c->run, "certificate_data/done")) return out;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        char path[80];
        snprintf(path, sizeof path, "certificate_data/%s", members[i]);
        bool configured = i == APART && !out.reason; /* data.validation_path names what is trained on */
        out.fails = out.fails || (!tm_result_true(c->run, path) && !configured);
        results_check_seen(c, path);
    }
    results_check_row(c, "certificate_data/reason", out.reason ? out.reason : "null", out.fails ? "a reason" : "null",
                      out.fails == (out.reason != NULL));
    return out;
}

/* Do the certificates say that the run was no training, and why? */
static bool unreal_by(const tm_certificate *first, const tm_certificate *after, char out[TM_REASON_BYTES])
{
    const tm_certificate *it = tm_certificate_fails(first) ? first : after;
    snprintf(out, TM_REASON_BYTES, "%s%.900s",
             it == first ? "" : "after the last step: ", it->reason[0] ? it->reason : "the certificate fails");
    return tm_certificate_fails(it);
}

/* Steps that were computed twice: what they exclude follows from the time, and a difference has a reason. */
static void check_replay(results_check *c)
{
    const char  *said = tm_result_string(c->run, "judged/unrepeatable");
    const double differences = number(c, "replay/differences") + number(c, "replay/wrong_products");
    if (isnan(differences)) return; /* by an earlier version */
    results_check_row(c, "judged/unrepeatable", said ? said : "null", differences > 0 ? "a reason" : "null",
                      (differences > 0) == (said != NULL));
    results_check_number(
        c, "replay/excluded_per_hour",
        differences > 0 ? (double)NAN : tm_silent_excluded(number(c, "replay/device_seconds"), TM_REPLAY_CONFIDENCE));
}

/* --- machine ------------------------------------------------------------------------------------------------------ */

/* By the facts; *reason NULL: nobody looked. */
static tm_verdict check_machine(results_check *c, const char **reason)
{
    static const char *const names[] = {
#define X(id, name, noisy, invalid, text) name,
        TM_MACHINE_LIST(X)
#undef X
    };
    tm_validity_report report = { .seconds = number(c, "machine/seconds") };
    *reason = tm_result_string(c->run, "machine/reason");
    if (!*reason) return TM_VERDICT_VALID;
    for (int i = 0; i < TM_MACHINE_COUNT; i++) {
        char path[80];
        snprintf(path, sizeof path, "machine/%s", names[i]);
        report.facts[i] = (tm_named_f64){ names[i], number(c, path) };
    }
    tm_validity_judge(&report);
    results_check_text(c, "machine/verdict", tm_verdict_name(report.verdict));
    results_check_text(c, "machine/reason", report.reason);
    return report.verdict;
}

/* --- verdict ------------------------------------------------------------------------------------------------------ */

/* The losses that the run began with, before this process: a checkpoint told it their mean. */
static tm_loss_head check_before(results_check *c)
{
    size_t                n_steps;
    const tm_result_step *steps = tm_result_steps(c->run, &n_steps);
    tm_loss_head          head = { .mean = number(c, "judged/before/mean"),
                                   .deviation = number(c, "judged/before/deviation"),
                                   .n = (int64_t)number(c, "judged/before/steps") },
                 again = { 0 };
    int64_t before = (int64_t)(n_steps - c->n);
    if (head.n < 0 || head.n > before || (before > 0 && steps[0].step != 1)) return head; /* records of another place */
    for (int64_t i = 0; i < head.n; i++) again = tm_loss_head_add(again, steps[i].loss);
    results_check_number(c, "judged/before/mean", again.mean);
    results_check_number(c, "judged/before/deviation", again.deviation);
    if (before == 0) results_check_number(c, "judged/before/steps", 0);
    return head;
}

/* Phases are parts of a step: they cannot have taken longer. */
static bool phases_exceed(const results_check *c)
{
    double all = 0;
    for (size_t i = 0; i < c->n; i++) all += c->own[i].seconds;
    return tm_phases_exceed(c->accounted, all, (int64_t)c->n);
}

/* What is said of training, or against it, against what can be seen of that. */
static void check_unreal(results_check *c, const tm_certificate *first, const tm_certificate *after, bool finite)
{
    char        by[TM_REASON_BYTES];
    const char *said = tm_result_string(c->run, "judged/unreal");
    if (!finite || c->n == 0) return; /* nobody looked */
    const finding update = check_update(c), data = check_data(c);
    if (unreal_by(first, after, by))
        results_check_text(c, "judged/unreal", by);
    else if (update.fails || (data.fails && !said)) /* of data there may be another reason, found before */
        results_check_text(c, "judged/unreal",
                           update.fails  ? update.reason ? update.reason : "the certificate of an update fails"
                           : data.reason ? data.reason
                                         : "the certificate of the data fails");
    else if (phases_exceed(c))
        results_check_row(c, "judged/unreal", said ? said : "null", "the phases of the steps exceed the steps",
                          said != NULL);
}

static void check_judgement(results_check *c, const tm_evidence *e)
{
    char       reason[TM_REASON_BYTES];
    tm_verdict verdict = tm_verdict_of(e, reason);
    results_check_text(c, "verdict", tm_verdict_name(verdict));
    results_check_text(c, "reason", reason);
}

static void judge_again(results_check *c, const tm_certificate *first, const tm_certificate *after)
{
    const tm_source_traits *source = tm_source_traits_of(tm_result_string(c->run, "data_source"));
    const tm_result_step   *last = c->n ? &c->own[c->n - 1] : NULL;
    double                 *losses = tm_arena_take(results_arena(c->run), (c->n + 1) * sizeof *losses);
    for (size_t i = 0; i < c->n; i++) losses[i] = c->own[i].loss;
    bool finite = !last || (isfinite(last->loss) && isfinite(last->grad_norm));
    check_unreal(c, first, after, finite);
    check_replay(c);
    tm_evidence e = { .gate = source->gate,
                      .losses = losses,
                      .n_losses = (int64_t)c->n,
                      .total_steps = (int64_t)number(c, "steps/first") - 1 + (int64_t)c->n,
                      .finite = finite,
                      .nonfinite = tm_result_string(c->run, "nonfinite/place"),
                      .validation = number(c, "loss/validation"),
                      .validation_error = number(c, "judged/validation_error"),
                      .floor = number(c, "judged/floor"),
                      .validation_floor = number(c, "judged/validation_floor"),
                      .unigram_entropy = number(c, "judged/unigram_entropy"),
                      .target_gap = number(c, "judged/target_gap"),
                      .compressed = number(c, "judged/compressed"),
                      .images = source->images,
                      .must_reach_target = tm_result_true(c->run, "judged/must_reach_target"),
                      .first_loss = number(c, "loss/first"),
                      .start = number(c, "judged/start"),
                      .step_variation = c->summary.variation,
                      .steady = &c->summary.steady,
                      .impossible = tm_result_string(c->run, "judged/impossible"),
                      .unrepeatable = tm_result_string(c->run, "judged/unrepeatable"),
                      .not_training = tm_result_string(c->run, "judged/unreal"),
                      .unproven = tm_result_true(c->run, "judged/unproven"),
                      .head = check_before(c),
                      .interrupted = tm_result_true(c->run, "steps/interrupted"),
                      .slowdown_pct = number(c, "judged/slowdown_percent") };
    e.machine = check_machine(c, &e.machine_reason);
    check_judgement(c, &e);
}

void results_check_verdict(results_check *c)
{
    tm_certificate first = certificate_of(c, "certificate"), after = certificate_of(c, "certificate_after");
    const char    *verdict = tm_result_string(c->run, "verdict");
    char           why[TM_REASON_BYTES];
    check_done(c, "certificate", &first);
    check_done(c, "certificate_after", &after);
    check_certificate(c, "certificate", &first);
    check_certificate(c, "certificate_after", &after);
    if (c->judged) results_check_number(c, "loss/floor", number(c, "judged/validation_floor"));
    if (c->judged && c->own && tm_source_traits_of(tm_result_string(c->run, "data_source"))) {
        judge_again(c, &first, &after);
        return;
    }
    /* By an earlier version, or without the records of its steps: what is left is a contradiction. */
    bool passed = verdict && (strcmp(verdict, "valid") == 0 || strcmp(verdict, "noisy") == 0);
    if (passed && unreal_by(&first, &after, why)) results_check_row(c, "verdict", verdict, "invalid", false);
}
