/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "base/plain.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "cli/habits.h"
#include "data/keys.h"
#include "hf/adapter.h"
#include "apps/mlperf/keys.h"
#include "model/keys.h"
#include "record/keys.h"
#include "record/table.h"
#include "train/settings/keys.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

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

/* Who reads no more (`| head`) has seen enough: that is no failure. */
static tm_status print_keeping(const tm_text *text, unsigned keep, tm_error *err)
{
    bool put = !text->length || tm_plain_put(stdout, text->data, keep);
    if ((put && fflush(stdout) == 0) || errno == EPIPE) return TM_OK;
    return tm_fail(err, TM_IO, "cannot write to standard output: %s", strerror(errno));
}

tm_status tm_cli_print(const tm_text *text, tm_error *err)
{
    return print_keeping(text, TM_PLAIN_LINES, err);
}

tm_status tm_cli_print_coloured(const tm_text *text, tm_error *err)
{
    return print_keeping(text, TM_PLAIN_LINES | TM_PLAIN_COLOURS, err);
}

void tm_cli_add_table(const tm_table *table, bool json, bool all, tm_text *out)
{
    tm_table_view view = { .width = tm_terminal_width(STDOUT_FILENO, TM_TABLE_WIDTH),
                           .all = all,
                           .rest = "-v or --json" };
    if (json)
        tm_table_print(table, TM_TABLE_JSON, out);
    else
        tm_table_show(table, &view, out);
}

tm_config *tm_cli_keys(const tm_cli_command *command)
{
    (void)command;
    return tm_cli_config();
}

/* A command line on its way into options, subject and overrides. */
typedef struct {
    tm_cli_line    *line;
    int             argc;
    char          **argv;
    tm_cli_options *options;
    tm_config      *config;
    char          **rest; /* overrides */
    int             n_rest;
} reader;

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), s = strlen(suffix);
    return n > s && strcmp(text + n - s, suffix) == 0;
}

static bool is_file_name(const char *subject)
{
    static const char *const suffixes[] = { ".yaml", ".yml", ".toml", ".json", ".sh", ".py" };
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

/* Is "--word" or "--word=value" a key or a section of keys? */
static bool is_key(const tm_config *config, const char *word)
{
    char name[160];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    return strchr(name, '.') || tm_config_has(config, name);
}

/* Sorts the words: own options, overrides with their values, the subject. What is none of them stays with the
 * overrides, where it is refused. TM_USAGE: all that is wrong with the options. */
static tm_status sort_words(reader *r, tm_error *err)
{
    tm_status st = TM_OK;
    for (int i = 1; i < r->argc;) {
        int      used;
        tm_error own = { 0 };
        if (tm_also_of(err, tm_cli_take(r->line, r->argc, r->argv, i, &used, &own), &own) != TM_OK) st = TM_USAGE;
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
        if (tm_cli_resembles(r->line, word) && !is_key(r->config, word)) {
            st = tm_also_of(err, tm_cli_unknown_option(r->line, word, &own), &own);
            i += words > 0 ? words : 1;
            continue;
        }
        if (tm_config_report(r->config, check_boolean(r, i, words, &own), &own)) {
            i += 2; /* with what was meant as its value */
            continue;
        }
        for (int k = 0; k < (words > 0 ? words : 1); k++) r->rest[r->n_rest++] = r->argv[i++];
    }
    return st;
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

/* The last part of a path, for the name of a model; of a snapshot of the hub that of its repository. */
static void name_of(const char *path, char name[128])
{
    tm_hub_origin origin;
    if (tm_hub_origin_of(path, &origin)) path = origin.name;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    snprintf(name, 128, "%.*s", (int)(n - from), path + from);
}

/* A directory with an adapter alone, as model.hf_assets_path or lora.adapter_path, says which model it is for. */
static tm_status take_adapter(tm_config *config, tm_error *err)
{
    static const char model[] = "model.hf_assets_path", adapter[] = "lora.adapter_path";
    const char       *path = tm_config_text(config, model), *given = tm_config_text(config, adapter), *base;
    bool              only = path && tm_cli_only_adapter(path);
    if (only && given)
        return tm_fail(err, TM_INVALID, "%s is '%.200s', an adapter (it has no config.json), and %s is '%.200s'", model,
                       path, adapter, given);
    if (only) {
        tm_config_derive(config, adapter, path, model);
        given = path;
    }
    if (!given || (path && !only) || !tm_hf_is_adapter(given)) return TM_OK;
    TM_TRY(tm_cli_base_of_adapter(given, tm_config_arena(config), &base, err));
    tm_config_set(config, model, base, "derived from lora.adapter_path");
    return TM_OK;
}

/* model.hf_assets_path: a config.json there describes the model. A name of a hub in a file that was written for other
 * programs is no folder here, and the file says itself what the model is. */
static tm_status take_folder(reader *r, tm_error *err)
{
    static const char key[] = "model.hf_assets_path";
    tm_config        *config = r->config;
    char              name[128];
    const char       *theirs = tm_config_weights(config);
    if (!tm_config_text(config, key) && theirs) tm_config_set(config, key, theirs, "derived from the file");
    const char *path = tm_config_text(config, key);
    tm_error    missing = { 0 };
    bool        weights = path && theirs && strcmp(path, theirs) == 0; /* as well as a tokenizer */
    tm_status   st = tm_config_find_hub(config, key, TM_HUB_MODEL, &missing);
    if (st == TM_FORMAT) return tm_fail(err, st, "%s", missing.text); /* it is there, and damaged */
    TM_TRY(tm_config_find_hub(config, "lora.adapter_path", TM_HUB_MODEL, err));
    TM_TRY(take_adapter(config, err));
    path = tm_config_text(config, key);
    if (!path) return TM_OK;
    const char *folder = tm_cli_model_folder(config);
    if (!folder && !weights && tm_file_exists(path)) {
        tm_config_note(config, "%s: no config.json in '%.200s': only a tokenizer is looked for there", key, path);
        return TM_OK;
    }
    bool described = tm_config_framework(config) || tm_config_module(config) || tm_config_preset(config) ||
                     tm_config_rank(config, "model.dim") > 0 || tm_config_rank(config, "model.name") > 0;
    bool hub = described && path[0] != '/' && path[0] != '.';
    if (!folder && hub && strncmp(tm_config_origin(config, key), "file ", 5) == 0) {
        tm_config_note(config,
                       "%s (%s): no directory '%.200s' here, nor in the Hugging Face cache: the model is that of the "
                       "file, with new weights",
                       key, tm_config_place(config, key), path);
        return TM_OK;
    }
    if (!folder && tm_config_plans(config) && (theirs || tm_config_preset(config))) {
        tm_config_leave_out(config, "the weights of '%.200s' (%s, %s): there is no such folder", path, key,
                            tm_config_place(config, key));
        if (theirs) tm_config_set(config, key, NULL, "derived from the file");
        return TM_OK;
    }
    if (st != TM_OK) return tm_fail(err, st, "%s", missing.text);
    if (!folder && weights && tm_file_exists(path))
        return tm_fail(err, TM_INVALID, "%s: '%.300s' holds no config.json; give the directory of a Hugging Face model",
                       key, path);
    if (!folder)
        return tm_fail(err, TM_INVALID, "%s: there is no directory '%.300s'; give one that holds a config.json", key,
                       path);
    TM_TRY(tm_hf_folder_configure(folder, config, &r->options->folder, err));
    name_of(folder, name);
    return tm_config_describe(config, "model.name", name, "the name of its directory", err);
}

/* Folders of presets. */
static tm_status add_paths(const reader *r, tm_error *err)
{
    const tm_cli_list *paths = &r->options->config_paths;
    if (paths->n > 8) return tm_fail(err, TM_USAGE, "more than 8 '--config-path'");
    for (int i = 0; i < paths->n; i++) {
        if (!tm_file_exists(paths->item[i]))
            return tm_fail(err, TM_INVALID, "--config-path: there is no directory '%.300s'; check the path",
                           paths->item[i]);
        tm_config_add_path(r->config, paths->item[i]);
    }
    return TM_OK;
}

/* The variables of a launcher whose ranks we are say nothing else: parallelism.ranks has what counts. */
static void forget_launcher(tm_config *config, const char *launcher)
{
    static const char *const keys[][2] = { { "launch.rank", "0" },       { "launch.local_rank", "0" },
                                           { "launch.node_rank", "0" },  { "launch.nnodes", "1" },
                                           { "launch.world_size", "1" }, { "launch.local_world_size", "1" } };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strncmp(tm_config_origin(config, keys[i][0]), "environment", 11) == 0)
            tm_config_set(config, keys[i][0], keys[i][1], launcher);
}

/* --ranks and launchers say how many train together; of a command that trains. */
static void set_ranks(reader *r)
{
    char           number[24];
    tm_comm_launch launch = tm_comm_launched();
    bool           trains = strcmp(r->line->command->name, "run") == 0, given = r->options->ranks > 0;
    if (trains && launch.ranks > 1 && launch.engine) forget_launcher(r->config, launch.launcher);
    if (!trains || (!given && (launch.ranks == 1 || tm_config_is_set(r->config, "parallelism.ranks")))) return;
    snprintf(number, sizeof number, "%lld", (long long)(given ? r->options->ranks : launch.ranks));
    tm_config_set(r->config, "parallelism.ranks", number, given ? "--ranks" : launch.launcher);
}

/* Without what describes the model, nothing is known of it. */
static void keep_of_model(tm_config *config, tm_status st, tm_error *own)
{
    if (tm_config_report(config, st, own)) tm_config_spoil(config, "model.");
}

/* Wrong usage is told alone; what is wrong with files, keys and values, all at once by tm_config_finish. */
static tm_status fill(reader *r, const char *fallback, bool plans, tm_error *err)
{
    const char *experiment = getenv("EXP");
    tm_config  *config = r->config;
    tm_error    own = { 0 }, usage = { 0 };
    tm_cli_defaults(r->line);
    tm_status st = sort_words(r, &usage);
    if (tm_cli_complete(r->line, &usage) != TM_OK) st = TM_USAGE;
    tm_cli_set_loudness(r->line);
    if (st == TM_OK) TM_TRY(add_paths(r, err));
    tm_config_allow_unknown(config, r->options->allow_unknown);
    tm_config_allow_axes(config, r->options->axes);
    r->options->dry_run |= r->options->print_config;
    tm_config_allow_unbuilt(config, r->options->dry_run || plans);
    tm_config_choose_groups(config, r->n_rest, r->rest);
    if (r->options->subject) keep_of_model(config, take_subject(config, r->options, &own), &own);
    char *model[] = { "--model_name", (char *)r->options->model_word };
    if (model[1] && tm_config_apply_arguments(config, 2, model, &usage) != TM_OK) st = TM_USAGE;
    if (tm_config_apply_arguments(config, r->n_rest, r->rest, &usage) != TM_OK) st = TM_USAGE;
    if (st != TM_OK) return tm_also_of(err, st, &usage);
    tm_config_report(config, tm_config_apply_environment(config, environ, &own), &own);
    bool named = r->options->subject || (experiment && *experiment) || tm_config_preset(config);
    if (!named && fallback && !tm_cli_model_folder(config)) TM_TRY(tm_config_apply_preset(config, fallback, err));
    keep_of_model(config, take_folder(r, &own), &own);
    TM_TRY(tm_cli_take_platform(r->options, config, err));
    set_ranks(r);
    TM_TRY(tm_config_finish(config, err));
    if (r->line->verbose) fputs(tm_config_accepted(config), stderr);
    return TM_OK;
}

tm_status tm_cli_configure(tm_cli_line *line, const char *fallback, bool plans, tm_config **out, tm_error *err)
{
    *out = tm_cli_config();
    int       argc = line->argc;
    char    **argv = line->argv;
    tm_arena *arena = tm_config_arena(*out);
    TM_ASSERT(line->command->size == sizeof(tm_cli_options));
    TM_TRY(tm_habits_translate(*out, arena, &argc, &argv, err));
    reader r = { .line = line, .argc = argc, .argv = argv, .options = line->options, .config = *out };
    r.rest = tm_arena_take(arena, ((size_t)argc + 1) * sizeof *r.rest);
    return fill(&r, fallback, plans, err);
}
