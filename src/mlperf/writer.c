/* SPDX-License-Identifier: Apache-2.0 */
#include "mlperf/writer.h"

#include "mlperf/log.h"
#include "mlperf/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* Adds 1 to the last of the decimal digits "d.ddd" in front of the exponent; false where that would need another digit.
 */
static bool next_up(char *text)
{
    for (char *c = strchr(text, 'e') - 1; c >= text; c--) {
        if (*c == '.') continue;
        if (*c != '9') return ++*c, true;
        *c = '0';
    }
    return false;
}

static bool reads_back(const char *text, double value)
{
    double back = strtod(text, NULL);
    return !(back < value) && !(back > value);
}

/* The shortest "d.ddde+XX" that reads back as `value`, which is positive or 0. Just below a power of two doubles lie
 * twice as close: there the nearest decimal may be another double while the next one up is this. */
static void shortest(double value, char text[32])
{
    for (int digits = 1; digits < 17; digits++) {
        snprintf(text, 32, "%.*e", digits - 1, value);
        if (reads_back(text, value)) return;
        if (next_up(text) && reads_back(text, value)) return;
    }
    snprintf(text, 32, "%.16e", value);
}

void tm_mllog_print_f64(double value, tm_text *out)
{
    char text[32], digits[20];
    if (isnan(value)) {
        tm_text_add(out, "NaN");
        return;
    }
    if (signbit(value)) tm_text_add(out, "-");
    if (isinf(value)) {
        tm_text_add(out, "Infinity");
        return;
    }
    shortest(fabs(value), text);
    int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10), n = 0;
    for (const char *c = text; *c != 'e'; c++)
        if (*c != '.') digits[n++] = *c;
    if (exponent < -4 || exponent >= 16) {
        tm_text_printf(out, "%c%s%.*se%c%02d", digits[0], n > 1 ? "." : "", n - 1, digits + 1, exponent < 0 ? '-' : '+',
                       abs(exponent));
    } else if (exponent < 0) {
        tm_text_printf(out, "0.%.*s%.*s", -exponent - 1, "000", n, digits);
    } else {
        int before = exponent + 1; /* digits in front of the point, filled up with zeros */
        tm_text_add_n(out, digits, (size_t)(n < before ? n : before));
        if (n < before) tm_text_printf(out, "%0*d", before - n, 0);
        tm_text_printf(out, ".%.*s", n > before ? n - before : 1, n > before ? digits + before : "0");
    }
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void print_fields(const tm_mllog_field *fields, size_t n, tm_text *out);

static void print_value(tm_mllog_value value, tm_text *out)
{
    switch (value.kind) {
    case TM_MLLOG_NONE:
        tm_text_add(out, "null");
        return;
    case TM_MLLOG_BOOL:
        tm_text_add(out, value.boolean ? "true" : "false");
        return;
    case TM_MLLOG_I64:
        tm_text_printf(out, "%lld", (long long)value.i64);
        return;
    case TM_MLLOG_F64:
        tm_mllog_print_f64(value.f64, out);
        return;
    case TM_MLLOG_TEXT:
        tm_json_print_text(value.text, out);
        return;
    case TM_MLLOG_FIELDS:
        tm_text_add(out, "{");
        print_fields(value.fields, value.n_fields, out);
        tm_text_add(out, "}");
        return;
    }
}

/* A name given twice stands where it was first and has its last value, as in a Python dictionary. */
static void print_fields(const tm_mllog_field *fields, size_t n, tm_text *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t earlier = 0, last = i;
        while (earlier < i && strcmp(fields[earlier].name, fields[i].name) != 0) earlier++;
        if (earlier < i) continue;
        for (size_t j = i + 1; j < n; j++)
            if (strcmp(fields[j].name, fields[i].name) == 0) last = j;
        if (i > 0) tm_text_add(out, ", ");
        tm_json_print_text(fields[i].name, out);
        tm_text_add(out, ": ");
        print_value(fields[last].value, out);
    }
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

void tm_mllog_print(const tm_mllog_event *event, tm_text *out)
{
    enum { MOST = 16 };
    tm_mllog_field metadata[MOST] = { { "file", tm_mllog_text(event->file) },
                                      { "lineno", tm_mllog_i64(event->lineno) } };
    TM_ASSERT(event->n_metadata <= MOST - 2);
    memcpy(metadata + 2, event->metadata, event->n_metadata * sizeof *metadata);
    const char          *type = ends_with(event->key, "_start")  ? "INTERVAL_START"
                                : ends_with(event->key, "_stop") ? "INTERVAL_END"
                                                                 : "POINT_IN_TIME";
    const tm_mllog_field line[] = {
        { "namespace", tm_mllog_text("") },
        { "time_ms", tm_mllog_i64(event->time_ms) },
        { "event_type", tm_mllog_text(type) },
        { "key", tm_mllog_text(event->key) },
        { "value", event->value },
        { "metadata", tm_mllog_fields(metadata, event->n_metadata + 2) },
    };
    tm_text_add(out, TM_MLLOG_TOKEN "{");
    print_fields(line, sizeof line / sizeof *line, out);
    tm_text_add(out, "}\n");
}
