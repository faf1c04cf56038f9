/* SPDX-License-Identifier: Apache-2.0 */
/* config/yaml.c - libyaml's events to a tree. An alias shares its anchor's node; what it would expand to is counted. */
#include "config/yaml.h"

#include <string.h>
#include <yaml.h>

typedef struct anchor {
    const char    *name;
    const tm_yaml *node; /* NULL while the node is still open */
    struct anchor *next;
} anchor;

typedef struct {
    yaml_parser_t parser;
    tm_arena     *arena;
    const char   *name; /* of the file */
    const char   *bytes;
    size_t        length;
    anchor       *anchors; /* newest first */
    int           nodes;
    tm_error     *err;
} reader;

static tm_status read_node(reader *r, const yaml_event_t *event, int depth, const tm_yaml **out);

static tm_status syntax_failure(reader *r)
{
    const yaml_parser_t *p = &r->parser;
    const char          *problem = p->problem ? p->problem : "unreadable";
    if (p->error == YAML_READER_ERROR)
        return tm_fail(r->err, TM_FORMAT,
                       "'%s' is not a YAML text file: %s at byte %zu; wanted: UTF-8 text without control characters",
                       r->name, problem, p->problem_offset);
    bool   tab = p->problem_mark.index < r->length && r->bytes[p->problem_mark.index] == '\t';
    bool   flow = p->context && strstr(p->context, "flow");
    size_t n = strlen(r->name);
    if (n > 5 && strcmp(r->name + n - 5, ".json") == 0)
        return tm_fail(r->err, TM_FORMAT,
                       "%s:%zu:%zu: not valid JSON; check quotes, commas and brackets, also the last", r->name,
                       p->problem_mark.line + 1, p->problem_mark.column + 1);
    return tm_fail(r->err, TM_FORMAT, "%s:%zu:%zu: not valid YAML: %s%s%s%s", r->name, p->problem_mark.line + 1,
                   p->problem_mark.column + 1, p->context ? p->context : "", p->context ? ", " : "", problem,
                   tab    ? "; indent with spaces, not with tabs"
                   : flow ? "; check brackets and commas, and write \"${VAR}\" in quotes between { and }"
                          : "; check indentation, quotes and brackets");
}

static tm_status next_event(reader *r, yaml_event_t *event)
{
    if (!yaml_parser_parse(&r->parser, event)) return syntax_failure(r);
    return TM_OK;
}

static int line_of(const yaml_event_t *event)
{
    return (int)event->start_mark.line + 1;
}

/* Counts a node or an alias's expansion. */
static tm_status count_nodes(reader *r, int nodes, int line, bool alias)
{
    r->nodes += nodes; /* both below the limit: no overflow */
    if (r->nodes <= TM_YAML_MAX_NODES) return TM_OK;
    return tm_fail(r->err, TM_FORMAT, "%s:%d: %s more than %d values; shorten the file", r->name, line,
                   alias ? "its aliases (*name) expand to" : "holds", TM_YAML_MAX_NODES);
}

static tm_status read_alias(reader *r, const yaml_event_t *event, int depth, const tm_yaml **out)
{
    const char *name = (const char *)event->data.alias.anchor;
    int         line = line_of(event);
    for (const anchor *a = r->anchors; a; a = a->next) {
        if (strcmp(a->name, name) != 0) continue;
        if (!a->node)
            return tm_fail(r->err, TM_FORMAT, "%s:%d: alias '*%.64s' is inside its own anchor; write the value out",
                           r->name, line, name);
        TM_TRY(count_nodes(r, a->node->nodes, line, true));
        if (depth + a->node->height > TM_YAML_MAX_DEPTH)
            return tm_fail(r->err, TM_FORMAT, "%s:%d: nested deeper than %d levels; flatten it with dotted keys",
                           r->name, line, TM_YAML_MAX_DEPTH);
        *out = a->node;
        return TM_OK;
    }
    return tm_fail(r->err, TM_FORMAT,
                   "%s:%d: alias '*%.64s' has no anchor '&%.64s' before it; define it or quote the value", r->name,
                   line, name, name);
}

static tm_status read_scalar(reader *r, const yaml_event_t *event, tm_yaml *node)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t      length = event->data.scalar.length;
    if (memchr(text, '\0', length))
        return tm_fail(r->err, TM_FORMAT, "%s:%d: a value holds a NUL character; remove the \\0", r->name, node->line);
    node->text = tm_arena_text_n(r->arena, text, length);
    node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return TM_OK;
}

static void append(tm_yaml *node, tm_yaml_item **last, tm_yaml_item *item)
{
    if (*last)
        (*last)->next = item;
    else
        node->first = item;
    *last = item;
    node->count++;
    node->nodes += item->value->nodes;
    if (item->value->height + 1 > node->height) node->height = item->value->height + 1;
}

static tm_status read_list(reader *r, tm_yaml *node, int depth)
{
    tm_yaml_item *last = NULL;
    for (;;) {
        yaml_event_t event;
        TM_TRY(next_event(r, &event));
        bool          end = event.type == YAML_SEQUENCE_END_EVENT;
        tm_yaml_item *item = tm_arena_take(r->arena, sizeof *item);
        item->line = line_of(&event);
        tm_status st = end ? TM_OK : read_node(r, &event, depth + 1, &item->value);
        yaml_event_delete(&event);
        if (st != TM_OK || end) return st;
        append(node, &last, item);
    }
}

/* The key of a map's next member into *item; *end at the end of the map. */
static tm_status read_key(reader *r, tm_yaml_item *item, bool *end)
{
    yaml_event_t event;
    TM_TRY(next_event(r, &event));
    tm_status st = TM_OK;
    item->line = line_of(&event);
    *end = event.type == YAML_MAPPING_END_EVENT;
    if (!*end && event.type != YAML_SCALAR_EVENT)
        st = tm_fail(r->err, TM_FORMAT,
                     "%s:%d: a key must be plain text, found a list, map or alias; quote it if it "
                     "begins with one of [{*&",
                     r->name, item->line);
    else if (!*end) {
        const char *text = (const char *)event.data.scalar.value;
        size_t      length = event.data.scalar.length;
        item->key = tm_arena_text_n(r->arena, text, length);
        if (memchr(text, '\0', length) || length == 0 || length > 200)
            st = tm_fail(r->err, TM_FORMAT, "%s:%d: a key must have 1 to 200 characters, found %zu", r->name,
                         item->line, length);
        else if (strcmp(item->key, "<<") == 0)
            st = tm_fail(r->err, TM_FORMAT, "%s:%d: merge keys (<<) are not supported; use extends: [file.yaml]",
                         r->name, item->line);
    }
    yaml_event_delete(&event);
    return st;
}

/* A key may be given again with the same word, which says nothing new; with another value neither is chosen. */
static tm_status check_again(const reader *r, const tm_yaml *node, const tm_yaml_item *item, bool *again)
{
    const tm_yaml_item *first = node->first;
    while (first && strcmp(first->key, item->key) != 0) first = first->next;
    *again = first != NULL;
    if (!first) return TM_OK;
    const tm_yaml *a = first->value, *b = item->value;
    if (a->kind == TM_YAML_SCALAR && b->kind == TM_YAML_SCALAR && a->plain == b->plain && strcmp(a->text, b->text) == 0)
        return TM_OK;
    return tm_fail(r->err, TM_FORMAT, "%s:%d: duplicate key '%s', first given in line %d; remove one", r->name,
                   item->line, item->key, first->line);
}

static tm_status read_map(reader *r, tm_yaml *node, int depth)
{
    tm_yaml_item *last = NULL;
    for (;;) {
        tm_yaml_item *item = tm_arena_take(r->arena, sizeof *item);
        bool          end, again;
        TM_TRY(read_key(r, item, &end));
        if (end) return TM_OK;
        yaml_event_t event;
        TM_TRY(next_event(r, &event));
        tm_status st = read_node(r, &event, depth + 1, &item->value);
        yaml_event_delete(&event);
        TM_TRY(st);
        TM_TRY(check_again(r, node, item, &again));
        if (!again) append(node, &last, item);
    }
}

static anchor *open_anchor(reader *r, const yaml_event_t *event)
{
    const yaml_char_t *name = event->type == YAML_SCALAR_EVENT           ? event->data.scalar.anchor
                              : event->type == YAML_SEQUENCE_START_EVENT ? event->data.sequence_start.anchor
                                                                         : event->data.mapping_start.anchor;
    if (!name) return NULL;
    anchor *a = tm_arena_take(r->arena, sizeof *a);
    a->name = tm_arena_text(r->arena, (const char *)name);
    a->next = r->anchors;
    r->anchors = a;
    return a;
}

static tm_status read_node(reader *r, const yaml_event_t *event, int depth, const tm_yaml **out)
{
    if (event->type == YAML_ALIAS_EVENT) return read_alias(r, event, depth, out);
    TM_TRY(count_nodes(r, 1, line_of(event), false));
    if (depth > TM_YAML_MAX_DEPTH)
        return tm_fail(r->err, TM_FORMAT, "%s:%d: nested deeper than %d levels; flatten it with dotted keys", r->name,
                       line_of(event), TM_YAML_MAX_DEPTH);
    tm_yaml *node = tm_arena_take(r->arena, sizeof *node);
    node->line = line_of(event);
    node->nodes = 1;
    anchor   *a = open_anchor(r, event);
    tm_status st;
    if (event->type == YAML_SCALAR_EVENT) {
        node->kind = TM_YAML_SCALAR;
        st = read_scalar(r, event, node);
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        node->kind = TM_YAML_LIST;
        st = read_list(r, node, depth);
    } else {
        TM_ASSERT(event->type == YAML_MAPPING_START_EVENT);
        node->kind = TM_YAML_MAP;
        st = read_map(r, node, depth);
    }
    if (a) a->node = node;
    *out = node;
    return st;
}

static tm_status read_stream(reader *r, const tm_yaml **root)
{
    int documents = 0;
    for (;;) {
        yaml_event_t event;
        TM_TRY(next_event(r, &event));
        yaml_event_type_t type = event.type;
        tm_status         st = TM_OK;
        if (type == YAML_DOCUMENT_START_EVENT && documents++ > 0)
            st = tm_fail(r->err, TM_FORMAT, "%s:%d: a second document begins; keep one document per file", r->name,
                         line_of(&event));
        else if (type == YAML_SCALAR_EVENT || type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT ||
                 type == YAML_ALIAS_EVENT)
            st = read_node(r, &event, 1, root);
        yaml_event_delete(&event);
        if (st != TM_OK || type == YAML_STREAM_END_EVENT) return st;
    }
}

tm_status tm_yaml_parse(tm_arena *arena, const char *bytes, size_t length, const char *name, const tm_yaml **root,
                        tm_error *err)
{
    reader r = { .arena = arena, .name = name, .bytes = bytes, .length = length, .err = err };
    *root = NULL;
    if (length > TM_YAML_MAX_BYTES)
        return tm_fail(err, TM_FORMAT, "'%s' has %zu bytes, more than the %d of a configuration file", name, length,
                       TM_YAML_MAX_BYTES);
    if (!yaml_parser_initialize(&r.parser)) return tm_fail(err, TM_INTERNAL, "libyaml cannot allocate its parser");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)bytes, length);
    tm_status st = read_stream(&r, root);
    yaml_parser_delete(&r.parser);
    if (st == TM_OK && *root && tm_yaml_is_null(*root)) *root = NULL;
    return st;
}

const tm_yaml *tm_yaml_get(const tm_yaml *map, const char *key)
{
    if (!map || map->kind != TM_YAML_MAP) return NULL;
    for (const tm_yaml_item *i = map->first; i; i = i->next)
        if (strcmp(i->key, key) == 0) return i->value;
    return NULL;
}

bool tm_yaml_is_null(const tm_yaml *node)
{
    static const char *const nulls[] = { "", "~", "null", "Null", "NULL" };
    if (node->kind != TM_YAML_SCALAR || !node->plain) return false;
    for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++)
        if (strcmp(node->text, nulls[i]) == 0) return true;
    return false;
}
