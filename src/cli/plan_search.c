/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark plan --search`: the fastest layout that fits. In the order of their estimates layouts are planned and
 * simulated exactly, but for those whose bound says that they cannot be among the best; until none is left, or the time
 * is over. */
#include "base/json.h"
#include "base/log.h"
#include "cli/plan_layouts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { BEST = 5, MOST_ATTEMPTS = 4096 };
static const double SECONDS = 7, WAIT = 3; /* of processor time; times that for the first one that fits */

typedef struct {
    plan_layout       of;
    double            step, bytes, tokens;
    tm_simulated_line line[TM_SIMULATED_LINES];
    size_t            n_lines;
} exact;

typedef struct {
    plan_layout of;
    bool        fits;
} attempt;

typedef struct {
    char *const *words;
    int          argc;
    plan_layouts layouts;
    size_t       tried, too_large, refused;
    size_t       left; /* which the time did not allow, and might be among the best */
    size_t       n_without;
    attempt      without[MOST_ATTEMPTS]; /* layouts that move nothing to the host */
    exact        best[BEST];
    size_t       n_best;
    char         why[200]; /* the last refusal */
} search;

/* Of this process. */
static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void keep(search *s, const exact *one)
{
    size_t at = s->n_best;
    while (at > 0 && s->best[at - 1].step > one->step) at--;
    if (at >= BEST) return;
    for (size_t i = s->n_best < BEST ? s->n_best : BEST - 1; i > at; i--) s->best[i] = s->best[i - 1];
    s->best[at] = *one;
    if (s->n_best < BEST) s->n_best++;
}

/* What lies outside of the device. */
static double bytes_away(const tm_plan *plan)
{
    double sum = 0;
    for (int s = 0; s < TM_SPACE_COUNT; s++)
        if (s != TM_SPACE_DEVICE) sum += (double)plan->spaces[s].arena_bytes;
    return sum;
}

static bool moves_nothing(const plan_layout *l)
{
    return strcmp(l->offload, "none") == 0;
}

/* What became of the layout without moving anything to the host; NULL: it was not tried. */
static const attempt *attempt_without(const search *s, const plan_layout *l)
{
    for (size_t i = 0; i < s->n_without; i++) {
        const plan_layout *f = &s->without[i].of;
        const tm_sketch   *x = &f->of, *y = &l->of;
        if (f->schedule == l->schedule && f->again == l->again && x->tp == y->tp && x->pp == y->pp && x->cp == y->cp &&
            x->ep == y->ep && x->shard == y->shard && x->shares_all == y->shares_all && x->micro == y->micro)
            return &s->without[i];
    }
    return NULL;
}

static void compute(search *s, const plan_layout *l)
{
    char     text[PLAN_WORDS][PLAN_WORD], *words[PLAN_WORDS];
    plan_one p;
    tm_error own = { 0 };
    int      n = plan_layout_words(&s->layouts, l, text, words);
    bool     fits = false;
    s->tried++;
    tm_status st = plan_one_open(s->words, s->argc, words, n, &p, &own);
    if (st == TM_OK) st = plan_one_compute(&p, false, &own);
    if (st != TM_OK) {
        s->refused++;
        snprintf(s->why, sizeof s->why, "%.190s", own.text);
    } else if (p.bytes > plan_one_room(&p) || bytes_away(p.step->plan) > plan_host_room(&p)) {
        s->too_large++;
    } else {
        fits = true;
        exact one = { .of = *l, .step = p.time.step, .bytes = p.bytes, .tokens = p.tokens, .n_lines = p.time.n_lines };
        memcpy(one.line, p.time.line, sizeof one.line);
        keep(s, &one);
    }
    if (moves_nothing(l) && s->n_without < MOST_ATTEMPTS) s->without[s->n_without++] = (attempt){ *l, fits };
    plan_one_fini(&p);
}

/* A layout that moves something to the host is worth it only where it does not fit as it is: that is tried first. */
static void compute_once(search *s, const plan_layout *l)
{
    plan_layout plain = *l;
    plain.offload = "none";
    plain.of.moments_away = false;
    bool known = attempt_without(s, &plain) != NULL;
    if (!known && tm_bound_bytes(&s->layouts.bound, &plain.of) <= plan_one_room(s->layouts.given)) compute(s, &plain);
    if (moves_nothing(l)) return;
    const attempt *without = attempt_without(s, &plain);
    if (!without || !without->fits) compute(s, l);
}

/* Where nothing fits for half of the time, what needs least memory comes first; if nothing does at all, that goes on
 * for a few times as long. */
static void compute_all(search *s)
{
    double begin = processor_seconds();
    bool   turned = false;
    for (size_t i = 0; i < s->layouts.n; i++) {
        double worst = s->n_best == BEST ? s->best[BEST - 1].step : (double)INFINITY;
        double used = (processor_seconds() - begin) / SECONDS;
        if (s->n_best == 0 && used > 0.5 && !turned) {
            plan_layouts_by_need(&s->layouts, i);
            turned = true;
        }
        if (s->layouts.all[i].least >= worst) continue;
        if (used < 1 || (s->n_best == 0 && used < WAIT))
            compute_once(s, &s->layouts.all[i]);
        else
            s->left++;
    }
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

static double seconds_of(const exact *e, const char *name)
{
    for (size_t i = 0; i < e->n_lines; i++)
        if (strcmp(e->line[i].name, name) == 0) return e->line[i].seconds;
    return 0;
}

/* The line by which it loses most, and how much of the best step that is. */
static const char *loses_by(const exact *best, const exact *e, double *percent)
{
    const char *name = "";
    double      most = 0;
    for (size_t i = 0; i < e->n_lines; i++) {
        double more = e->line[i].seconds - seconds_of(best, e->line[i].name);
        if (more <= most) continue;
        most = more;
        name = e->line[i].name;
    }
    *percent = 100 * most / best->step;
    return name;
}

static void print_one(const search *s, size_t i, tm_text *out)
{
    const exact     *e = &s->best[i];
    const tm_sketch *l = &e->of.of;
    char             bytes[32];
    double           percent = 0;
    const char      *why = i ? loses_by(&s->best[0], e, &percent) : "";
    tm_text_printf(out, "  %3d %3d %3d %3d %5d %6d %-6s %-16s %-9s %-11s %5lld %12.0f %10s", l->tp, l->pp, l->cp, l->ep,
                   l->replicate, l->shard,
                   l->shard * l->cp == 1 ? "-"
                   : l->shares_all       ? "all"
                                         : "state",
                   l->pp > 1 ? e->of.schedule : "-", e->of.again, e->of.offload, (long long)l->micro,
                   e->tokens / e->step, tm_format_bytes(bytes, e->bytes));
    if (*why) tm_text_printf(out, "  %s (%.1f %%)", why, percent);
    tm_text_add(out, "\n");
}

static void print_text(const search *s, tm_text *out)
{
    const plan_layouts *a = &s->layouts;
    char                text[PLAN_WORDS][PLAN_WORD], *words[PLAN_WORDS];
    tm_text_printf(out, "%s on %d x %s, %lld sequences of %lld tokens a step\n", a->given->run.model_name, a->devices,
                   a->given->cli.machine->device.name, (long long)a->global, (long long)a->given->run.step.seq);
    tm_text_printf(out, "%zu layouts, %zu planned and simulated; %zu need too much memory, %zu are refused\n",
                   a->n + a->too_large, s->tried, a->too_large + s->too_large, s->refused);
    if (s->left > 0)
        tm_text_printf(out, "%.0f s of processor time were over: %zu others might be faster by their bounds\n\n",
                       SECONDS, s->left);
    else
        tm_text_add(out, "all others are slower by their bounds\n\n");
    tm_text_printf(out, "  %3s %3s %3s %3s %5s %6s %-6s %-16s %-9s %-11s %5s %12s %10s  loses by\n", "tp", "pp", "cp",
                   "ep", "copies", "shards", "of", "order", "again", "offload", "micro", "tokens/s", "memory");
    for (size_t i = 0; i < s->n_best; i++) print_one(s, i, out);
    tm_text_add(out, "\nthe first as options:\n");
    int n = plan_layout_words(a, &s->best[0].of, text, words);
    for (int i = 0; i < n; i++) tm_text_printf(out, "  %s\n", words[i]);
    plan_print_cost(a->given, s->best[0].tokens / s->best[0].step, out);
    tm_text_add(out, "times are predicted; differences below a few percent decide nothing\n");
}

static void print_json(const search *s, tm_text *out)
{
    const plan_layouts *a = &s->layouts;
    tm_json             json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "model", a->given->run.model_name);
    tm_json_string(&json, "hardware", a->given->cli.machine->device.name);
    tm_json_i64(&json, "devices", a->devices);
    tm_json_i64(&json, "layouts", (int64_t)(a->n + a->too_large));
    tm_json_i64(&json, "planned", (int64_t)s->tried);
    tm_json_i64(&json, "left", (int64_t)s->left);
    tm_json_open(&json, "best", '[');
    for (size_t i = 0; i < s->n_best; i++) {
        const exact *e = &s->best[i];
        char         text[PLAN_WORDS][PLAN_WORD], *words[PLAN_WORDS];
        int          n = plan_layout_words(a, &e->of, text, words);
        tm_json_open(&json, NULL, '{');
        tm_json_f64(&json, "step_s", e->step);
        tm_json_f64(&json, "least_step_s", e->of.least);
        tm_json_f64(&json, "tokens_per_second", e->tokens / e->step);
        tm_json_f64(&json, "plan_bytes", e->bytes);
        tm_json_open(&json, "options", '[');
        for (int k = 0; k < n; k++) tm_json_string(&json, NULL, words[k]);
        tm_json_close(&json, ']');
        tm_json_open(&json, "seconds", '{');
        for (size_t k = 0; k < e->n_lines; k++) tm_json_f64(&json, e->line[k].name, e->line[k].seconds);
        tm_json_close(&json, '}');
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static tm_status find(search *s, tm_text *out, tm_error *err)
{
    const plan_layouts *a = &s->layouts;
    compute_all(s);
    if (s->n_best == 0)
        return tm_fail(err, TM_NOMEM,
                       "no layout of %d devices fits: of %zu, %zu need more than there is, %zu are refused%s%s, %zu "
                       "were not planned in time; take more devices, or a shorter training.seq_len",
                       a->devices, a->n + a->too_large, a->too_large + s->too_large, s->refused, *s->why ? ": " : "",
                       s->why, s->left);
    (a->given->cli.json ? print_json : print_text)(s, out);
    return TM_OK;
}

tm_status plan_search(char *const *words, int argc, const plan_one *given, tm_text *out, tm_error *err)
{
    const tm_step_options *o = &given->run.step;
    search                *s = tm_arena_take(given->arena, sizeof *s);
    s->words = words;
    s->argc = argc;
    tm_log_set_level(TM_LOG_WARN); /* notes on each layout would be many */
    tm_status st =
        plan_layouts_find(given, o->micro_batch * o->accumulation * tm_layout_data_ranks(&o->layout), &s->layouts, err);
    if (st == TM_OK) st = find(s, out, err);
    plan_layouts_fini(&s->layouts);
    tm_log_set_level(TM_LOG_INFO);
    return st;
}
