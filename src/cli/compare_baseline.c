/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/compare_baseline.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/text.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void compare_side_fini(compare_side *side)
{
    for (size_t i = 0; i < side->n; i++) tm_result_destroy(side->runs[i]);
    *side = (compare_side){ 0 };
}

static void make_room(compare_side *side, tm_arena *arena)
{
    tm_result **more = tm_arena_take(arena, (side->n + 1) * sizeof *more);
    if (side->n) memcpy(more, side->runs, side->n * sizeof *more);
    side->runs = more;
}

static tm_status load_one(const char *word, const char *store, tm_arena *arena, compare_side *side, tm_error *err)
{
    make_room(side, arena);
    TM_TRY(tm_result_load(word, store, &side->runs[side->n], err));
    side->n++;
    return TM_OK;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The runs in a folder; *found is 0 where `folder` is none, is a run itself, or holds none. */
static tm_status load_folder(const char *folder, tm_arena *arena, compare_side *side, size_t *found, tm_error *err)
{
    struct dirent **entries = NULL;
    tm_status       st = TM_OK;
    *found = 0;
    if (tm_file_exists(tm_arena_format(arena, "%s/result.json", folder))) return TM_OK;
    int n = scandir(folder, &entries, NULL, by_name);
    for (int i = 0; i < n; i++) {
        const char *run = tm_arena_format(arena, "%s/%s", folder, entries[i]->d_name);
        bool        hidden = entries[i]->d_name[0] == '.';
        free(entries[i]);
        if (hidden || st != TM_OK || !tm_file_exists(tm_arena_format(arena, "%s/result.json", run))) continue;
        st = load_one(run, NULL, arena, side, err);
        *found += st == TM_OK;
    }
    free(entries);
    return st;
}

tm_status compare_side_load(char *const *words, int n, const char *store, tm_arena *arena, compare_side *out,
                            tm_error *err)
{
    for (int i = 0; i < n; i++) {
        size_t found;
        TM_TRY(load_folder(words[i], arena, out, &found, err));
        if (found == 0) TM_TRY(load_one(words[i], store, arena, out, err));
    }
    return TM_OK;
}

/* --- of the store ------------------------------------------------------------------------------------------------- */

/* Is the stored run one of the side's? */
static bool is_one_of(const compare_side *side, const tm_stored *row)
{
    for (size_t i = 0; i < side->n; i++) {
        tm_stored own;
        tm_result_describe(side->runs[i], &own);
        bool same_rate = !(own.rate < row->rate) && !(own.rate > row->rate);
        if (*own.finished && strcmp(row->finished, own.finished) == 0 && same_rate) return true;
    }
    return false;
}

static bool verdict_is(const tm_stored *row, const char *name)
{
    return row->verdict && strcmp(row->verdict, name) == 0;
}

static bool same_build(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* What is older than every run of the side. */
static tm_status list_older(const compare_side *a, const char *path, tm_arena *arena, tm_stored **rows, size_t *n,
                            tm_error *err)
{
    tm_store *store;
    tm_stored own, row;
    tm_result_describe(a->runs[0], &own);
    tm_store_filter filter = {
        .kind = own.kind, .hash = own.hash, .host = own.host, .device = own.device, .name = own.name
    };
    TM_TRY(tm_store_open(path, false, &store, err));
    for (size_t i = 0; i < a->n; i++) {
        tm_error ignored = { 0 };
        tm_result_describe(a->runs[i], &own);
        if (!filter.until || (own.finished && strcmp(own.finished, filter.until) < 0)) filter.until = own.finished;
        if (tm_store_find(store, tm_result_name(a->runs[i]), arena, &row, &ignored) == TM_OK &&
            (filter.before == 0 || row.id < filter.before))
            filter.before = row.id;
    }
    tm_status st = tm_store_list(store, &filter, arena, rows, n, err);
    tm_store_close(store);
    return st;
}

tm_status compare_side_find(const compare_side *a, const char *path, tm_arena *arena, compare_side *out, tm_error *err)
{
    tm_stored  *rows, own;
    size_t      n, wanted = a->n > TM_STARTS_LEAST ? a->n : TM_STARTS_LEAST, counted = 0;
    const char *build = NULL;
    if (!path) return tm_fail(err, TM_INVALID, "--baseline looks into the store, and there is none; name B");
    TM_TRY(list_older(a, path, arena, &rows, &n, err));
    for (size_t i = 0; i < n && counted < wanted && out->n < 4 * wanted; i++) {
        if (verdict_is(&rows[i], "invalid") || is_one_of(a, &rows[i])) continue;
        if (out->n > 0 && !same_build(build, rows[i].build)) break;
        build = rows[i].build;
        counted += !verdict_is(&rows[i], "noisy"); /* those are told, and do not count */
        TM_TRY(load_one(tm_arena_format(arena, "%lld", (long long)rows[i].id), path, arena, out, err));
    }
    if (out->n > 0) return TM_OK;
    tm_result_describe(a->runs[0], &own);
    return tm_fail(err, TM_INVALID, "the store has no earlier result of this configuration (%s) on this host (%s)",
                   own.hash ? own.hash : "no hash", own.host ? own.host : "unknown");
}

/* --- the line, the verdict ---------------------------------------------------------------------------------------- */

int compare_words_before(const tm_cli_line *line)
{
    int before = 0;
    for (int i = 1; i < line->argc; i++) {
        if (strncmp(line->argv[i], "--", 2) == 0 && tm_names_equal(line->argv[i] + 2, "baseline")) return before;
        if (before < line->n_words && line->words[before] == line->argv[i]) before++;
    }
    return before;
}

tm_status compare_judge(const compare_side *a, const compare_side *base, double percent, tm_baseline_result *out,
                        tm_error *err)
{
    tm_baseline_side one = { "A", (const tm_result *const *)a->runs, a->n };
    tm_baseline_side other = { "the baseline", (const tm_result *const *)base->runs, base->n };
    return tm_results_baseline(&one, &other, percent / 100, out, err);
}

tm_status compare_verdict(const tm_baseline_result *r, double percent, tm_error *err)
{
    const tm_starts_result *j = &r->judged;
    char                    slower[120];
    snprintf(slower, sizeof slower, "%.2f %% slower than the baseline (%.2f to %.2f)", 100 * j->slowdown, 100 * j->lo,
             100 * j->hi);
    switch (j->verdict) {
    case TM_STARTS_KEPT:
        return TM_OK;
    case TM_STARTS_SLOWER:
        return tm_fail(err, TM_NEGATIVE, "%s; at most %g %% are allowed", slower, percent);
    case TM_STARTS_FEW:
        return tm_fail(err, TM_UNDECIDED,
                       "%zu start%s of A and %zu of the baseline count; %lld of each side are needed, in turns: what "
                       "differs from one start to the next shows in several only",
                       r->counted[0], r->counted[0] == 1 ? "" : "s", r->counted[1], (long long)j->needed);
    case TM_STARTS_IMPRECISE:
        return tm_fail(err, TM_UNDECIDED,
                       "the starts of a side differ by %.2f %% (A) and %.2f %% (the baseline); %s%lld of each side are "
                       "needed, in turns, to know the change within %g %%",
                       100 * j->spread[0], 100 * j->spread[1],
                       j->needed == TM_STARTS_MOST_NEEDED ? "more than " : "about ", (long long)j->needed, percent);
    case TM_STARTS_APART:
        return tm_fail(
            err, TM_UNDECIDED,
            "%s, but the starts of the two sides did not take turns: a machine that changed in between looks "
            "the same; start A and the baseline in turns, or use `trainmark ab`",
            slower);
    }
    return TM_OK;
}
