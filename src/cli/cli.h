/* SPDX-License-Identifier: Apache-2.0 */
/* cli/cli.h - what commands share. A command is one file and one line in commands.def (cli/command.h). Only this room
 * prints errors, only main exits. */
#ifndef TM_CLI_CLI_H
#define TM_CLI_CLI_H

#include "base/status.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/command.h"
#include "config/config.h"
#include "gpu/platform.h"
#include "hf/config.h"
#include "plan/hardware.h"
#include "train/run/run.h"

#include <signal.h>
#include <stdbool.h>

/* Options of the commands that read a configuration and are not its keys; a command has rows for those that it takes.
 */
typedef struct {
    const char       *out;            /* --out DIR */
    const char       *perf_csv;       /* --perf-csv F: append */
    const char       *compare;        /* --compare reference|F.csv */
    const char       *device;         /* --device NAME */
    const char       *isa;            /* --isa base|avx2|avx512 */
    int64_t           memory_bytes;   /* --memory: a dry run fits if it needs no more; 0: not given */
    tm_cli_list       config_paths;   /* --config-path, several */
    const char       *model_word;     /* the word behind a model file: CONFIG.json llama */
    double            timeout_s;      /* --timeout, 0: none */
    int64_t           ranks;          /* --ranks, 0: not given */
    const char       *mpi;            /* --mpi */
    int64_t           restarts;       /* --max-restarts */
    double            deadline_s;     /* --deadline, 0: the usual one */
    const char       *scaling;        /* --scaling 1,2,4 */
    const char       *scaling_mode;   /* --scaling-mode */
    int64_t           ranks_per_host; /* --ranks-per-host, 0: not given */
    const char       *platform;       /* --platform */
    tm_platform       hardware;       /* what it names; gpu NULL: not given */
    tm_machine_plan  *machine;        /* of a prediction: what --platform names; NULL: not given */
    const char       *as, *rows, *trace, *tokens, *store; /* --as, --rows, --trace, --tokens, --store */
    double            price, watts;                       /* --price, --watts */
    double            failures, save_s, restart_s;        /* --failures, --save-seconds, --restart-seconds */
    double            imbalance, loader;                  /* --expert-imbalance, --loader-rate */
    bool              predicts, leave_out, fit, constants, accuracy, search; /* predicts: set by `plan` */
    bool              json, dry_run, print_config, evaluate, allow_unknown, schedule;
    bool              axes;    /* set by a command that runs: lists where single values belong are axes of a sweep */
    const char       *subject; /* MODEL or FILE.yaml, NULL when none */
    tm_hf_description folder;  /* what tm_cli_model_folder describes; form NULL: there is none */
} tm_cli_options;

/* Rows that every command has whose struct is tm_cli_options. */
#define TM_CLI_CONFIGURATION_ROWS                                                                                      \
    { "device",                                                                                                        \
      0,                                                                                                               \
      TM_OPTION_TEXT,                                                                                                  \
      offsetof(tm_cli_options, device),                                                                                \
      .value = "NAME",                                                                                                 \
      .fallback = "cpu",                                                                                               \
      .help = "auto, cpu, cuda or hip (cuda:1: the second GPU), reference (float64), null" },                          \
        { "isa",           0,                                                                                          \
          TM_OPTION_TEXT,  offsetof(tm_cli_options, isa),                                                              \
          .value = "NAME", .help = "instruction set of the kernels: avx2, avx512, ...; default: the best here" },      \
        { "config-path",  0,                                                                                           \
          TM_OPTION_LIST, offsetof(tm_cli_options, config_paths),                                                      \
          .value = "DIR", .help = "where to look for presets of experiment files, beside their directories" },         \
    {                                                                                                                  \
        "allow-unknown-keys", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, allow_unknown),                              \
            .help = "list unknown keys instead of refusing them"                                                       \
    }

/* --platform: hardware that is not here, for plans. */
#define TM_OPTION_PLATFORM(type, words)                                                                                \
    {                                                                                                                  \
        "platform", 0, TM_OPTION_TEXT, offsetof(type, platform),                                                       \
            .value = "[NODESx]GPUSxNAME", .help = words "plan for this hardware (8xMI300X): as many ranks, its memory" \
    }
/* Reads it into options->hardware; memory_bytes and ranks_per_host, where not given, are those of the hardware, and
 * launch.nnodes and launch.gpus_per_node, where neither a file nor the command line gives them. TM_USAGE, TM_INVALID.
 */
TM_MUST_USE tm_status tm_cli_take_platform(tm_cli_options *options, tm_config *config, tm_error *err);
/* What was published of it, and whose program the plan is, each in a line behind `prefix`; nothing without it. */
void tm_cli_print_platform(const tm_cli_options *options, const tm_device *device, const char *prefix, tm_text *out);
void tm_cli_platform_json(const tm_cli_options *options, const tm_device *device, tm_json *json);

/* Reads options (into line->options, a tm_cli_options), subject and overrides, in any order, into a finished
 * configuration: `fallback` is the preset when nothing is named. The subject is the first word that is neither an
 * option, nor an option's value, nor key=value. plans: nothing is run, so that values that ask for what is not
 * supported are listed instead of refused (as a dry run does, too). The configuration is made here and is the caller's,
 * also on failure (it holds strings of the error). */
TM_MUST_USE tm_status tm_cli_configure(tm_cli_line *line, const char *fallback, bool plans, tm_config **config,
                                       tm_error *err);

/* tm_hub_find of an argument: *path becomes the path where it is, and a note says where that was. NULL stays. */
TM_MUST_USE tm_status tm_cli_find_hub(tm_cli_line *line, tm_hub_kind kind, const char **path, tm_error *err);
/* tm_cli_find_hub of a model and of an adapter for it (NULL: none). A directory with an adapter alone instead of a
 * model becomes the adapter, and the model is the one that it names. TM_INVALID: two adapters; as
 * tm_cli_base_of_adapter. */
TM_MUST_USE tm_status tm_cli_find_model(tm_cli_line *line, const char **path, const char **adapter, tm_error *err);
/* Is there an adapter in the directory, and no model? */
bool tm_cli_only_adapter(const char *folder);
/* The directory of the model that an adapter is for, from the arena; a note says it. TM_INVALID, TM_FORMAT: none is
 * named, or it is not here, with the command that downloads it. */
TM_MUST_USE tm_status tm_cli_base_of_adapter(const char *adapter, tm_arena *arena, const char **base, tm_error *err);
/* The Hugging Face folder that describes the model (model.hf_assets_path with a config.json), or NULL. */
const char *tm_cli_model_folder(const tm_config *config);

/* Opens the device that --device and --isa name; the reference device computes in float64 whatever training.dtype says.
 * planning: nothing will run there, the machine need not have it. */
TM_MUST_USE tm_status tm_cli_open_device(const tm_cli_options *options, tm_run_options *run, bool planning,
                                         tm_device **out, tm_error *err);

/* A configuration with all rows and presets and nothing given. */
tm_config *tm_cli_config(void);
/* The same for tm_cli_command.keys. */
tm_config *tm_cli_keys(const tm_cli_command *command);
/* The row `name` (of `length` letters); one that is not there is a bug. */
const tm_key *tm_cli_key(const tm_config *config, const char *name, size_t length);

/* "512" (both) or "512x768": width and height of a picture, multiples of 16 from 16 to 16384. TM_USAGE names `option`.
 */
TM_MUST_USE tm_status tm_cli_read_size(const char *text, const char *option, int64_t *width, int64_t *height,
                                       tm_error *err);

/* "192GiB", "2 TB", "1048576": a number and a unit. TM_USAGE names `option`. */
TM_MUST_USE tm_status tm_cli_read_bytes(const char *text, const char *option, int64_t *bytes, tm_error *err);

/* Lines as an array of strings, a member of an open JSON object. */
void tm_cli_json_lines(tm_json *json, const char *key, const char *lines);
/* Appends every line of `lines` behind `prefix`. */
void tm_cli_add_lines(tm_text *out, const char *prefix, const char *lines);

/* stdout with an error check: a full disk or a closed pipe is TM_IO. */
TM_MUST_USE tm_status tm_cli_print(const tm_text *text, tm_error *err);
/* The same with the colours of our own text; for what asked tm_terminal_colour first. */
TM_MUST_USE tm_status tm_cli_print_coloured(const tm_text *text, tm_error *err);

/* The table as JSON, or for people: as wide as the terminal, or TM_TABLE_WIDTH; all: also the columns that are not
 * named as the main ones (-v). */
void tm_cli_add_table(const tm_table *table, bool json, bool all, tm_text *out);

/* Threads that wait for each other spin, which is fastest on a quiet machine and several times slower on a busy one,
 * where they take the time that the others wait for. If other tasks are running that need the processors of our
 * threads, this starts the program again with OMP_WAIT_POLICY=passive (the OpenMP library reads it once, at the start).
 * For commands that compute, before they do anything; does nothing where the environment says how to wait, and returns
 * at once on a quiet machine. `ab` decides for both of its sides. True: this is the program that was started again. */
bool tm_cli_settle_waiting(char **argv);
/* The note that this was so, for the end of a command that has done its work. */
void tm_cli_tell_waiting(void);

/* Set by the first SIGINT, SIGTERM or SIGHUP that comes after tm_cli_heed_stop; a second one ends the process at once.
 */
extern volatile sig_atomic_t tm_cli_stop;
/* From here on the command looks at tm_cli_stop often. Before, and in commands that never call it, the first signal
 * ends the process (exit code 130): what they write replaces its file when it is complete. */
void tm_cli_heed_stop(void);

#endif
