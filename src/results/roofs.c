/* SPDX-License-Identifier: Apache-2.0 */
/* results/roofs.c - what a report is made of: runs, and of benchmarks the ceilings that they have noted. */
#include "results/internal.h"
#include "results/report_charts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void take_larger(double *to, double value)
{
    if (!(*to >= value)) *to = value;
}

/* The notes of tm_bench_note_ceilings. */
static void take_note(report_roofs *roofs, const char *note)
{
    double value;
    int    end = 0;
    if (sscanf(note, "peak: %lf GFLOP/s float32 measured%n", &value, &end) == 1 && end)
        take_larger(&roofs->flops, value * 1e9);
    else if (sscanf(note, "peak of bfloat16 products: %lf GFLOP/s measured%n", &value, &end) == 1 && end)
        take_larger(&roofs->flops_bf16, value * 1e9);
    else if (sscanf(note, "memory: %lf GB/s measured%n", &value, &end) == 1 && end)
        take_larger(&roofs->bytes, value * 1e9);
}

static tm_status take_ceilings(const tm_result *bench, report_roofs *roofs, tm_error *err)
{
    json_t *table = results_member(results_tree(bench), "table"), *note;
    size_t  i;
    json_array_foreach(json_object_get(table, "notes"), i, note)
    {
        if (json_is_string(note)) take_note(roofs, json_string_value(note));
    }
    const char *host = json_string_value(json_object_get(json_array_get(json_object_get(table, "rows"), 0), "host"));
    if (host) roofs->host = host;
    if (isfinite(roofs->flops) && isfinite(roofs->bytes)) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "'%s' is %s without the ceilings of a machine; a report takes runs, and for their roofline "
                   "what `trainmark bench stream --output-file FILE.json` measures",
                   tm_result_name(bench), tm_result_what(bench));
}

static const char *short_name(const tm_result *run)
{
    const char *name = tm_result_name(run), *slash = strrchr(name, '/');
    const char *last = slash && slash[1] ? slash + 1 : name;
    return strcmp(last, "result.json") == 0 ? name : last;
}

tm_status report_prepare(const tm_result *const *results, size_t n, report_runs *r, tm_error *err)
{
    const double none = (double)NAN;
    report_roofs roofs = { none, none, none, NULL };
    size_t       n_runs = 0;
    for (size_t i = 0; i < n; i++)
        if (tm_result_kind_of(results[i]) == TM_RESULT_RUN)
            n_runs++;
        else
            TM_TRY(take_ceilings(results[i], &roofs, err));
    if (n_runs == 0)
        return tm_fail(err, TM_INVALID, "'%s' is %s; a report takes runs", tm_result_name(results[0]),
                       tm_result_what(results[0]));
    *r = (report_runs){ .n = n_runs, .roofs = roofs, .arena = tm_arena_create() };
    const tm_result **runs = tm_arena_take(r->arena, n_runs * sizeof *runs);
    const char      **names = tm_arena_take(r->arena, n_runs * sizeof *names);
    size_t            k = 0;
    for (size_t i = 0; i < n; i++) {
        if (tm_result_kind_of(results[i]) != TM_RESULT_RUN) continue;
        runs[k] = results[i];
        names[k++] = short_name(results[i]);
    }
    r->runs = runs;
    r->names = names;
    return TM_OK;
}

bool report_line_of(const report_runs *r, size_t run, size_t i, report_line *out)
{
    json_t     *tree = results_tree(r->runs[run]), *one = json_array_get(results_member(tree, "work"), i);
    const char *name = json_string_value(json_object_get(one, "line"));
    if (!one) return false;
    *out = (report_line){ .name = name ? name : "",
                          .flops = json_number_value(json_object_get(one, "flops")),
                          .bytes = json_number_value(json_object_get(one, "bytes")) };
    if (name) out->seconds = json_number_value(json_object_get(results_member(tree, "phases/mean_seconds"), name));
    return true;
}

/* A roof that a line passes by more than a measurement's error was measured on a busy machine: it is none. */
static bool holds(double roof, double reached)
{
    const double slack = 1.05;
    return isfinite(roof) && reached <= slack * roof;
}

report_roof report_roof_of(const report_runs *r, size_t run)
{
    const char *precision = tm_result_string(r->runs[run], "precision");
    bool        bf16 = precision && strcmp(precision, "bfloat16") == 0 && isfinite(r->roofs.flops_bf16);
    double      sheet = tm_result_number(r->runs[run], "peak_flops_per_second");
    double      peak = isfinite(r->roofs.flops) ? bf16 ? r->roofs.flops_bf16 : r->roofs.flops : sheet;
    report_roof roof = { .flops = 0, .bytes = 0 };
    report_line line;
    for (size_t k = 0; k < r->n; k++)
        for (size_t i = 0; report_line_of(r, k, i, &line); i++) {
            if (!(line.seconds > 0)) continue;
            roof.flops = fmax(roof.flops, line.flops / line.seconds);
            roof.bytes = fmax(roof.bytes, line.bytes / line.seconds);
        }
    roof.flops_known = holds(peak, roof.flops);
    roof.bytes_known = holds(r->roofs.bytes, roof.bytes);
    roof.passed = (isfinite(peak) && !roof.flops_known) || (isfinite(r->roofs.bytes) && !roof.bytes_known);
    if (roof.flops_known) roof.flops = peak;
    if (roof.bytes_known) roof.bytes = r->roofs.bytes;
    return roof;
}
