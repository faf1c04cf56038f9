/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: the text that transformers renders for random conversations; every operator, filter, method, test and
 * statement, with the whole text that Jinja renders, and every refusal with its whole message
 * (tools/make_chat_fixtures.py writes both); limits. TM_CHAT_CASES names another file of conversations. */
#include "support/json.h"
#include "token/template.h"

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
    const char *path = getenv("TM_CHAT_CASES");
    json_t     *root = test_json(path ? path : "tests/token/chat.json"), *one, *c;
    size_t      i, k, met = 0;
    json_array_foreach(root, i, one)
    {
        const char  *name = json_string_value(json_object_get(one, "name"));
        const char  *text = json_string_value(json_object_get(one, "template"));
        tm_template *t;
        assert_ok(tm_template_parse(name, text, strlen(text), &t, err));
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

static tm_status render(const char *source, const json_t *variables, tm_text *out, tm_error *err)
{
    tm_template *t = NULL;
    tm_status    st = tm_template_parse("t", source, strlen(source), &t, err);
    if (st != TM_OK) assert_null(t);
    if (st == TM_OK) st = tm_template_render(t, variables, 1700000000, out, NULL, err);
    tm_template_free(t);
    return st;
}

enum { RENDERED, REFUSED, EITHER };

/* A list of [source, text], or [source, status, message]. Returns how many are refused here that Jinja renders. */
static size_t check_list(const char *path, const char *list, int kind, size_t least)
{
    json_t *root = test_json(path), *one;
    size_t  i, wrong = 0, here = 0;
    json_array_foreach(json_object_get(root, list), i, one)
    {
        const char *source = json_string_value(json_array_get(one, 0));
        const char *text = json_string_value(json_array_get(one, kind == REFUSED ? 2 : 1));
        tm_error    err = { 0 };
        tm_text     out = { 0 };
        tm_status   st = render(source, json_object_get(root, "variables"), &out, &err);
        const char *gives = st == TM_OK ? out.data : err.text;
        bool        good = text && strcmp(gives, text) == 0 && (st == TM_OK) == (kind != REFUSED);
        if (kind == REFUSED) good = good && (json_int_t)st == json_integer_value(json_array_get(one, 1));
        if (kind == EITHER) good = good || st != TM_OK;
        here += st != TM_OK && text;
        wrong += !good;
        if (!good) print_error("%s\n  gives  %s\n  not    %s\n", source, gives, text ? text : "an error");
        tm_text_fini(&out);
    }
    json_decref(root);
    assert_true(i >= least);
    assert_int_equal(wrong, 0);
    return here;
}

/* Every operator and its refusals; arguments of filters, methods and tests, and random templates: what is rendered is
 * what Jinja renders, what Jinja refuses is refused, the rest is refused by name. */
TEST(what_jinja_renders)
{
    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    check_list("tests/token/operations.json", "cases", RENDERED, 75);
    check_list("tests/token/operations.json", "refused", REFUSED, 170);
    assert_true(check_list("tests/token/arguments.json", "cases", EITHER, 530) <= 46);
}

/* `opens` n times, `middle`, `closes` n times. */
static void nested(const char *begin, const char *opens, const char *middle, const char *closes, const char *end, int n,
                   const char *wanted)
{
    tm_text  source = { 0 }, out = { 0 };
    tm_error err = { 0 };
    json_t  *none = json_object();
    tm_text_add(&source, begin);
    for (int i = 0; i < n; i++) tm_text_add(&source, opens);
    tm_text_add(&source, middle);
    for (int i = 0; i < n; i++) tm_text_add(&source, closes);
    tm_text_add(&source, end);
    tm_status st = render(source.data, none, &out, &err);
    if (strcmp(st == TM_OK ? out.data : err.text, wanted) != 0)
        fail_msg("%s %d times: %s, not %s", opens, n, st == TM_OK ? out.data : err.text, wanted);
    json_decref(none);
    tm_text_fini(&source);
    tm_text_fini(&out);
}

TEST(depth_has_a_limit)
{
    static const struct {
        const char *begin, *opens, *middle, *closes, *end;
        int         most;
        const char *text;
    } kinds[] = {
        { "", "{% if 1 %}", "x", "{% endif %}", "", 97, "x" },
        { "", "{% for i in [1] %}", "x", "{% endfor %}", "", 95, "x" },
        { "{{ ", "(", "1", ")", " }}", 32, "1" },
        { "{{ ", "[", "1", "]", "|length }}", 32, "1" },
        { "{{ ", "{1: ", "2", "}", "|length }}", 32, "1" },
        { "{{ ", "not ", "1", "", " }}", 97, "False" },
        { "{{ ", "- ", "1", "", " }}", 97, "-1" },
        { "{{ ", "1 if 0 else ", "2", "", " }}", 97, "2" },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int more = 0; more < 2; more++)
            nested(kinds[i].begin, kinds[i].opens, kinds[i].middle, kinds[i].closes, kinds[i].end, kinds[i].most + more,
                   more ? "t, line 1: expressions are nested more than 100 deep" : kinds[i].text);
    nested("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "", "", "", "", 0,
           "t, line 1: macros call each other without end");
    nested("", "{% generation %}", "x", "{% endgeneration %}", "", 100, "x");
    nested("", "{% generation %}", "x", "{% endgeneration %}", "", 101,
           "t, line 1: blocks are nested more than 100 deep");
}

/* What lies one behind the other is not nested, however much it is. */
TEST(breadth_has_none)
{
    static const struct {
        const char *one, *shows;
    } kinds[] = {
        { "{% if 1 %}a{% endif %}", "a" },
        { "{% if 0 %}{% elif 1 %}b{% else %}{% endif %}", "b" },
        { "{% for i in [1, 2] %}{{ i }}{% endfor %}", "12" },
        { "{% for i in [1, 2] %}{{ i }}{% break %}{% endfor %}", "1" },
        { "{% set x = 3 %}{{ x }}", "3" },
        { "{% set x %}4{% endset %}{{ x }}", "4" },
        { "{% macro m() %}5{% endmacro %}{{ m() }}", "5" },
        { "{% generation %}6{% endgeneration %}", "6" },
        { "{{ ([7])[0] }}{# none #}", "7" },
        { "{{ 8 if not 0 else 1 }}", "8" },
        { "{{ 9 if none == none and lost == gone and none != lost else 1 }}", "9" },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tm_text source = { 0 }, wanted = { 0 }, out = { 0 };
        json_t *none = json_object();
        for (int n = 0; n < 250; n++) tm_text_add(&source, kinds[i].one), tm_text_add(&wanted, kinds[i].shows);
        assert_ok_of(kinds[i].one, render(source.data, none, &out, err));
        assert_string_equal(out.data, wanted.data);
        json_decref(none);
        tm_text_fini(&source);
        tm_text_fini(&wanted);
        tm_text_fini(&out);
    }
}

/* 90,000 times 278 alternatives are too many; the same loop with few is none. */
TEST(work_has_a_limit)
{
    static const char begin[] = "{% set r = range(300) %}{% for a in r %}{% for b in r %}{% if 0";
    nested(begin, " or 0", "", "", " %}{% endif %}{% endfor %}{% endfor %}x", 4, "x");
    nested(begin, " or 0", "", "", " %}{% endif %}{% endfor %}{% endfor %}x", 277,
           "t, line 1: the template does not come to an end");
}

/* Few steps, each over much: texts of a megabyte; lists whose items are the same lists, 2^40 in all; a sort. The first
 * two take seconds. */
TEST(large_values_are_much_work)
{
    static const char *const templates[] = {
        "{% set s = 'ab' * 500000 %}{% set t = 'ba' * 400000 ~ 'x' %}{% for i in range(90000) %}"
        "{% for j in range(90000) %}{% if t in s %}{% endif %}{% endfor %}{% endfor %}",
        "{% set s = 'ab' * 500000 %}{% for i in range(90000) %}{% if s.count('ba') == i %}{% endif %}{% endfor %}",
        "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}"
        "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}",
        "{{ (range(99999)|list)|reverse|sort|length }}",
    };
    for (size_t i = test_is_full() ? 0 : 2; i < sizeof templates / sizeof templates[0]; i++)
        nested(templates[i], "", "", "", "", 0, "t, line 1: the template does not come to an end");
}
