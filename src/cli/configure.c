/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/file.h"
#include "cli/cli.h"
#include "data/keys.h"
#include "model/keys.h"
#include "record/keys.h"
#include "train/keys.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static const struct {
    const char *flag;
    bool        takes_value;
    size_t      at;
} own_options[] = {
    { "--out", true, offsetof(tm_cli_options, out) },         { "--perf-csv", true, offsetof(tm_cli_options, perf_csv) },
    { "--device", true, offsetof(tm_cli_options, device) },   { "--isa", true, offsetof(tm_cli_options, isa) },
    { "--json", false, offsetof(tm_cli_options, json) },      { "--dry-run", false, offsetof(tm_cli_options, dry_run) },
    { "--help", false, offsetof(tm_cli_options, help) },
};
enum { OWN_OPTIONS = sizeof own_options / sizeof own_options[0] };

tm_config *tm_cli_config(void)
{
    tm_config *config = tm_config_create();
    tm_train_configure(config);
    tm_data_configure(config);
    tm_record_configure(config);
    tm_model_configure(config);
    return config;
}

tm_status tm_cli_print(const tm_text *text, tm_error *err)
{
    if (text->length && fwrite(text->data, 1, text->length, stdout) != text->length)
        return tm_fail(err, TM_IO, "cannot write to standard output: %s", strerror(errno));
    return fflush(stdout) == 0 ? TM_OK : tm_fail(err, TM_IO, "cannot write to standard output: %s", strerror(errno));
}

/* Takes an option of the command itself; *used is the number of arguments it covers, 0 if it is none. */
static tm_status take_own(int argc, char **argv, int i, tm_cli_options *options, int *used, tm_error *err)
{
    *used = 0;
    for (int k = 0; k < OWN_OPTIONS; k++) {
        size_t n = strlen(own_options[k].flag);
        if (strncmp(argv[i], own_options[k].flag, n) != 0 || (argv[i][n] && argv[i][n] != '=')) continue;
        void *field = (char *)options + own_options[k].at;
        *used = 1;
        if (!own_options[k].takes_value) {
            if (argv[i][n]) return tm_fail(err, TM_USAGE, "%s takes no value", own_options[k].flag);
            *(bool *)field = true;
            return TM_OK;
        }
        if (!argv[i][n] && i + 1 >= argc) return tm_fail(err, TM_USAGE, "%s needs a value", own_options[k].flag);
        *(const char **)field = argv[i][n] ? argv[i] + n + 1 : argv[i + 1];
        *used = argv[i][n] ? 1 : 2;
        return TM_OK;
    }
    return TM_OK;
}

static bool is_file_name(const char *subject)
{
    size_t n = strlen(subject);
    return strchr(subject, '/') || (n > 5 && strcmp(subject + n - 5, ".yaml") == 0) || (n > 4 && strcmp(subject + n - 4, ".yml") == 0);
}

static tm_status take_subject(tm_config *config, const tm_cli_options *options, const char *fallback, tm_error *err)
{
    if (!options->subject) {
        const char *experiment = getenv("EXP");
        return (experiment && *experiment) || !fallback ? TM_OK : tm_config_apply_preset(config, fallback, err);
    }
    if (is_file_name(options->subject) && (tm_file_exists(options->subject) || !tm_config_find_preset(config, options->subject)))
        return tm_config_load_file(config, options->subject, err);
    return tm_config_apply_preset(config, options->subject, err);
}

tm_status tm_cli_configure(int argc, char **argv, const char *fallback, tm_cli_options *options, tm_config **out, tm_error *err)
{
    *options = (tm_cli_options){ .device = "cpu" };
    tm_config *config = *out = tm_cli_config();
    char     **rest = tm_alloc(((size_t)argc + 1) * sizeof *rest);
    int        n = 0;
    tm_status  st = TM_OK;
    for (int i = 1; i < argc && st == TM_OK;) {
        int used;
        st = take_own(argc, argv, i, options, &used, err);
        if (st == TM_OK && used == 0 && strcmp(argv[i], "--allow-unknown-keys") == 0) {
            tm_config_allow_unknown(config, true);
            used = 1;
        }
        if (st == TM_OK && used == 0 && i == 1 && argv[i][0] != '-' && !strchr(argv[i], '=')) {
            options->subject = argv[i];
            used = 1;
        }
        if (used == 0) rest[n++] = argv[i++];
        i += used;
    }
    if (st == TM_OK && !options->help) {
        st = take_subject(config, options, fallback, err);
        if (st == TM_OK) st = tm_config_apply_arguments(config, n, rest, err);
        if (st == TM_OK) st = tm_config_apply_environment(config, environ, err);
        if (st == TM_OK) st = tm_config_finish(config, err);
    }
    free(rest);
    return st;
}
