/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: the text that transformers renders for random conversations (tools/make_chat_fixtures.py), what is
 * refused, and templates that do not end. TM_CHAT_CASES names another file of that form. */
#include "support/json.h"
#include "token/template.h"

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
    const char *path = getenv("TM_CHAT_CASES");
    json_t     *root = test_json(path ? path : "tests/token/chat.json"), *one, *c;
    size_t      i, k, met = 0;
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

TESTS_IN_ORDER
