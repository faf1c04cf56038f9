/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of texts, and how it is said again, to the letter: values of JSON as Python has them, lines of logs,
 * descriptions of systems, and every rule there is. tests/mlperf/whole-values.txt, whole-rules.txt. */
#include "support/whole.h"

#include "base/arena.h"
#include "mlperf/log.h"
#include "mlperf/python.h"
#include "mlperf/rules.h"
#include "mlperf/system_desc.h"
#include "mlperf/value.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* Printable, however long: what is not ASCII as \xNN, what is long by its ends. */
static void add_bytes(tm_text *out, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (n > 300 && i == 60) {
            tm_text_printf(out, " [%zu] ", n - 120);
            i = n - 60;
        }
        if (c >= 0x20 && c < 0x7f)
            tm_text_add_n(out, &bytes[i], 1);
        else
            tm_text_printf(out, "\\x%02x", c);
    }
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static void add_parsed(tm_text *out, const char *bytes, size_t n)
{
    static const char *const kinds[] = { "null", "bool", "number", "text", "list", "object" };
    tm_arena                *arena = tm_arena_create();
    const char              *problem = "no problem";
    size_t                   where = 0;
    const tm_json_value     *v = tm_json_parse(arena, bytes, n, &problem, &where);
    tm_text                  said = { 0 }, python = { 0 };
    add_bytes(out, bytes, n);
    if (v) {
        tm_json_print(v, &said);
        tm_python_print(v, &python);
        const char *whole = tm_python_int(v, arena);
        tm_text_printf(out, "\n    %s%s%s ", kinds[v->kind], v->integer ? " integer" : "", v->boolean ? " true" : "");
        if (tm_json_is_number(v)) tm_text_printf(out, "%.17g ", v->number);
        add_bytes(out, said.data, said.length);
        tm_text_add(out, "  ");
        add_bytes(out, python.data, python.length);
        tm_text_add(out, "  int ");
        add_bytes(out, whole ? whole : "none", strlen(whole ? whole : "none"));
        tm_text_add(out, "\n");
    } else {
        tm_text_printf(out, "\n    byte %zu: %s\n", where, problem);
    }
    tm_text_fini(&said);
    tm_text_fini(&python);
    tm_arena_destroy(arena);
}

static const char *const texts[] = {
    "",
    " ",
    "null",
    "nul",
    "nulls",
    "true",
    "false",
    "NaN",
    "Infinity",
    "-Infinity",
    "-Inf",
    "0",
    "-0",
    "00",
    "-",
    "1",
    "12",
    "-12.5",
    "1.",
    "1.e5",
    "1e5",
    "1E+5",
    "1e-5",
    "1e",
    "1e+",
    "1.5e",
    "1.5e-",
    "0.5",
    "-0.0",
    "0e1",
    "1e16",
    "1e15",
    "123456789012345678",
    "9007199254740993",
    "1e400",
    "4.9e-324",
    "0.1",
    "0.30000000000000004",
    "0.0001",
    "0.00001",
    "1234567.125",
    "5.7",
    "-5.7",
    "-0.7",
    "1:",
    "/",
    ":",
    "1/",
    "[]",
    "[ ]",
    "[1]",
    "[1 , 2,\t3\n,4\r]",
    "[1,]",
    "[,1]",
    "[1",
    "[1 2]",
    "]",
    "{}",
    "{ }",
    "{\"a\":1}",
    "{ \"a\" : 1 , \"b\" : [ { } ] }",
    "{\"a\":1,\"a\":2}",
    "{\"a\":1,}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1",
    "{\"a\":1]",
    "{a:1}",
    "{\"a",
    "{\"a\" 1}",
    "[1}",
    "\"",
    "\"a",
    "\"a\\",
    "\"a\\\"",
    "\"a\\\"b\"",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    "\"\\a\"",
    "\"\\u\"",
    "\"\\u12\"",
    "\"\\u12G4\"",
    "\"\\u12g4\"",
    "\"\\u12`4\"",
    "\"\\u12@4\"",
    "\"\\u12/4\"",
    "\"\\u12:4\"",
    "\"\\u0041\\u00aF\\u07ff\\u0800\\uFFFF\"",
    "\"\\u0000\"",
    "\"\\u007f\\u0080\"",
    "\"\\ud7ff\\ud800\"",
    "\"\\ud800\\udbff\"",
    "\"\\ud800\\udc00\"",
    "\"\\udbff\\udfff\"",
    "\"\\udbff\\ue000\"",
    "\"\\udc00\\ud800\"",
    "\"\\udfff\"",
    "\"\\ud83d\\u00\"",
    "\"\\ud83dxude00\"",
    "\"\x1f\"",
    "\"\x20\x7e\x7f\x80\xff\"",
    "\"it's\"",
    "\"\\\"it's\\\"\"",
    "\"say \\\"so\\\"\"",
    "\"\\u0085\\u009f\\u00a0\"",
    "\" 5 \"",
    "\"+5\"",
    "\"-05\"",
    "\"-0\"",
    "\"1_000\"",
    "\"1__0\"",
    "\"_1\"",
    "\"1_\"",
    "\"+\"",
    "\"5.0\"",
    "\"\"",
    "\"0012\"",
    "  1  ",
    "1 2",
    "1x",
    "nullx",
};

static void add_long(tm_text *out)
{
    static const int lengths[][2] = { { 200, '[' }, { 201, '[' }, { 4300, '7' }, { 4301, '7' } };
    for (size_t i = 0; i < COUNT(lengths); i++) {
        tm_text text = { 0 };
        for (int k = 0; k < lengths[i][0]; k++) tm_text_add_n(&text, &(char){ (char)lengths[i][1] }, 1);
        for (int k = 0; lengths[i][1] == '[' && k < lengths[i][0]; k++) tm_text_add(&text, "]");
        add_parsed(out, text.data, text.length);
        if (lengths[i][1] == '7') {
            tm_text_add(&text, ".5"); /* no integer: as long as it likes */
            add_parsed(out, text.data, text.length);
        }
        tm_text_fini(&text);
    }
    for (int members = 4096; members <= 4097; members++) {
        tm_text text = { 0 };
        for (int k = 0; k < members; k++) tm_text_printf(&text, "%s\"%d\":0", k ? "," : "{", k);
        tm_text_add(&text, "}");
        add_parsed(out, text.data, text.length);
        tm_text_fini(&text);
    }
    tm_text text = { 0 };
    for (int k = 0; k < 150; k++)
        tm_text_add(&text, "{\"\":"); /* lists and objects count alike, and what is closed no more */
    for (int k = 0; k < 50; k++) tm_text_add(&text, "[");
    tm_text_add(&text, "[]");
    add_parsed(out, text.data, text.length);
    tm_text_fini(&text);
    for (int k = 0; k < 300; k++) tm_text_add(&text, k ? ",[{}]" : "[[]");
    tm_text_add(&text, "]");
    add_parsed(out, text.data, text.length);
    tm_text_fini(&text);
}

static const char *const compared[] = {
    "0",
    "-0.0",
    "false",
    "true",
    "1",
    "1.0",
    "null",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "9007199254740992.0",
    "-9007199254740993",
    "-9007199254740992.0",
    "1e23",
    "99999999999999991611392",
    "100000000000000000000000",
    "\"\"",
    "\"1\"",
    "[]",
    "[1]",
    "[true]",
    "[1,2]",
    "[2,1]",
    "[[1,2]]",
    "{}",
    "{\"a\":1}",
    "{\"b\":1}",
    "{\"a\":1.0,\"b\":2}",
    "{\"b\":2,\"a\":1}",
    "{\"a\":7,\"b\":2,\"a\":1}",
    "{\"a\":{\"a\":[1]}}",
    "{\"a\":{\"a\":[2]}}",
};

static void add_equal(tm_text *out)
{
    tm_arena            *arena = tm_arena_create();
    const tm_json_value *v[COUNT(compared) + 2];
    const char          *problem;
    size_t               where, n = COUNT(compared);
    tm_text              large[2] = { { 0 }, { 0 } }; /* beyond all doubles: every digit counts */
    for (size_t i = 0; i < n; i++) v[i] = tm_json_parse(arena, compared[i], strlen(compared[i]), &problem, &where);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 400; k++) tm_text_add(&large[i], k == 399 && i ? "8" : "7");
        v[n++] = tm_json_parse(arena, large[i].data, large[i].length, &problem, &where);
    }
    for (size_t i = 0; i < n; i++) {
        tm_text_printf(out, "%-28s ", i < COUNT(compared) ? compared[i] : "7777...");
        for (size_t k = 0; k < n; k++) tm_text_add(out, tm_json_equal(v[i], v[k]) ? "=" : ".");
        tm_text_add(out, "\n");
    }
    for (int i = 0; i < 2; i++) tm_text_fini(&large[i]);
    tm_arena_destroy(arena);
}

/* As texts that other programs wrote may be: not UTF-8. */
static const char *const odd_bytes[] = {
    "\x80",
    "\xbf",
    "\xc0",
    "\xc0\x80",
    "\xc1\xbf",
    "\xc2",
    "\xc2(",
    "\xc3\xa9",
    "\xdf\xbf",
    "\xe0\xa0\x80",
    "\xe2\x82",
    "\xe2\x82(",
    "\xe2(\xac",
    "\xef\xbf\xbf",
    "\xed\xa0\x80",
    "\xf0\x90\x80\x80",
    "\xf0\x9f\x98",
    "\xf0\x9f\x98(",
    "\xf4\x8f\xbf\xbf",
    "\xf4\x90\x80\x80",
    "\xf5\x80\x80\x80",
    "\xff",
    "a\x08\x0c\x0b\x7f",
    "'\"\\'",
};

static const double doubles[] = { 0,
                                  -0.0,
                                  1,
                                  -1,
                                  10,
                                  0.1,
                                  1e15,
                                  1e16,
                                  1e17,
                                  123456789012345680.0,
                                  9999999999999998.0,
                                  1e-4,
                                  1.5e-4,
                                  9.9e-5,
                                  1e-5,
                                  -1e-5,
                                  1.25e-7,
                                  5e-324,
                                  2.2250738585072014e-308,
                                  1.7976931348623157e308,
                                  0.3,
                                  0.1 + 0.2,
                                  1.0 / 3,
                                  2.0 / 3,
                                  100,
                                  1234.5,
                                  9007199254740992.0,
                                  9007199254740994.0,
                                  5e22,
                                  1e22,
                                  1e23,
                                  4.35,
                                  0.009,
                                  0.001,
                                  0.01,
                                  99.99,
                                  0x1p-44,
                                  0x1p-1022,
                                  0x1p100,
                                  9.5367431640625e-07 };

static void values_to_the_letter(void **state)
{
    tm_text out = { 0 };
    char    text[32];
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) add_parsed(&out, texts[i], strlen(texts[i]));
    add_parsed(&out, "\"a\0b\"", 5);
    add_parsed(&out, "1\0", 2);
    add_parsed(&out, "{\"a\0\":1}", 8);
    add_long(&out);
    tm_text_add(&out, "== equal\n");
    add_equal(&out);
    tm_text_add(&out, "== bytes\n");
    for (size_t i = 0; i < COUNT(odd_bytes); i++) {
        tm_json_value v = { .kind = TM_JSON_TEXT, .text = odd_bytes[i] };
        tm_text       said = { 0 };
        add_bytes(&out, odd_bytes[i], strlen(odd_bytes[i]));
        tm_json_print_text(odd_bytes[i], &said);
        tm_text_add(&said, "  ");
        tm_python_print(&v, &said);
        tm_text_add(&out, "  ");
        add_bytes(&out, said.data, said.length);
        tm_text_add(&out, "\n");
        tm_text_fini(&said);
    }
    tm_text_add(&out, "== floats\n");
    for (size_t i = 0; i < COUNT(doubles); i++) tm_text_printf(&out, "%s\n", tm_python_float(text, doubles[i]));
    tm_text_printf(&out, "%s\n", tm_python_float(text, (double)INFINITY));
    tm_text_printf(&out, "%s\n", tm_python_float(text, -(double)INFINITY));
    tm_text_printf(&out, "%s\n", tm_python_float(text, (double)NAN));
    whole_is("tests/mlperf/whole-values.txt", &out);
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

#define REST ", \"key\": \"k\", \"value\": 1, \"metadata\": {}}"

static void add_lines(tm_text *out, const char *bytes, size_t n)
{
    tm_mllog *log;
    tm_error  err = { 0 };
    size_t    lines;
    assert_int_equal(tm_mllog_parse("x", bytes, n, &log, &err), TM_OK);
    const tm_mllog_record *r = tm_mllog_records(log, &lines);
    tm_text_printf(out, "== %zu records of ", lines);
    add_bytes(out, bytes, n);
    tm_text_add(out, "\n");
    for (size_t i = 0; i < lines; i++) {
        tm_text_printf(out, "  %lld %lld state %d at %.17g '%s' %s: ", (long long)r[i].line, (long long)r[i].index,
                       (int)r[i].state, r[i].time_ms, r[i].key, r[i].problem ? r[i].problem : "fine");
        add_bytes(out, r[i].text, r[i].text_bytes);
        if (r[i].value) tm_json_print(r[i].value, out);
        if (r[i].metadata) tm_json_print(r[i].metadata, out);
        tm_text_add(out, "\n");
    }
    tm_mllog_free(log);
}

static const char *const times[] = {
    "1",
    "1.5",
    "true",
    "null",
    "[]",
    "\"1\"",
    "\" 1.5 \"",
    "\"\\u0085\\u00a01\\u001c\"",
    "\"1_0\"",
    "\"1__0\"",
    "\"_1\"",
    "\"1_\"",
    "\"1_x\"",
    "\"a_1\"",
    "\"1e3\"",
    "\"inf\"",
    "\"-nan\"",
    "\"nan(1)\"",
    "\"0x1\"",
    "\"0X1\"",
    "\"\"",
    "\"  \"",
    "\"1 2\"",
    "\"\\u00091\\r\"",
    "\"\\u00081\"",
    "\"\\u000e1\"",
    "\"\\u001b1\"",
    "\"!1\"",
    "\"1-\"",
    "\"1234567890123456789012345678901234567890123456789012345678901\"",
    "\"12345678901234567890123456789012345678901234567890123456789012\"",
    "\"123456789012345678901234567890123456789012345678901234567890123\"",
};

static void lines_to_the_letter(void **state)
{
    tm_text out = { 0 };
    (void)state;
    for (size_t i = 0; i < COUNT(times); i++) {
        tm_text line = { 0 };
        tm_text_printf(&line, ":::MLLOG {\"time_ms\": %s" REST "\n", times[i]);
        add_lines(&out, line.data, line.length);
        tm_text_fini(&line);
    }
    static const char *const lines[] = {
        "",
        "\n",
        ":::MLLOG",
        ":::MLLOG\r",
        ":::MLLO {}\n::::MLLOG 1\n",
        "a\r\rb :::MLLOG []\r\n\r\n:::MLLOG 2\n\n\r:::MLLOG x",
        ":::MLLOG {\"time_ms\": 1" REST ":::MLLOG {\"time_ms\": 2" REST " \t\x0b\x0c\x1c\x1f\xa0\x85\r\n",
        ":::MLLOG\x09\x0d\x1b{\"time_ms\": 2" REST "\n",
        ":::MLLOG \x1c{\"time_ms\": 2, \"key\": 5, \"value\": 1, \"metadata\": {}}\x84\n",
        ":::MLLOG {\"time_ms\": null, \"key\": 5, \"value\": 1, \"metadata\": {}}\n",
        ":::MLLOG {\"value\": 1}\n:::MLLOG {\"time_ms\": 1}\n:::MLLOG {\"time_ms\": 1, \"key\": \"k\"}\n"
        ":::MLLOG {\"time_ms\": 1, \"key\": \"k\", \"value\": null}\n",
    };
    for (size_t i = 0; i < COUNT(lines); i++) add_lines(&out, lines[i], strlen(lines[i]));
    whole_is("tests/mlperf/whole-lines.txt", &out);
}

/* --- systems ------------------------------------------------------------------------------------------------------ */

static void add_notes(tm_text *out, const char *what, const tm_notes *notes)
{
    for (size_t i = 0; i < notes->n; i++) tm_text_printf(out, "  %s: %s\n", what, notes->items[i]);
}

static void systems_to_the_letter(void **state)
{
    static const char *const files[] = {
        "",
        "{",
        "[1]",
        "{}",
        "{\"division\": \"closed\", \"status\": \"Available cloud\", \"number_of_nodes\": \" 1_0 \", "
        "\"accelerators_per_node\": 8, \"host_processors_per_node\": null, \"submitter\": [], \"other\": true}",
        "{\"division\": \"Closed\", \"status\": \"available cloud\", \"number_of_nodes\": \"-3\", "
        "\"accelerators_per_node\": \"1.0\", \"host_processors_per_node\": 2.9}",
        "{\"status\": \"Available on-premise\", \"number_of_nodes\": \"999999999\", \"accelerators_per_node\": 1, "
        "\"host_processors_per_node\": 2}",
        "{\"status\": \"Research, Development, or Internal (RDI)\", \"number_of_nodes\": \"1000000000\", "
        "\"accelerators_per_node\": 1, \"host_processors_per_node\": 0}",
        "{\"status\": 3, \"number_of_nodes\": 31250000, \"accelerators_per_node\": 32, \"host_processors_per_node\": "
        "33}",
        "{\"status\": \"Preview\"}",
    };
    tm_text   out = { 0 };
    tm_arena *arena = tm_arena_create();
    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) {
        tm_system_desc d = tm_system_desc_check("BOX", files[i], strlen(files[i]), arena);
        tm_text_printf(&out, "== %s\n  %s, %s, submitter '%s', division '%s'\n", files[i], d.name,
                       d.closed ? "closed" : "open", tm_system_desc_text(&d, "submitter"),
                       tm_system_desc_text(&d, "division"));
        tm_text_printf(&out, "  %lld %lld\n",
                       tm_system_desc_product(&d, "number_of_nodes", "accelerators_per_node", arena),
                       tm_system_desc_product(&d, "host_processors_per_node", "number_of_nodes", arena));
        add_notes(&out, "error", &d.errors);
        add_notes(&out, "warning", &d.warnings);
    }
    tm_arena_destroy(arena);
    whole_is("tests/mlperf/whole-systems.txt", &out);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static void add_rule(tm_text *out, const rule_set *set, const rule *r)
{
    static const char *const required[] = { "may be", "once", "at least once", "or" };
    static const char *const then[] = {
        "",           ", division", ", benchmark", ", init_start", ", init_stop", ", run_start",
        ", run_stop", ", warm-up",  ", batch"
    };
    const rule_memory memory = { .limit_minutes = 30 };
    tm_text_add(out, "  ");
    for (int i = 0; i < TM_RULESET_COUNT; i++)
        tm_text_printf(out, "%s", rule_set_row(set, (tm_ruleset)i, r->key) == r ? tm_ruleset_name((tm_ruleset)i) : "-");
    tm_text_printf(out, " %s: %s%s%s%s", r->key, required[r->required], r->other ? " " : "", r->other ? r->other : "",
                   then[r->then]);
    for (const rule_test *t = r->checks; t->kind != TEST_NONE; t++) {
        tm_text_add(out, "; ");
        rule_test_describe(t, &memory, out);
    }
    if (r->once.kind != TEST_NONE) {
        tm_text_add(out, "; one line: ");
        rule_test_describe(&r->once, &memory, out);
    }
    tm_text_add(out, "\n");
}

static void rules_to_the_letter(void **state)
{
    static const char *const names[] = {
        "common",
        "closed_common",
        "open_common",
        "closed_llama31_8b",
        "closed_llama2_70b_lora",
        "closed_flux1",
        "closed_gpt_oss_20b",
        "closed_trainmark_tiny",
        "closed_trainmark_tiny_lora",
        "closed_trainmark_tiny_flux",
        "open_llama31_8b",
        "open_llama2_70b_lora",
        "open_flux1",
        "open_gpt_oss_20b",
    };
    tm_text out = { 0 };
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        const rule_set *set = rule_set_find(names[i]);
        assert_non_null(set);
        tm_text_printf(&out, "== %s %s\n", set->name, set->division ? set->division : "-");
        for (size_t k = 0; k < set->n; k++) add_rule(&out, set, &set->rules[k]);
        assert_null(rule_set_row(set, TM_RULESET_6_1_0, "no such key"));
    }
    assert_null(rule_set_find("closed"));
    whole_is("tests/mlperf/whole-rules.txt", &out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_to_the_letter),
    cmocka_unit_test(lines_to_the_letter),
    cmocka_unit_test(systems_to_the_letter),
    cmocka_unit_test(rules_to_the_letter),
};

TM_TESTS(tests, NULL, NULL)
