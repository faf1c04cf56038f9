/* SPDX-License-Identifier: Apache-2.0 */
/* tests/node/one_check.h - the outcome of one check of this node, made as quickly as can be. */
#ifndef TM_TESTS_NODE_ONE_CHECK_H
#define TM_TESTS_NODE_ONE_CHECK_H

#include "apps/node/node.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* The first that this program may use. */
static inline int first_processor(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (int p = 0; p < CPU_SETSIZE; p++)
        if (CPU_ISSET(p, &set)) return p;
    fail_msg("no processor");
    return -1;
}

/* Its place; in a static buffer. */
static inline const char *core_of(int processor)
{
    static char name[32];
    snprintf(name, sizeof name, "core %d", processor);
    return name;
}

/* NULL: there is none. */
static inline const tm_node_figure *find_figure(const tm_node_outcome *out, const char *name, const char *place)
{
    for (size_t i = 0; i < out->n_figures; i++)
        if (strcmp(out->figures[i].name, name) == 0 && strcmp(out->figures[i].place, place) == 0)
            return &out->figures[i];
    return NULL;
}

/* *out: of the check `options->only`, for tm_node_outcome_fini. */
static inline void run_one_check(const tm_node_options *options, tm_node_outcome *out)
{
    tm_error             err = { 0 };
    size_t               n;
    tm_node_outcome      outcomes[32] = { 0 };
    const tm_node_check *checks = tm_node_checks(&n);
    assert_true(n <= 32);
    assert_int_equal(tm_node_run(options, outcomes, &err), TM_OK);
    for (size_t i = 0; i < n; i++)
        if (strcmp(checks[i].id, options->only) == 0)
            *out = outcomes[i];
        else
            tm_node_outcome_fini(&outcomes[i]);
}

#endif
