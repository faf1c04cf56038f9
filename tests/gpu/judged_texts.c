/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/judged_texts.h"

#include "base/file.h"
#include "base/hash.h"
#include "device/backend.h"
#include "device/gpu/own.h"

#include "support/test.h"

enum { LIMIT = 1 << 20, LINE = 80 };

#define HEAD "# Texts of kernels that build/release/tests/gpu/test_gpu_kernels has judged (docs/testing.md).\n"

static const char *const parts[] = { "on_cuda_1", "on_cuda_2", "on_cuda_3", "on_cuda_4",
                                     "on_hip_1",  "on_hip_2",  "on_hip_3",  "on_hip_4" };

/* --- texts */

static void add_lines(tm_hasher *hasher, const char *const *lines)
{
    for (; *lines; lines++) tm_hasher_add(hasher, *lines, strlen(*lines) + 1);
}

uint64_t judged_texts_hash(const tm_gpu_text *text, const char *const *dialect)
{
    tm_hasher *hasher = tm_hasher_create();
    add_lines(hasher, dialect);
    add_lines(hasher, text->lines);
    uint64_t hash = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
    return hash;
}

static const char *line_of(const tm_gpu_text *text, char line[LINE])
{
    uint64_t hash = judged_texts_hash(text, tm_gpu_text_dialect);
    snprintf(line, LINE, "%s %016llx\n", text->name, (unsigned long long)hash);
    return line;
}

static bool has_line(const char *list, const char *line)
{
    for (const char *at = list; (at = strstr(at, line)); at++)
        if (at == list || at[-1] == '\n') return true;
    return false;
}

const char *judged_texts_elsewhere(const char *name)
{
    static const char *const all[][2] = {
        { "collectives_wide", "tests/gpu/test_gpu_ranks.c" },
        { "dialect", "every text, which begins with it" },
        { "draw", "tests/gpu/test_gpu_draw.c" },
        { "frozen", "tests/gpu/test_gpu_adapters.c" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i][0], name) == 0) return all[i][1];
    return NULL;
}

bool judged_texts_changed(const char *list, const tm_gpu_text *text)
{
    char line[LINE];
    return !judged_texts_elsewhere(text->name) && !has_line(list, line_of(text, line));
}

/* --- notes of the parts of a sweep */

static tm_text path_of(const char *notes, const char *part)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s.%s", notes, part);
    return path;
}

/* The first line of a note: of all texts as they are. */
static const char *line_of_all(char line[LINE])
{
    tm_hasher *hasher = tm_hasher_create();
    for (const tm_gpu_text *t = tm_gpu_texts; t->name; t++) add_lines(hasher, t->lines);
    snprintf(line, LINE, "all %016llx\n", (unsigned long long)tm_hasher_value(hasher));
    tm_hasher_destroy(hasher);
    return line;
}

void judged_texts_forget(const char *notes, const char *part)
{
    tm_text path = path_of(notes, part);
    (void)unlink(path.data);
    tm_text_fini(&path);
}

void judged_texts_note(const char *notes, const char *part, const tm_device *device)
{
    const tm_gpu_own *own = device->own;
    char              line[LINE];
    tm_error          err = { 0 };
    tm_text           note = { 0 }, path = path_of(notes, part);
    tm_text_add(&note, line_of_all(line));
    for (const tm_gpu_text *t = tm_gpu_texts; t->name; t++)
        for (size_t i = 0; i < own->n_modules; i++)
            if (own->modules[i].text == t->lines && !has_line(note.data, line_of(t, line))) tm_text_add(&note, line);
    if (tm_file_write(path.data, note.data, note.length, &err) != TM_OK) fail_msg("%s", err.text);
    tm_text_fini(&note), tm_text_fini(&path);
}

/* All notes one after the other; false: a part has not judged the texts as they are. */
static bool read_notes(const char *notes, tm_text *out)
{
    char line[LINE];
    bool all = true;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && all; i++) {
        tm_error err = { 0 };
        tm_text  path = path_of(notes, parts[i]);
        size_t   from = out->length;
        all = tm_file_read(path.data, LIMIT, out, &err) == TM_OK &&
              strncmp(out->data + from, line_of_all(line), strlen(line_of_all(line))) == 0;
        tm_text_fini(&path);
    }
    return all;
}

static const char *compare(const char *list, const tm_text *wanted, char why[JUDGED_WHY])
{
    tm_error err = { 0 };
    tm_text  have = { 0 };
    if (getenv("TM_RECORD") && tm_file_write(list, wanted->data, wanted->length, &err) != TM_OK)
        fail_msg("%s", err.text);
    if (tm_file_read(list, LIMIT, &have, &err) != TM_OK) fail_msg("%s", err.text);
    bool same = strcmp(have.data, wanted->data) == 0;
    snprintf(why, JUDGED_WHY,
             "all kernels are right, but %s has hashes of other texts: TM_RECORD=1 TM_TEST_FULL=1 "
             "build/release/tests/gpu/test_gpu_kernels on_ writes it",
             list);
    tm_text_fini(&have);
    return same ? NULL : why;
}

/* Every text has examples that reach it, or is judged elsewhere. */
static const char *not_reached(const char *notes, char why[JUDGED_WHY])
{
    char line[LINE];
    for (const tm_gpu_text *t = tm_gpu_texts; t->name; t++) {
        bool reached = has_line(notes, line_of(t, line)), elsewhere = judged_texts_elsewhere(t->name);
        if (reached != elsewhere) continue;
        snprintf(why, JUDGED_WHY, "%s.cu: %s (tests/gpu/judged_texts.c)", t->name,
                 reached ? "an example of an op reaches it" : "no example of an op reaches it: what else judges it?");
        return why;
    }
    return NULL;
}

const char *judged_texts_differ(const char *notes, const char *list, char why[JUDGED_WHY])
{
    char        line[LINE];
    tm_text     all = { 0 }, wanted = { 0 };
    const char *found = NULL;
    if (read_notes(notes, &all)) {
        tm_text_add(&wanted, HEAD);
        for (const tm_gpu_text *t = tm_gpu_texts; t->name; t++)
            if (has_line(all.data, line_of(t, line))) tm_text_add(&wanted, line);
        found = not_reached(all.data, why);
        if (!found) found = compare(list, &wanted, why);
    }
    tm_text_fini(&all), tm_text_fini(&wanted);
    return found;
}
