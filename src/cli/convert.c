/* SPDX-License-Identifier: Apache-2.0 */
/* cli/convert.c - `trainmark convert`: a published figure by every other way of counting. */
#include "apps/bench/bench.h"
#include "apps/bench/published.h"
#include "cli/cli.h"
#include "record/table.h"
#include "results/convert.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *model, *from, *tokens, *hardware;
    int64_t     seq, window, devices, batch;
    double      peak, lora;
    bool        all, json, published;
} convert_options;

static tm_status read_basis(const convert_options *o, tm_speed_basis *b, double *tokens, tm_error *err)
{
    *b = (tm_speed_basis){
        .devices = o->devices, .batch = o->batch, .peak_flops = o->peak * 1e12, .lora_parameters = o->lora
    };
    TM_TRY(tm_bench_model(o->model, &b->shape, &b->seq, err));
    if (o->seq) b->seq = o->seq;
    if (o->window) b->shape.window = o->window;
    if (o->window) b->shape.window_every = 1;
    if (o->from && strncmp(o->from, "lora", 4) == 0 && b->lora_parameters <= 0) b->lora_parameters = 1e-9; /* shown */
    if (tm_model_length(&b->shape) > 0) b->seq = tm_model_length(&b->shape);
    *tokens = o->tokens ? tm_token_count(o->tokens) : 0;
    return isnan(*tokens) ? tm_fail(err, TM_USAGE,
                                    "--tokens '%.40s' is not a number of tokens; wanted 15T, 300B or 1e12", o->tokens)
                          : TM_OK;
}

static tm_status print(const tm_table *table, bool json, bool verbose, tm_error *err)
{
    tm_text text = { 0 };
    tm_cli_add_table(table, json, verbose, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

/* "542.94", "TFLOP/s"; or both in one word. */
static tm_status convert_one(const convert_options *o, char **words, int n, tm_error *err)
{
    tm_speed_basis b;
    double         tokens, rate;
    char          *unit;
    TM_TRY(read_basis(o, &b, &tokens, err));
    double value = strtod(words[0], &unit);
    while (isspace((unsigned char)*unit)) unit++;
    if (unit == words[0] || !(value > 0) || !isfinite(value))
        return tm_fail(err, TM_USAGE, "'%.60s' is not a figure; wanted a number above 0 and its unit", words[0]);
    if (n == 2 && *unit) return tm_fail(err, TM_USAGE, "two units, '%.40s' and '%.40s'; leave one out", unit, words[1]);
    if (n == 1 && !*unit && o->from) unit = "TFLOP/s";
    if (n == 1 && !*unit)
        return tm_fail(err, TM_USAGE, "%g of what? tokens/s, samples/s, s/step, or TFLOP/s with --from", value);
    TM_TRY(tm_speed_of(&b, value, n == 2 ? words[1] : unit, o->from, o->all, &rate, err));
    tm_table *table = tm_speed_table(&b, rate, tokens);
    tm_table_note(table,
                  "%s, sequences of %lld tokens, %lld device%s; FLOP/s are tokens/s x FLOPs of a token by the "
                  "convention",
                  o->model, (long long)b.seq, (long long)b.devices, b.devices == 1 ? "" : "s");
    tm_status st = print(table, o->json, false, err);
    tm_table_destroy(table);
    return st;
}

/* --- published rows ----------------------------------------------------------------------------------------------- */

static const char *cell(const tm_table *table, size_t row, const char *column)
{
    const tm_cell *c = tm_table_cell(table, row, (size_t)tm_table_find(table, column));
    return c->kind == TM_CELL_TEXT ? c->text : "";
}

/* What the row says of itself beside the model's own: sequence length, window, devices. */
static void adapt(tm_speed_basis *b, const tm_table *rows, size_t r)
{
    static const char mark[] = "counted with a window of ";
    const char       *window = strstr(cell(rows, r, "note"), mark);
    int64_t           seq = strtoll(cell(rows, r, "seq"), NULL, 10);
    if (seq > 0 && tm_model_length(&b->shape) == 0) b->seq = seq;
    if (window) b->shape.window = strtoll(window + strlen(mark), NULL, 10);
    if (window) b->shape.window_every = 1;
    b->devices = tm_table_cell(rows, r, (size_t)tm_table_find(rows, "devices"))->i64;
}

static void add_published(tm_table *out, const tm_speed_basis *b, const tm_table *rows, size_t r, double rate,
                          double tokens)
{
    static const char *const copied[] = { "device",     "dtype",  "batch", "seq", "unit",
                                          "convention", "source", "date",  "note" };
    tm_table_row(out);
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++)
        tm_table_text(out, copied[i], *cell(rows, r, copied[i]) ? cell(rows, r, copied[i]) : NULL);
    tm_table_f64(out, "published", tm_table_cell(rows, r, (size_t)tm_table_find(rows, "value"))->f64);
    tm_table_f64(out, "tokens_per_second", rate);
    tm_table_f64(out, "tflops_titan", rate * tm_convention_flops(b, "titan") / 1e12);
    tm_table_f64(out, "tflops_matmul", rate * tm_convention_flops(b, "matmul") / 1e12);
    tm_table_f64(out, "tflops_megatron", rate * tm_convention_flops(b, "megatron") / 1e12);
    tm_table_f64(out, "tflops_exact_causal", rate * tm_convention_flops(b, "exact-causal") / 1e12);
    if (tokens > 0) tm_table_f64(out, "days", tokens / rate / (double)b->devices / 86400);
}

static tm_table *create_published(bool days)
{
    static const tm_column columns[] = { { "device", 0 },
                                         { "dtype", 0 },
                                         { "batch", 0 },
                                         { "seq", 0 },
                                         { "published", 6 },
                                         { "unit", 0 },
                                         { "convention", 0 },
                                         { "tokens_per_second", 6 },
                                         { "tflops_titan", 5 },
                                         { "tflops_matmul", 5 },
                                         { "tflops_megatron", 5 },
                                         { "tflops_exact_causal", 5 },
                                         { "source", 0 },
                                         { "date", 0 },
                                         { "note", 0 } };
    const char *const      brief[] = { "device",       "dtype",
                                       "batch",        "seq",
                                       "published",    "unit",
                                       "convention",   "tokens_per_second",
                                       "tflops_titan", days ? "days" : "tflops_megatron" };
    tm_table              *table = tm_table_create("convert");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    if (days) tm_table_column(table, "days", 4);
    tm_table_brief(table, brief, sizeof brief / sizeof brief[0] - !days);
    return table;
}

static tm_status convert_published(const convert_options *o, bool verbose, tm_error *err)
{
    tm_speed_basis basis;
    double         tokens, rate;
    tm_published  *published;
    tm_status      st = TM_OK;
    TM_TRY(read_basis(o, &basis, &tokens, err));
    TM_TRY(tm_published_read(NULL, &published, err));
    tm_table *rows = tm_published_list(published, NULL), *out = create_published(tokens > 0);
    for (size_t r = 0; st == TM_OK && r < tm_table_n_rows(rows); r++) {
        tm_speed_basis b = basis;
        tm_error       own = { 0 };
        bool           device = !o->hardware || tm_names_equal(o->hardware, cell(rows, r, "device"));
        const char    *convention = cell(rows, r, "convention");
        if (!tm_names_equal(cell(rows, r, "row"), o->model) || !device) continue;
        adapt(&b, rows, r);
        if (tm_speed_of(&b, tm_table_cell(rows, r, (size_t)tm_table_find(rows, "value"))->f64, cell(rows, r, "unit"),
                        *convention ? convention : NULL, strcmp(cell(rows, r, "scope"), "all") == 0, &rate,
                        &own) == TM_OK)
            add_published(out, &b, rows, r, rate, tokens);
    }
    if (tm_table_n_rows(out) == 0)
        st = tm_fail(err, TM_INVALID, "no published speed of '%.100s'; `trainmark reference` lists all figures",
                     o->model);
    if (st == TM_OK) st = print(out, o->json, verbose, err);
    tm_table_destroy(out);
    tm_table_destroy(rows);
    tm_published_destroy(published);
    return st;
}

static tm_status convert(tm_cli_line *line, tm_error *err)
{
    const convert_options *o = line->options;
    if (o->published != (line->n_words == 0))
        return tm_fail(err, TM_USAGE,
                       "convert what? a VALUE and its UNIT, or --published; see `trainmark convert --help`");
    return o->published ? convert_published(o, line->verbose, err) : convert_one(o, line->words, line->n_words, err);
}

static const tm_option rows[] = {
    { "model", 0, TM_OPTION_TEXT, offsetof(convert_options, model), .value = "MODEL", .required = true,
      .help = "model of the figure: a built-in model, or a file of model keys" },
    { "from", 0, TM_OPTION_TEXT, offsetof(convert_options, from), .value = "CONVENTION",
      .help = "convention of a figure in FLOP/s; a wrong name lists all" },
    { "seq", 0, TM_OPTION_I64, offsetof(convert_options, seq), .value = "N", .lo = 1, .hi = 1 << 30,
      .help = "tokens of a sequence; default: those of the model" },
    { "window", 0, TM_OPTION_I64, offsetof(convert_options, window), .value = "N", .lo = 1, .hi = 1 << 30,
      .help = "count with a window of N keys" },
    { "devices", 0, TM_OPTION_I64, offsetof(convert_options, devices), .value = "N", .fallback = "1", .lo = 1,
      .hi = 1e9, .help = "devices that share the work" },
    { "all", 0, TM_OPTION_FLAG, offsetof(convert_options, all),
      .help = "VALUE is for all devices together; default: for one" },
    { "batch", 0, TM_OPTION_I64, offsetof(convert_options, batch), .value = "N", .lo = 1, .hi = 1e12,
      .help = "sequences of one step of all devices, for s/step" },
    { "tokens", 0, TM_OPTION_TEXT, offsetof(convert_options, tokens), .value = "N",
      .help = "print the days that this number of tokens takes (15T, 300B or 1e12)" },
    { "peak", 0, TM_OPTION_F64, offsetof(convert_options, peak), .value = "TFLOPS", .lo = 1e-9, .hi = 1e9,
      .help = "peak of a device: print the utilization" },
    { "lora-parameters", 0, TM_OPTION_F64, offsetof(convert_options, lora), .value = "N", .lo = 1, .hi = 1e15,
      .help = "parameters of the adapters: also print the conventions of LoRA" },
    { "published", 0, TM_OPTION_FLAG, offsetof(convert_options, published),
      .help = "convert the published figures of the model" },
    { "hardware", 0, TM_OPTION_TEXT, offsetof(convert_options, hardware), .value = "NAME",
      .help = "with --published: figures of this device only (MI300X)" },
    TM_OPTION_JSON(convert_options),
};

const tm_cli_command tm_command_convert = {
    .name = "convert",
    .summary = "convert a published figure between conventions",
    .words = "[VALUE [UNIT]]",
    .most = 2,
    .about = "Converts a throughput between all published units: tokens, samples, steps, FLOP/s by each "
             "convention "
             "(docs/flops.md), and the days that a number of tokens takes. UNIT is TFLOP/s (with --from), tokens/s, "
             "samples/s, images/s, s/step or ms/step (with --batch).",
    TM_CLI_OPTIONS(rows, convert_options),
    .run = convert,
};
