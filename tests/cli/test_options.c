/* SPDX-License-Identifier: Apache-2.0 */
/* The command line is a promise: every command with its options, every benchmark with its keys
 * (tests/cli/expected/options.txt). Help says all of each. */
#include "apps/bench/bench.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "support/whole.h"

#include <signal.h>

#include "support/test.h"

/* The name, and what stands behind its help in brackets: choices, range, default. */
static void add_name(tm_text *p, const char *name, tm_text *described)
{
    size_t      n = described->length;
    const char *last = strrchr(described->data, '(');
    tm_text_printf(p, " %s%s", name, last && described->data[n - 1] == ')' ? last : "");
    tm_text_fini(described);
}

/* Blanks and line ends are one blank. */
static void squeeze(const char *text, tm_text *out)
{
    tm_text_add(out, " ");
    for (; *text; text++)
        if (*text != ' ' && *text != '\n')
            tm_text_add_n(out, text, 1);
        else if (out->data[out->length - 1] != ' ')
            tm_text_add(out, " ");
}

/* `words` has these words, which are freed. */
static void help_has(const char *name, const char *words, tm_text *wanted)
{
    tm_text one = { 0 };
    squeeze(wanted->data, &one);
    if (!strstr(words, one.data)) fail_msg("%s --help lacks '%s'", name, one.data);
    tm_text_fini(wanted), tm_text_fini(&one);
}

/* The keys that people need first, or all of those that are used. */
static void help_has_keys(const tm_cli_command *c, const char *name, const char *words)
{
    tm_config *config = c->keys(c);
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        tm_text       wanted = { 0 }, in_list = { 0 }, list = { 0 };
        tm_text_printf(&in_list, ",%s,", key->name);
        tm_text_printf(&list, ",%s,", c->first_keys ? c->first_keys : key->name);
        bool shown = key->state == TM_KEY_USED && strstr(list.data, in_list.data);
        tm_text_printf(&wanted, "--%s ", key->name);
        tm_config_describe_key(key, &wanted);
        if (shown)
            help_has(name, words, &wanted);
        else
            tm_text_fini(&wanted);
        tm_text_fini(&in_list), tm_text_fini(&list);
    }
    tm_config_destroy(config);
}

/* Help has what the command is about, each option, key and command below it with what it means, in lines of its width.
 */
static void help_says_all(const tm_cli_command *c, const char *name)
{
    tm_text               help = { 0 }, words = { 0 }, wanted = { 0 };
    tm_cli_command        storage;
    const tm_cli_command *below;
    tm_cli_help(c, name, TM_CLI_HELP_WIDTH, &help);
    for (const char *line = help.data; *line; line += strcspn(line, "\n") + 1)
        if (strncmp(line, "usage", 5) != 0 && strcspn(line, "\n") > TM_CLI_HELP_WIDTH)
            fail_msg("%s --help: '%.*s'", name, (int)strcspn(line, "\n"), line);
    squeeze(help.data, &words);
    tm_text_printf(&wanted, "usage: trainmark %s ", name);
    tm_cli_synopsis(c, &wanted);
    tm_text_printf(&wanted, "\n%s", c->about ? c->about : c->summary);
    help_has(name, words.data, &wanted);
    for (size_t i = 0; (below = tm_cli_nested(c, i, &storage)); i++) {
        tm_text_printf(&wanted, " %s %s", below->name, below->summary);
        help_has(name, words.data, &wanted);
    }
    for (size_t i = 0; i < c->n_options; i++) {
        const tm_option *o = &c->options[i];
        if (o->letter) tm_text_printf(&wanted, "-%c, ", o->letter);
        tm_text_printf(&wanted, "--%s%s%s ", o->name, o->value ? " " : "", o->value ? o->value : "");
        tm_cli_describe(o, &wanted);
        help_has(name, words.data, &wanted);
    }
    if (c->keys) help_has_keys(c, name, words.data);
    if (c->keys && c->keys_help) {
        tm_text_add(&wanted, c->keys_help);
        help_has(name, words.data, &wanted);
    }
    tm_text_fini(&help), tm_text_fini(&words);
}

static void add_command(tm_text *p, const tm_cli_command *c, const char *name)
{
    tm_text synopsis = { 0 };
    tm_cli_synopsis(c, &synopsis);
    tm_text_printf(p, "%s (%d to %d words%s%s%s%s) %s:", name, c->least, c->most, c->run ? "" : ", only commands",
                   c->passes ? ", passes" : "", c->reads ? ", reads" : "", c->keys ? ", keys" : "",
                   synopsis.data ? synopsis.data : "");
    tm_text_fini(&synopsis);
    for (size_t i = 0; i < c->n_options; i++) {
        const char *help = c->options[i].help;
        assert_true(c->options[i].at < c->size);
        if (!help || strlen(help) > 80)
            fail_msg("%s --%s: a line of help has 80 characters: '%s'", name, c->options[i].name, help);
        tm_text described = { 0 };
        tm_cli_describe(&c->options[i], &described);
        if (c->options[i].letter) tm_text_printf(p, " -%c", c->options[i].letter);
        add_name(p, c->options[i].name, &described);
    }
    tm_text_add(p, "\n");
    bool prints_json = c->keys != NULL; /* --json is a key of benchmarks */
    for (size_t i = 0; i < c->n_options; i++) prints_json = prints_json || strcmp(c->options[i].name, "json") == 0;
    if (c->run && !prints_json && !strstr(" chat, completion bash, completion zsh,", name))
        fail_msg("%s has no --json", name);
    help_says_all(c, name);
}

static void add_all(tm_text *p, const tm_cli_command *parent, const char *path)
{
    tm_cli_command        storage;
    const tm_cli_command *c;
    char                  name[TM_CLI_NAME];
    for (size_t i = 0; (c = tm_cli_nested(parent, i, &storage)); i++) {
        tm_cli_join(path, c->name, name);
        add_command(p, c, name);
        add_all(p, c, name);
    }
}

static void add_keys(tm_text *p, const char *command, tm_config *config)
{
    tm_text_printf(p, "keys of %s:", command);
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        tm_text described = { 0 };
        tm_config_describe_key(tm_config_key_at(config, i), &described);
        add_name(p, tm_config_key_at(config, i)->name, &described);
    }
    tm_text_add(p, "\n");
    tm_config_destroy(config);
}

TEST(every_option)
{
    static tm_text            p;
    tm_cli_command            storage;
    const tm_cli_command     *c;
    size_t                    n;
    const tm_workload *const *workloads = tm_workloads(&n);
    add_all(&p, NULL, "");
    for (size_t i = 0; (c = tm_cli_nested(NULL, i, &storage)); i++)
        if (strcmp(c->name, "check") == 0) add_keys(&p, c->name, c->keys(c));
    for (size_t i = 0; i < n; i++) add_keys(&p, workloads[i]->name, tm_bench_configure(workloads[i], "help"));
    whole_is("tests/cli/expected/options.txt", &p);
}
