/* SPDX-License-Identifier: Apache-2.0 */
/* record/sink.h - private to the room: how sinks write, and what a run has told so far. */
#ifndef TM_RECORD_SINK_H
#define TM_RECORD_SINK_H

#include "base/arena.h"
#include "base/event.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <sys/types.h>

/* Room for `bytes`, so that lines put together later take no memory. */
void record_text_reserve(tm_text *text, size_t bytes);
/* Appends a line to the file `fd`, whole: where that fails, the file is cut back to *complete_bytes, the failure is
 * kept in the sink and nothing is written after it. *complete_bytes grows by the line. */
void record_sink_append(tm_sink *sink, int fd, const char *path, off_t *complete_bytes, const tm_text *line);
/* tm_file_write with the failure kept in the sink. */
void record_sink_write(tm_sink *sink, const char *path, const tm_text *text);

enum { LEDGER_ROWS = 64, LEDGER_NAME_BYTES = 48 };

/* Seconds by phase, summed over the steps after the first of the process (its page faults and cold caches are told by
 * `first_step_seconds`); over the only step if there is no other. */
typedef struct {
    char    names[LEDGER_ROWS][LEDGER_NAME_BYTES];
    double  seconds[LEDGER_ROWS];
    int     count;
    double  step_seconds; /* whole steps */
    int64_t steps;
} run_ledger;

/* The looks of a microscope: their number, the first tensor that was ever beyond the bound, the last one whole but for
 * the histograms. */
typedef struct {
    int64_t         looks;
    tm_look         last;
    tm_look_tensor *tensors; /* of `last` */
    const char     *first_name;
    int64_t         first_step; /* 0: none diverged */
} run_looks;

/* Copies of what events said, kept between them. Start and last step are deep copies. */
typedef struct {
    tm_arena      *arena;
    bool           started, ended, stepped;
    tm_run_started start;
    tm_step_done   last; /* phases are not kept */
    run_ledger     ledger;
    run_looks      looks;
    int64_t        steps;   /* done in this process */
    int64_t        targets; /* of all these steps, on each device */
} run_record;

void run_record_init(run_record *run);
void run_record_fini(run_record *run);
/* Takes in RUN_STARTED, STEP_DONE and LOOK; RUN_ENDED only sets `ended`: what it points to lives in the call only. */
void run_record_add(run_record *run, const tm_event *event);
/* Mean seconds per step that no phase claims; never below 0. */
double run_ledger_unaccounted(const run_ledger *ledger);

/* "pictures/step-00000100-0.png": where a picture lies in the run's directory. The caller frees it. */
tm_text record_picture_name(const tm_picture_drawn *picture);

/* Members of an object: the rank and what was found, but for the step. */
void record_print_straggler(tm_json *json, const tm_straggler *straggler);

#endif
