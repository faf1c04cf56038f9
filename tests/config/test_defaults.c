/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults of other programs: a file that leaves a key out is the same as one that gives the key its program's default.
 *
 * tests/config/defaults/ has them by program and version. Every mapped key must stand there. */
#include "config/foreign.h"
#include "support/programs.h"

#include "base/file.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static bool loads(test_foreign *f, size_t i, const char *line, const char *with, const test_words *lines)
{
    if (test_foreign_load(f, test_foreign_program_put(f, &test_foreign_programs[i], line), true, lines->n,
                          lines->words) == TM_OK)
        return true;
    print_error("%s [%s] with '%s': %s\n", test_foreign_programs[i].framework, with, line, f->err.text);
    return false;
}

/* What every key of ours is; the caller frees it and the texts. */
static char **values(const tm_config *config)
{
    char **out = calloc(config->n_entries + 1, sizeof *out);
    for (size_t i = 0; i < config->n_entries; i++) {
        const char *text = tm_entry_value(&config->entries[i])->text;
        out[i] = text ? strdup(text) : NULL;
    }
    return out;
}

/* Fails where they differ; `key` was given its program's default the second time. */
static int differ(const tm_config *config, char **before, char **after, const char *key, const char *value,
                  const char *with)
{
    int found = 0;
    for (size_t i = 0; i < config->n_entries; i++) {
        bool same = before[i] && after[i] ? strcmp(before[i], after[i]) == 0 : before[i] == after[i];
        if (!same)
            print_error("[%s] %s: without it %s is %s, with its default %s it is %s\n", with, key,
                        config->entries[i].key.name, before[i] ? before[i] : "null", value,
                        after[i] ? after[i] : "null");
        found += !same;
        free(before[i]);
        free(after[i]);
    }
    free(before);
    free(after);
    return found;
}

static const char *const no_default[] = { "-", "model" };

/* One line of the list of program `i`. Returns how many keys of ours differ. */
static int try_line(test_foreign *f, size_t i, const char *with, char *line)
{
    char *value = strchr(line, ' '), given[300];
    if (!value) fail_msg("no value: %s", line);
    *value++ = '\0';
    for (size_t k = 0; k < 2; k++)
        if (strcmp(value, no_default[k]) == 0) return 0;
    test_words lines;
    test_words_read(&lines, with);
    if (!loads(f, i, "", with, &lines)) return 1;
    char **before = values(f->config);
    snprintf(given, sizeof given, "%s: %s", line, value);
    bool   loaded = loads(f, i, given, with, &lines);
    char **after = values(f->config);
    return !loaded + differ(f->config, before, after, line, value, with);
}

static bool is_listed(const char *list, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = list; (p = strstr(p, key)); p += n)
        if ((p == list || p[-1] == '\n') && p[n] == ' ') return true;
    return false;
}

static int missing(const char *framework, const char *list)
{
    int                 n = 0;
    const tm_framework *of = tm_framework_find(framework);
    for (size_t i = 0; i < of->n; i++) {
        bool listed = of->keys[i].kind != TM_FOREIGN_MAPPED || is_listed(list, of->keys[i].name);
        if (!listed) print_error("%s: the default of %s is not listed\n", framework, of->keys[i].name);
        n += !listed;
    }
    return n;
}

TEST(what_a_file_leaves_out_is_its_programs_default)
{
    test_foreign *f = *test_state;
    int           wrong = 0;
    for (size_t i = 0; i < TEST_PROGRAMS; i++) {
        char    name[200], with[500] = "";
        tm_text list = { 0 };
        snprintf(name, sizeof name, "tests/config/defaults/%s.txt", test_foreign_programs[i].list);
        if (tm_file_read(name, 1 << 20, &list, &f->err) != TM_OK) fail_msg("%s", f->err.text);
        wrong += missing(test_foreign_programs[i].framework, list.data);
        for (char *line = list.data, *end; *line; line = end + 1) {
            end = line + strcspn(line, "\n");
            if (*end)
                *end = '\0';
            else
                end--;
            if (*line == '[')
                snprintf(with, sizeof with, "%.*s", (int)strcspn(line, "\n") - 2, line + 1);
            else if (*line && *line != '#')
                wrong += try_line(f, i, with, line);
        }
        tm_text_fini(&list);
    }
    if (wrong) fail_msg("%d values are not those of the other program", wrong);
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
