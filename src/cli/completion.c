/* SPDX-License-Identifier: Apache-2.0 */
/* cli/completion.c - `trainmark completion bash|zsh`: commands, options, keys and their choices, from the rows. */
#include "cli/cli.h"
#include "model/presets.h"

#include <stdio.h>
#include <string.h>

/* Called for every command, those above before those below; c is NULL for the program itself. */
typedef void (*visitor)(const tm_cli_command *c, const char *name, tm_text *out);

static void visit(const tm_cli_command *c, const char *name, visitor visits, tm_text *out)
{
    tm_cli_command        storage;
    const tm_cli_command *below;
    visits(c, name, out);
    if (c && !c->commands && !c->nested) return;
    for (size_t i = 0; (below = tm_cli_nested(c, i, &storage)); i++) {
        char whole[TM_CLI_NAME];
        tm_cli_join(name, below->name, whole);
        visit(below, whole, visits, out);
    }
}

static bool nests(const tm_cli_command *c)
{
    return !c || c->commands || c->nested;
}

/* "|a b" into "x y": the pattern of a command's name behind those above it. */
static void add_path(const tm_cli_command *c, const char *name, tm_text *out)
{
    if (!c) return;
    bool below = strchr(name, ' ') != NULL;
    tm_text_printf(out, "%s\"%s%s\"", out->data[out->length - 1] == '"' ? " | " : "", below ? "" : " ", name);
}

/* Choices of an option "a|b|c" or of a key "a=b|c", blanks between. */
static void add_choices(const char *choices, tm_text *out)
{
    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        tm_text_printf(out, "%s%.*s", p == choices ? "" : " ", (int)strcspn(p, "=|"), p);
        p += n + (p[n] == '|');
    }
}

static bool is_path(const char *value)
{
    static const char *const paths[] = { "FILE", "DIR", "PATH", "PREFIX", "RUN" };
    for (size_t i = 0; value && i < sizeof paths / sizeof paths[0]; i++)
        if (strstr(value, paths[i])) return true;
    return false;
}

/* --- bash --------------------------------------------------------------------------------------------------------- */

static void bash_values(const tm_cli_command *c, const char *name, tm_text *out)
{
    tm_config *config = c && c->keys ? c->keys(c) : NULL;
    for (size_t i = 0; c && i < c->n_options; i++) {
        const tm_option *o = &c->options[i];
        if (!o->choices && !is_path(o->value)) continue;
        tm_text_printf(out, "    \"%s:--%s\"", name, o->name);
        if (o->letter) tm_text_printf(out, " | \"%s:-%c\"", name, o->letter);
        tm_text_add(out, o->choices ? ") choices=\"" : ") files=1");
        if (o->choices) add_choices(o->choices, out);
        tm_text_add(out, o->choices ? "\" ;;\n" : " ;;\n");
    }
    for (size_t i = 0; config && i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        if (key->state != TM_KEY_USED || (key->kind != TM_KEY_CHOICE && key->kind != TM_KEY_BOOL)) continue;
        tm_text_printf(out, "    \"%s:--%s\") choices=\"", name, key->name);
        add_choices(key->kind == TM_KEY_BOOL ? "true|false" : key->choices, out);
        tm_text_add(out, "\" ;;\n");
    }
    tm_config_destroy(config);
}

/* A word and what it is. */
typedef void (*word_adder)(const char *dashes, const char *word, const char *help, tm_text *out);

/* Every word that may come behind a command: commands below it, options, keys, models. */
static void add_words(const tm_cli_command *c, word_adder add, tm_text *out)
{
    tm_cli_command        storage;
    const tm_cli_command *below;
    size_t                n;
    const tm_option      *common = tm_cli_common(&n);
    tm_config            *config = c && c->keys ? c->keys(c) : NULL;
    for (size_t i = 0; nests(c) && (below = tm_cli_nested(c, i, &storage)); i++)
        add("", below->name, below->summary, out);
    for (size_t i = 0; c && i < c->n_options; i++) add("--", c->options[i].name, c->options[i].help, out);
    for (size_t i = 0; config && i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        if (key->state == TM_KEY_USED) add("--", key->name, key->help, out);
    }
    for (size_t i = 0; i < n; i++) add("--", common[i].name, common[i].help, out);
    const tm_preset *presets = tm_model_presets(&n);
    for (size_t i = 0; c && c->words && strstr(c->words, "MODEL") && i < n; i++)
        add("", presets[i].name, "built-in model", out);
    tm_config_destroy(config);
}

static void bash_word(const char *dashes, const char *word, const char *help, tm_text *out)
{
    (void)help;
    tm_text_printf(out, "%s%s ", dashes, word);
}

static void bash_words(const tm_cli_command *c, const char *name, tm_text *out)
{
    tm_text_printf(out, "    \"%s\") words=\"", name);
    add_words(c, bash_word, out);
    out->data[--out->length] = '\0';
    tm_text_add(out, nests(c) ? "\" ;;\n" : "\" others=1 ;;\n");
}

static void print_bash(tm_text *out)
{
    tm_text_add(
        out,
        "# trainmark completion for bash; made by `trainmark completion bash`\n"
        "_trainmark()\n{\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} name= words= choices= files= "
        "others= i\n"
        "    [ \"$cur\" = = ] && cur=\n"
        "    [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD - 2]}\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        case \"$name ${COMP_WORDS[i]}\" in\n"
        "        ");
    visit(NULL, "", add_path, out);
    tm_text_add(out, ") name=\"${name:+$name }${COMP_WORDS[i]}\" ;;\n"
                     "        *) break ;;\n"
                     "        esac\n"
                     "    done\n"
                     "    case \"$name:$before\" in\n");
    visit(NULL, "", bash_values, out);
    tm_text_add(out, "    *) case $name in\n");
    visit(NULL, "", bash_words, out);
    tm_text_add(out, "    esac ;;\n"
                     "    esac\n"
                     "    [ -n \"$others\" ] && [ \"${cur:0:1}\" != - ] && files=1\n"
                     "    COMPREPLY=($(compgen -W \"$words$choices\" -- \"$cur\"))\n"
                     "    [ -n \"$files\" ] && COMPREPLY+=($(compgen -f -- \"$cur\")) && compopt -o filenames "
                     "2>/dev/null\n"
                     "    return 0\n"
                     "}\n"
                     "complete -F _trainmark trainmark\n");
}

/* --- zsh ---------------------------------------------------------------------------------------------------------- */

/* 'word:what it is' */
static void zsh_word(const char *dashes, const char *word, const char *help, tm_text *out)
{
    tm_text_printf(out, " '%s%s:", dashes, word);
    for (const char *p = help; *p; p++)
        if (*p == '\'')
            tm_text_add(out, "'\\''");
        else
            tm_text_add_n(out, p, 1);
    tm_text_add(out, "'");
}

static void zsh_words(const tm_cli_command *c, const char *name, tm_text *out)
{
    tm_text_printf(out, "    \"%s\") rows=(", name);
    add_words(c, zsh_word, out);
    tm_text_add(out, nests(c) ? ") ;;\n" : ") others=1 ;;\n");
}

static void print_zsh(tm_text *out)
{
    tm_text_add(out, "#compdef trainmark\n"
                     "# trainmark completion for zsh; made by `trainmark completion zsh`\n"
                     "_trainmark()\n{\n"
                     "    local before=${words[CURRENT-1]} name= choices= files= others= i\n"
                     "    local -a rows\n"
                     "    for ((i = 2; i < CURRENT; i++)); do\n"
                     "        case \"$name ${words[i]}\" in\n"
                     "        ");
    visit(NULL, "", add_path, out);
    tm_text_add(out, ") name=\"${name:+$name }${words[i]}\" ;;\n"
                     "        *) break ;;\n"
                     "        esac\n"
                     "    done\n"
                     "    choices=\n"
                     "    case \"$name:$before\" in\n");
    visit(NULL, "", bash_values, out);
    tm_text_add(out, "    *) case $name in\n");
    visit(NULL, "", zsh_words, out);
    tm_text_add(out, "    esac ;;\n"
                     "    esac\n"
                     "    [[ -n $choices ]] && compadd -- ${=choices}\n"
                     "    (( ${#rows} )) && _describe trainmark rows\n"
                     "    [[ -n $files || ( -n $others && $PREFIX != -* ) ]] && _files\n"
                     "    return 0\n"
                     "}\n"
                     "_trainmark \"$@\"\n");
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static tm_status complete(void (*print)(tm_text *out), tm_error *err)
{
    tm_text text = { 0 };
    print(&text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status run_bash(tm_cli_line *line, tm_error *err)
{
    (void)line;
    return complete(print_bash, err);
}

static tm_status run_zsh(tm_cli_line *line, tm_error *err)
{
    (void)line;
    return complete(print_zsh, err);
}

static const tm_cli_command bash_command = { .name = "bash",
                                             .summary = "for bash: eval \"$(trainmark completion bash)\"",
                                             .run = run_bash };
static const tm_cli_command zsh_command = { .name = "zsh",
                                            .summary = "for zsh: a file _trainmark in a directory of $fpath",
                                            .run = run_zsh };

static const tm_cli_command *const commands[] = { &bash_command, &zsh_command, NULL };

const tm_cli_command tm_command_completion = {
    .name = "completion",
    .summary = "print a shell's completion of commands, options and keys",
    .commands = commands,
};
