/* SPDX-License-Identifier: Apache-2.0 */
/* cli/manual.c - `trainmark manual DIR`: a man page for every command, from its row. */
#include "base/file.h"
#include "base/json.h"
#include "base/version.h"
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- roff --------------------------------------------------------------------------------------------------------- */

/* Text in which nothing is a request or an escape. */
static void add_plain(const char *text, size_t n, tm_text *out)
{
    for (size_t i = 0; i < n; i++) {
        bool first = i == 0 && (out->length == 0 || out->data[out->length - 1] == '\n');
        if (first && (text[i] == '.' || text[i] == '\'')) tm_text_add(out, "\\&");
        if (text[i] == '-')
            tm_text_add(out, "\\-");
        else if (text[i] == '\\')
            tm_text_add(out, "\\e");
        else
            tm_text_add_n(out, &text[i], 1);
    }
}

static void add_line(const char *text, tm_text *out)
{
    add_plain(text, strlen(text), out);
    tm_text_add(out, "\n");
}

/* Paragraphs: an empty line begins one, lines that begin with a blank stay as they are. */
static void add_paragraphs(const char *text, tm_text *out)
{
    bool fixed = false, space = false;
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        bool as_is = n > 0 && text[0] == ' ';
        if (as_is != fixed) tm_text_add(out, as_is ? ".PP\n.nf\n" : ".fi\n");
        fixed = as_is;
        if (n == 0) {
            space = true;
            continue;
        }
        if (space && !as_is) tm_text_add(out, ".PP\n");
        space = false;
        add_plain(text, n, out);
        tm_text_add(out, "\n");
    }
    if (fixed) tm_text_add(out, ".fi\n");
}

/* --- a page ------------------------------------------------------------------------------------------------------- */

/* "data pack" -> "trainmark-data-pack" */
static void page_name(const char *name, char out[96])
{
    snprintf(out, 96, "trainmark%s%s", *name ? "-" : "", name);
    for (char *p = out; *p; p++)
        if (*p == ' ') *p = '-';
}

/* SOURCE_DATE_EPOCH, or now. */
static void add_heading(const char *page, tm_text *out)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t      now = epoch && *epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm   parts;
    char        day[32], title[96];
    strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&now, &parts));
    snprintf(title, sizeof title, "%s", page);
    for (char *p = title; *p; p++) *p = (char)toupper((unsigned char)*p);
    tm_text_printf(out, ".TH %s 1 \"%s\" \"trainmark %s\" \"trainmark manual\"\n", title, day, TM_VERSION);
}

static void add_option(const tm_option *o, tm_text *out)
{
    tm_text help = { 0 };
    tm_text_add(out, ".TP\n");
    if (o->letter) tm_text_printf(out, "\\fB\\-%c\\fR, ", o->letter);
    tm_text_add(out, "\\fB\\-\\-");
    add_plain(o->name, strlen(o->name), out);
    tm_text_add(out, "\\fR");
    if (o->value) tm_text_add(out, " \\fI");
    if (o->value) add_plain(o->value, strlen(o->value), out);
    tm_text_add(out, o->value ? "\\fR\n" : "\n");
    tm_cli_describe(o, &help);
    add_line(help.data, out);
    tm_text_fini(&help);
}

static void add_key(const tm_key *key, tm_text *out)
{
    tm_text help = { 0 };
    tm_text_add(out, ".TP\n\\fB\\-\\-");
    add_plain(key->name, strlen(key->name), out);
    tm_text_add(out, "\\fR \\fIVALUE\\fR\n");
    tm_config_describe_key(key, &help);
    add_line(help.data, out);
    tm_text_fini(&help);
}

static void add_keys(const tm_cli_command *c, tm_text *out)
{
    tm_config *config = c->keys(c);
    if (c->first_keys) tm_text_add(out, ".SH KEYS\nMost used keys:\n");
    for (const char *p = c->first_keys; p && *p; p += *p == ',') {
        size_t n = strcspn(p, ",");
        add_key(tm_cli_key(config, p, n), out);
        p += n;
    }
    if (c->first_keys && c->keys_help) tm_text_add(out, ".PP\n");
    if (c->first_keys && c->keys_help) add_line(c->keys_help, out);
    tm_text_add(out, ".SH OPTIONS\n");
    for (size_t i = 0; !c->first_keys && i < tm_config_n_keys(config); i++)
        if (tm_config_key_at(config, i)->state == TM_KEY_USED) add_key(tm_config_key_at(config, i), out);
    tm_config_destroy(config);
}

static void add_commands(const tm_cli_command *c, const char *name, tm_text *out)
{
    tm_cli_command        storage;
    const tm_cli_command *below;
    tm_text_add(out, ".SH COMMANDS\n");
    for (size_t i = 0; (below = tm_cli_nested(c, i, &storage)); i++) {
        char whole[TM_CLI_NAME], page[96];
        tm_cli_join(name, below->name, whole);
        page_name(whole, page);
        tm_text_printf(out, ".TP\n.BR ");
        add_plain(page, strlen(page), out);
        tm_text_add(out, " (1)\n");
        add_line(below->summary, out);
    }
}

static void add_synopsis(const tm_cli_command *c, const char *name, tm_text *out)
{
    tm_text synopsis = { 0 };
    tm_text_add(out, ".SH SYNOPSIS\n.B trainmark");
    tm_text_printf(out, "%s%s\n", *name ? " " : "", name);
    if (c)
        tm_cli_synopsis(c, &synopsis);
    else
        tm_text_add(&synopsis, "COMMAND [options]");
    add_line(synopsis.data, out);
    tm_text_fini(&synopsis);
}

static void add_end(tm_text *out)
{
    tm_text_add(out, ".SH EXIT STATUS\n0 done, 1 internal error, 2 wrong usage, 3 the numbers are invalid or allow no "
                     "verdict, 4 invalid "
                     "configuration or input, 5 negative verdict, 130 interrupted.\n"
                     ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nIf it is set and not empty, nothing is printed in color.\n");
}

/* The page of the command `c`, NULL: of the program. */
static void print_page(const tm_cli_command *c, const char *name, tm_text *out)
{
    char page[96], above[96];
    page_name(name, page);
    add_heading(page, out);
    tm_text_add(out, ".SH NAME\n");
    add_plain(page, strlen(page), out);
    tm_text_add(out, " \\- ");
    add_line(c ? c->summary : "train, measure, check and predict the training of transformer and diffusion models",
             out);
    add_synopsis(c, name, out);
    tm_text_add(out, ".SH DESCRIPTION\n");
    if (c && c->about)
        add_paragraphs(c->about, out);
    else
        add_line(c ? c->summary
                   : "`trainmark run` alone trains the built-in model until it has learned the built-in "
                     "language, and prints throughput, memory, loss and a verdict.",
                 out);
    if (!c || c->commands || c->nested) add_commands(c, name, out);
    if (c && c->keys)
        add_keys(c, out);
    else
        tm_text_add(out, ".SH OPTIONS\n");
    size_t           n;
    const tm_option *common = tm_cli_common(&n);
    for (size_t i = 0; c && i < c->n_options; i++) add_option(&c->options[i], out);
    for (size_t i = 0; i < n; i++) add_option(&common[i], out);
    add_end(out);
    if (!c) return;
    snprintf(above, sizeof above, "%s", page);
    *strrchr(above, '-') = '\0';
    tm_text_add(out, ".SH SEE ALSO\n.BR ");
    add_plain(above, strlen(above), out);
    tm_text_add(out, " (1)\n");
}

/* --- all pages ---------------------------------------------------------------------------------------------------- */

/* `written`: gets a line for each file. */
static tm_status write_page(const char *folder, const tm_cli_command *c, const char *name, tm_text *written,
                            tm_error *err)
{
    char    page[96];
    tm_text text = { 0 }, path = { 0 };
    page_name(name, page);
    print_page(c, name, &text);
    tm_text_printf(&path, "%s/%s.1", folder, page);
    tm_status st = tm_file_write(path.data, text.data, text.length, err);
    tm_text_printf(written, "%s\n", path.data);
    tm_text_fini(&text);
    tm_text_fini(&path);
    return st;
}

static tm_status write_below(const char *folder, const tm_cli_command *c, const char *name, tm_text *written,
                             tm_error *err)
{
    tm_cli_command        storage;
    const tm_cli_command *below;
    TM_TRY(write_page(folder, c, name, written, err));
    if (c && !c->commands && !c->nested) return TM_OK;
    for (size_t i = 0; (below = tm_cli_nested(c, i, &storage)); i++) {
        char whole[TM_CLI_NAME];
        tm_cli_join(name, below->name, whole);
        TM_TRY(write_below(folder, below, whole, written, err));
    }
    return TM_OK;
}

typedef struct {
    bool json;
} manual_options;

/* The lines as an array of strings. */
static void print_list(const char *lines, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '[');
    while (*lines) {
        tm_text line = { 0 };
        size_t  n = strcspn(lines, "\n");
        tm_text_add_n(&line, lines, n);
        tm_json_string(&json, NULL, line.data);
        tm_text_fini(&line);
        lines += n + 1;
    }
    tm_json_close(&json, ']');
    if (out->data[out->length - 1] != '\n') tm_text_add(out, "\n");
}

static tm_status manual(tm_cli_line *line, tm_error *err)
{
    const manual_options *o = line->options;
    tm_text               written = { 0 }, out = { 0 };
    tm_status             st = tm_folder_make(line->words[0], err);
    if (st == TM_OK) st = write_below(line->words[0], NULL, "", &written, err);
    if (st == TM_OK && o->json) {
        print_list(written.data, &out);
        st = tm_cli_print(&out, err);
    }
    tm_text_fini(&written);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "json", 0, TM_OPTION_FLAG, offsetof(manual_options, json), .help = "print the names of the files as JSON" },
};

const tm_cli_command tm_command_manual = {
    .name = "manual",
    .summary = "write the man pages of all commands",
    .words = "DIR",
    .least = 1,
    .most = 1,
    .about =
        "Writes DIR/trainmark.1 and a page for each command. `make install` does it. The date in the pages is that of "
        "SOURCE_DATE_EPOCH, or today's.",
    TM_CLI_OPTIONS(rows, manual_options),
    .run = manual,
};
