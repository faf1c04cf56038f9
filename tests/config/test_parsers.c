/* SPDX-License-Identifier: Apache-2.0 */
/* TOML and lines of a shell (parsers.txt): the tree that they become, and each thing that is none, with its line. A
 * quoted text (base/json.h) is the same text to the reader of YAML. */
#include "base/file.h"
#include "base/json.h"
#include "config/shell.h"
#include "config/toml.h"

#include "support/test.h"

static char *const environment[] = { (char *)"HOME=/root", (char *)"EMPTY=", NULL };

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

/* \n, \t, \r, \\ and \xHH, in place. Returns the length. */
static size_t unescape(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++) {
        unsigned byte = (unsigned char)*p;
        if (byte == '\\') {
            p++;
            byte = *p == 'n' ? '\n' : *p == 't' ? '\t' : *p == 'r' ? '\r' : '\\';
            if (*p == 'x') sscanf(p + 1, "%2x", &byte), p += 2;
        }
        *to++ = (char)byte;
    }
    *to = '\0';
    return (size_t)(to - text);
}

static tm_status parse(bool toml, tm_arena *arena, const char *text, size_t n, const tm_yaml **root, tm_error *err)
{
    *root = NULL;
    return toml ? tm_toml_parse(arena, text, n, "f", root, err)
                : tm_shell_parse(arena, text, n, "f.sh", environment, root, err);
}

/* `wanted`: the tree, or "NAME=VALUE" of a variable. */
static bool is_read(bool toml, const tm_yaml *root, char *wanted)
{
    tm_text out = { 0 };
    if (toml) {
        write_out(root, &out);
    } else {
        int name = (int)strcspn(wanted, "=");
        tm_text_printf(&out, "%.*s", name, wanted);
        const tm_yaml *value = tm_yaml_get(root, out.data);
        const char    *text = value ? value->text : "nothing";
        tm_text_printf(&out, "=%s", strcmp(text, TM_SHELL_COMPUTED) == 0 ? "COMPUTED" : text);
    }
    bool same = strcmp(out.data, wanted) == 0;
    if (!same) print_error("found %s\n", out.data);
    tm_text_fini(&out);
    return same;
}

/* A whole message of TOML; "PLACE: WORDS" of a shell's. */
static bool is_refused(bool toml, tm_status st, const char *said, char *wanted)
{
    if (st != TM_FORMAT) return false;
    if (toml) return strcmp(said, wanted) == 0;
    char *words = strchr(strchr(wanted, ':') + 1, ':') + 2;
    bool  placed = strncmp(said, wanted, (size_t)(words - wanted)) == 0;
    return placed && strstr(said, words) && strstr(said, "nothing is executed");
}

TEST(documents_and_what_is_none)
{
    tm_text  table = { 0 };
    tm_error err = { 0 };
    int      n = 0;
    if (tm_file_read("tests/config/parsers.txt", 1 << 20, &table, &err) != TM_OK) fail_msg("%s", err.text);
    for (char *rest = table.data, *line; (line = strsep(&rest, "\n"));) {
        bool toml = strncmp(line, "toml: ", 6) == 0;
        if (!toml && strncmp(line, "sh: ", 4) != 0) continue;
        char *read = strstr(line, " => "), *refused = strstr(line, " =! "), *wanted = read ? read : refused;
        char *text = line + (toml ? 6 : 4);
        assert_non_null(wanted);
        *wanted = '\0';
        wanted += 4;
        size_t length = unescape(text);
        (void)unescape(wanted);
        tm_arena      *arena = tm_arena_create();
        const tm_yaml *root;
        err = (tm_error){ 0 };
        tm_status st = parse(toml, arena, text, length, &root, &err);
        if (read ? st != TM_OK || !is_read(toml, root, wanted) : !is_refused(toml, st, err.text, wanted))
            fail_msg("%s: %s, wanted %s", text, err.text, wanted);
        tm_arena_destroy(arena);
        n++;
    }
    assert_true(n > 120);
    tm_text_fini(&table);
}

/* So many of a text, between two others: taken as it is, refused with these words with one more. */
TEST(limits_of_toml)
{
    static const struct {
        const char *before, *part, *behind;
        int         most;
        const char *says;
    } rows[] = {
        { "", "k", " = 1", 200, "a key is expected here" },
        { "a = [", "1,", "]", TM_YAML_MAX_NODES - 2, "holds more than 10000 values" },
        { "a = 1\n#", "x", "", TM_YAML_MAX_BYTES - 7, "has 1048577 bytes, more than the 1048576" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int more = 0; more < 2; more++) {
            tm_arena      *arena = tm_arena_create();
            const tm_yaml *root;
            tm_error       err = { 0 };
            tm_text        text = { 0 };
            tm_text_add(&text, rows[i].before);
            for (int k = 0; k < rows[i].most + more; k++) tm_text_add(&text, rows[i].part);
            tm_text_add(&text, rows[i].behind);
            assert_int_equal(parse(true, arena, text.data, text.length, &root, &err), more ? TM_FORMAT : TM_OK);
            if (more) assert_non_null(strstr(err.text, rows[i].says));
            tm_text_fini(&text);
            tm_arena_destroy(arena);
        }
    tm_arena      *arena = tm_arena_create();
    const tm_yaml *root;
    tm_error       err = { 0 };
    assert_int_equal(parse(true, arena, "a = '\xC3\xA9'\nb\0", 11, &root, &err), TM_FORMAT);
    assert_string_equal(err.text, "'f' is not a TOML text file: byte 10; wanted: UTF-8 text");
    assert_int_equal(parse(true, arena, "# nothing", 9, &root, &err), TM_OK);
    assert_null(root);
    tm_arena_destroy(arena);
}

/* Whatever bytes there are, it ends, with a map or a cause. Every prefix of a file with all forms, and each of its
 * bytes replaced. */
TEST(any_bytes_of_a_shell)
{
    static const char text[] = "export A=\"${B:-x y}\" && C='z';D=$(a (b) c)\n# r\nE=$HOME\n";
    static const char others[] = "\0$({'\"=\n;&x";
    for (size_t n = 0; n < sizeof text; n++)
        for (size_t k = 0; k < sizeof others; k++) {
            char           bytes[sizeof text];
            tm_arena      *arena = tm_arena_create();
            const tm_yaml *root;
            tm_error       err = { 0 };
            memcpy(bytes, text, sizeof text);
            if (k < sizeof others - 1) bytes[n < sizeof text - 1 ? n : 0] = others[k];
            size_t    length = k < sizeof others - 1 ? sizeof text - 1 : n;
            tm_status st = parse(false, arena, bytes, length, &root, &err);
            assert_true(st == TM_OK || st == TM_FORMAT);
            assert_int_equal(st == TM_FORMAT, err.text[0] != '\0');
            tm_arena_destroy(arena);
        }
}

static void encode(uint32_t c, char out[8])
{
    if (c == 0 || (c >= 0xd800 && c < 0xe000)) c = 'x';
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    memset(out, 0, 8);
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : (0xf00U >> n & 0xf0) | c);
}

TEST(every_quoted_character_is_read_as_itself)
{
    enum { PART = 4096 };
    for (uint32_t first = 0; first < 0x110000; first += PART) {
        tm_arena      *arena = tm_arena_create();
        const tm_yaml *root = NULL;
        tm_text        list = { 0 };
        tm_error       err = { 0 };
        char           text[16], one[8];
        for (uint32_t c = first; c < first + PART; c++) {
            encode(c, one);
            snprintf(text, sizeof text, "a%sb", one);
            tm_text_add(&list, "- ");
            tm_json_quote(&list, text);
            tm_text_add(&list, "\n");
        }
        if (tm_yaml_parse(arena, list.data, list.length, "list", &root, &err) != TM_OK) fail_msg("%s", err.text);
        uint32_t c = first;
        for (const tm_yaml_item *item = root->first; item; item = item->next, c++) {
            encode(c, one);
            snprintf(text, sizeof text, "a%sb", one);
            if (strcmp(item->value->text, text) != 0) fail_msg("U+%04X is read as '%s'", c, item->value->text);
        }
        assert_int_equal(c, first + PART);
        tm_text_fini(&list);
        tm_arena_destroy(arena);
    }
}
