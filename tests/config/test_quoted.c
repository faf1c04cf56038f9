/* SPDX-License-Identifier: Apache-2.0 */
/* A quoted text (base/json.h) is the same text to the reader of YAML: of every character. */
#include "config/yaml.h"
#include "base/json.h"
#include "base/text.h"

#include <string.h>

#include "support/test.h"

static void encode(uint32_t c, char out[8])
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    memset(out, 0, 8);
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : (0xf00U >> n & 0xf0) | c);
}

TEST(every_character_is_read_as_itself)
{
    enum { PART = 4096 };
    for (uint32_t first = 0; first < 0x110000; first += PART) {
        tm_arena      *arena = tm_arena_create();
        const tm_yaml *root = NULL;
        tm_text        list = { 0 };
        tm_error       err = { 0 };
        for (uint32_t c = first; c < first + PART; c++) {
            char text[16] = "a", one[8];
            encode(c == 0 || (c >= 0xd800 && c < 0xe000) ? 'x' : c, one);
            strcat(strcat(text, one), "b");
            tm_text_add(&list, "- ");
            tm_json_quote(&list, text);
            tm_text_add(&list, "\n");
        }
        if (tm_yaml_parse(arena, list.data, list.length, "list", &root, &err) != TM_OK) fail_msg("%s", err.text);
        uint32_t c = first;
        for (const tm_yaml_item *item = root->first; item; item = item->next, c++) {
            char one[8];
            encode(c == 0 || (c >= 0xd800 && c < 0xe000) ? 'x' : c, one);
            size_t n = strlen(one);
            if (strncmp(item->value->text + 1, one, n) != 0 || strcmp(item->value->text + 1 + n, "b") != 0)
                fail_msg("U+%04X is read as '%s'", c, item->value->text);
        }
        assert_int_equal(c, first + PART);
        tm_text_fini(&list);
        tm_arena_destroy(arena);
    }
}
