/* SPDX-License-Identifier: Apache-2.0 */
#include "config/toml.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN, BY_HEADER, CLOSED }; /* a table (in its `height`): by dotted keys or subtables only, by [name], inline */
enum { MAX_KEY_PARTS = 16, MAX_KEY_BYTES = 200 };

typedef struct {
    tm_arena   *arena;
    const char *name, *p, *end;
    int         line, nodes;
    tm_error   *err;
} reader;

typedef struct {
    const char *parts[MAX_KEY_PARTS];
    int         n;
} key;

static tm_status read_value(reader *r, int depth, tm_yaml **out);

static tm_status failure(reader *r, const char *what)
{
    return tm_fail(r->err, TM_FORMAT, "%s:%d: not valid TOML: %s", r->name, r->line, what);
}

static bool at(const reader *r, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(r->end - r->p) >= n && memcmp(r->p, text, n) == 0;
}

static void skip_spaces(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t')) r->p++;
}

/* To the end of the line, over a comment. */
static tm_status end_line(reader *r)
{
    skip_spaces(r);
    if (r->p < r->end && *r->p == '#')
        while (r->p < r->end && *r->p != '\n') r->p++;
    if (at(r, "\r\n")) r->p++;
    if (r->p < r->end && *r->p != '\n') return failure(r, "there is more text after the value");
    if (r->p < r->end) {
        r->p++;
        r->line++;
    }
    return TM_OK;
}

/* Over blanks, comments and ends of lines. */
static void skip_blanks(reader *r)
{
    for (;;) {
        skip_spaces(r);
        if (r->p < r->end && *r->p == '#')
            while (r->p < r->end && *r->p != '\n') r->p++;
        if (r->p >= r->end || (*r->p != '\n' && *r->p != '\r')) return;
        if (*r->p++ == '\n') r->line++;
    }
}

static tm_status new_node(reader *r, tm_yaml_kind kind, tm_yaml **out)
{
    if (++r->nodes > TM_YAML_MAX_NODES)
        return tm_fail(r->err, TM_FORMAT, "%s:%d: holds more than %d values; shorten the file", r->name, r->line,
                       TM_YAML_MAX_NODES);
    *out = tm_arena_take(r->arena, sizeof **out);
    **out = (tm_yaml){ .kind = kind, .line = r->line, .nodes = 1 };
    return TM_OK;
}

/* In the line where the value begins. */
static void append(reader *r, tm_yaml *node, const char *name, tm_yaml *value)
{
    tm_yaml_item *item = tm_arena_take(r->arena, sizeof *item), **last = &node->first;
    *item = (tm_yaml_item){ .key = name, .line = value->line, .value = value };
    while (*last) last = &(*last)->next;
    *last = item;
    node->count++;
}

static void add_code_point(tm_text *out, unsigned long c)
{
    char   bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) bytes[i] = (char)(0x80 | (c & 0x3F));
    bytes[0] = (char)(n == 1 ? c : n == 2 ? 0xC0 | c : n == 3 ? 0xE0 | c : 0xF0 | c);
    tm_text_add_n(out, bytes, n);
}

/* p stands behind the backslash. */
static tm_status read_escape(reader *r, bool many_lines, tm_text *out)
{
    static const char names[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    const char       *known = r->p < r->end && *r->p ? strchr(names, *r->p) : NULL;
    if (known) {
        tm_text_add_n(out, &values[known - names], 1);
        r->p++;
        return TM_OK;
    }
    if (many_lines && r->p < r->end && strchr(" \t\r\n", *r->p)) {
        while (r->p < r->end && strchr(" \t\r\n", *r->p))
            if (*r->p++ == '\n') r->line++;
        return TM_OK;
    }
    int digits = at(r, "u") ? 4 : at(r, "U") ? 8 : 0;
    if (!digits || r->end - r->p <= digits) return failure(r, "unknown escape sequence in a text");
    char hex[9] = { 0 }, *stop;
    memcpy(hex, r->p + 1, (size_t)digits);
    unsigned long c = strtoul(hex, &stop, 16);
    if (stop != hex + digits || !isxdigit((unsigned char)*hex) || c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return failure(r, "unknown character in an escape sequence");
    add_code_point(out, c);
    r->p += digits + 1;
    return TM_OK;
}

/* A text in any of the four kinds of quotes; p stands on the first. */
static tm_status read_quoted(reader *r, tm_text *out)
{
    char quote = *r->p, three[4] = { quote, quote, quote, 0 };
    bool many = at(r, three);
    r->p += many ? 3 : 1;
    if (many && at(r, "\r\n")) r->p++;
    if (many && at(r, "\n")) {
        r->p++;
        r->line++;
    }
    tm_text_add(out, "");
    while (r->p < r->end) {
        if (many ? at(r, three) : *r->p == quote) {
            r->p += many ? 3 : 1;
            while (many && r->p < r->end && *r->p == quote) tm_text_add_n(out, r->p++, 1); /* quotes at its end */
            return TM_OK;
        }
        unsigned char c = (unsigned char)*r->p;
        if ((c == '\n' && !many) || c == 0x7F || (c < 0x20 && !strchr("\t\n\r", (int)c))) break;
        if (c == 0) break;
        if (c == '\n') r->line++;
        r->p++;
        if (c == '\\' && quote == '"')
            TM_TRY(read_escape(r, many, out));
        else
            tm_text_add_n(out, (const char *)&c, 1);
    }
    return failure(r, "a text has no closing quote");
}

static tm_status read_text(reader *r, const char **out)
{
    tm_text   text = { 0 };
    tm_status st = read_quoted(r, &text);
    if (st == TM_OK) *out = tm_arena_text_n(r->arena, text.data, text.length);
    tm_text_fini(&text);
    return st;
}

static bool bare(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

static tm_status read_key(reader *r, key *out)
{
    out->n = 0;
    for (;;) {
        skip_spaces(r);
        const char *begin = r->p, *part = NULL;
        if (out->n == MAX_KEY_PARTS) return failure(r, "a key has more than 16 parts");
        if (r->p < r->end && (*r->p == '"' || *r->p == '\'')) {
            TM_TRY(read_text(r, &part));
        } else {
            while (r->p < r->end && bare(*r->p)) r->p++;
            if (r->p > begin) part = tm_arena_text_n(r->arena, begin, (size_t)(r->p - begin));
        }
        if (!part || !*part || strlen(part) > MAX_KEY_BYTES)
            return failure(r, "a key is expected here: name = value, or [section]");
        out->parts[out->n++] = part;
        skip_spaces(r);
        if (!at(r, ".")) return TM_OK;
        r->p++;
    }
}

static tm_yaml_item *find(const tm_yaml *map, const char *name)
{
    tm_yaml_item *item = map->first;
    while (item && strcmp(item->key, name) != 0) item = item->next;
    return item;
}

static tm_status given_twice(reader *r, const tm_yaml_item *item)
{
    return tm_fail(r->err, TM_FORMAT, "%s:%d: duplicate key '%s', first given in line %d; remove one", r->name, r->line,
                   item->key, item->line);
}

/* The table below `map`, made where there is none; of an array of tables the last one. */
static tm_status enter(reader *r, tm_yaml *map, const char *name, tm_yaml **out)
{
    tm_yaml_item *item = find(map, name);
    if (!item) {
        TM_TRY(new_node(r, TM_YAML_MAP, out));
        append(r, map, name, *out);
        return TM_OK;
    }
    tm_yaml *there = (tm_yaml *)item->value; /* every node is ours */
    if (there->kind == TM_YAML_LIST && there->height == BY_HEADER) {
        tm_yaml_item *last = there->first;
        while (last->next) last = last->next;
        there = (tm_yaml *)last->value;
    }
    if (there->kind != TM_YAML_MAP || there->height == CLOSED) return given_twice(r, item);
    *out = there;
    return TM_OK;
}

/* key = value into `map`. */
static tm_status read_pair(reader *r, tm_yaml *map, int depth)
{
    key      name;
    tm_yaml *value;
    TM_TRY(read_key(r, &name));
    if (!at(r, "=")) return failure(r, "'=' is expected after a key");
    r->p++;
    for (int i = 0; i + 1 < name.n; i++) TM_TRY(enter(r, map, name.parts[i], &map));
    tm_yaml_item *there = find(map, name.parts[name.n - 1]);
    if (there) return given_twice(r, there);
    skip_spaces(r);
    int line = r->line;
    TM_TRY(read_value(r, depth + name.n, &value));
    append(r, map, name.parts[name.n - 1], value);
    value->line = line;
    return TM_OK;
}

static tm_status read_inline_table(reader *r, int depth, tm_yaml *map)
{
    r->p++;
    skip_spaces(r);
    if (at(r, "}")) {
        r->p++;
        map->height = CLOSED;
        return TM_OK;
    }
    for (;;) {
        TM_TRY(read_pair(r, map, depth));
        skip_spaces(r);
        bool end = at(r, "}");
        if (!end && !at(r, ",")) return failure(r, "',' or '}' is expected");
        r->p++;
        if (end) break;
        skip_spaces(r);
    }
    map->height = CLOSED;
    return TM_OK;
}

static tm_status read_array(reader *r, int depth, tm_yaml *list)
{
    r->p++;
    for (;;) {
        tm_yaml *item;
        skip_blanks(r);
        if (at(r, "]")) break;
        TM_TRY(read_value(r, depth + 1, &item));
        append(r, list, NULL, item);
        skip_blanks(r);
        if (at(r, "]")) break;
        if (!at(r, ",")) return failure(r, "',' or ']' is expected");
        r->p++;
    }
    r->p++;
    return TM_OK;
}

/* true, 1_000, 1e-5, 0x10, 2026-01-01: as plain text. */
static tm_status read_plain(reader *r, tm_yaml *node)
{
    char   text[64];
    size_t n = 0;
    while (r->p < r->end && !strchr(",]}# \t\r\n", *r->p)) {
        if (n + 1 >= sizeof text) return failure(r, "a value is too long; strings need quotes");
        if (*r->p != '_') text[n++] = *r->p;
        r->p++;
    }
    text[n] = '\0';
    static const int bases[] = { ['x'] = 16, ['o'] = 8, ['b'] = 2 };
    if (n > 2 && text[0] == '0' && strchr("xob", text[1])) {
        char              *stop;
        unsigned long long value = strtoull(text + 2, &stop, bases[(int)text[1]]);
        if (*stop || !isxdigit((unsigned char)text[2])) return failure(r, "a number is expected");
        node->text = tm_arena_format(r->arena, "%llu", value);
        return TM_OK;
    }
    bool word = strcmp(text, "true") == 0 || strcmp(text, "false") == 0 || strspn(text, "+-inaf") == n;
    if (n == 0 ||
        (!word && !(isdigit((unsigned char)text[0]) || (strchr("+-", text[0]) && isdigit((unsigned char)text[1])))))
        return failure(r, "a value is expected; strings need quotes");
    const char *digits = text + (*text == '+' || *text == '-');
    size_t      whole = strspn(digits, "0123456789");
    if (whole > 1 && *digits == '0' && digits[whole] != '-' && digits[whole] != ':') /* neither a date nor a time */
        return failure(r, "a number begins with 0, which TOML does not allow; leave it out");
    node->text = tm_arena_text(r->arena, text);
    return TM_OK;
}

static tm_status read_value(reader *r, int depth, tm_yaml **out)
{
    if (depth > TM_YAML_MAX_DEPTH)
        return tm_fail(r->err, TM_FORMAT, "%s:%d: nested deeper than %d levels; flatten it with dotted keys", r->name,
                       r->line, TM_YAML_MAX_DEPTH);
    if (r->p >= r->end) return failure(r, "a value is missing");
    tm_yaml_kind kind = *r->p == '[' ? TM_YAML_LIST : *r->p == '{' ? TM_YAML_MAP : TM_YAML_SCALAR;
    TM_TRY(new_node(r, kind, out));
    if (kind == TM_YAML_LIST) return read_array(r, depth, *out);
    if (kind == TM_YAML_MAP) return read_inline_table(r, depth, *out);
    if (*r->p == '"' || *r->p == '\'') return read_text(r, &(*out)->text);
    (*out)->plain = true;
    return read_plain(r, *out);
}

/* [a.b] or [[a.b]]: the table that follows. */
static tm_status read_header(reader *r, tm_yaml *root, tm_yaml **out)
{
    bool     many = at(r, "[[");
    key      name;
    tm_yaml *map = root;
    r->p += many ? 2 : 1;
    TM_TRY(read_key(r, &name));
    if (!at(r, many ? "]]" : "]")) return failure(r, "']' is expected");
    r->p += many ? 2 : 1;
    for (int i = 0; i + 1 < name.n; i++) TM_TRY(enter(r, map, name.parts[i], &map));
    const char   *last = name.parts[name.n - 1];
    tm_yaml_item *there = find(map, last);
    if (!many) {
        if (there && (there->value->kind != TM_YAML_MAP || there->value->height != OPEN)) return given_twice(r, there);
        TM_TRY(enter(r, map, last, out));
        (*out)->height = BY_HEADER;
        return TM_OK;
    }
    if (there && (there->value->kind != TM_YAML_LIST || there->value->height != BY_HEADER))
        return given_twice(r, there);
    tm_yaml *list = NULL;
    if (there) {
        list = (tm_yaml *)there->value;
    } else {
        TM_TRY(new_node(r, TM_YAML_LIST, &list));
        list->height = BY_HEADER;
        append(r, map, last, list);
    }
    TM_TRY(new_node(r, TM_YAML_MAP, out));
    append(r, list, NULL, *out);
    return TM_OK;
}

static tm_status read_document(reader *r, tm_yaml *root)
{
    tm_yaml *table = root;
    for (;;) {
        skip_blanks(r);
        if (r->p >= r->end) return TM_OK;
        if (*r->p == '[')
            TM_TRY(read_header(r, root, &table));
        else
            TM_TRY(read_pair(r, table, 1));
        TM_TRY(end_line(r));
    }
}

tm_status tm_toml_parse(tm_arena *arena, const char *bytes, size_t length, const char *name, const tm_yaml **root,
                        tm_error *err)
{
    reader   r = { .arena = arena, .name = name, .p = bytes, .end = bytes + length, .line = 1, .err = err };
    tm_yaml *map = NULL;
    *root = NULL;
    if (length > TM_YAML_MAX_BYTES)
        return tm_fail(err, TM_FORMAT, "'%s' has %zu bytes, more than the %d of a configuration file", name, length,
                       TM_YAML_MAX_BYTES);
    for (size_t i = 0; i < length; i++) {
        size_t n = tm_utf8_length((const unsigned char *)bytes + i);
        if (n == 0 || !bytes[i])
            return tm_fail(err, TM_FORMAT, "'%s' is not a TOML text file: byte %zu; wanted: UTF-8 text", name, i);
        i += n - 1;
    }
    if (at(&r, "\xEF\xBB\xBF")) r.p += 3;
    TM_TRY(new_node(&r, TM_YAML_MAP, &map));
    TM_TRY(read_document(&r, map));
    if (map->count > 0) *root = map;
    return TM_OK;
}
