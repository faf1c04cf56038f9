/* SPDX-License-Identifier: Apache-2.0 */
/* results/headline.h - private to the room: the few figures on top of a page. */
#ifndef TM_RESULTS_HEADLINE_H
#define TM_RESULTS_HEADLINE_H

#include "results/report_charts.h"

/* Of one run cards, of several a table, the best of each column marked with a star. */
void report_headline(const report_runs *r, tm_text *out);

#endif
