/* SPDX-License-Identifier: Apache-2.0 */
/* cli/merge.c - `trainmark merge`: a model and its adapter into one Hugging Face folder. */
#include "base/json.h"
#include "cli/cli.h"
#include "hf/source.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *out, *dtype;
    double      gigabytes;
    bool        json;
} merge_options;

static void print(const tm_hf_export_options *o, const char *adapter, const tm_hf_report *report, bool as_json,
                  tm_text *out)
{
    char bytes[32], parameters[40];
    if (!as_json) {
        tm_text_printf(out, "%s: merged with '%s', %zu tensors, %s parameters in %s, %s\n", o->folder, adapter,
                       report->tensors, tm_format_grouped(parameters, report->elements), tm_hf_report_format(report),
                       tm_format_bytes(bytes, (double)report->bytes));
        return;
    }
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "folder", o->folder);
    tm_json_i64(&json, "tensors", (int64_t)report->tensors);
    tm_json_i64(&json, "parameters", report->elements);
    tm_json_string(&json, "dtype", tm_dtype_name(report->dtype));
    tm_json_i64(&json, "bytes", (int64_t)report->bytes);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const merge_options *given = line->options;
    tm_hf_export_options o = { .folder = given->out, .shard_bytes = (int64_t)(given->gigabytes * 1e9) };
    tm_hf_source         source;
    tm_hf_report         report;
    tm_text              out = { 0 };
    const char          *base = line->words[0], *adapter = line->n_words > 1 ? line->words[1] : NULL;
    TM_TRY(tm_cli_find_model(line, &base, &adapter, err));
    if (!adapter)
        return tm_fail(err, TM_USAGE, "'%.300s' is no adapter (it has no adapter_config.json); give BASE and ADAPTER",
                       base);
    tm_status st = tm_hf_source_open(base, -1, tm_cli_config(), &source, err);
    if (st == TM_OK) st = tm_hf_source_adapt(&source, adapter, err);
    o.dtype = tm_hf_export_format(given->dtype);
    if (st == TM_OK) st = tm_hf_export(&source, &o, &report, err);
    if (st == TM_OK) print(&o, adapter, &report, given->json, &out);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_hf_source_close(&source);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(merge_options, out), .value = "DIR", .required = true,
      .help = "the directory that is written; must not hold a model yet" },
    { "dtype", 0, TM_OPTION_CHOICE, offsetof(merge_options, dtype), .value = "NAME", .choices = "bfloat16|float32",
      .help = "format of the weights; default: that of the model" },
    { "max-shard-size", 0, TM_OPTION_F64, offsetof(merge_options, gigabytes), .value = "GB", .fallback = "5",
      .lo = 1e-6, .hi = 1e6, .help = "largest size of a file, in 10^9 bytes; a larger model has several and an index" },
    TM_OPTION_JSON(merge_options),
};

const tm_cli_command tm_command_merge = {
    .name = "merge",
    .summary = "add an adapter to its model",
    .words = "[BASE] ADAPTER",
    .least = 1,
    .most = 2,
    .about =
        "Writes the Hugging Face directory BASE with the adapter of the directory ADAPTER (PEFT: adapter_config.json, "
        "adapter_model.safetensors) added to its matrices: W + scale B A, rounded once. Without BASE: the model that "
        "the adapter names, from a "
        "directory or the Hugging Face cache. Of a FLUX model ADAPTER may be a file of LoRA (docs/flux.md).",
    TM_CLI_OPTIONS(rows, merge_options),
    .run = run,
};
