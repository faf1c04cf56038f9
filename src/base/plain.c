/* SPDX-License-Identifier: Apache-2.0 */
#include "base/plain.h"

#include <stdint.h>
#include <string.h>

static uint32_t code_point(const unsigned char *s, size_t n)
{
    uint32_t c = n == 1 ? s[0] : s[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3Fu);
    return c;
}

/* Does a terminal obey it, or turn the text around? */
static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || (c >= 0x200E && c <= 0x200F) ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

/* Length of one of the sequences by which the report changes colour, or 0. */
static size_t colour_length(const char *s)
{
    static const char *const own[] = {
        "0", "1", "2", "1;31", "1;32", "1;33", "31", "32", "33", "34", "35", "36", "39"
    };
    if (strncmp(s, "\033[", 2) != 0) return 0;
    size_t n = strspn(s + 2, "0123456789;");
    if (s[2 + n] != 'm') return 0;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strlen(own[i]) == n && memcmp(s + 2, own[i], n) == 0) return n + 3;
    return 0;
}

static void show(tm_text *out, uint32_t c, unsigned keep)
{
    if (c == '\n' && keep & TM_PLAIN_MESSAGE)
        tm_text_add(out, "\n  ");
    else if ((c == '\n' || c == '\t') && keep & (TM_PLAIN_LINES | TM_PLAIN_MESSAGE))
        tm_text_add_n(out, &(char){ (char)c }, 1);
    else if (c == '\n')
        tm_text_add(out, "\\n");
    else
        tm_text_printf(out, c < 0x80 ? "\\x%02x" : "\\u%04x", (unsigned)c);
}

void tm_plain_add(tm_text *out, const char *string, unsigned keep)
{
    tm_text_add(out, "");
    for (const char *s = string; *s;) {
        size_t   n = tm_utf8_length((const unsigned char *)s), colour = keep & TM_PLAIN_COLOURS ? colour_length(s) : 0;
        uint32_t c = n > 0 ? code_point((const unsigned char *)s, n) : 0;
        if (n == 0)
            tm_text_printf(out, "\\x%02x", (unsigned)(unsigned char)*s);
        else if (colour > 0 || !is_control(c))
            tm_text_add_n(out, s, colour > 0 ? colour : n);
        else
            show(out, c, keep);
        s += colour > 0 ? colour : n > 0 ? n : 1;
    }
}

bool tm_plain_put(FILE *to, const char *string, unsigned keep)
{
    tm_text text = { 0 };
    tm_plain_add(&text, string, keep);
    bool good = fwrite(text.data, 1, text.length, to) == text.length;
    tm_text_fini(&text);
    return good;
}
