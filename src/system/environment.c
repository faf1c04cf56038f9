/* SPDX-License-Identifier: Apache-2.0 */
#include "system/environment.h"

#include "base/csv.h"
#include "base/file.h"
#include "system/facts.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- adding facts ---------------------------------------------------------------------------- */

static fact *add(tm_environment *e, const char *name, fact_kind kind)
{
    e->facts = tm_grow(e->facts, &e->capacity, e->count, sizeof *e->facts);
    fact *f = &e->facts[e->count++];
    *f = (fact){ .section = e->section, .item = e->item, .name = tm_arena_text(e->arena, name), .kind = kind };
    return f;
}

void fact_section(tm_environment *e, const char *section)
{
    e->section = tm_arena_text(e->arena, section);
    e->item = NULL;
}

void fact_item(tm_environment *e, const char *item)
{
    e->item = item ? tm_arena_text(e->arena, item) : NULL;
}

void fact_unknown(tm_environment *e, const char *name, const char *reason)
{
    add(e, name, FACT_UNKNOWN)->text = tm_arena_text(e->arena, reason);
}

void fact_text(tm_environment *e, const char *name, const char *text, const char *reason)
{
    if (text && *text)
        add(e, name, FACT_TEXT)->text = tm_arena_text(e->arena, text);
    else
        fact_unknown(e, name, reason);
}

void fact_number(tm_environment *e, const char *name, double number)
{
    char  text[32];
    fact *f = add(e, name, FACT_NUMBER);
    f->number = number;
    f->text = tm_arena_text(e->arena, tm_format_double(text, number));
}

void fact_bool(tm_environment *e, const char *name, bool value)
{
    fact *f = add(e, name, FACT_BOOL);
    f->number = value;
    f->text = value ? "true" : "false";
}

const char *fact_path(tm_environment *e, const char *format, ...)
{
    char    path[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    return tm_arena_format(e->arena, "%s%s", e->sysroot, path);
}

void fact_file(tm_environment *e, const char *name, const char *path)
{
    char text[1024];
    errno = 0;
    if (tm_file_read_line(fact_path(e, "%s", path), text, sizeof text)) {
        text[strcspn(text, "\n")] = '\0';
        fact_text(e, name, text, tm_arena_format(e->arena, "%s is empty", path));
    } else {
        fact_unknown(e, name, tm_arena_format(e->arena, "%s: %s", path, errno ? strerror(errno) : "unreadable"));
    }
}

const char *fact_content(tm_environment *e, const char *path)
{
    enum { LIMIT = 1 << 20 };
    tm_text text = { 0 };
    char   *copy = NULL;
    if (tm_file_read(fact_path(e, "%s", path), LIMIT, &text, NULL) == TM_OK)
        copy = tm_arena_text_n(e->arena, text.data, text.length);
    tm_text_fini(&text);
    return copy;
}

const char *fact_field(tm_environment *e, const char *lines, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = lines; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, key, n) != 0) continue;
        const char *value = line + n;
        while (*value == ' ' || *value == '\t') value++;
        if (*value != ':' && *value != '=') continue;
        value++;
        while (*value == ' ' || *value == '\t' || *value == '"') value++;
        size_t length = strcspn(value, "\n");
        while (length > 0 && (isspace((unsigned char)value[length - 1]) || value[length - 1] == '"')) length--;
        return tm_arena_text_n(e->arena, value, length);
    }
    return NULL;
}

/* --- the list -------------------------------------------------------------------------------- */

tm_environment *tm_environment_read(const char *sysroot)
{
    tm_arena       *arena = tm_arena_create();
    tm_environment *e = tm_arena_take(arena, sizeof *e);
    *e = (tm_environment){ .arena = arena, .sysroot = tm_arena_text(arena, sysroot) };
    probe_cpu(e);
    probe_memory(e);
    probe_board(e);
    probe_disks(e);
    probe_system(e);
    probe_program(e);
    return e;
}

void tm_environment_destroy(tm_environment *environment)
{
    if (!environment) return;
    free(environment->facts);
    tm_arena_destroy(environment->arena);
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

const char *tm_environment_text(const tm_environment *environment, const char *section, const char *item,
                                const char *name)
{
    for (size_t i = 0; i < environment->count; i++) {
        const fact *f = &environment->facts[i];
        if (same(f->section, section) && same(f->item, item) && same(f->name, name))
            return f->kind == FACT_UNKNOWN ? NULL : f->text;
    }
    return NULL;
}

/* A variable that a runtime or a library of GPUs reads. */
static bool is_of_gpus(const fact *f)
{
    static const char *const names[] = { "NCCL_",
                                         "RCCL_",
                                         "HSA_",
                                         "HIP_",
                                         "HIPBLASLT_",
                                         "ROCR_VISIBLE_DEVICES",
                                         "GPU_DEVICE_ORDINAL",
                                         "GPU_MAX_HW_QUEUES",
                                         "CUDA_VISIBLE_DEVICES",
                                         "CUDA_DEVICE_MAX_CONNECTIONS" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(f->name, names[i], strlen(names[i])) == 0) return strcmp(f->section, "variables") == 0;
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const fact *const *)a)->name, (*(const fact *const *)b)->name);
}

/* As one word of a shell. */
static void add_word(tm_text *out, const char *word)
{
    bool quoted = word[strcspn(word, " \t\"$&;|<>*?'()\\")] != '\0';
    if (quoted) tm_text_add(out, "'");
    for (; *word; word++)
        if (*word == '\'')
            tm_text_add(out, "'\\''");
        else
            tm_text_add_n(out, word, 1);
    if (quoted) tm_text_add(out, "'");
}

void tm_environment_print_options(const tm_environment *environment, tm_text *out)
{
    const fact **chosen = tm_alloc((environment->count + 1) * sizeof *chosen);
    size_t       n = 0;
    for (size_t i = 0; i < environment->count; i++)
        if (is_of_gpus(&environment->facts[i])) chosen[n++] = &environment->facts[i];
    if (n > 0) qsort(chosen, n, sizeof *chosen, by_name);
    for (size_t i = 0; i < n; i++) {
        tm_text_printf(out, "%s-e %s=", i > 0 ? " " : "", chosen[i]->name);
        add_word(out, chosen[i]->kind == FACT_UNKNOWN ? "" : chosen[i]->text);
    }
    free(chosen);
}

static void print_fact(tm_json *json, const fact *f)
{
    if (f->kind == FACT_TEXT) tm_json_string(json, f->name, f->text);
    if (f->kind == FACT_BOOL) tm_json_bool(json, f->name, f->number > 0);
    if (f->kind == FACT_UNKNOWN) tm_json_string(json, f->name, NULL);
    if (f->kind != FACT_NUMBER) return;
    if (strpbrk(f->text, ".en"))
        tm_json_f64(json, f->name, f->number);
    else
        tm_json_i64(json, f->name, (int64_t)f->number);
}

static const char *key_of(const fact *f, char out[512])
{
    snprintf(out, 512, "%s.%s%s%s", f->section, f->item ? f->item : "", f->item ? "." : "", f->name);
    return out;
}

void tm_environment_print_json(const tm_environment *environment, tm_json *json, const char *key)
{
    const fact *before = NULL;
    char        name[512];
    tm_json_open(json, key, '{');
    for (size_t i = 0; i < environment->count; i++) {
        const fact *f = &environment->facts[i];
        bool        new_section = !before || !same(before->section, f->section);
        bool        new_item = new_section || !same(before->item, f->item);
        if (before && before->item && new_item) tm_json_close(json, '}');
        if (before && new_section) tm_json_close(json, '}');
        if (new_section) tm_json_open(json, f->section, '{');
        if (f->item && new_item) tm_json_open(json, f->item, '{');
        print_fact(json, f);
        before = f;
    }
    if (before && before->item) tm_json_close(json, '}');
    if (before) tm_json_close(json, '}');
    tm_json_open(json, "unknown", '{');
    for (size_t i = 0; i < environment->count; i++)
        if (environment->facts[i].kind == FACT_UNKNOWN)
            tm_json_string(json, key_of(&environment->facts[i], name), environment->facts[i].text);
    tm_json_close(json, '}');
    tm_json_close(json, '}');
}

void tm_environment_print_csv(const tm_environment *environment, tm_text *out)
{
    char name[512];
    tm_text_add(out, "key,value\n");
    for (size_t i = 0; i < environment->count; i++) {
        const fact *f = &environment->facts[i];
        tm_csv_add(out, key_of(f, name), true);
        tm_csv_add(out, f->kind == FACT_UNKNOWN ? "" : f->text, false);
        tm_text_add_n(out, "\n", 1);
    }
}
