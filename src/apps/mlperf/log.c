/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/log.h"

#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct tm_mllog {
    tm_arena        *arena;
    tm_text          bytes;
    tm_mllog_record *records;
    size_t           n, room;
};

/* --- lines -------------------------------------------------------------------------------------------------------- */

/* White space of Latin-1 text, as Python's strip() sees it. */
static bool is_space(char c)
{
    unsigned char u = (unsigned char)c;
    return (u >= 0x09 && u <= 0x0D) || (u >= 0x1C && u <= 0x20) || u == 0x85 || u == 0xA0;
}

static void fault(tm_mllog_record *r, tm_mllog_state state, const char *problem)
{
    r->state = state;
    r->problem = problem;
}

/* Python's float(): a decimal number, white space around it and single underscores between digits; inf and nan. */
static bool text_to_double(const char *text, double *out)
{
    char   digits[64];
    size_t n = 0;
    while (is_space(*text)) text++;
    for (const char *c = text; *c && n + 1 < sizeof digits; c++) {
        bool between = c > text && c[-1] >= '0' && c[-1] <= '9' && c[1] >= '0' && c[1] <= '9';
        if (*c == '_' && between) continue;
        if (*c == 'x' || *c == 'X' || *c == '(') return false; /* strtod knows hexadecimals and nan(...), Python not */
        digits[n++] = *c;
    }
    while (n > 0 && is_space(digits[n - 1])) n--;
    digits[n] = '\0';
    char *end;
    *out = strtod(digits, &end);
    return n > 0 && n + 1 < sizeof digits && *end == '\0';
}

static void read_time(tm_mllog_record *r, const tm_json_value *time)
{
    if (tm_json_is_number(time))
        r->time_ms = time->number;
    else if (time->kind != TM_JSON_TEXT)
        fault(r, TM_MLLOG_INCOMPLETE, "its time_ms is not a number");
    else if (!text_to_double(time->text, &r->time_ms))
        fault(r, TM_MLLOG_BROKEN, "its time_ms is text that is not a number");
}

static void read_record(tm_mllog *log, tm_mllog_record *r)
{
    const char *problem;
    size_t      where;
    r->key = "";
    r->object = tm_json_parse(log->arena, r->text, r->text_bytes, &problem, &where);
    if (!r->object) {
        fault(r, TM_MLLOG_BROKEN, tm_arena_format(log->arena, "%s, at byte %zu after the token", problem, where));
        return;
    }
    if (r->object->kind != TM_JSON_OBJECT) {
        fault(r, TM_MLLOG_INCOMPLETE, "it is not a JSON object");
        return;
    }
    const char *const    names[] = { "time_ms", "key", "value", "metadata" };
    const tm_json_value *members[4];
    for (size_t i = 0; i < 4; i++) {
        members[i] = tm_json_member(r->object, names[i]);
        if (members[i]) continue;
        fault(r, TM_MLLOG_INCOMPLETE, tm_arena_format(log->arena, "it has no member \"%s\"", names[i]));
        return;
    }
    read_time(r, members[0]);
    if (r->state == TM_MLLOG_GOOD && members[1]->kind != TM_JSON_TEXT)
        fault(r, TM_MLLOG_INCOMPLETE, "its key is not a string");
    if (r->state != TM_MLLOG_GOOD) {
        r->time_ms = 0;
        return;
    }
    r->key = members[1]->text;
    r->value = members[2];
    r->metadata = members[3];
}

/* Behind the last token of the bytes, or NULL. */
static const char *behind_token(const char *begin, const char *end)
{
    const size_t length = sizeof TM_MLLOG_TOKEN - 1;
    const char  *found = NULL;
    for (const char *at = begin; (at = memmem(at, (size_t)(end - at), TM_MLLOG_TOKEN, length)) != NULL; found = at)
        at += length;
    return found;
}

static tm_status add_line(tm_mllog *log, const char *name, int64_t number, const char *begin, const char *end,
                          tm_error *err)
{
    const char *text = behind_token(begin, end);
    if (!text) return TM_OK;
    if (end - begin > TM_MLLOG_MAX_LINE)
        return tm_fail(err, TM_INVALID, "line %lld of '%s' has %lld bytes; %d at most", (long long)number, name,
                       (long long)(end - begin), TM_MLLOG_MAX_LINE);
    while (text < end && is_space(*text)) text++;
    while (text < end && is_space(end[-1])) end--;
    log->records = tm_grow(log->records, &log->room, log->n, sizeof *log->records);
    tm_mllog_record *r = &log->records[log->n];
    *r =
        (tm_mllog_record){ .line = number, .index = (int64_t)log->n, .text = text, .text_bytes = (size_t)(end - text) };
    log->n++;
    read_record(log, r);
    return TM_OK;
}

/* \n, \r and \r\n end a line. Nearly all lines end in \n: a \r is looked for inside of such a line only. */
static tm_status split(tm_mllog *log, const char *name, tm_error *err)
{
    const char *at = log->bytes.data, *end = at + log->bytes.length, *cr;
    int64_t     number = 0;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        const char *last = newline && stop > at && stop[-1] == '\r' ? stop - 1 : stop;
        for (; (cr = memchr(at, '\r', (size_t)(last - at))) != NULL; at = cr + 1)
            TM_TRY(add_line(log, name, ++number, at, cr, err));
        if (newline || at < last) TM_TRY(add_line(log, name, ++number, at, last, err));
        at = newline ? newline + 1 : end;
    }
    return TM_OK;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* One member of a gzip file after the other, until the input is used up. */
static tm_status inflate_all(z_stream *stream, const char *path, tm_text *out, tm_error *err)
{
    char part[32768];
    int  code = Z_OK;
    while (stream->avail_in > 0 || code == Z_OK) {
        if (code == Z_STREAM_END && inflateReset(stream) != Z_OK)
            return tm_fail(err, TM_INTERNAL, "zlib does not work");
        stream->next_out = (Bytef *)part;
        stream->avail_out = sizeof part;
        code = inflate(stream, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END)
            return tm_fail(err, TM_FORMAT, "'%s' is not a complete gzip file: %s", path,
                           code == Z_BUF_ERROR ? "it ends too early"
                           : stream->msg       ? stream->msg
                                               : "it cannot be unpacked");
        tm_text_add_n(out, part, sizeof part - stream->avail_out);
        if (out->length > TM_MLLOG_MAX_BYTES)
            return tm_fail(err, TM_INVALID, "'%s' unpacks to more than %d bytes; a log is shorter", path,
                           TM_MLLOG_MAX_BYTES);
    }
    return TM_OK;
}

static tm_status unpack(const char *path, tm_text *out, tm_error *err)
{
    enum { GZIP = 16 + MAX_WBITS };
    tm_text   packed = { 0 };
    z_stream  stream = { 0 };
    tm_status st = tm_file_read(path, TM_MLLOG_MAX_BYTES, &packed, err);
    if (st == TM_OK && inflateInit2(&stream, GZIP) != Z_OK) st = tm_fail(err, TM_INTERNAL, "zlib does not work");
    if (st == TM_OK) {
        stream.next_in = (Bytef *)packed.data;
        stream.avail_in = (uInt)packed.length;
        st = inflate_all(&stream, path, out, err);
        inflateEnd(&stream);
    }
    tm_text_fini(&packed);
    if (st == TM_OK) tm_text_add(out, "");
    return st;
}

static tm_mllog *new_log(void)
{
    tm_mllog *log = tm_alloc(sizeof *log);
    log->arena = tm_arena_create();
    return log;
}

static tm_status finish(tm_mllog *log, tm_status st, tm_mllog **out)
{
    *out = st == TM_OK ? log : NULL;
    if (st != TM_OK) tm_mllog_free(log);
    return st;
}

tm_status tm_mllog_read(const char *path, tm_mllog **out, tm_error *err)
{
    tm_mllog *log = new_log();
    tm_status st = ends_with(path, ".gz") ? unpack(path, &log->bytes, err)
                                          : tm_file_read(path, TM_MLLOG_MAX_BYTES, &log->bytes, err);
    if (st == TM_OK) st = split(log, path, err);
    return finish(log, st, out);
}

tm_status tm_mllog_parse(const char *name, const char *bytes, size_t n, tm_mllog **out, tm_error *err)
{
    tm_mllog *log = new_log();
    tm_text_add_n(&log->bytes, bytes, n);
    return finish(log, split(log, name, err), out);
}

void tm_mllog_free(tm_mllog *log)
{
    if (!log) return;
    tm_arena_destroy(log->arena);
    tm_text_fini(&log->bytes);
    free(log->records);
    free(log);
}

const tm_mllog_record *tm_mllog_records(const tm_mllog *log, size_t *n)
{
    *n = log->n;
    return log->records;
}

bool tm_mllog_mentions(const tm_mllog_record *record, const char *word)
{
    return memmem(record->text, record->text_bytes, word, strlen(word)) != NULL;
}
