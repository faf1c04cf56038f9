/* SPDX-License-Identifier: Apache-2.0 */
/* tests/node/one_check.h - the outcome of one check of this node, made as quickly as can be. */
#ifndef TM_TESTS_NODE_ONE_CHECK_H
#define TM_TESTS_NODE_ONE_CHECK_H

#include "node/node.h"

#include <string.h>

/* *out: of the check `options->only`, for tm_node_outcome_fini. */
static void run_one_check(const tm_node_options *options, tm_node_outcome *out)
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
