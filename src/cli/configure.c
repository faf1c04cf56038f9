/* SPDX-License-Identifier: Apache-2.0 */
#include "base/plain.h"
#include "base/arena.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/habits.h"
#include "data/keys.h"
#include "hf/folder.h"
#include "mlperf/keys.h"
#include "model/keys.h"
#include "record/keys.h"
#include "train/keys.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static const struct {
    const char *flag;
    unsigned    bit;
    bool        takes_value;
    size_t      at;
} own_options[] = {
    { "--out", TM_CLI_OUT, true, offsetof(tm_cli_options, out) },
    { "--perf-csv", TM_CLI_PERF_CSV, true, offsetof(tm_cli_options, perf_csv) },
    { "--compare", TM_CLI_COMPARE, true, offsetof(tm_cli_options, compare) },
    { "--device", TM_CLI_DEVICE, true, offsetof(tm_cli_options, device) },
    { "--isa", TM_CLI_ISA, true, offsetof(tm_cli_options, isa) },
    { "--json", TM_CLI_JSON, false, offsetof(tm_cli_options, json) },
    { "--dry-run", TM_CLI_DRY_RUN, false, offsetof(tm_cli_options, dry_run) },
    { "--memory", TM_CLI_DRY_RUN, true, offsetof(tm_cli_options, memory) },
    { "--config-path", TM_CLI_ANY, true, offsetof(tm_cli_options, config_path) },
    { "--verbose", TM_CLI_ANY, false, offsetof(tm_cli_options, verbose) },
};
enum { OWN_OPTIONS = sizeof own_options / sizeof own_options[0] };

tm_config *tm_cli_config(void)
{
    tm_config *config = tm_config_create();
    tm_train_configure(config);
    tm_data_configure(config);
    tm_record_configure(config);
    tm_model_configure(config);
    tm_mlperf_configure(config);
    return config;
}

void tm_cli_add_lines(tm_text *out, const char *prefix, const char *lines)
{
    for (size_t n; *lines; lines += n + (lines[n] == '\n')) {
        n = strcspn(lines, "\n");
        tm_text_printf(out, "%s%.*s\n", prefix, (int)n, lines);
    }
}

tm_status tm_cli_print(const tm_text *text, tm_error *err)
{
    if (text->length && !tm_plain_put(stdout, text->data, TM_PLAIN_LINES))
        return tm_fail(err, TM_IO, "cannot write to standard output: %s", strerror(errno));
    return fflush(stdout) == 0 ? TM_OK : tm_fail(err, TM_IO, "cannot write to standard output: %s", strerror(errno));
}

bool tm_cli_wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

tm_status tm_cli_print_help(const char *help, tm_error *err)
{
    tm_text text = { 0 };
    tm_text_add(&text, help);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

/* A command line on its way into options, subject and overrides. */
typedef struct {
    int             argc;
    char          **argv;
    unsigned        takes;
    tm_cli_options *options;
    tm_config      *config;
    char          **rest; /* overrides */
    int             n_rest, n_paths;
} reader;

static tm_status take_value(reader *r, int i, const char *flag, const char **field, int *used, tm_error *err)
{
    const char *equals = r->argv[i][strlen(flag)] ? r->argv[i] + strlen(flag) : NULL;
    const char *value = equals ? equals + 1 : i + 1 < r->argc ? r->argv[i + 1] : NULL;
    if (!value || !*value || (!equals && strncmp(value, "--", 2) == 0))
        return tm_fail(err, TM_USAGE, "option '%s' needs a value: %s VALUE", flag, flag);
    *field = value;
    *used = equals ? 1 : 2;
    return TM_OK;
}

/* A folder of presets; there may be several. */
static tm_status add_path(reader *r, tm_error *err)
{
    if (++r->n_paths > 8) return tm_fail(err, TM_USAGE, "more than 8 --config-path");
    if (!tm_file_exists(r->options->config_path))
        return tm_fail(err, TM_INVALID, "--config-path: there is no folder '%.300s'; check the path",
                       r->options->config_path);
    tm_config_add_path(r->config, r->options->config_path);
    return TM_OK;
}

/* Takes an option of the command itself; *used is the number of arguments it covers, 0 if it is none. */
static tm_status take_own(reader *r, int i, int *used, tm_error *err)
{
    const char *word = r->argv[i];
    for (int k = 0; k < OWN_OPTIONS; k++) {
        const char *flag = own_options[k].flag;
        size_t      n = strlen(flag);
        if (strncmp(word, flag, n) != 0 || (word[n] && word[n] != '=')) continue;
        if (!((r->takes | TM_CLI_ANY) & own_options[k].bit))
            return tm_fail(err, TM_USAGE,
                           "`trainmark %s` takes no option '%s'; `trainmark %s --help` tells those it takes",
                           r->argv[0], flag, r->argv[0]);
        void *field = (char *)r->options + own_options[k].at;
        if (own_options[k].takes_value) TM_TRY(take_value(r, i, flag, field, used, err));
        if (own_options[k].takes_value) return field == &r->options->config_path ? add_path(r, err) : TM_OK;
        if (word[n]) return tm_fail(err, TM_USAGE, "option '%s' takes no value; leave out '%s'", flag, word + n);
        *(bool *)field = true;
        *used = 1;
        return TM_OK;
    }
    if (strcmp(word, "--allow-unknown-keys") == 0) {
        tm_config_allow_unknown(r->config, true);
        *used = 1;
    }
    return TM_OK;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), s = strlen(suffix);
    return n > s && strcmp(text + n - s, suffix) == 0;
}

static bool is_file_name(const char *subject)
{
    static const char *const suffixes[] = { ".yaml", ".yml", ".toml", ".json", ".py" };
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (ends_with(subject, suffixes[i])) return true;
    return strchr(subject, '/') != NULL;
}

/* A boolean option may stand alone; the word behind it is then the subject or the next override, or it was meant as the
 * option's value. */
static tm_status check_boolean(const reader *r, int i, int words, tm_error *err)
{
    const char *word = r->argv[i], *next = i + 1 < r->argc ? r->argv[i + 1] : NULL;
    if (words != 1 || strchr(word, '=') || !next || strncmp(next, "--", 2) == 0 || strchr(next, '=')) return TM_OK;
    if (!r->options->subject && (is_file_name(next) || tm_config_find_preset(r->config, next))) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%.200s' (command line) must be true or false, found '%.200s'", word + 2, next);
}

/* Sorts the words: own options, overrides with their values, the subject. What is none of them stays with the
 * overrides, where it is refused. */
static tm_status sort_words(reader *r, tm_error *err)
{
    for (int i = 1; i < r->argc;) {
        int used = 0;
        TM_TRY(take_own(r, i, &used, err));
        if (used > 0) {
            i += used;
            continue;
        }
        const char *word = r->argv[i];
        int         words = tm_config_argument_words(r->config, word, i + 1 < r->argc ? r->argv[i + 1] : NULL);
        if (words == 0 && !r->options->subject && word[0] != '-' && !strchr(word, '=')) {
            r->options->subject = word;
            i++;
            continue;
        }
        if (words == 0 && r->options->subject && ends_with(r->options->subject, ".json") &&
            isalpha((unsigned char)word[0]) && !strchr(word, '=') && !r->options->model_word) { /* CONFIG.json llama */
            r->options->model_word = word;
            i++;
            continue;
        }
        TM_TRY(check_boolean(r, i, words, err));
        for (int k = 0; k < (words > 0 ? words : 1); k++) r->rest[r->n_rest++] = r->argv[i++];
    }
    return TM_OK;
}

static tm_status take_subject(tm_config *config, const tm_cli_options *options, tm_error *err)
{
    if (is_file_name(options->subject) &&
        (tm_file_exists(options->subject) || !tm_config_find_preset(config, options->subject)))
        return tm_config_load_file(config, options->subject, err);
    return tm_config_apply_preset(config, options->subject, err);
}

const char *tm_cli_model_folder(const tm_config *config)
{
    const char *path = tm_config_text(config, "model.hf_assets_path");
    return path && tm_hf_is_folder(path) ? path : NULL;
}

/* The last part of a path, for the name of a model. */
static void name_of(const char *path, char name[128])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    snprintf(name, 128, "%.*s", (int)(n - from), path + from);
}

/* model.hf_assets_path: a config.json there describes the model. A name of a hub in a file that was written for other
 * programs is no folder here, and the file says itself what the model is. */
static tm_status take_folder(reader *r, tm_error *err)
{
    static const char key[] = "model.hf_assets_path";
    tm_config        *config = r->config;
    char              name[128];
    const char       *path = tm_config_text(config, key), *folder = tm_cli_model_folder(config);
    if (!path) return TM_OK;
    if (!folder && tm_file_exists(path)) {
        tm_config_note(config, "%s: no config.json in '%.200s', a tokenizer at most", key, path);
        return TM_OK;
    }
    bool hub = path[0] != '/' && path[0] != '.';
    if (!folder && hub && strncmp(tm_config_origin(config, key), "file ", 5) == 0) {
        tm_config_note(config, "%s (%s): no folder '%.200s' here: the model is as the file says, with new weights", key,
                       tm_config_place(config, key), path);
        return TM_OK;
    }
    if (!folder)
        return tm_fail(err, TM_INVALID, "%s: there is no folder '%.300s'; give one that holds a config.json", key,
                       path);
    TM_TRY(tm_hf_folder_configure(folder, config, &r->options->folder, err));
    name_of(folder, name);
    return tm_config_describe(config, "model.name", name, "the name of its folder", err);
}

static tm_status fill(reader *r, const char *fallback, tm_error *err)
{
    const char *experiment = getenv("EXP");
    TM_TRY(sort_words(r, err));
    tm_config_allow_axes(r->config, r->takes & TM_CLI_AXES);
    tm_config_allow_unbuilt(r->config, r->options->dry_run || r->takes & TM_CLI_PLANS);
    if (r->options->subject) TM_TRY(take_subject(r->config, r->options, err));
    char *model[] = { "--model_name", (char *)r->options->model_word };
    if (model[1]) TM_TRY(tm_config_apply_arguments(r->config, 2, model, err));
    TM_TRY(tm_config_apply_arguments(r->config, r->n_rest, r->rest, err));
    TM_TRY(tm_config_apply_environment(r->config, environ, err));
    bool named = r->options->subject || (experiment && *experiment) || tm_config_preset(r->config);
    if (!named && fallback && !tm_cli_model_folder(r->config)) TM_TRY(tm_config_apply_preset(r->config, fallback, err));
    TM_TRY(take_folder(r, err));
    TM_TRY(tm_config_finish(r->config, err));
    if (r->options->verbose) fputs(tm_config_accepted(r->config), stderr);
    return TM_OK;
}

tm_status tm_cli_configure(int argc, char **argv, const char *fallback, unsigned takes, tm_cli_options *options,
                           tm_config **out, tm_error *err)
{
    *options = (tm_cli_options){ .device = "cpu", .help = tm_cli_wants_help(argc, argv) };
    *out = tm_cli_config();
    if (options->help) return TM_OK;
    tm_arena *arena = tm_config_arena(*out);
    TM_TRY(tm_habits_translate(*out, arena, &argc, &argv, &options->timeout_s, err));
    reader r = { .argc = argc, .argv = argv, .takes = takes, .options = options, .config = *out };
    r.rest = tm_arena_take(arena, ((size_t)argc + 1) * sizeof *r.rest);
    TM_TRY(fill(&r, fallback, err));
    if (options->json && takes & TM_CLI_DRY_RUN && !options->dry_run)
        return tm_fail(
            err, TM_USAGE,
            "`trainmark %s` takes no option '--json' without --dry-run; `trainmark %s --help` tells those it takes",
            argv[0], argv[0]);
    if (options->memory) TM_TRY(tm_cli_read_bytes(options->memory, "--memory", &options->memory_bytes, err));
    return TM_OK;
}
