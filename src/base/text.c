/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include "base/arena.h"
#include "base/status.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tm_text_add_n(tm_text *text, const char *bytes, size_t n)
{
    if (text->length + n + 1 > text->capacity) {
        size_t capacity = text->capacity * 2 > text->length + n + 1 ? text->capacity * 2 : text->length + n + 64;
        text->data = tm_realloc(text->data, capacity);
        text->capacity = capacity;
    }
    if (n) memcpy(text->data + text->length, bytes, n);
    text->length += n;
    text->data[text->length] = '\0';
}

void tm_text_add(tm_text *text, const char *string)
{
    tm_text_add_n(text, string, strlen(string));
}

void tm_text_printf(tm_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    TM_ASSERT(n >= 0);
    size_t need = text->length + (size_t)n + 1;
    if (need > text->capacity) {
        text->capacity = text->capacity * 2 > need ? text->capacity * 2 : need + 64;
        text->data = tm_realloc(text->data, text->capacity);
    }
    vsnprintf(text->data + text->length, (size_t)n + 1, format, again);
    va_end(again);
    text->length += (size_t)n;
}

void tm_text_fini(tm_text *text)
{
    free(text->data);
    *text = (tm_text){ 0 };
}

void tm_text_fill(tm_text *text, const char *words, size_t column, size_t indent, size_t width)
{
    bool first = true;
    for (size_t n; *words; words += n) {
        while (*words == ' ') words++;
        n = strcspn(words, " ");
        if (n == 0) break;
        size_t least = indent + n <= width ? indent : n < width ? width - n : 0; /* a long word begins further left */
        if (column + !first + n > width && (!first || column > least)) {
            tm_text_printf(text, "\n%*s", (int)least, "");
            column = least;
            first = true;
        }
        tm_text_printf(text, "%s%.*s", first ? "" : " ", (int)n, words);
        column += n + !first;
        first = false;
    }
    tm_text_add(text, "\n");
}

size_t tm_utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    size_t n = s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)) return 0;
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) return 0;
    return n;
}

/* Fewest significant digits whose %g reads back as the same number. */
static int digits_of(double value)
{
    char text[32];
    for (int digits = 1; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (!(back < value) && !(back > value)) return digits;
    }
    return 17;
}

char *tm_format_double(char out[32], double value)
{
    if (isnan(value)) return strcpy(out, "nan");
    if (isinf(value)) return strcpy(out, value > 0 ? "inf" : "-inf");
    double size = fabs(value);
    if (size >= 1 && size < 1e15 && !(trunc(size) < size)) { /* most numbers are whole, and need no search for digits */
        snprintf(out, 32, "%lld", (long long)value);
        return out;
    }
    int digits = digits_of(value);
    if (size >= 1e-4 && size < 1e17) {
        char scientific[32];
        snprintf(scientific, sizeof scientific, "%.*e", digits - 1, value);
        int decimals = digits - 1 - (int)strtol(strchr(scientific, 'e') + 1, NULL, 10); /* behind the point */
        snprintf(out, 32, "%.*f", decimals > 0 ? decimals : 0, value);
    } else {
        snprintf(out, 32, "%.*g", digits, value);
    }
    return out;
}

char *tm_format_grouped(char out[40], int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    char  *o = out;
    size_t n = strlen(digits), i = 0;
    if (digits[0] == '-') *o++ = digits[i++];
    for (; i < n; i++) {
        *o++ = digits[i];
        if ((n - i) % 3 == 1 && i + 1 < n) *o++ = ',';
    }
    *o = '\0';
    return out;
}

char *tm_format_bytes(char out[32], double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t                   unit = 0;
    while (fabs(bytes) >= (unit ? 1023.995 : 1024) && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 32, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

int tm_edit_distance(const char *a, const char *b)
{
    enum { LIMIT = 96 };
    int    row[LIMIT + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > LIMIT || m > LIMIT) return 2 * LIMIT;
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            int best = diagonal + !same;
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

static int folded(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

bool tm_names_equal(const char *a, const char *b)
{
    while (*a && *b && folded(*a) == folded(*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

size_t tm_utf8_width(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}
