/* SPDX-License-Identifier: Apache-2.0 */
/* cli/cli.h - commands and what they share. A command is one file and one line in commands.def. Only this room prints
 * errors, only main exits. */
#ifndef TM_CLI_CLI_H
#define TM_CLI_CLI_H

#include "base/status.h"
#include "base/text.h"
#include "config/config.h"
#include "hf/config.h"
#include "train/run.h"

#include <signal.h>
#include <stdbool.h>

/* argv[0] is the command's name. Results go to stdout; the status becomes the exit code. */
#define TM_COMMAND(name, summary) tm_status tm_command_##name(int argc, char **argv, tm_error *err);
#include "cli/commands.def"
#undef TM_COMMAND

/* Options of a command line that are not configuration keys. */
typedef struct {
    const char *out;      /* --out DIR */
    const char *perf_csv; /* --perf-csv F: append */
    const char *compare;  /* --compare reference|F.csv */
    const char *device;   /* --device NAME */
    const char *isa;      /* --isa base|avx2|avx512 */
    const char *memory;      /* --memory SIZE: a dry run fits if it needs no more */
    int64_t     memory_bytes; /* 0: not given */
    const char *config_path; /* the last --config-path */
    const char *model_word;  /* the word behind a model file: CONFIG.json llama */
    double      timeout_s;   /* --timeout, 0: none */
    bool        json, dry_run, verbose, help;
    const char *subject; /* MODEL or FILE.yaml, NULL when none */
    tm_hf_description folder; /* what tm_cli_model_folder describes; form NULL: there is none */
} tm_cli_options;

/* What a command takes: a bit for each of the options above; --help and --allow-unknown-keys always.
 * TM_CLI_PLANS: it runs nothing, so that values that ask for what is not built are listed instead of refused (as a dry run
 * does, too). */
enum { TM_CLI_OUT = 1, TM_CLI_PERF_CSV = 2, TM_CLI_DEVICE = 4, TM_CLI_ISA = 8, TM_CLI_JSON = 16, TM_CLI_DRY_RUN = 32, TM_CLI_COMPARE = 64, TM_CLI_PLANS = 128, TM_CLI_ANY = 256, TM_CLI_AXES = 512 };

/* Reads options, subject and overrides, in any order, into a finished configuration: `fallback` is the preset when
 * nothing is named. The subject is the first word that is neither an option, nor an option's value, nor key=value.
 * Options that the command does not take (`takes`) are TM_USAGE. With --help nothing else is looked at. The
 * configuration is made here and is the caller's, also on failure (it holds strings of the error). */
TM_MUST_USE tm_status tm_cli_configure(int argc, char **argv, const char *fallback, unsigned takes,
                                       tm_cli_options *options, tm_config **config, tm_error *err);

/* The Hugging Face folder that describes the model (model.hf_assets_path with a config.json), or NULL. */
const char *tm_cli_model_folder(const tm_config *config);

/* Is "--help" or "-h" among the arguments? */
bool tm_cli_wants_help(int argc, char **argv);
/* Prints a command's help. */
TM_MUST_USE tm_status tm_cli_print_help(const char *help, tm_error *err);

/* Opens the device that --device and --isa name; the reference device computes in float64 whatever training.dtype says.
 * planning: nothing will run there, the machine need not have it. */
TM_MUST_USE tm_status tm_cli_open_device(const tm_cli_options *options, tm_run_options *run, bool planning,
                                         tm_device **out, tm_error *err);

/* A configuration with all rows and presets and nothing given. */
tm_config *tm_cli_config(void);

/* An option of a command that reads no configuration, with a value (`value`) or without (`flag`). The last row has no name. */
typedef struct {
    const char  *name;
    const char **value;
    bool        *flag;
} tm_cli_option;

/* Reads options and exactly one PATH, in any order; `command` is for messages ("data verify"). TM_USAGE. */
TM_MUST_USE tm_status tm_cli_arguments(int argc, char **argv, const char *command, const tm_cli_option *options,
                                       const char **path, tm_error *err);

/* "192GiB", "2 TB", "1048576": a number and a unit. TM_INVALID names `option`. */
TM_MUST_USE tm_status tm_cli_read_bytes(const char *text, const char *option, int64_t *bytes, tm_error *err);

/* Lines as an array of strings, a member of an open JSON object. */
void tm_cli_json_lines(tm_json *json, const char *key, const char *lines);
/* Appends every line of `lines` behind `prefix`. */
void tm_cli_add_lines(tm_text *out, const char *prefix, const char *lines);

/* stdout with an error check: a full disk or a closed pipe is TM_IO. */
TM_MUST_USE tm_status tm_cli_print(const tm_text *text, tm_error *err);

/* Threads that wait for each other spin, which is fastest on a quiet machine and several times slower on a busy one, where
 * they take the time that the others wait for. If other tasks are running that need the processors of our threads, this
 * starts the program again with OMP_WAIT_POLICY=passive (the OpenMP library reads it once, at the start). For commands
 * that compute, before they do anything; does nothing where the environment says how to wait, and returns at once on a
 * quiet machine. `ab` decides for both of its sides. */
void tm_cli_settle_waiting(char **argv);

/* Set by the first SIGINT, SIGTERM or SIGHUP; a second one ends the process at once. */
extern volatile sig_atomic_t tm_cli_stop;

#endif
