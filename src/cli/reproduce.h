/* SPDX-License-Identifier: Apache-2.0 */
/* cli/reproduce.h - private to `trainmark reproduce`: a published page as data, one of its rows as a plan and as a
 * process, and why a figure may differ (docs/reproduce.md). */
#ifndef TM_CLI_REPRODUCE_H
#define TM_CLI_REPRODUCE_H

#include "base/arena.h"
#include "base/table.h"
#include "apps/bench/published.h"
#include "gpu/platform.h"
#include "results/result.h"

#include <jansson.h>
#include <stdbool.h>

/* --- pages: configs/reference/NAME.yaml, compiled in, or a file --------------------------------------------------- */

typedef struct {
    const char *name, *theirs, *ours; /* ours: words behind `trainmark` */
    const char *plan;                 /* words of a run whose memory is that of ours; NULL: none can be planned */
    const char *slice;                /* words that make it small, behind those of all runs; NULL: only those */
    const char *source, *note;        /* of its figures; NULL: none */
    const char *hardware;             /* as it is written: "8xMI300X", "cpu" */
    tm_platform platform;             /* gpu NULL: processors of any kind */
    tm_figure  *figures;              /* (n_figures) */
    size_t      n_figures;
    int         line;
} page_row;

typedef struct {
    const char *name, *version; /* "ROCm", "6.3.0" */
} page_software;

typedef struct {
    const char    *name, *title;
    page_row      *rows; /* (n) */
    size_t         n;
    page_software *software; /* (n_software): what the page was measured with */
    size_t         n_software;
} reproduce_page;

/* The i-th page that is compiled in: its name; NULL behind the last. In `arena`. */
const char *page_name(tm_arena *arena, size_t i);
/* By its name, or a file (a name with '/' or '.yaml'). Everything lives in `arena`. TM_INVALID: no such page, with the
 * names of all; TM_FORMAT with file and line: an unknown key, a missing one, a figure that is not published. */
TM_MUST_USE tm_status page_read(const char *name, tm_arena *arena, reproduce_page *out, tm_error *err);
/* Words of a command line, parted at blanks outside of double quotes, which are taken off; *n of them, then NULL. */
char **page_words(tm_arena *arena, const char *text, int *n);

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* The GPUs of this machine; maker TM_GPU_ANY: none. */
typedef struct {
    const char *device; /* "hip", "cuda"; NULL: there is none */
    char        name[96];
    int         count;
    int64_t     memory_bytes;
} reproduce_machine;

typedef struct {
    const char       *folder;   /* of all rows */
    const char       *platform; /* --platform: plan for this hardware instead of each row's own; NULL */
    char            **extra;    /* (n_extra) words for each run of a training */
    int               n_extra;
    bool              slice, any_gpu, dry_run;
    reproduce_machine machine;
    const char       *program; /* path of this one */
} reproduce_options;

typedef enum { ROW_PLANNED, ROW_NO_HARDWARE, ROW_NO_ROOM, ROW_RAN, ROW_INVALID, ROW_FAILED } row_state;

typedef struct {
    const page_row *page;
    row_state       state;
    bool            earlier;               /* an earlier call has run it */
    double          plan_bytes, available; /* of a device; NAN: not known */
    int             fits;                  /* 1, 0; -1: not known */
    int             code;                  /* of a row that was run or failed to be planned */
    const char     *why;                   /* it was not run, or failed; NULL */
    const char     *srun, *torchrun;       /* lines that start a row of several nodes; NULL: it has one */
    const char     *gpu;                   /* the name of this machine's; NULL: it has none */
    const char     *causes;                /* of a difference, NULL: none is known */
    json_t         *configuration;         /* the page's own, planned; NULL: it has none */
    tm_result      *result;                /* NULL: none */
    double          minutes;               /* a score of MLPerf; NAN: none */
} reproduce_row;

/* Plans the row: memory, whether it fits, the page's own configuration; and whether it may run here. Never fails: what
 * goes wrong is the row's state and why. TM_INTERRUPTED only. */
TM_MUST_USE tm_status row_plan(reproduce_row *row, const reproduce_options *o, tm_arena *arena, tm_error *err);
/* Runs it as a process, unless an earlier call has; its result is read. TM_INTERRUPTED, TM_IO. */
TM_MUST_USE tm_status row_run(reproduce_row *row, const reproduce_options *o, tm_arena *arena, tm_error *err);
void                  row_fini(reproduce_row *row);

/* What the row measured of a figure, per device where that is; its interval of 95 %, NAN: none. */
typedef struct {
    double value, lo, hi;
} row_measured;
row_measured row_measure(const reproduce_row *row, const tm_figure *figure);
/* The published value in the same count: of one device, where it is a rate of several. */
double row_published(const tm_figure *figure);

/* What differs between the page's configuration, machine and software and those of the run, the likeliest first: lines
 * "batch: training.local_batch_size 2 instead of 6". NULL: nothing does. In `arena`. */
const char *row_causes(const reproduce_row *row, const reproduce_page *page, bool slice, tm_arena *arena);

#endif
