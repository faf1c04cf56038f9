/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <math.h>
#include <string.h>

/* Line separators, and what is no character: JSON allows them as they are, YAML takes them for breaks or refuses them.
 */
static unsigned odd_in_yaml(const unsigned char *s)
{
    if (s[0] == 0xe2 && s[1] == 0x80 && (s[2] == 0xa8 || s[2] == 0xa9)) return 0x2028U + (s[2] - 0xa8U);
    if (s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe) return 0xfffeU + (s[2] - 0xbeU);
    return 0;
}

void tm_json_quote(tm_text *out, const char *string)
{
    tm_text_add_n(out, "\"", 1);
    for (const unsigned char *s = (const unsigned char *)string; *s;) {
        size_t plain = 0;
        while (s[plain] >= 0x20 && s[plain] < 0x7f && s[plain] != '"' && s[plain] != '\\') plain++;
        tm_text_add_n(out, (const char *)s, plain);
        s += plain;
        if (!*s) break;
        size_t n = tm_utf8_length(s);
        if (n == 0) {
            tm_text_add(out, "\\ufffd");
            n = 1;
        } else if (n == 2 && *s == 0xc2 && s[1] < 0xa0) { /* control characters, too: who prints the file obeys them */
            tm_text_printf(out, "\\u00%02x", s[1]);
        } else if (n == 3 && odd_in_yaml(s)) {
            tm_text_printf(out, "\\u%04x", odd_in_yaml(s));
        } else if (n > 1) {
            tm_text_add_n(out, (const char *)s, n);
        } else if (*s == '"' || *s == '\\') {
            tm_text_printf(out, "\\%c", *s);
        } else if (*s == '\n') {
            tm_text_add(out, "\\n");
        } else if (*s == '\t') {
            tm_text_add(out, "\\t");
        } else {
            tm_text_printf(out, "\\u%04x", *s);
        }
        s += n;
    }
    tm_text_add_n(out, "\"", 1);
}

static void line_break(tm_json *json)
{
    if (!json->indent) return;
    tm_text_add_n(json->out, "\n", 1);
    for (int i = 0; i < json->depth; i++) tm_text_add(json->out, "  ");
}

static void begin(tm_json *json, const char *key)
{
    if (json->follows) tm_text_add(json->out, json->indent ? "," : ", ");
    if (json->depth > 0) line_break(json);
    if (key) {
        tm_json_quote(json->out, key);
        tm_text_add(json->out, ": ");
    }
    json->follows = true;
}

void tm_json_open(tm_json *json, const char *key, char bracket)
{
    begin(json, key);
    tm_text_add_n(json->out, &bracket, 1);
    json->depth++;
    json->follows = false;
}

void tm_json_close(tm_json *json, char bracket)
{
    json->depth--;
    if (json->follows) line_break(json);
    tm_text_add_n(json->out, &bracket, 1);
    json->follows = true;
}

void tm_json_string(tm_json *json, const char *key, const char *value)
{
    begin(json, key);
    if (value)
        tm_json_quote(json->out, value);
    else
        tm_text_add(json->out, "null");
}

void tm_json_i64(tm_json *json, const char *key, int64_t value)
{
    begin(json, key);
    tm_text_printf(json->out, "%lld", (long long)value);
}

void tm_json_f64(tm_json *json, const char *key, double value)
{
    char number[32];
    begin(json, key);
    tm_text_add(json->out, isfinite(value) ? tm_format_double(number, value) : "null");
}

void tm_json_bool(tm_json *json, const char *key, bool value)
{
    begin(json, key);
    tm_text_add(json->out, value ? "true" : "false");
}
