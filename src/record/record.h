/* SPDX-License-Identifier: Apache-2.0 */
/* record/record.h - where events (base/event.h) become output: console lines and report, metrics.jsonl, result.json,
 * perf.csv.
 *
 * A run opens and closes all that it wants by record/outputs.h. A sink alone is opened here, put on an event bus, and
 * closed with tm_sink_close, which frees it. Sinks do not stop a run by themselves (base/event.h): a write that fails
 * is kept, later output of that sink is dropped, and the first failure is what tm_sink_close returns. Strings in
 * options must outlive the sink. One thread at a time per sink. Writing beyond a file-size limit shows as a failure
 * only if SIGXFSZ is ignored, which main does.
 */
#ifndef TM_RECORD_RECORD_H
#define TM_RECORD_RECORD_H

#include "base/event.h"
#include "base/status.h"
#include "base/terminal.h"
#include "config/config.h"
#include "apps/mlperf/benchmark.h"
#include "apps/check/check.h"
#include "system/environment.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Flushes, closes and frees; returns the sink's first failure (TM_IO) and tells its story. NULL is fine. For sinks of
 * tm_alloc. */
TM_MUST_USE tm_status tm_sink_close(tm_sink *sink, tm_error *err);
/* The first failure so far, or NULL: for a caller that would rather stop a long run than lose its record. */
const tm_error *tm_sink_error(const tm_sink *sink);

/* --- console --------------------------------------------------------------------------------- */

typedef enum { TM_LOG_STYLE_TORCHTITAN, TM_LOG_STYLE_MEGATRON } tm_log_style;

typedef struct {
    FILE *out;    /* lines and report; NULL = stdout. Not closed, unless `closes` says so. */
    bool  closes; /* with the sink; once it is open */
    FILE *panel;  /* a terminal for the panel (record/panel.h); NULL = none. Not closed. Messages go above it. */
    const tm_terminal_size *panel_size; /* NULL: what the terminal says */
    bool                    panel_colour, utf8;
    tm_log_style            style;
    bool                    colour;
    bool                    quiet;    /* the report and the `performance:` line only */
    bool                    verbose;  /* every table of the report */
    int64_t                 log_freq; /* a step line for the first step, every log_freq-th and the last; >= 1 */
} tm_console_options;

/* stdout, TorchTitan style, log_freq 10; colour only if stdout is a terminal and NO_COLOR is not set, a panel only if
 * stderr is one. */
tm_console_options tm_console_options_default(void);
/* See docs/step-line.md. The report and the `performance:` line follow the last step; the latter is left out if the
 * verdict is invalid or the run was interrupted. */
TM_MUST_USE tm_status tm_console_sink_open(const tm_console_options *options, tm_sink **out, tm_error *err);

/* --- files ----------------------------------------------------------------------------------- */

/* metrics.jsonl: a line per step, evaluation and checkpoint, on disk when the event returns. A run that starts at step
 * 1 replaces the file; a resumed one keeps the records of the steps before its first. docs/result-json.md. */
typedef struct {
    const char *path;
    int (*sync)(int fd); /* NULL: fdatasync */
} tm_metrics_options;
TM_MUST_USE tm_status tm_metrics_sink_open(const tm_metrics_options *options, tm_sink **out, tm_error *err);

/* An MLPerf-style log (docs/mlperf.md): keys, evaluations and times of the run, a line on disk when its event returns.
 * What is logged of the training is what the events say. Opening it drops the caches of the file system if asked to;
 * where that fails there is a warning, and the log has no cache_clear. The file is made when the run starts, replacing
 * another. */
typedef struct {
    const char                *path;
    const tm_mlperf_benchmark *benchmark; /* its name, and the loss that makes a run a success */
    const char                *org, *platform, *division, *status;
    const char                *poc_name, *poc_email; /* NULL: not logged */
    const char                *config_filename;      /* what the run was configured by; NULL: not logged */
    bool                       clear_caches;
    const char                *drop_caches; /* file that drops them; NULL: /proc/sys/vm/drop_caches */
} tm_mllog_options;
TM_MUST_USE tm_status tm_mllog_sink_open(const tm_mllog_options *options, tm_sink **out, tm_error *err);

/* result.json, written atomically when the run ends; one of an earlier run is removed when this run starts.
 * docs/result-json.md. */
typedef struct {
    const char           *path;
    const char           *configuration_hash; /* NULL = unknown */
    const tm_environment *environment;        /* NULL = not recorded; must outlive the sink */
    const tm_checks      *checks;             /* of the host, when the run began; the same */
    const tm_config      *config;             /* NULL = not recorded; must outlive the sink */
    const char           *metrics;            /* metrics.jsonl of this run, for its digest; NULL = none */
} tm_result_options;
TM_MUST_USE tm_status tm_result_sink_open(const tm_result_options *options, tm_sink **out, tm_error *err);

/* perf.csv: one row when the run ends; status FAILURE if it ended as invalid, was interrupted or never reported an end.
 * Not appending replaces the file. Appending needs the very same header (else TM_INVALID, when opened) and fills
 * relative_change. docs/perf-csv.md. NULL strings are empty cells. */
typedef struct {
    const char *path;
    bool        append;
    const char *entry; /* catalogue entry, put before the model's name; NULL = the model alone */
    const char *pipeline, *args, *tags, *git_commit, *machine_name, *deployment_type, *launcher;
    const char *architecture; /* of the GPU; of the processor for a run on one */
    const char *data_provider_type, *build_number;
    const char
        *container_options; /* of a run on GPUs: variables that their libraries read, as options of a container */
    int  nodes;             /* 0 counts as 1 */
} tm_perf_options;
TM_MUST_USE tm_status tm_perf_sink_open(const tm_perf_options *options, tm_sink **out, tm_error *err);

/* Prints published figures for the same model beside those of the run, when it ends and is not invalid
 * (apps/bench/published.h, docs/reference.md). */
typedef struct {
    const char *path;  /* of a file of published figures; "reference" = the compiled-in ones */
    const char *model; /* the published name of exactly this model; NULL = it is none, and nothing is compared */
    FILE       *out;   /* NULL = stdout. Not closed. */
} tm_compare_options;
TM_MUST_USE tm_status tm_compare_sink_open(const tm_compare_options *options, tm_sink **out, tm_error *err);

#endif
