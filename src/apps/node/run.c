/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/run.c - the checks one after the other, each with its share of the time. */
#include "apps/node/checks.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static const tm_node_check checks[] = {
#define TM_NODE_CHECK(id, share, title, finds, cannot) { #id, title, share, node_check_##id, finds, cannot },
#include "apps/node/checks.def"
#undef TM_NODE_CHECK
};
enum { CHECKS = sizeof checks / sizeof checks[0] };

const tm_node_check *tm_node_checks(size_t *n)
{
    *n = CHECKS;
    return checks;
}

static tm_status unknown(const char *name, size_t length, tm_error *err)
{
    const char *near = checks[0].id;
    char        given[TM_NODE_NAME];
    snprintf(given, sizeof given, "%.*s", (int)length, name);
    for (size_t i = 1; i < CHECKS; i++)
        if (tm_edit_distance(given, checks[i].id) < tm_edit_distance(given, near)) near = checks[i].id;
    return tm_fail(err, TM_USAGE, "there is no check '%s'; did you mean '%s'? --list shows all", given, near);
}

/* Which checks a list of names wants. */
static tm_status select_checks(const char *only, bool wanted[CHECKS], tm_error *err)
{
    const bool leaves_out = only && only[0] == '-';
    for (size_t i = 0; i < CHECKS; i++) wanted[i] = !only || leaves_out;
    for (const char *at = only; at && *at; at += *at == ',') {
        const bool   out = *at == '-';
        const char  *name = at + out;
        const size_t length = strcspn(name, ",");
        bool         found = false;
        for (size_t i = 0; i < CHECKS; i++)
            if (strlen(checks[i].id) == length && strncmp(checks[i].id, name, length) == 0)
                wanted[i] = !out, found = true;
        if (!found) return unknown(name, length, err);
        at = name + length;
    }
    return TM_OK;
}

/* What a failure says of the node. */
static tm_status judge_failure(tm_status st, tm_node_outcome *out, const tm_error *why, tm_error *err)
{
    if (st == TM_INTERRUPTED || st == TM_USAGE) {
        *err = *why;
        return st;
    }
    if (st == TM_UNSUPPORTED)
        tm_node_skip(out, "%s", why->text);
    else if (st != TM_OK)
        tm_node_find(out, -1, "", "%s", why->text);
    return TM_OK;
}

tm_status tm_node_run(const tm_node_options *options, tm_node_outcome *outcomes, tm_error *err)
{
    bool         wanted[CHECKS];
    double       shares = 0;
    tm_comm     *world = options->world;
    tm_node_task task = { .options = options, .ranks = 1, .on_host = 1, .first = true };
    TM_TRY(select_checks(options->only, wanted, err));
    if (world) {
        task.rank = tm_comm_rank(world), task.ranks = tm_comm_size(world);
        const tm_comm_place place = tm_comm_place_of(world, task.rank);
        task.first = place.local_rank == 0, task.on_host = place.local_size;
    }
    for (size_t i = 0; i < CHECKS; i++) shares += wanted[i] ? checks[i].share : 0;
    for (size_t i = 0; i < CHECKS; i++) {
        tm_error why = { 0 };
        int64_t  begun = tm_now_ns();
        if (!wanted[i]) {
            tm_node_skip(&outcomes[i], "not asked for");
            continue;
        }
        if (options->begins) options->begins(checks[i].id, options->data);
        task.seconds = 60 * options->minutes * checks[i].share / shares;
        tm_status st = checks[i].run(&task, &outcomes[i], &why);
        TM_TRY(judge_failure(st, &outcomes[i], &why, err));
        outcomes[i].seconds = (double)(tm_now_ns() - begun) * 1e-9;
    }
    return TM_OK;
}
