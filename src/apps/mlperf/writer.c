/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/writer.h"

#include "apps/mlperf/log.h"
#include "apps/mlperf/python.h"
#include "apps/mlperf/value.h"

#include <math.h>
#include <string.h>

void tm_mllog_print_f64(double value, tm_text *out)
{
    char text[32];
    if (isfinite(value))
        tm_text_add(out, tm_python_float(text, value));
    else
        tm_text_add(out, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
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
    for (size_t i = 0; i < event->n_metadata; i++) metadata[i + 2] = event->metadata[i];
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
