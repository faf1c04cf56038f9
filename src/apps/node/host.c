/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/host.c - the state of the host: what `trainmark check` finds wrong, and finds again a moment later. */
#include "apps/node/checks.h"

#include "base/arena.h"
#include "base/text.h"
#include "apps/check/check.h"

#include <stdio.h>
#include <time.h>

/* The ids of the checks that came out so, separated by `between`. */
static size_t list(const tm_checks *checks, tm_check_status status, const char *between, tm_text *out)
{
    size_t n = 0;
    for (size_t i = 0; i < checks->n; i++)
        if (checks->results[i].status == status)
            tm_text_printf(out, "%s%s", n++ > 0 ? between : "", checks->results[i].id);
    return n;
}

static void find(const tm_checks *checks, tm_node_outcome *out)
{
    for (size_t i = 0; i < checks->n; i++) {
        const tm_check_result *r = &checks->results[i];
        if (r->status == TM_CHECK_FAIL)
            tm_node_find(out, -1, r->id, "%s; expected: %s; way out: %s", r->observed, r->expected, r->remedy);
    }
}

/* A process that is ending just now is no fault: what fails must fail again. */
static tm_status look_again(const tm_check_options *options, const char *failed, tm_node_outcome *out, tm_error *err)
{
    tm_checks        checks = { 0 };
    tm_check_options again = *options;
    again.only = failed;
    nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    tm_status st = tm_checks_run(&again, &checks, err);
    if (st == TM_OK) find(&checks, out);
    tm_checks_fini(&checks);
    return st;
}

tm_status node_check_host(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    tm_checks        checks = { 0 };
    tm_text          failed = { 0 }, warned = { 0 };
    tm_check_options options = tm_check_options_default();
    if (!task->first) {
        tm_node_skip(out, "the first rank of the host does it");
        return TM_OK;
    }
    options.sysroot = task->options->sysroot;
    tm_status st = tm_checks_run(&options, &checks, err);
    if (st == TM_OK && list(&checks, TM_CHECK_FAIL, ",", &failed) > 0) st = look_again(&options, failed.data, out, err);
    const size_t n_warned = list(&checks, TM_CHECK_WARN, ", ", &warned);
    if (st == TM_OK)
        tm_node_reach(out, "%zu checks of `trainmark check`, %zu were skipped%s%s", checks.n,
                      checks.counts[TM_CHECK_SKIP], n_warned > 0 ? "; warned: " : "", n_warned > 0 ? warned.data : "");
    tm_text_fini(&failed);
    tm_text_fini(&warned);
    tm_checks_fini(&checks);
    return st;
}
