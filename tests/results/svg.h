/* SPDX-License-Identifier: Apache-2.0 */
/* tests/results/svg.h - a strict reader of the pages and charts that we write: tags are closed in their order,
 * attributes quoted, only five characters escaped. What is read is a flat list in the order of the page. */
#ifndef TM_TESTS_RESULTS_SVG_H
#define TM_TESTS_RESULTS_SVG_H

#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SVG_ATTRIBUTES = 12, SVG_DEPTH = 32 };

typedef struct {
    const char *tag; /* "" for text */
    const char *text;
    const char *names[SVG_ATTRIBUTES], *values[SVG_ATTRIBUTES];
    int         n, depth;
    size_t      end; /* the first node behind it and what is in it */
} svg_node;

typedef struct {
    tm_arena *arena;
    svg_node *nodes;
    size_t    n, room;
} svg_page;

/* `text` up to `end` without its escapes, which are the only "&" there are. */
static inline const char *svg_unescaped(svg_page *page, const char *text, const char *end)
{
    static const struct {
        const char *escape;
        char        is;
    } escapes[] = { { "&lt;", '<' }, { "&gt;", '>' }, { "&amp;", '&' }, { "&quot;", '"' }, { "&#39;", '\'' } };
    char *out = tm_arena_take(page->arena, (size_t)(end - text) + 1), *to = out;
    while (text < end) {
        size_t i = 0;
        if (*text == '<' || *text == '>') fail_msg("'%c' is not escaped", *text);
        if (*text != '&') {
            *to++ = *text++;
            continue;
        }
        while (i < 5 && strncmp(text, escapes[i].escape, strlen(escapes[i].escape)) != 0) i++;
        if (i == 5) fail_msg("an unknown escape: %.8s", text);
        *to++ = escapes[i].is;
        text += strlen(escapes[i].escape);
    }
    *to = 0;
    return out;
}

static inline svg_node *svg_add(svg_page *page, const char *tag, int depth)
{
    if (page->n == page->room) {
        page->room = page->room ? 2 * page->room : 256;
        page->nodes = realloc(page->nodes, page->room * sizeof *page->nodes);
        assert_non_null(page->nodes);
    }
    page->nodes[page->n] = (svg_node){ .tag = tag, .text = "", .depth = depth, .end = page->n + 1 };
    return &page->nodes[page->n++];
}

/* Attributes from `at` to the end of the tag. *alone: nothing is in it. */
static inline const char *svg_attributes(svg_page *page, svg_node *node, const char *at, bool *alone)
{
    for (;;) {
        at += strspn(at, " ");
        *alone = strncmp(at, "/>", 2) == 0;
        if (*alone) return at + 2;
        if (*at == '>') return at + 1;
        size_t name = strcspn(at, "=<> ");
        if (strncmp(at + name, "=\"", 2) != 0) fail_msg("<%s>: no quoted value: %.30s", node->tag, at);
        const char *value = at + name + 2, *end = strchr(value, '"');
        assert_true(end != NULL && node->n < SVG_ATTRIBUTES);
        for (int i = 0; i < node->n; i++) assert_false(strncmp(node->names[i], at, name) == 0 && !node->names[i][name]);
        node->names[node->n] = svg_unescaped(page, at, at + name);
        node->values[node->n++] = svg_unescaped(page, value, end);
        at = end + 1;
        if (*at != ' ' && *at != '/' && *at != '>') fail_msg("<%s>: behind a value: %.10s", node->tag, at);
    }
}

static inline svg_page svg_read(const char *at)
{
    svg_page page = { .arena = tm_arena_create() };
    size_t   open[SVG_DEPTH];
    int      depth = 0;
    if (strncmp(at, "<!DOCTYPE html>\n", 16) == 0) at += 16;
    while (*at) {
        if (*at != '<') {
            const char *end = at + strcspn(at, "<");
            svg_node   *node = svg_add(&page, "", depth);
            node->text = svg_unescaped(&page, at, end);
            at = end;
            continue;
        }
        bool        closes = at[1] == '/', alone;
        const char *name = at + 1 + closes, *end = name + strcspn(name, " />");
        const char *tag = svg_unescaped(&page, name, end);
        if (closes) {
            if (depth == 0 || strcmp(page.nodes[open[depth - 1]].tag, tag) != 0) fail_msg("</%s> closes nothing", tag);
            assert_int_equal(*end, '>');
            page.nodes[open[--depth]].end = page.n;
            at = end + 1;
            continue;
        }
        svg_node *node = svg_add(&page, tag, depth);
        at = svg_attributes(&page, node, end, &alone);
        if (alone || strcmp(tag, "meta") == 0) continue;
        assert_true(depth < SVG_DEPTH);
        open[depth++] = page.n - 1;
    }
    assert_int_equal(depth, 0);
    return page;
}

static inline void svg_close(svg_page *page)
{
    tm_arena_destroy(page->arena);
    free(page->nodes);
}

/* NULL: it has none of this name. */
static inline const char *svg_attribute(const svg_node *node, const char *name)
{
    for (int i = 0; i < node->n; i++)
        if (strcmp(node->names[i], name) == 0) return node->values[i];
    return NULL;
}

static inline bool svg_is(const svg_node *node, const char *tag, const char *class_name)
{
    const char *has = svg_attribute(node, "class");
    return strcmp(node->tag, tag) == 0 && (class_name ? has && strcmp(has, class_name) == 0 : !has);
}

static inline double svg_number(const svg_node *node, const char *name)
{
    const char *value = svg_attribute(node, name);
    char       *end;
    if (!value) fail_msg("<%s> has no %s", node->tag, name);
    double number = strtod(value, &end);
    if (*end || end == value) fail_msg("<%s %s=\"%s\"> is no number", node->tag, name, value);
    return number;
}

/* All text in node i, together. */
static inline const char *svg_text(const svg_page *page, size_t i)
{
    size_t length = 0;
    for (size_t k = i; k < page->nodes[i].end; k++) length += strlen(page->nodes[k].text);
    char *out = tm_arena_take(page->arena, length + 1);
    *out = 0;
    for (size_t k = i; k < page->nodes[i].end; k++) strcat(out, page->nodes[k].text); // NOLINT: it has room
    return out;
}

/* The first node from `from` on, before `end`, with this tag and class (NULL: without one); `end`: there is none. */
static inline size_t svg_find(const svg_page *page, size_t from, size_t end, const char *tag, const char *class_name)
{
    while (from < end && !svg_is(&page->nodes[from], tag, class_name)) from++;
    return from;
}

#endif
