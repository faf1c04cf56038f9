/* SPDX-License-Identifier: Apache-2.0 */
/* cli/run_job.h - private to the room: one `trainmark run`, and its parts that have files of their own. */
#ifndef TM_CLI_RUN_JOB_H
#define TM_CLI_RUN_JOB_H

#include "base/lock.h"
#include "cli/cli.h"
#include "cli/sweep.h"
#include "encoder/encoders.h"
#include "encoder/pixels.h"
#include "hf/adapter.h"
#include "hf/folder.h"
#include "apps/check/check.h"
#include "system/environment.h"
#include "train/run/run.h"

/* Everything of one `run` that has to be given back. */
typedef struct run_job {
    tm_cli_options    *cli;
    tm_config         *config;
    tm_run_options     options;
    tm_device         *device;
    tm_source         *source;
    tm_environment    *environment;
    tm_checks          checks; /* of the host, some milliseconds' worth */
    tm_text            folder, checkpoints, command, changes;
    tm_safetensors    *weights; /* of the folder that describes the model */
    tm_hf_adapter      adapter; /* of lora.adapter_path */
    bool               quiet, verbose;
    bool               without_data; /* nothing is read: the source stays closed */
    int                turn_fd;      /* 0: takes no turns */
    tm_folder_lock     lock;         /* of the run directory */
    tm_comm           *world;        /* of several ranks; NULL: alone */
    tm_ranks           ranks;        /* that train together, with a world */
    tm_run_pictures    pictures;     /* that the run draws */
    tm_euler_times     times;        /* of them */
    tm_pixels         *pixels;       /* their decoder; NULL: none here */
    tm_device         *encoders_device;
    tm_encoders       *encoders; /* of data.source pictures; NULL: none here */
    tm_picture_encoder encoder;  /* what the source knows of them */
} run_job;

/* Options, device, ranks, folder, weights and data of a configuration. run_release gives all of a job back. */
TM_MUST_USE tm_status run_prepare(run_job *j, tm_error *err);
/* The run directory: --out, the experiment's own, or one that the model names. With `options` read. */
void run_name_folder(run_job *j);
/* Behind run_prepare: where its checkpoints are. */
void run_name_checkpoints(run_job *j);
void run_release(run_job *j);

/* What a dry run prints: memory of each rank, whether it fits, and the largest batch that does, which `search` looks
 * for; or the configuration. TM_NOMEM: it does not fit. */
TM_MUST_USE tm_status run_print_plan(run_job *j, const tm_sweep_options *search, tm_error *err);

/* What a search for a batch size is asked; its words live as long as the line. */
tm_sweep_options run_search_of(const run_job *j, const tm_cli_line *line);
/* Lists where single values belong: several runs (*swept: they are done); or a batch size is found, and j->config
 * and the line have it. */
TM_MUST_USE tm_status run_sweep(run_job *j, tm_cli_line *line, bool *swept, tm_error *err);
/* --scaling: the same experiment on several numbers of ranks. */
TM_MUST_USE tm_status run_scale(run_job *j, const tm_cli_line *line, tm_error *err);

/* The weights that the model begins with, of the folder that describes it, and of an adapter. */
TM_MUST_USE tm_status run_open_weights(run_job *j, tm_error *err);
TM_MUST_USE tm_status run_open_adapter(run_job *j, tm_error *err);

/* Before the data is opened: the encoders that data.source pictures needs. TM_INVALID: they do not fit the model. */
TM_MUST_USE tm_status run_open_encoders(run_job *j, tm_error *err);
/* What is needed for the pictures that data.sample_pictures asks for. TM_INVALID, TM_UNSUPPORTED: it cannot draw. */
TM_MUST_USE tm_status run_open_pictures(run_job *j, tm_error *err);

/* What the run directory's config.yaml says, before it is written again: for what is told of a run that goes on. */
void run_note_changes(run_job *j);
/* Whether another program gives this one its turns (train/run/interleave.h). TM_INVALID: its variable is no socket. */
TM_MUST_USE tm_status run_join_turns(run_job *j, tm_error *err);
/* OMP_NUM_THREADS, which says another number than compute. */
void run_note_threads(const run_job *j);
/* What prediction.hardware says of the run's speed. TM_FORMAT, TM_INVALID: the file. */
TM_MUST_USE tm_status run_predict(run_job *j, tm_error *err);

#endif
