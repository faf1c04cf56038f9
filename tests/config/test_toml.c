/* SPDX-License-Identifier: Apache-2.0 */
/* TOML: the tree of a document, written out, and each thing that is none, with its line. */
#include "base/text.h"
#include "config/toml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* {a@2: 'x', b@3: [1, 2]}: lines behind '@', texts in quotes unless plain. */
static void write_out(const tm_yaml *node, tm_text *out)
{
    if (node->kind == TM_YAML_SCALAR) {
        tm_text_printf(out, node->plain ? "%s" : "'%s'", node->text);
        return;
    }
    size_t n = 0;
    tm_text_add(out, node->kind == TM_YAML_MAP ? "{" : "[");
    for (const tm_yaml_item *i = node->first; i; i = i->next, n++) {
        if (i != node->first) tm_text_add(out, ", ");
        if (i->key) tm_text_printf(out, "%s@%d: ", i->key, i->line);
        write_out(i->value, out);
    }
    assert_int_equal(n, node->count);
    tm_text_add(out, node->kind == TM_YAML_MAP ? "}" : "]");
}

static void documents(void **state)
{
    static const char *const rows[][2] = {
        { "a = 1\nb = \"x y\"\n", "{a@1: 1, b@2: 'x y'}" },
        { "# note\n\na = true # more\n", "{a@3: true}" },
        { "a.b.c = 1\na.d = 2", "{a@1: {b@1: {c@1: 1}, d@2: 2}}" },
        { "[s]\na = 1\n[s.t]\nb = 2\n[u]\n", "{s@1: {a@2: 1, t@3: {b@4: 2}}, u@5: {}}" },
        { "a = [1, [2, 3], []]\n", "{a@1: [1, [2, 3], []]}" },
        { "a = [\n  1,\n  2, # two\n]\nb = 3", "{a@1: [1, 2], b@5: 3}" },
        { "a = {}\nb = { }\nc = {x = 1, y = {z = 'q'}}", "{a@1: {}, b@2: {}, c@3: {x@3: 1, y@3: {z@3: 'q'}}}" },
        { "a = { x = 1 , y . z\t= 'q'\t}\n[ s . t ]\nb=[ 1 , [ 2 ] , ]\nc  =  { }  # note\n",
          "{a@1: {x@1: 1, y@1: {z@1: 'q'}}, s@2: {t@2: {b@3: [1, [2]], c@4: {}}}}" },
        { "[[l]]\na = 1\n[[l]]\nb = 2\n", "{l@1: [{a@2: 1}, {b@4: 2}]}" },
        { "a = 'c:\\d'\nb = \"t\\tn\\u00e9\"\n", "{a@1: 'c:\\d', b@2: 't\tn\xc3\xa9'}" },
        { "\"quoted key\" = -1.5e-3\n", "{quoted key@1: -1.5e-3}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_arena      *arena = tm_arena_create();
        const tm_yaml *root = NULL;
        tm_error       err = { 0 };
        tm_text        out = { 0 };
        if (tm_toml_parse(arena, rows[i][0], strlen(rows[i][0]), "f", &root, &err) != TM_OK)
            fail_msg("row %zu: %s", i, err.text);
        write_out(root, &out);
        assert_string_equal(out.data, rows[i][1]);
        tm_text_fini(&out);
        tm_arena_destroy(arena);
    }
}

static void refused(const char *text, size_t n, const char *message)
{
    tm_arena      *arena = tm_arena_create();
    const tm_yaml *root = NULL;
    tm_error       err = { 0 };
    assert_int_equal(tm_toml_parse(arena, text, n, "f", &root, &err), TM_FORMAT);
    assert_string_equal(err.text, message);
    tm_arena_destroy(arena);
}

static void no_documents(void **state)
{
    static const char *const rows[][2] = {
        { "a = 1 2\n", "f:1: not valid TOML: there is more text after the value" },
        { "a = \"x\n", "f:1: not valid TOML: a text has no closing quote" },
        { "a = \"\\q\"\n", "f:1: not valid TOML: unknown escape sequence in a text" },
        { "\n= 1\n", "f:2: not valid TOML: a key is expected here: name = value, or [section]" },
        { "a\n", "f:1: not valid TOML: '=' is expected after a key" },
        { "a = {x = 1; y = 2}\n", "f:1: not valid TOML: ',' or '}' is expected" },
        { "a = {x = 1 y = 2}\n", "f:1: not valid TOML: ',' or '}' is expected" },
        { "a = {x = 1", "f:1: not valid TOML: ',' or '}' is expected" },
        { "a = {x = 1,}\n", "f:1: not valid TOML: a key is expected here: name = value, or [section]" },
        { "a = {x = 1,\n y = 2}\n", "f:1: not valid TOML: a key is expected here: name = value, or [section]" },
        { "a = {x = 1, x = 2}\n", "f:1: duplicate key \'x\', first given in line 1; remove one" },
        { "a = [1; 2]\n", "f:1: not valid TOML: ',' or ']' is expected" },
        { "a = abc\n", "f:1: not valid TOML: a value is expected; strings need quotes" },
        { "[a\n", "f:1: not valid TOML: ']' is expected" },
        { "[[a]\n", "f:1: not valid TOML: ']' is expected" },
        { "a = 1\n\na = 2\n", "f:3: duplicate key \'a\', first given in line 1; remove one" },
        { "[a]\n[a]\n", "f:2: duplicate key \'a\', first given in line 1; remove one" },
        { "a = {}\n[a]\n", "f:2: duplicate key \'a\', first given in line 1; remove one" },
        { "a = {}\na.b = 1\n", "f:2: duplicate key \'a\', first given in line 1; remove one" },
        { "a = [1]\n[[a]]\n", "f:2: duplicate key \'a\', first given in line 1; remove one" },
        { "[a]\n[[a]]\n", "f:2: duplicate key \'a\', first given in line 1; remove one" },
        { "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q = 1\n", "f:1: not valid TOML: a key has more than 16 parts" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) refused(rows[i][0], strlen(rows[i][0]), rows[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(documents), cmocka_unit_test(no_documents) };
    return cmocka_run_group_tests_name("config/toml", tests, NULL, NULL);
}
