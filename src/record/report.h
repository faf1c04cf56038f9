/* SPDX-License-Identifier: Apache-2.0 */
/* record/report.h - private to the room: the block that ends a run on the console. At most 100 columns wide. */
#ifndef TM_RECORD_REPORT_H
#define TM_RECORD_REPORT_H

#include "base/event.h"
#include "base/text.h"
#include "record/sink.h"

#include <stdbool.h>

/* Appends the report. `run` has seen the start and the steps, `end` is the event that closes the run. `all`: every
 * table; without it: verdict, speed, step time, loss and memory in a line each, what did not pass, and the phases of
 * the step. */
void report_print(tm_text *out, const run_record *run, const tm_run_ended *end, bool all, bool colour);

#endif
