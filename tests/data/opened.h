/* SPDX-License-Identifier: Apache-2.0 */
/* tests/data/opened.h - sources that open, and that have to be refused. */
#ifndef TM_TESTS_DATA_OPENED_H
#define TM_TESTS_DATA_OPENED_H

#include "data/source.h"
#include "support/refusal.h"
#include "support/test.h"

static inline tm_source *open_source(const tm_source_options *o)
{
    tm_source *source = NULL;
    assert_ok_of(o->name, tm_source_open(o, &source, err));
    return source;
}

/* With exit code 4, and a sound message that has these words. */
static inline void expect_refusal(const tm_source_options *o, const char *what, const char *cure)
{
    tm_source *source = NULL;
    tm_error   err = { 0 };
    assert_int_equal(tm_status_exit_code(tm_source_open(o, &source, &err)), 4);
    assert_null(source);
    refusal_is_sound(&err);
    if (!strstr(err.text, what) || !strstr(err.text, cure)) fail_msg("wanted '%s', '%s' in: %s", what, cure, err.text);
}

#endif
