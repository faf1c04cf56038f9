/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/check/hosts.h"

#include "base/arena.h"
#include "stats/summary.h"
#include "apps/check/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { RULE_SAME, RULE_EQUAL, RULE_ALIKE, RULE_CLOCK, RULE_SUM, RULE_SPEED } rule;

static const struct {
    const char *column;
    rule        rule;
} rows[] = {
#define X(id, column, rule) [TM_HOSTS_##id] = { column, RULE_##rule },
    TM_HOSTS_LIST(X)
#undef X
};

/* Results of checks that should be the same, but need not. */
static const char *const reported[] = { "os", "kernel", "cmdline", "versions" };
enum { REPORTED = sizeof reported / sizeof reported[0] };

static const double alike = 0.02;

typedef struct {
    char      name[TM_HOSTS_TEXT]; /* with its number where several have one */
    int       first, ranks;        /* first: of its ranks */
    double    value[TM_HOSTS_ROWS];
    tm_checks checks; /* n = 0: none were made */
    tm_text   outside;
    bool      fails;
} host;

typedef struct {
    tm_check_status status;
    const char     *text;
} finding;

struct tm_hosts {
    tm_arena      *arena;
    host          *host;
    int            n, ranks;
    tm_hosts_card *card;    /* (ranks) */
    int           *host_of; /* (ranks) */
    finding       *finding;
    size_t         findings, capacity;
};

void tm_hosts_card_clear(tm_hosts_card *card)
{
    memset(card, 0, sizeof *card);
    for (int i = 0; i < TM_HOSTS_ROWS; i++) card->value[i] = (double)NAN;
}

/* --- what ranks tell each other ---------------------------------------------------------------- */

static tm_status gather(tm_comm *world, const void *own, size_t bytes, void *all, tm_error *err)
{
    tm_collective call = { .kind = TM_COMM_ALL_GATHER,
                           .format = TM_COMM_BYTES,
                           .send = own,
                           .receive = all,
                           .count = bytes,
                           .what = "hosts",
                           .step = -1 };
    return tm_comm_run(world, &call, err);
}

/* Reports have different lengths: each rank has room for the longest. */
static tm_status gather_checks(tm_comm *world, const tm_checks *checks, tm_hosts *h, tm_error *err)
{
    tm_text  text = { 0 };
    size_t   size = (size_t)h->ranks;
    int64_t *length = tm_alloc(size * sizeof *length), own, most = 1;
    if (checks) tm_checks_print_json(checks, &text);
    own = (int64_t)text.length;
    tm_status st = gather(world, &own, sizeof own, length, err);
    for (int r = 0; r < h->ranks && st == TM_OK; r++)
        if (length[r] > most) most = length[r];
    char *part = tm_alloc((size_t)most), *all = tm_alloc(size * (size_t)most);
    if (text.length) memcpy(part, text.data, text.length);
    if (st == TM_OK) st = gather(world, part, (size_t)most, all, err);
    for (int i = 0; i < h->n && st == TM_OK; i++) {
        int r = h->host[i].first;
        if (length[r] > 0)
            st = tm_checks_parse(all + (size_t)r * (size_t)most, (size_t)length[r], h->host[i].name, &h->host[i].checks,
                                 err);
    }
    free(part);
    free(all);
    free(length);
    tm_text_fini(&text);
    return st;
}

static void find_hosts(const tm_comm *world, tm_hosts *h)
{
    for (int r = 0; r < h->ranks; r++) {
        tm_comm_place place = tm_comm_place_of(world, r);
        host         *it = &h->host[place.host];
        h->host_of[r] = place.host;
        if (it->ranks++ > 0) continue;
        it->first = r;
        snprintf(it->name, sizeof it->name, "%.63s", place.host_name);
        for (int k = 0; k < place.host; k++)
            if (strcmp(tm_comm_place_of(world, h->host[k].first).host_name, place.host_name) == 0)
                snprintf(it->name, sizeof it->name, "%.63s#%d", place.host_name, place.host + 1);
    }
}

/* What its ranks have told, as one. */
static void add_up(tm_hosts *h)
{
    for (int i = 0; i < h->n; i++)
        for (int row = 0; row < TM_HOSTS_ROWS; row++) {
            bool    adds = rows[row].rule == RULE_SUM || rows[row].rule == RULE_EQUAL;
            double *value = &h->host[i].value[row];
            *value = h->card[h->host[i].first].value[row];
            for (int r = h->host[i].first + 1; r < h->ranks && adds; r++)
                if (h->host_of[r] == i) *value += h->card[r].value[row];
        }
}

/* --- judging ----------------------------------------------------------------------------------- */

static void note(tm_hosts *h, tm_check_status status, const char *text)
{
    h->finding = tm_grow(h->finding, &h->capacity, h->findings, sizeof *h->finding);
    h->finding[h->findings++] = (finding){ status, text };
}

static void mark(host *it, const char *what)
{
    it->fails = true;
    tm_text_printf(&it->outside, "%s%s", it->outside.length ? ", " : "", what);
}

static void find(tm_hosts *h, int of, const char *what, const char *text)
{
    mark(&h->host[of], what);
    note(h, TM_CHECK_FAIL, text);
}

/* What most have, the first of equally many. NULL: nobody has any. */
static const char *common_text(const char *const *text, int n)
{
    const char *common = NULL;
    int         best = 0;
    for (int i = 0; i < n; i++) {
        int same = 0;
        for (int k = 0; text[i] && k < n; k++) same += text[k] && strcmp(text[i], text[k]) == 0;
        if (same <= best) continue;
        best = same;
        common = text[i];
    }
    return common;
}

/* A text of each rank: a host whose ranks all differ is told as one. */
static void judge_same(tm_hosts *h, int row)
{
    const char **text = tm_arena_take(h->arena, (size_t)h->ranks * sizeof *text);
    for (int r = 0; r < h->ranks; r++) text[r] = h->card[r].text[row][0] ? h->card[r].text[row] : NULL;
    const char *common = common_text(text, h->ranks);
    for (int i = 0; i < h->n && common; i++) {
        int others = 0, other = -1;
        for (int r = 0; r < h->ranks; r++) {
            if (h->host_of[r] != i || (text[r] && strcmp(text[r], common) == 0)) continue;
            if (others++ == 0) other = r;
        }
        if (others == 0) continue;
        const char *who = others == h->host[i].ranks ? h->host[i].name
                                                     : tm_arena_format(h->arena, "%s (rank %d%s)", h->host[i].name,
                                                                       other, others > 1 ? ", ..." : "");
        find(h, i, rows[row].column,
             tm_arena_format(h->arena, "%s: %s is %s, elsewhere it is %s", who, rows[row].column,
                             text[other] ? text[other] : "unknown", common));
    }
}

static void judge_equal(tm_hosts *h, int row)
{
    char(*word)[32] = tm_arena_take(h->arena, (size_t)h->n * sizeof *word);
    const char **text = tm_arena_take(h->arena, (size_t)h->n * sizeof *text);
    for (int i = 0; i < h->n; i++) {
        snprintf(word[i], sizeof word[i], "%.0f", h->host[i].value[row]);
        text[i] = isnan(h->host[i].value[row]) ? NULL : word[i];
    }
    const char *common = common_text(text, h->n);
    for (int i = 0; i < h->n && common; i++)
        if (text[i] && strcmp(text[i], common) != 0)
            find(h, i, rows[row].column,
                 tm_arena_format(h->arena, "%s: %s is %s, elsewhere it is %s", h->host[i].name, rows[row].column,
                                 text[i], common));
}

/* The values of all hosts but one. Returns how many. */
static int others(const tm_hosts *h, int row, int but, double *out)
{
    int n = 0;
    for (int i = 0; i < h->n; i++)
        if (i != but && !isnan(h->host[i].value[row])) out[n++] = h->host[i].value[row];
    return n;
}

static void judge_alike(tm_hosts *h, int row)
{
    double *x = tm_arena_take(h->arena, (size_t)h->n * sizeof *x);
    int     n = others(h, row, -1, x);
    double  median = n > 0 ? tm_stats_median(x, n) : 0;
    for (int i = 0; i < h->n; i++)
        if (fabs(h->host[i].value[row] - median) > alike * median)
            find(h, i, rows[row].column,
                 tm_arena_format(h->arena, "%s: %s is %.4g, the median is %.4g (more than 2 %% off)", h->host[i].name,
                                 rows[row].column, h->host[i].value[row], median));
}

static void judge_clock(tm_hosts *h, int row, double limit)
{
    for (int i = 0; i < h->n; i++)
        if (fabs(h->host[i].value[row]) > limit)
            find(h, i, rows[row].column,
                 tm_arena_format(h->arena, "%s: its clock is %.4g ms %s that of %s (--clock-limit-ms %g)",
                                 h->host[i].name, fabs(h->host[i].value[row]),
                                 h->host[i].value[row] > 0 ? "ahead of" : "behind", h->host[0].name, limit));
}

static void judge_speed(tm_hosts *h, int row, double outside)
{
    double *x = tm_arena_take(h->arena, (size_t)h->n * sizeof *x);
    for (int i = 0; i < h->n; i++) {
        double v = h->host[i].value[row];
        int    n = others(h, row, i, x);
        if (n > 0 && isnan(v))
            find(h, i, rows[row].column,
                 tm_arena_format(h->arena, "%s: %s was not measured, elsewhere it was", h->host[i].name,
                                 rows[row].column));
        if (n == 0 || isnan(v)) continue;
        double median = tm_stats_median(x, n), spread = tm_stats_robust_deviation(x, n);
        if (!(v < (1 - outside) * median && v < median - 3 * spread)) continue;
        find(h, i, rows[row].column,
             tm_arena_format(h->arena,
                             "%s: %s is %.4g, the median of the other hosts %.4g (%.1f %% below; their spread: %.3g)",
                             h->host[i].name, rows[row].column, v, median, 100 * (1 - v / median), spread));
    }
}

static const tm_check_result *result_of(const host *it, const char *id)
{
    for (size_t k = 0; k < it->checks.n; k++)
        if (strcmp(it->checks.results[k].id, id) == 0) return &it->checks.results[k];
    return NULL;
}

static bool alike_results(const tm_check_result *a, const tm_check_result *b)
{
    return a && b && a->status == b->status && strcmp(a->observed, b->observed) == 0;
}

/* "a, b, c, d and 12 more": hosts from `from` on that have the same result; NULL: one before has it, too. */
static const char *who_has(tm_hosts *h, const tm_check_result *r, int from)
{
    enum { NAMED = 4 };
    tm_text names = { 0 };
    int     n = 0;
    for (int i = 0; i < from; i++)
        if (alike_results(result_of(&h->host[i], r->id), r)) return NULL;
    for (int i = from; i < h->n; i++)
        if (alike_results(result_of(&h->host[i], r->id), r) && n++ < NAMED)
            tm_text_printf(&names, "%s%s", n > 1 ? ", " : "", h->host[i].name);
    if (n > NAMED) tm_text_printf(&names, " and %d more", n - NAMED);
    const char *kept = n == h->n && n > 1 ? "all hosts" : tm_arena_text(h->arena, names.data);
    tm_text_fini(&names);
    return kept;
}

static void judge_checks(tm_hosts *h)
{
    for (int i = 0; i < h->n; i++)
        for (size_t k = 0; k < h->host[i].checks.n; k++) {
            const tm_check_result *r = &h->host[i].checks.results[k];
            if (r->status == TM_CHECK_FAIL) mark(&h->host[i], r->id);
            const char *who = r->status == TM_CHECK_FAIL || r->status == TM_CHECK_WARN ? who_has(h, r, i) : NULL;
            if (who)
                note(h, r->status,
                     tm_arena_format(h->arena, "%s: %s: %s; expected: %s%s%s", who, r->id, r->observed, r->expected,
                                     *r->remedy ? "; remedy: " : "", r->remedy));
        }
}

static void judge_reported(tm_hosts *h)
{
    const char **text = tm_arena_take(h->arena, (size_t)h->n * sizeof *text);
    for (int c = 0; c < REPORTED; c++) {
        for (int i = 0; i < h->n; i++) {
            const tm_check_result *r = result_of(&h->host[i], reported[c]);
            text[i] = r ? r->observed : NULL;
        }
        const char *common = common_text(text, h->n);
        for (int i = 0; i < h->n && common; i++)
            if (text[i] && strcmp(text[i], common) != 0)
                note(h, TM_CHECK_WARN,
                     tm_arena_format(h->arena, "%s: %s is '%s', elsewhere it is '%s'", h->host[i].name, reported[c],
                                     text[i], common));
    }
}

static void judge(tm_hosts *h, const tm_hosts_limits *limits)
{
    for (int row = 0; row < TM_HOSTS_ROWS; row++) switch (rows[row].rule) {
        case RULE_SAME:
            judge_same(h, row);
            break;
        case RULE_EQUAL:
            judge_equal(h, row);
            break;
        case RULE_ALIKE:
            judge_alike(h, row);
            break;
        case RULE_CLOCK:
            judge_clock(h, row, limits->clock_ms);
            break;
        case RULE_SUM:
        case RULE_SPEED:
            judge_speed(h, row, limits->outside);
            break;
        }
    judge_checks(h);
    judge_reported(h);
}

tm_status tm_hosts_compare(tm_comm *world, const tm_hosts_card *own, const tm_checks *checks,
                           const tm_hosts_limits *limits, tm_hosts **out, tm_error *err)
{
    tm_hosts *h = tm_alloc(sizeof *h);
    h->arena = tm_arena_create();
    h->ranks = tm_comm_size(world);
    h->n = tm_comm_place_of(world, 0).hosts;
    h->card = tm_alloc((size_t)h->ranks * sizeof *h->card);
    h->host_of = tm_alloc((size_t)h->ranks * sizeof *h->host_of);
    h->host = tm_alloc((size_t)h->n * sizeof *h->host);
    find_hosts(world, h);
    tm_status st = gather(world, own, sizeof *own, h->card, err);
    if (st == TM_OK) st = gather_checks(world, checks, h, err);
    if (st == TM_OK) {
        add_up(h);
        judge(h, limits);
        *out = h;
        return TM_OK;
    }
    tm_hosts_destroy(h);
    *out = NULL;
    return st;
}

void tm_hosts_destroy(tm_hosts *h)
{
    if (!h) return;
    for (int i = 0; i < h->n; i++) {
        tm_checks_fini(&h->host[i].checks);
        tm_text_fini(&h->host[i].outside);
    }
    free(h->host);
    free(h->host_of);
    free(h->card);
    free(h->finding);
    tm_arena_destroy(h->arena);
    free(h);
}

/* --- telling ----------------------------------------------------------------------------------- */

static void add_host(const tm_hosts *h, const host *it, tm_table *table)
{
    tm_table_row(table);
    tm_table_text(table, "host", it->name);
    tm_table_i64(table, "ranks", it->ranks);
    tm_table_text(table, "verdict", it->fails ? "FAIL" : "PASS");
    tm_table_text(table, "outside", it->outside.length ? it->outside.data : NULL);
    if (it->checks.n > 0)
        tm_table_printf(table, "checks", "%zu PASS, %zu WARN, %zu FAIL", it->checks.counts[TM_CHECK_PASS],
                        it->checks.counts[TM_CHECK_WARN], it->checks.counts[TM_CHECK_FAIL]);
    for (int row = 0; row < TM_HOSTS_ROWS; row++) {
        const char *text = h->card[it->first].text[row];
        if (rows[row].rule == RULE_SAME)
            tm_table_text(table, rows[row].column, *text ? text : NULL);
        else
            tm_table_f64(table, rows[row].column, it->value[row]);
    }
}

tm_table *tm_hosts_table(const tm_hosts *h)
{
    static const tm_column first[] = {
        { "host", 0 }, { "ranks", 0 }, { "verdict", 0 }, { "outside", 0 }, { "checks", 0 }
    };
    tm_table *table = tm_table_create("hosts");
    tm_table_columns(table, first, sizeof first / sizeof first[0]);
    for (int row = 0; row < TM_HOSTS_ROWS; row++) tm_table_column(table, rows[row].column, 0);
    for (int i = 0; i < h->n; i++) add_host(h, &h->host[i], table);
    for (size_t i = 0; i < h->findings; i++)
        tm_table_note(table, "%s %s", tm_check_status_name(h->finding[i].status), h->finding[i].text);
    return table;
}

tm_status tm_hosts_verdict(const tm_hosts *h, tm_error *err)
{
    tm_text text = { 0 };
    int     failing = 0;
    for (int i = 0; i < h->n; i++) {
        if (!h->host[i].fails) continue;
        failing++;
        tm_text_printf(&text, "%s%s (%s)", text.length ? "; " : "", h->host[i].name, h->host[i].outside.data);
    }
    tm_status st =
        failing ? tm_fail(err, TM_NEGATIVE, "%d of %d hosts fail: %.3000s", failing, h->n, text.data) : TM_OK;
    tm_text_fini(&text);
    return st;
}
