/* SPDX-License-Identifier: Apache-2.0 */
/* cli/run_job.h - private to the room: one `trainmark run`, and its parts that have files of their own. */
#ifndef TM_CLI_RUN_JOB_H
#define TM_CLI_RUN_JOB_H

#include "base/lock.h"
#include "cli/cli.h"
#include "cli/sweep.h"
#include "hf/adapter.h"
#include "hf/folder.h"
#include "system/check.h"
#include "system/environment.h"
#include "train/run/run.h"

/* Everything of one `run` that has to be given back. */
typedef struct run_job {
    tm_cli_options *cli;
    tm_config      *config;
    tm_run_options  options;
    tm_device      *device;
    tm_source      *source;
    tm_environment *environment;
    tm_checks       checks; /* of the host, some milliseconds' worth */
    tm_text         folder, checkpoints, command, changes;
    tm_safetensors *weights; /* of the folder that describes the model */
    tm_hf_adapter   adapter; /* of lora.adapter_path */
    bool            quiet, verbose;
    int             turn_fd; /* 0: takes no turns */
    tm_folder_lock  lock;    /* of the run directory */
    tm_comm        *world;   /* of several ranks; NULL: alone */
    tm_ranks        ranks;   /* that train together, with a world */
} run_job;

/* What a dry run prints: memory of each rank, whether it fits, and the largest batch that does, which `search` looks
 * for; or the configuration. TM_NOMEM: it does not fit. */
TM_MUST_USE tm_status run_print_plan(run_job *j, const tm_sweep_options *search, tm_error *err);

/* The weights that the model begins with, of the folder that describes it, and of an adapter. */
TM_MUST_USE tm_status run_open_weights(run_job *j, tm_error *err);
TM_MUST_USE tm_status run_open_adapter(run_job *j, tm_error *err);

/* What the run directory's config.yaml says, before it is written again: for what is told of a run that goes on. */
void run_note_changes(run_job *j);
/* OMP_NUM_THREADS, which says another number than compute. */
void run_note_threads(const run_job *j);

#endif
