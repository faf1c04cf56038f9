/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: the text that transformers renders for random conversations (tools/make_chat_fixtures.py), what is
 * refused, and templates that do not end. TM_CHAT_CASES names another file of that form. */
#include "token/template.h"
#include "support/refusal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static void check_case(const char *name, size_t number, const tm_template *t, const json_t *one)
{
    tm_text           out = { 0 };
    tm_template_spans spans = { 0 };
    tm_error          err = { 0 };
    const char       *wanted = json_string_value(json_object_get(one, "text"));
    tm_status         st = tm_template_render(t, json_object_get(one, "variables"), 0, &out, &spans, &err);
    if (!wanted && st == TM_OK) fail_msg("%s %zu: not refused", name, number);
    if (wanted && st != TM_OK) fail_msg("%s %zu: %s", name, number, err.text);
    if (wanted && strcmp(out.data, wanted) != 0) {
        size_t at = 0;
        while (out.data[at] == wanted[at]) at++;
        size_t from = at > 40 ? at - 40 : 0;
        fail_msg("%s %zu: differs at byte %zu:\n%.80s\n--- wanted\n%.80s", name, number, at, out.data + from,
                 wanted + from);
    }
    for (size_t i = 0; i < spans.count; i++) assert_true(spans.data[i].begin < spans.data[i].end);
    free(spans.data);
    tm_text_fini(&out);
}

TEST(what_transformers_renders)
{
    const char  *path = getenv("TM_CHAT_CASES");
    json_error_t problem;
    json_t      *root = json_load_file(path ? path : "tests/token/chat.json", 0, &problem), *one, *c;
    size_t       i, k, met = 0;
    if (!root) fail_msg("%s", problem.text);
    json_array_foreach(root, i, one)
    {
        const char  *name = json_string_value(json_object_get(one, "name"));
        const char  *text = json_string_value(json_object_get(one, "template"));
        tm_template *t;
        tm_error     err = { 0 };
        if (tm_template_parse(name, text, strlen(text), &t, &err) != TM_OK) fail_msg("%s", err.text);
        json_array_foreach(json_object_get(one, "cases"), k, c)
        {
            check_case(name, k, t, c);
            met++;
        }
        tm_template_free(t);
    }
    json_decref(root);
    assert_true(met >= 150);
}

static void refused(const char *text, tm_status status, const char *words)
{
    tm_template *t = NULL;
    tm_error     err = { 0 };
    tm_text      out = { 0 };
    tm_status    st = tm_template_parse("t", text, strlen(text), &t, &err);
    json_t      *variables = json_pack("{s:[i,i], s:{s:i}, s:s}", "list", 1, 2, "map", "a", 1, "text", "x");
    if (st == TM_OK) st = tm_template_render(t, variables, 0, &out, NULL, &err);
    refusal_is_sound(&err);
    if (st != status || !strstr(err.text, words)) fail_msg("'%s': status %d, %s", text, (int)st, err.text);
    tm_template_free(t);
    tm_text_fini(&out);
    json_decref(variables);
}

TEST(what_is_not_there_is_refused_by_name)
{
    refused("a\n{% include 'x' %}", TM_UNSUPPORTED, "t, line 2: the tag 'include' is not supported");
    refused("{{ x | wordwrap }}", TM_UNSUPPORTED, "the filter 'wordwrap'");
    refused("{{ x is prime }}", TM_UNSUPPORTED, "the test 'is prime'");
    refused("{{ lipsum() }}", TM_UNSUPPORTED, "'lipsum' is not supported");
    refused("{{ 'x'|tojson(cls=1) }}", TM_UNSUPPORTED, "'tojson' has no argument 'cls'");
    refused("{{ 'x'|sort(key=1) }}", TM_UNSUPPORTED, "'sort' has no argument 'key'");
    refused("{{ 'x'|upper(1) }}", TM_INVALID, "'upper' takes 0 arguments");
    refused("{{ 'x'|replace('a') }}", TM_INVALID, "'replace' takes at least 2 arguments");
    refused("{{ 'x'|int(1, default=2) }}", TM_INVALID, "'int' is given 'default' twice");
    refused("{{ 'x'.center(3) }}", TM_UNSUPPORTED, "'center' of this value is not supported");
    refused("{{ map.pop }}", TM_UNSUPPORTED, "'pop' of this value is not supported");
    refused("{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", TM_INVALID, "'m' has no argument 'b'");
    refused("{{ 1 is sameas 1 }}", TM_UNSUPPORTED, "'sameas' of two such values");
    refused("{{ 99999999999999999999 }}", TM_UNSUPPORTED, "an integer of more than 64 bits");
    refused("{% for x in list recursive %}{% endfor %}", TM_UNSUPPORTED, "recursive");
    refused("{{ '\\N{DASH}' }}", TM_UNSUPPORTED, "escape");
    refused("{{ x", TM_FORMAT, "a tag has no end");
    refused("{% if x %}a", TM_FORMAT, "'elif' is missing");
    refused("{% for x in list %}a", TM_FORMAT, "is missing");
    refused("{% endif %}", TM_FORMAT, "'endif' has no beginning");
    refused("{# x", TM_FORMAT, "a comment has no end");
    refused("{{ 'x }}", TM_FORMAT, "a string has no end");
    refused("{{ (1, 2 }}", TM_FORMAT, "expected");
    refused("{{ 1 + }}", TM_FORMAT, "a value is expected");
    refused("{{ a ! b }}", TM_FORMAT, "'!' is not part");
    refused("{{ list[] }}", TM_FORMAT, "an index is empty");
    refused("{% break %}", TM_FORMAT, "outside of a loop");
    refused("{% set x %}", TM_FORMAT, "'endset' is missing");
    refused("{{ raise_exception('so') }}", TM_INVALID, "refuses this conversation: so");
    refused("{{ nothing.more }}", TM_INVALID, "'nothing' is undefined");
    refused("{{ 'a' + 1 }}", TM_INVALID, "'+' takes");
    refused("{{ 1 // 0 }}", TM_INVALID, "division by zero");
    refused("{{ 'a' < 1 }}", TM_INVALID, "'<' takes");
    refused("{{ map.a.b() }}", TM_UNSUPPORTED, "not a function");
    refused("{% set map.a = 1 %}", TM_INVALID, "not a namespace");
    refused("{% for a, b in [[1]] %}{% endfor %}", TM_INVALID, "1 values for 2 names");
    refused("{% for a in 3 %}{% endfor %}", TM_INVALID, "gone through");
    refused("{{ range(10000000) }}", TM_INVALID, "range");
    refused("{{ 'x' * 100000000 }}", TM_INVALID, "too long");
    refused("{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
            TM_INVALID, "line 1: what the template makes becomes too large");
    refused("{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}", TM_INVALID,
            "what the template makes becomes too large");
    refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", TM_INVALID, "without end");
    refused("{{ ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1", TM_UNSUPPORTED, "nested");
    refused("{{ 'a b'.split ~ 1 }}", TM_INVALID, "a function has no text");
    refused("{{ [range] }}", TM_INVALID, "a function has no text");
    refused("{% set n = namespace(a=1) %}{{ n }}", TM_INVALID, "a namespace has no text");
}

TEST(generated_parts_are_marked)
{
    static const char text[] =
        "<u>{{ a }}</u>{% generation %}{{ b }}!{% endgeneration %} {% generation %}z{% endgeneration %}";
    tm_template      *t;
    tm_text           out = { 0 };
    tm_template_spans spans = { 0 };
    tm_error          err = { 0 };
    json_t           *variables = json_pack("{s:s, s:s}", "a", "one", "b", "two");
    assert_int_equal(tm_template_parse("t", text, sizeof text - 1, &t, &err), TM_OK);
    assert_true(tm_template_marks_generation(t));
    assert_int_equal(tm_template_render(t, variables, 0, &out, &spans, &err), TM_OK);
    assert_string_equal(out.data, "<u>one</u>two! z");
    assert_int_equal(spans.count, 2);
    assert_int_equal(spans.data[0].begin, 10);
    assert_int_equal(spans.data[0].end, 14);
    assert_int_equal(spans.data[1].begin, 15);
    free(spans.data);
    tm_template_free(t);
    tm_text_fini(&out);
    json_decref(variables);
}

TESTS_IN_ORDER
