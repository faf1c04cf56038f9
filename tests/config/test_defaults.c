/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of other programs' keys: every row is sound, and a file that leaves a key out is the same as one that
 * gives the key its program's default.
 *
 * tests/config/defaults/ has them by program and version. Every mapped key must stand there. */
#include "config/foreign.h"
#include "support/programs.h"

#include "base/file.h"
#include "base/text.h"

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

/* Says where they differ; `key` was given its program's default the second time. */
static int differ(const tm_config *config, char *const *before, char *const *after, const char *key, const char *value,
                  const char *with)
{
    int found = 0;
    for (size_t i = 0; i < config->n_entries; i++) {
        if (before[i] && after[i] ? strcmp(before[i], after[i]) == 0 : before[i] == after[i]) continue;
        print_error("[%s] %s: without it %s is %s, with its default %s it is %s\n", with, key,
                    config->entries[i].key.name, before[i] ? before[i] : "null", value, after[i] ? after[i] : "null");
        found++;
    }
    return found;
}

static void free_values(const tm_config *config, char **all)
{
    for (size_t i = 0; i < config->n_entries; i++) free(all[i]);
    free(all);
}

/* A logical line of the list of program `i`: "[LINES] KEY VALUE; KEY VALUE". Returns how many keys of ours differ. */
static int try_line(test_foreign *f, size_t i, char *line)
{
    char      *rest = line, given[300], *with = line + 1;
    test_words lines;
    int        wrong = 0, depth = 0;
    do depth += (*rest == '[') - (*rest == ']');
    while (depth > 0 && *rest++);
    *rest++ = '\0';
    test_words_read(&lines, with);
    if (!loads(f, i, "", with, &lines)) return 1;
    char **before = values(f->config);
    for (char *pair; (pair = strsep(&rest, ";"));) {
        pair += strspn(pair, " ");
        char *value = strchr(pair, ' ');
        if (!value) fail_msg("no value: %s", pair);
        *value++ = '\0';
        snprintf(given, sizeof given, "%s: %s", pair, value);
        bool   loaded = loads(f, i, given, with, &lines);
        char **after = values(f->config);
        wrong += !loaded + differ(f->config, before, after, pair, value, with);
        free_values(f->config, after);
    }
    free_values(f->config, before);
    return wrong;
}

/* The key is a word of the list, which has no comments. */
static bool is_listed(const char *list, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = list; (p = strstr(p, key)); p += n)
        if (p > list && (p[-1] == '\n' || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\n')) return true;
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

/* The list without comments; lines that begin with blanks are one with those before. */
static tm_text read_list(test_foreign *f, const char *name)
{
    char    path[200];
    tm_text list = { 0 }, out = { 0 };
    snprintf(path, sizeof path, "tests/config/defaults/%s.txt", name);
    if (tm_file_read(path, 1 << 20, &list, &f->err) != TM_OK) fail_msg("%s", f->err.text);
    for (const char *at = list.data, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        if (*at == '#') continue;
        tm_text_add_n(&out, at + (*at == ' '), (size_t)(end - at) - (*at == ' '));
        if (end[1] != ' ') tm_text_add(&out, "\n");
    }
    tm_text_fini(&list);
    return out;
}

TEST(what_a_file_leaves_out_is_its_programs_default)
{
    test_foreign *f = *test_state;
    int           wrong = 0;
    for (size_t i = 0; i < TEST_PROGRAMS; i++) {
        tm_text list = read_list(f, test_foreign_programs[i].list);
        wrong += missing(test_foreign_programs[i].framework, list.data);
        char *rest = list.data;
        for (char *line; (line = strsep(&rest, "\n"));)
            if (*line == '[') wrong += try_line(f, i, line);
        tm_text_fini(&list);
    }
    if (wrong) fail_msg("%d values are not those of the other program", wrong);
}

/* A key of ours that a row names must be one, and a value that it gives must fit. */
static void check_target(test_foreign *f, const tm_foreign_key *row, const char *what, size_t n)
{
    while (n > 0) {
        size_t length = 0, name;
        while (length < n && what[length] != ';') length++;
        char word[200];
        snprintf(word, sizeof word, "%.*s", (int)length, what);
        name = strcspn(word, "=");
        bool gives = word[name] == '=' && word[name + 1] != '*' && strcmp(word + name + 1, "null") != 0;
        word[name] = '\0';
        const tm_entry *entry = tm_entry_find(f->config, word);
        if (*word && !entry && strcmp(word, "model") != 0) fail_msg("%s: '%s' is no key of ours", row->name, word);
        if (gives) {
            const char *text;
            tm_given    given = { .text = word + name + 1, .origin = "row" };
            if (tm_value_coerce(f->config->arena, &entry->key, &given, &text, &f->err) != TM_OK)
                fail_msg("%s: %s", row->name, f->err.text);
        }
        what += length + (length < n);
        n -= length + (length < n);
    }
}

TEST(every_row_is_sound)
{
    test_foreign *f = *test_state;
    for (size_t k = 0; tm_framework_at(k); k++) {
        const tm_framework *framework = tm_framework_at(k);
        for (size_t i = 0; i < framework->n; i++) {
            const tm_foreign_key *row = &framework->keys[i];
            if (tm_foreign_row(framework, row->name) != row)
                fail_msg("%s: %s has two rows", framework->name, row->name);
            if (row->with) {
                char name[160];
                snprintf(name, sizeof name, "%s", row->with + (*row->with == '!'));
                name[strcspn(name, "=")] = '\0';
                if (!tm_foreign_row(framework, name))
                    fail_msg("%s counts with '%s', which has no row", row->name, name);
            }
            if (row->kind != TM_FOREIGN_MAPPED) {
                if (!row->words || !*row->words) fail_msg("%s: no reason", row->name);
                if (row->kind >= TM_FOREIGN_EQUAL) assert_non_null(row->values);
                continue;
            }
            if (!strchr(row->values, ':')) check_target(f, row, row->values, strlen(row->values));
            for (const char *p = row->values; strchr(row->values, ':') && *p;) {
                size_t n = strcspn(p, "|"), colon = strcspn(p, ":");
                if (colon >= n) fail_msg("%s: a case without ':'", row->name);
                check_target(f, row, p + colon + 1, n - colon - 1);
                p += n + (p[n] == '|');
            }
            if (strchr(row->values, ':') && !strchr(row->values, '*') && !row->words && !strstr(row->values, "true:"))
                fail_msg("%s: other values are refused without words", row->name);
        }
    }
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
