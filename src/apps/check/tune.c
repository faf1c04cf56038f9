/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/check/tune.h"

#include "base/again.h"
#include "base/file.h"
#include "base/json.h"
#include "base/root.h"
#include "apps/check/context.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char state_path[] = TM_TUNE_STATE_FOLDER "/" TM_TUNE_STATE_NAME;
enum { STATE_BYTES = 16 << 20, VALUE_BYTES = 32 };

/* --- the settings ---------------------------------------------------------------------------- */

#define CPUS "/sys/devices/system/cpu"

/* '#' stands for a number. */
static const struct {
    const char *name, *path, *wanted;
} rows[] = {
    { "C2 and deeper", CPUS "/cpu#/cpuidle/state#/disable", "1" },
    { "governor", CPUS "/cpu#/cpufreq/scaling_governor", "performance" },
    { "nmi_watchdog", "/proc/sys/kernel/nmi_watchdog", "0" },
    { "numa_balancing", "/proc/sys/kernel/numa_balancing", "0" },
    { "randomize_va_space", "/proc/sys/kernel/randomize_va_space", "0" },
    { "huge pages, enabled", "/sys/kernel/mm/transparent_hugepage/enabled", "always" },
    { "huge pages, defrag", "/sys/kernel/mm/transparent_hugepage/defrag", "always" },
};
enum { ROWS = sizeof rows / sizeof rows[0], ROW_IDLE = 0, ROW_GOVERNOR = 1 };

typedef struct {
    int         row;
    const char *path, *was;
} setting;

typedef struct {
    tm_arena *arena;
    setting  *items;
    size_t    n, capacity;
} settings;

struct tm_tuning {
    const char *sysroot;
    settings    settings;
    int         lock; /* the state file, locked */
};

/* The row whose pattern `path` fits, -1 if none: the state file is only as trustworthy as its folder. */
static int find_row(const char *path)
{
    for (int i = 0; i < ROWS; i++) {
        const char *p = path, *pattern = rows[i].path;
        while (*pattern) {
            if (*pattern == '#' && !isdigit((unsigned char)*p)) break;
            if (*pattern == '#')
                p += strspn(p, "0123456789");
            else if (*p++ != *pattern)
                break;
            pattern++;
        }
        if (!*pattern && !*p) return i;
    }
    return -1;
}

static bool usable_value(const char *value)
{
    size_t n = strlen(value);
    return n > 0 && n < VALUE_BYTES &&
           strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-") == n;
}

static void settings_init(settings *s)
{
    *s = (settings){ .arena = tm_arena_create() };
}

static void settings_fini(settings *s)
{
    free(s->items);
    tm_arena_destroy(s->arena);
}

static void settings_add(settings *s, int row, const char *path, const char *was)
{
    s->items = tm_grow(s->items, &s->capacity, s->n, sizeof *s->items);
    s->items[s->n++] = (setting){ row, tm_arena_text(s->arena, path), tm_arena_text(s->arena, was) };
}

/* "always [madvise] never" is "madvise" now. */
static bool read_value(const char *sysroot, const char *path, char value[VALUE_BYTES])
{
    char text[256];
    if (!tm_root_read_line(sysroot, path, text, sizeof text)) return false;
    char *from = strchr(text, '['), *to = from ? strchr(from, ']') : NULL;
    if (to) *to = '\0';
    const char *now = to ? from + 1 : text;
    if (!usable_value(now)) return false;
    strcpy(value, now);
    return true;
}

static bool write_value(const char *sysroot, const char *path, const char *value)
{
    char line[VALUE_BYTES + 2];
    snprintf(line, sizeof line, "%s\n", value);
    return tm_root_write(sysroot, path, line);
}

static void collect_one(settings *s, const char *sysroot, int row, const char *path, size_t *ready)
{
    char value[VALUE_BYTES];
    if (!read_value(sysroot, path, value)) return;
    if (strcmp(value, rows[row].wanted) == 0)
        ++*ready;
    else
        settings_add(s, row, path, value);
}

static void collect_idle(settings *s, const char *sysroot, const char *cpu, size_t *ready)
{
    size_t       n;
    char         name[64];
    const char  *folder = tm_arena_format(s->arena, CPUS "/%s/cpuidle", cpu);
    const char **states = tm_root_list(sysroot, folder, 64, s->arena, &n);
    for (size_t i = 0; i < n; i++) {
        const char *place = tm_arena_format(s->arena, "%s/%s", folder, states[i]);
        if (!tm_root_read_line(sysroot, tm_arena_format(s->arena, "%s/name", place), name, sizeof name)) continue;
        if (name[0] != 'C' || strtol(name + 1, NULL, 10) < 2) continue;
        const char *path = tm_arena_format(s->arena, "%s/disable", place);
        if (find_row(path) == ROW_IDLE) collect_one(s, sysroot, ROW_IDLE, path, ready);
    }
}

/* Everything that is not yet as wanted; `ready` counts by row what is. */
static void collect(settings *s, const char *sysroot, size_t ready[ROWS])
{
    size_t       n;
    const char **cpus = tm_root_list(sysroot, CPUS, 65536, s->arena, &n);
    for (size_t i = 0; i < n; i++) {
        const char *path = tm_arena_format(s->arena, CPUS "/%s/cpufreq/scaling_governor", cpus[i]);
        if (find_row(path) != ROW_GOVERNOR) continue;
        collect_idle(s, sysroot, cpus[i], &ready[ROW_IDLE]);
        collect_one(s, sysroot, ROW_GOVERNOR, path, &ready[ROW_GOVERNOR]);
    }
    for (int row = ROW_GOVERNOR + 1; row < ROWS; row++) collect_one(s, sysroot, row, rows[row].path, &ready[row]);
}

/* --- the state file -------------------------------------------------------------------------- */

static void print_state(const settings *s, const char *boot, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "format", "trainmark.tuned/1");
    tm_json_string(&json, "boot", boot);
    tm_json_open(&json, "settings", '[');
    for (size_t i = 0; i < s->n; i++) {
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "path", s->items[i].path);
        tm_json_string(&json, "was", s->items[i].was);
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static void read_boot(const char *sysroot, char boot[64])
{
    (void)tm_root_read_line(sysroot, "/proc/sys/kernel/random/boot_id", boot, 64);
}

static tm_status parse_setting(const json_t *item, settings *s, tm_error *err)
{
    const char *path = json_string_value(json_object_get(item, "path"));
    const char *was = json_string_value(json_object_get(item, "was"));
    int         row = path ? find_row(path) : -1;
    if (row < 0)
        return tm_fail(err, TM_FORMAT, "'%s' names a setting that is never changed, '%.100s'; inspect it and remove it",
                       state_path, path ? path : "");
    if (!was || !usable_value(was))
        return tm_fail(err, TM_FORMAT, "'%s' has no usable value for '%.100s'; inspect it and remove it", state_path,
                       path);
    settings_add(s, row, path, was);
    return TM_OK;
}

static tm_status parse_state(const tm_text *text, settings *s, char boot[64], tm_error *err)
{
    json_error_t  problem;
    json_t       *object = json_loadb(text->data, text->length, JSON_REJECT_DUPLICATES, &problem), *item;
    const json_t *list = json_object_get(object, "settings");
    const char   *format = json_string_value(json_object_get(object, "format"));
    const char   *made = json_string_value(json_object_get(object, "boot"));
    tm_status     st = TM_OK;
    size_t        i;
    if (!object)
        st = tm_fail(err, TM_FORMAT, "'%s' line %d: %.100s; inspect it and remove it", state_path, problem.line,
                     problem.text);
    else if (!format || strcmp(format, "trainmark.tuned/1") != 0 || !json_is_array(list))
        st = tm_fail(err, TM_FORMAT, "'%s' is not a record of host settings; inspect it and remove it", state_path);
    snprintf(boot, 64, "%s", made ? made : "");
    if (st == TM_OK) json_array_foreach(list, i, item) if (st == TM_OK) st = parse_setting(item, s, err);
    json_decref(object);
    return st;
}

static tm_status no_state_file(const char *what, tm_error *err)
{
    return tm_fail(err, TM_INVALID,
                   "cannot %s '%s': %s; the old settings could not be recorded, so nothing was changed "
                   "(root is needed)",
                   what, state_path, strerror(errno));
}

/* Writes, flushes and locks a temporary file, then links it to its name, which fails if there is one. */
static tm_status write_locked(int folder, const tm_text *text, int *lock, tm_error *err)
{
    char temporary[96];
    int  fd = tm_file_open_random(folder, TM_TUNE_STATE_NAME, 0644, temporary, sizeof temporary);
    if (fd < 0) return no_state_file("create", err);
    bool      good = write(fd, text->data, text->length) == (ssize_t)text->length && tm_again_sync(fd) == 0;
    tm_status st = good ? TM_OK : no_state_file("write", err);
    if (st == TM_OK && flock(fd, LOCK_EX | LOCK_NB) != 0) st = no_state_file("lock", err);
    if (st == TM_OK && linkat(folder, temporary, folder, TM_TUNE_STATE_NAME, 0) != 0)
        st = errno == EEXIST ? tm_fail(err, TM_INVALID,
                                       "another process is tuning this host ('%s'); wait until it ends", state_path)
                             : no_state_file("name", err);
    unlinkat(folder, temporary, 0);
    if (st == TM_OK && tm_again_sync(folder) != 0 && errno != EINVAL) {
        st = no_state_file("flush the directory of", err);
        unlinkat(folder, TM_TUNE_STATE_NAME, 0);
    }
    if (st == TM_OK)
        *lock = fd;
    else
        close(fd);
    return st;
}

static tm_status write_state(tm_tuning *t, tm_error *err)
{
    char    boot[64];
    tm_text text = { 0 };
    int     folder = tm_root_open(t->sysroot, TM_TUNE_STATE_FOLDER, O_RDONLY | O_DIRECTORY);
    if (folder < 0) return no_state_file("open the directory of", err);
    read_boot(t->sysroot, boot);
    print_state(&t->settings, boot, &text);
    tm_status st = write_locked(folder, &text, &t->lock, err);
    tm_text_fini(&text);
    close(folder);
    return st;
}

static tm_status remove_state(const char *sysroot, tm_error *err)
{
    int folder = tm_root_open(sysroot, TM_TUNE_STATE_FOLDER, O_RDONLY | O_DIRECTORY);
    int failed = folder < 0 || (unlinkat(folder, TM_TUNE_STATE_NAME, 0) != 0 && errno != ENOENT);
    int cause = errno;
    if (folder >= 0) (void)tm_again_sync(folder);
    if (folder >= 0) close(folder);
    return failed ? tm_fail(err, TM_IO, "cannot remove '%s': %s", state_path, strerror(cause)) : TM_OK;
}

tm_tune_state tm_tune_state_read(const char *sysroot)
{
    int fd = tm_root_open(sysroot, state_path, O_RDONLY | O_NOFOLLOW);
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? TM_TUNE_NONE : TM_TUNE_LEFT;
    bool live = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return live ? TM_TUNE_LIVE : TM_TUNE_LEFT;
}

/* --- there and back -------------------------------------------------------------------------- */

/* Last changed, first restored. Values that are already as they were are left alone. */
static tm_status put_back(const char *sysroot, const settings *s, tm_text *notes, tm_error *err)
{
    char      now[VALUE_BYTES];
    size_t    failed = 0, done = 0;
    tm_status st = TM_OK;
    for (size_t i = s->n; i-- > 0;) {
        const setting *item = &s->items[i];
        if (read_value(sysroot, item->path, now) && strcmp(now, item->was) == 0) continue;
        if (write_value(sysroot, item->path, item->was)) {
            done++;
            continue;
        }
        st = tm_fail(err, TM_IO, "cannot restore '%s' to '%s': %s; '%s' keeps the old values", item->path, item->was,
                     strerror(errno), state_path);
        failed++;
    }
    tm_text_printf(notes, "%zu host settings restored%s", done, failed ? "" : "\n");
    if (failed) tm_text_printf(notes, ", %zu could not be\n", failed);
    return st;
}

static tm_status restore_left(const char *sysroot, const tm_text *text, tm_text *notes, tm_error *err)
{
    char     then[64], now[64];
    settings s;
    settings_init(&s);
    tm_status st = parse_state(text, &s, then, err);
    read_boot(sysroot, now);
    if (st == TM_OK && strcmp(then, now) != 0)
        tm_text_add(notes,
                    "host settings were recorded before the system was restarted: the restart has restored them\n");
    else if (st == TM_OK)
        st = put_back(sysroot, &s, notes, err);
    if (st == TM_OK) st = remove_state(sysroot, err);
    settings_fini(&s);
    return st;
}

tm_status tm_tune_restore(const char *sysroot, tm_text *notes, tm_error *err)
{
    tm_text       text = { 0 };
    tm_tune_state state = tm_tune_state_read(sysroot);
    if (state == TM_TUNE_LIVE)
        return tm_fail(err, TM_INVALID, "another process is tuning this host ('%s'); wait until it ends", state_path);
    if (state == TM_TUNE_NONE) {
        tm_text_add(notes, "no host settings to restore\n");
        return TM_OK;
    }
    tm_status st =
        tm_root_read(sysroot, state_path, STATE_BYTES, &text)
            ? restore_left(sysroot, &text, notes, err)
            : tm_fail(err, TM_FORMAT, "cannot read '%s': %s; inspect it and remove it", state_path, strerror(errno));
    tm_text_fini(&text);
    return st;
}

static void apply(const tm_tuning *t, const tm_tune_options *options, const size_t ready[ROWS], tm_text *notes)
{
    size_t      changed[ROWS] = { 0 }, refused[ROWS] = { 0 };
    const char *cause[ROWS] = { 0 }, *dropped = "dropped";
    for (size_t i = 0; i < t->settings.n; i++) {
        const setting *item = &t->settings.items[i];
        if (options->before_change) options->before_change(options->context, i);
        if (write_value(t->sysroot, item->path, rows[item->row].wanted)) {
            changed[item->row]++;
        } else {
            refused[item->row]++;
            cause[item->row] = strerror(errno);
        }
    }
    if (!*t->sysroot) sync(); /* only clean pages are dropped */
    if (!write_value(t->sysroot, "/proc/sys/vm/drop_caches", "3")) dropped = strerror(errno);
    tm_text_printf(notes, "tuned  caches: %s\n", dropped);
    for (int row = 0; row < ROWS; row++) {
        if (changed[row] + refused[row] + ready[row] == 0) {
            tm_text_printf(notes, "tuned  %s: not on this system\n", rows[row].name);
            continue;
        }
        tm_text_printf(notes, "tuned  %s = %s: %zu changed, %zu so before", rows[row].name, rows[row].wanted,
                       changed[row], ready[row]);
        if (refused[row]) tm_text_printf(notes, ", %zu NOT WRITABLE (%s)", refused[row], cause[row]);
        tm_text_add(notes, "\n");
    }
}

tm_status tm_tune_begin(const tm_tune_options *options, tm_tuning **out, tm_text *notes, tm_error *err)
{
    size_t ready[ROWS] = { 0 };
    *out = NULL;
    if (tm_tune_state_read(options->sysroot) != TM_TUNE_NONE) TM_TRY(tm_tune_restore(options->sysroot, notes, err));
    tm_tuning *t = tm_alloc(sizeof *t);
    *t = (tm_tuning){ .sysroot = options->sysroot, .lock = -1 };
    settings_init(&t->settings);
    collect(&t->settings, options->sysroot, ready);
    tm_status st = write_state(t, err);
    if (st != TM_OK) {
        settings_fini(&t->settings);
        free(t);
        return st;
    }
    apply(t, options, ready, notes);
    *out = t;
    return TM_OK;
}

tm_status tm_tune_end(tm_tuning *tuning, tm_text *notes, tm_error *err)
{
    tm_status st = put_back(tuning->sysroot, &tuning->settings, notes, err);
    if (st == TM_OK) st = remove_state(tuning->sysroot, err);
    close(tuning->lock);
    settings_fini(&tuning->settings);
    free(tuning);
    return st;
}

/* --- the check ------------------------------------------------------------------------------- */

void check_tuned(check *c)
{
    switch (tm_tune_state_read(c->sysroot)) {
    case TM_TUNE_NONE:
        check_say(c, TM_CHECK_PASS, "none");
        break;
    case TM_TUNE_LIVE:
        check_say(c, TM_CHECK_INFO, "the host is tuned by a running process");
        break;
    case TM_TUNE_LEFT:
        check_say(c, TM_CHECK_WARN, "an earlier tuning ended without restoring the settings");
        break;
    }
}
