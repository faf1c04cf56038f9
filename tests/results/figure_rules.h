/* SPDX-License-Identifier: Apache-2.0 */
/* tests/results/figure_rules.h - figures as people read them beside the numbers that they are of. */
#ifndef TM_TESTS_RESULTS_FIGURE_RULES_H
#define TM_TESTS_RESULTS_FIGURE_RULES_H

#include "chart_rules.h"
#include "made_runs.h"

/* Thousands, or thousandths, or binary ones. */
static inline double unit_of(const char *text)
{
    static const struct {
        const char *name;
        double      value;
    } units[] = { { "", 1 },     { "s", 1 },      { "ms", 1e-3 },    { "µs", 1e-6 },    { "min", 60 },
                  { "h", 3600 }, { "%", 1 },      { "M", 1e6 },      { "G", 1e9 },      { "T", 1e12 },
                  { "B", 1 },    { "KiB", 1024 }, { "MiB", 0x1p20 }, { "GiB", 0x1p30 }, { "TiB", 0x1p40 } };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(text, units[i].name) == 0) return units[i].value;
    fail_msg("'%s' is no unit", text);
    return 0;
}

/* A figure as it is read: "4,658", "235.91 MiB". */
static inline double amount_of(const char *text)
{
    char   digits[64], *end;
    size_t n = 0;
    for (; *text && n < sizeof digits - 1; text++)
        if (*text != ',') digits[n++] = *text;
    digits[n] = 0;
    double value = strtod(digits, &end);
    assert_true(end > digits);
    return value * unit_of(end + (*end == ' '));
}

/* Half a unit of the last digit that is shown. */
static inline double last_place(const char *text)
{
    size_t      n = strspn(text, "-0123456789.,e");
    const char *point = strchr(text, '.');
    int         places = point && point < text + n ? (int)(text + n - point) - 1 : 0;
    return 0.5001 * pow(10, -places) * unit_of(text + n + (text[n] == ' '));
}

/* No number of a text has more than six digits that count. */
static inline void digits_are_few(const char *text)
{
    for (const char *at = text; *at;) {
        size_t length = strspn(at, "0123456789.,");
        bool   fraction = false;
        int    count = 0;
        for (size_t i = 0; i < length; i++) {
            fraction = fraction || (at[i] == '.' && i + 1 < length && at[i + 1] != '.');
            count += at[i] >= '0' && at[i] <= '9' && (count > 0 || at[i] != '0');
        }
        if (fraction && count > 6) fail_msg("'%.*s' of '%s' has %d digits", (int)length, at, text, count);
        at += length ? length : 1;
    }
}

/* A cell says the member: a text as it is, a number to its last digit, nothing where there is none. */
static inline void cell_says(const char *cell, json_t *wanted)
{
    char   *end;
    tm_text plain = { 0 };
    if (json_is_string(wanted)) {
        tm_plain_add(&plain, json_string_value(wanted), 0);
        assert_string_equal(cell, plain.data);
        tm_text_fini(&plain);
    } else if (json_is_number(wanted)) {
        double value = strtod(cell, &end);
        if (*end || end == cell || value < json_number_value(wanted) || value > json_number_value(wanted))
            fail_msg("'%s' is not %.17g", cell, json_number_value(wanted));
    } else {
        assert_string_equal(cell, json_is_true(wanted) ? "true" : json_is_false(wanted) ? "false" : "");
    }
}

/* A cell is the member, rounded in a unit that fits; digit for digit it is the cell's title. */
static inline void figure_says(const svg_page *page, size_t cell, json_t *wanted)
{
    const char *exact = svg_attribute(&page->nodes[cell], "title"), *text = svg_text(page, cell);
    cell_says(exact ? exact : text, wanted);
    if (!json_is_number(wanted)) return;
    double value = json_number_value(wanted);
    digits_are_few(text);
    assert_near(amount_of(text), value, last_place(text) + 1e-9 * fabs(value), text);
}

#endif
