/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/told_runs.h - two made-up runs: one in which no two figures are alike and nothing is left out, and one
 * of which little is known; and what is recorded of them. */
#ifndef TM_TESTS_TOLD_RUNS_H
#define TM_TESTS_TOLD_RUNS_H

#include "base/event.h"
#include "base/text.h"

/* Steps 31 to 34 of language, with all that can happen between them. */
void     told_rich(tm_sink *sink);
tm_event told_rich_start(void);
tm_event told_rich_end(void);
/* Images, one rank, no peak, nothing summed up; invalid. */
void told_poor(tm_sink *sink);

/* "rich" or "poor": result.json of that run, the time of day and the digest as ####; "metrics": metrics.jsonl of the
 * rich one. Free with tm_text_fini. */
tm_text told_text(const char *name);

#endif
