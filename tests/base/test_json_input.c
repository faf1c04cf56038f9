/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that Python writes and that the standard does not have: it is read, and what is whole stays what it is. */
#include "base/json_input.h"

#include "support/test.h"

static json_t *read_text(const char *text, size_t flags)
{
    json_error_t error;
    return tm_json_input(text, strlen(text), flags, &error);
}

/* In jansson's compact form, members in their order. */
TEST(pythons_json_is_read)
{
    static const char *const cases[][2] = {
        { "{\"a\": NaN, \"b\": -Infinity, \"c\": [Infinity, 1]}", "{\"a\":null,\"b\":null,\"c\":[null,1]}" },
        { "{\"a\": 1000000000000000019884624838656}", "{\"a\":1e30}" },
        { "{\"a\": 12345678901234567890, \"b\": -9223372036854775808}", "{\"a\":1.23e19,\"b\":-9.22e18}" },
        { "{\"a\": NaN, \"b\": 9007199254740993, \"c\": 123456789012345678}",
          "{\"a\":null,\"b\":9007199254740993,\"c\":123456789012345678}" },
        { "{\"a\": 1e999, \"b\": -1e999, \"c\": 1e300}", "{\"a\":null,\"b\":null,\"c\":1e300}" },
        { "{\"NaN\": \"NaN 12345678901234567890 \\\"Infinity\", \"x\": NaN}",
          "{\"NaN\":\"NaN 12345678901234567890 \\\"Infinity\",\"x\":null}" },
        { "{\"a\": \"\\ud83d\\ude00\", \"b\": NaN}", "{\"a\":\"\xF0\x9F\x98\x80\",\"b\":null}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = read_text(cases[i][0], 0);
        if (!root) fail_msg("refused: %s", cases[i][0]);
        char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(3));
        if (strcmp(text, cases[i][1]) != 0) fail_msg("%s is %s", cases[i][0], text);
        free(text);
        json_decref(root);
    }
}

TEST(what_is_no_json_is_refused)
{
    static const char texts[] =
        "|{|{\"a\": NaNs}|{\"a\": nan}|{\"a\" NaN}|{NaN}|{\"a\": 01}|{\"a\": \"\xFF\"}|[1, 2|{\"a\": "
        "\"\\uZZZZ\"}|{\"a\": +Infinity}|{\"a\": 1e}|{\"a\": 12345678901234567890x}"; /* "|" between them */
    for (const char *at = texts, *end; at; at = end ? end + 1 : NULL) {
        json_error_t error = { .line = 0 };
        size_t       n = strcspn(at, "|");
        end = strchr(at, '|');
        json_t *root = tm_json_input(at, n, 0, &error);
        if (root) fail_msg("taken: %s", at);
        if (error.line < 1 && n > 0) fail_msg("no place: %s", at);
    }
    json_error_t      error;
    static const char two[] = "{\"a\": NaN,\n \"b\": oops}"; /* what Python has is not what is wrong */
    assert_null(tm_json_input(two, strlen(two), 0, &error));
    assert_int_equal(error.line, 2);
    assert_non_null(strstr(error.text, "oops"));
    assert_null(tm_json_input_file("/nowhere/x.json", 0, &error));
    assert_int_equal(error.line, -1);
    assert_non_null(strstr(error.text, "/nowhere/x.json"));
}

/* Half a pair is read, told where the text is used, and mixed up with no other character. */
TEST(half_a_surrogate_pair)
{
    static const char *const halves[] = { "\"\\ud83d\"", "\"a\\ude00b\"", "\"\\ud83d\\u0041\"",
                                          "\"\\ud83d\\ud83d\\ude00\"", "\"\\ufdd0 \\uD83D \xEF\xB7\x91\"" };
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"used\": %s, \"other\": \"\xEF\xB7\x90\"}", halves[i]);
        json_t     *root = read_text(text, 0);
        const char *problem = tm_json_text_problem(json_object_get(root, "used"), false);
        if (!problem || !strstr(problem, "half a surrogate pair"))
            fail_msg("%s: %s", text, problem ? problem : "nothing");
        assert_null(tm_json_text_problem(json_object_get(root, "other"), false));
        assert_string_equal(json_string_value(json_object_get(root, "other")), "\xEF\xB7\x90");
        json_decref(root);
    }
    json_t *root = read_text("{\"a\": \"x\\u0000y\", \"n\": 1}", JSON_ALLOW_NUL);
    assert_non_null(strstr(tm_json_text_problem(json_object_get(root, "a"), false), "u0000"));
    assert_null(tm_json_text_problem(json_object_get(root, "a"), true));
    assert_null(tm_json_text_problem(json_object_get(root, "n"), false));
    json_decref(root);
}
