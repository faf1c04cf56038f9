/* SPDX-License-Identifier: Apache-2.0 */
/* TOML: the tree of a document, written out, and each thing that is none, with its line. */
#include "base/text.h"
#include "config/toml.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

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

TEST(documents)
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
        { "\xEF\xBB\xBF"
          "a=1",
          "{a@1: 1}" },
        { "a = \"\\b\\t\\n\\f\\r\\\"\\\\\"\r\nb = 1\r\n", "{a@1: '\b\t\n\f\r\"\\', b@2: 1}" },
        { "a = \"\\u0001\\u007f\\u0080\\u07FF\\u0800\\uFFFF\"\n",
          "{a@1: '\1\x7f\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF'}" },
        { "a = \"\\U00010000\\U0010ffff\\uD7FF\\uE000\"",
          "{a@1: '\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\xED\x9F\xBF\xEE\x80\x80'}" },
        { "a = \"\"\"\nx\n y \"\"z\"\"\"\"\nb = '''q'r'''''\nc = ''\nd = \"\"\n",
          "{a@1: 'x\n y \"\"z\"', b@4: 'q'r''', c@5: '', d@6: ''}" },
        { "a = \"\"\"\r\nx\\\n\n \t\r\n y\\n\"\"\"\nb = '''\n\\\n'''\nc = 1", "{a@1: 'xy\n', b@6: '\\\n', c@9: 1}" },
        { "a = 1_000\nb = 0xFF\nc = 0o17\nd = 0b101\ne = 2026-01-02\nf = +3\ng = -0.5\nh = inf\ni = -nan\n",
          "{a@1: 1000, b@2: 255, c@3: 15, d@4: 5, e@5: 2026-01-02, f@6: +3, g@7: -0.5, h@8: inf, i@9: -nan}" },
        { "[[l]]\n[l.x]\na = 1\n[[l]]\n[[l.m]]\nb = 2\n[[l.m]]\n[k.j]\n[k]\n",
          "{l@1: [{x@2: {a@3: 1}}, {m@5: [{b@6: 2}, {}]}], k@8: {j@8: {}}}" },
        { "a . \"b.c\" . 'd' = 1 # n\n\"a\".e = [\n # one\n 'x' # two\n , 'y',\n ]\n#end",
          "{a@1: {b.c@1: {d@1: 1}, e@2: ['x', 'y']}}" },
        { "a = {x.y = 1, x.z = 2, w = [{v = 1}, {}]}", "{a@1: {x@1: {y@1: 1, z@1: 2}, w@1: [{v@1: 1}, {}]}}" },
        { "a = 123456789012345678901234567890123456789012345678901234567890123\n",
          "{a@1: 123456789012345678901234567890123456789012345678901234567890123}" },
        { "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p = 1",
          "{a@1: {b@1: {c@1: {d@1: {e@1: {f@1: {g@1: {h@1: {i@1: {j@1: {k@1: {l@1: {m@1: {n@1: {o@1: {p@1: "
          "1}}}}}}}}}}}}}}}}" },
    };
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

TEST(no_documents)
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
        { "a = 010\n", "f:1: not valid TOML: a number begins with 0, which TOML does not allow; leave it out" },
        { "a = -007.5\n", "f:1: not valid TOML: a number begins with 0, which TOML does not allow; leave it out" },
        { "a = [1, 02]\n", "f:1: not valid TOML: a number begins with 0, which TOML does not allow; leave it out" },
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
        { "a = \"\\u12G4\"", "f:1: not valid TOML: unknown character in an escape sequence" },
        { "a = \"\\u 123\"", "f:1: not valid TOML: unknown character in an escape sequence" },
        { "\na = \"\\u0000\"", "f:2: not valid TOML: unknown character in an escape sequence" },
        { "a = \"\\uD800\"", "f:1: not valid TOML: unknown character in an escape sequence" },
        { "a = \"\\uDFFF\"", "f:1: not valid TOML: unknown character in an escape sequence" },
        { "a = \"\\U00110000\"", "f:1: not valid TOML: unknown character in an escape sequence" },
        { "a = \"\\u123", "f:1: not valid TOML: unknown escape sequence in a text" },
        { "a = \"\\U0001234", "f:1: not valid TOML: unknown escape sequence in a text" },
        { "a = \"\\ x\"", "f:1: not valid TOML: unknown escape sequence in a text" },
        { "a = \"\\", "f:1: not valid TOML: unknown escape sequence in a text" },
        { "a = \"x\x7f\"", "f:1: not valid TOML: a text has no closing quote" },
        { "a = 'x\x1f'", "f:1: not valid TOML: a text has no closing quote" },
        { "a = \"\"\"\n\nx\"\"", "f:3: not valid TOML: a text has no closing quote" },
        { "a = 1234567890123456789012345678901234567890123456789012345678901234\n",
          "f:1: not valid TOML: a value is too long; strings need quotes" },
        { "a = 0xG", "f:1: not valid TOML: a number is expected" },
        { "a = 0b12", "f:1: not valid TOML: a number is expected" },
        { "a = 0o8", "f:1: not valid TOML: a number is expected" },
        { "a = 0x-1", "f:1: not valid TOML: a number is expected" },
        { "a = -x", "f:1: not valid TOML: a value is expected; strings need quotes" },
        { "a = truth", "f:1: not valid TOML: a value is expected; strings need quotes" },
        { "a = \n", "f:1: not valid TOML: a value is expected; strings need quotes" },
        { "a =", "f:1: not valid TOML: a value is missing" },
        { "a = [1,\n", "f:2: not valid TOML: a value is missing" },
        { "a.=1", "f:1: not valid TOML: a key is expected here: name = value, or [section]" },
        { "''=1", "f:1: not valid TOML: a key is expected here: name = value, or [section]" },
        { "[]\n", "f:1: not valid TOML: a key is expected here: name = value, or [section]" },
        { "[a.b]\n\n[a]\nb = 1\n", "f:4: duplicate key 'b', first given in line 1; remove one" },
        { "a = 1\n[a.b]\n", "f:2: duplicate key 'a', first given in line 1; remove one" },
        { "a = 1\n[a]\n", "f:2: duplicate key 'a', first given in line 1; remove one" },
        { "[[a]]\n[a]\n", "f:2: duplicate key 'a', first given in line 1; remove one" },
        { "a = 1\n[[a]]\n", "f:2: duplicate key 'a', first given in line 1; remove one" },
        { "a = [{b = 1}]\n[a.c]\n", "f:2: duplicate key 'a', first given in line 1; remove one" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) refused(rows[i][0], strlen(rows[i][0]), rows[i][1]);
}

/* As many as there may be, and one more; what is no text. */
TEST(limits)
{
    tm_arena      *arena = tm_arena_create();
    const tm_yaml *root = NULL;
    tm_error       err = { 0 };
    tm_text        text = { 0 };
    for (int more = 0; more < 2; more++) {
        text.length = 0;
        for (int i = 0; i < 200 + more; i++) tm_text_add(&text, "k");
        tm_text_add(&text, " = 1");
        if (more)
            refused(text.data, text.length, "f:1: not valid TOML: a key is expected here: name = value, or [section]");
        if (!more) assert_int_equal(tm_toml_parse(arena, text.data, text.length, "f", &root, &err), TM_OK);
        text.length = 0;
        tm_text_add(&text, "a = ");
        for (int i = 0; i < 31 + more; i++) tm_text_add(&text, "[");
        for (int i = 0; i < 31 + more; i++) tm_text_add(&text, "]");
        if (more) refused(text.data, text.length, "f:1: nested deeper than 32 levels; flatten it with dotted keys");
        if (!more) assert_int_equal(tm_toml_parse(arena, text.data, text.length, "f", &root, &err), TM_OK);
        text.length = 0;
        tm_text_add(&text, "a = [");
        for (int i = 0; i < TM_YAML_MAX_NODES - 2 + more; i++) tm_text_add(&text, "1,");
        tm_text_add(&text, "]");
        if (more) refused(text.data, text.length, "f:1: holds more than 10000 values; shorten the file");
        if (!more) assert_int_equal(tm_toml_parse(arena, text.data, text.length, "f", &root, &err), TM_OK);
        text.length = 0;
        tm_text_add(&text, "a = 1\n#");
        while (text.length < TM_YAML_MAX_BYTES + (size_t)more) tm_text_add_n(&text, "x", 1);
        if (more)
            refused(text.data, text.length, "'f' has 1048577 bytes, more than the 1048576 of a configuration file");
        if (!more) assert_int_equal(tm_toml_parse(arena, text.data, text.length, "f", &root, &err), TM_OK);
    }
    tm_text_fini(&text);
    refused("a = '\xC3\xA9'\nb\0", 11, "'f' is not a TOML text file: byte 10; wanted: UTF-8 text");
    refused("a = '\xFF'", 7, "'f' is not a TOML text file: byte 5; wanted: UTF-8 text");
    assert_int_equal(tm_toml_parse(arena, "# nothing", 9, "f", &root, &err), TM_OK);
    assert_null(root);
    tm_arena_destroy(arena);
}
