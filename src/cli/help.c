/* SPDX-License-Identifier: Apache-2.0 */
/* cli/help.c - `--help` of any command, from its row. */
#include "base/terminal.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MARGIN = 28 };

size_t tm_cli_width(size_t most)
{
    size_t width = tm_terminal_width(STDOUT_FILENO, most);
    return width < most ? width : most;
}

/* Paragraphs: each line of `about` is filled, those that begin with a blank stay as they are. */
static void add_about(const char *about, size_t width, tm_text *out)
{
    for (size_t n; *about; about += n + (about[n] == '\n')) {
        tm_text line = { 0 };
        n = strcspn(about, "\n");
        tm_text_add_n(&line, about, n);
        if (n == 0 || about[0] == ' ')
            tm_text_printf(out, "%s\n", line.data);
        else
            tm_text_fill(out, line.data, 0, 0, width);
        tm_text_fini(&line);
    }
}

/* "  -o, --out FILE", then what it is. */
static void add_row(const char *left, const char *help, size_t width, tm_text *out)
{
    size_t used = strlen(left);
    tm_text_add(out, left);
    if (used + 2 > MARGIN)
        tm_text_printf(out, "\n%*s", MARGIN, "");
    else
        tm_text_printf(out, "%*s", (int)(MARGIN - used), "");
    tm_text_fill(out, help, MARGIN, MARGIN, width);
}

void tm_cli_describe(const tm_option *o, tm_text *out)
{
    char lo[32], hi[32];
    bool ranged = (o->kind == TM_OPTION_I64 || o->kind == TM_OPTION_F64) && o->lo < o->hi && o->hi < 1e6;
    tm_text_add(out, o->help);
    if (!ranged && !o->choices && !o->fallback) return;
    tm_text_add(out, " (");
    if (ranged) tm_text_printf(out, "%s to %s", tm_format_double(lo, o->lo), tm_format_double(hi, o->hi));
    for (const char *p = o->choices; p && *p;) {
        size_t n = strcspn(p, "|");
        tm_text_printf(out, "%.*s%s", (int)n, p, p[n] ? ", " : "");
        p += n + (p[n] == '|');
    }
    if (o->fallback) tm_text_printf(out, "%sdefault %s", ranged || o->choices ? "; " : "", o->fallback);
    tm_text_add(out, ")");
}

static void add_option(const tm_option *o, size_t width, tm_text *out)
{
    tm_text left = { 0 }, help = { 0 };
    if (o->letter)
        tm_text_printf(&left, "  -%c, --%s", o->letter, o->name);
    else
        tm_text_printf(&left, "      --%s", o->name);
    if (o->value) tm_text_printf(&left, " %s", o->value);
    tm_cli_describe(o, &help);
    add_row(left.data, help.data, width, out);
    tm_text_fini(&left);
    tm_text_fini(&help);
}

void tm_cli_synopsis(const tm_cli_command *c, tm_text *out)
{
    size_t start = out->length;
    tm_text_add(out, "");
    if (c->commands || c->nested) tm_text_add(out, c->words ? c->words : c->run ? "[COMMAND]" : "COMMAND");
    if (!c->commands && !c->nested && c->words) tm_text_add(out, c->words);
    for (size_t i = 0; i < c->n_options; i++) {
        const tm_option *o = &c->options[i];
        if (o->required) tm_text_printf(out, "%s--%s %s", out->length > start ? " " : "", o->name, o->value);
    }
    tm_text_printf(out, "%s[options]%s", out->length > start ? " " : "",
                   c->first_keys || c->passes ? " [--key value ...]" : "");
}

static void add_commands(const tm_cli_command *c, size_t width, tm_text *out)
{
    tm_cli_command        storage;
    const tm_cli_command *below = tm_cli_nested(c, 0, &storage);
    if (below) tm_text_add(out, "\ncommands:\n");
    for (size_t i = 1; below; below = tm_cli_nested(c, i++, &storage)) {
        char left[64];
        snprintf(left, sizeof left, "  %s", below->name);
        tm_text_printf(out, "%-14s", left);
        tm_text_fill(out, below->summary, 14, 14, width);
    }
}

static void add_key(const tm_key *key, size_t width, tm_text *out)
{
    tm_text left = { 0 }, help = { 0 };
    tm_text_printf(&left, "      --%s", key->name);
    tm_config_describe_key(key, &help);
    add_row(left.data, help.data, width, out);
    tm_text_fini(&left);
    tm_text_fini(&help);
}

const tm_key *tm_cli_key(const tm_config *config, const char *name, size_t length)
{
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        if (strlen(key->name) == length && strncmp(key->name, name, length) == 0) return key;
    }
    TM_ASSERT(!"no such key");
    return NULL;
}

/* The keys that people need first, in the order of that list; or all of a command that has few. */
static void add_keys(const tm_cli_command *c, size_t width, tm_text *out)
{
    tm_config *config = c->keys(c);
    if (c->first_keys) tm_text_add(out, "\nmost used keys:\n");
    for (const char *p = c->first_keys; p && *p; p += *p == ',') {
        size_t n = strcspn(p, ",");
        add_key(tm_cli_key(config, p, n), width, out);
        p += n;
    }
    for (size_t i = 0; !c->first_keys && i < tm_config_n_keys(config); i++)
        if (tm_config_key_at(config, i)->state == TM_KEY_USED) add_key(tm_config_key_at(config, i), width, out);
    if (c->keys_help) add_about(c->keys_help, width, out);
    tm_config_destroy(config);
}

void tm_cli_help(const tm_cli_command *c, const char *name, size_t width, tm_text *out)
{
    size_t           n;
    const tm_option *common = tm_cli_common(&n);
    tm_text_printf(out, "usage: trainmark %s ", name);
    tm_cli_synopsis(c, out);
    tm_text_add(out, "\n\n");
    if (c->about)
        add_about(c->about, width, out);
    else
        tm_text_fill(out, c->summary, 0, 0, width);
    add_commands(c, width, out);
    if (c->commands || c->nested) {
        tm_text_printf(out, "\n`trainmark %s COMMAND --help` describes a command and its options.\n", name);
        if (!c->run) return;
    }
    if (c->keys && c->first_keys) add_keys(c, width, out);
    tm_text_add(out, "\noptions:\n");
    if (c->keys && !c->first_keys) add_keys(c, width, out);
    for (size_t i = 0; i < c->n_options; i++) add_option(&c->options[i], width, out);
    for (size_t i = 0; i < n; i++) add_option(&common[i], width, out);
}
