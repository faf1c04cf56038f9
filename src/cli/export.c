/* SPDX-License-Identifier: Apache-2.0 */
/* cli/export.c - `trainmark export`: a model into a Hugging Face folder. */
#include "base/json.h"
#include "cli/cli.h"
#include "hf/source.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *out, *dtype, *gguf, *tokenizer;
    double      gigabytes;
    int64_t     step;
    bool        json, ema;
} export_options;

/* What an export wrote, and where. */
typedef struct {
    const export_options *given;
    tm_hf_export_options  folder;
    tm_gguf_options       gguf;
} export_job;

static const char *format_of(const export_job *j, const tm_hf_report *report)
{
    return j->given->gguf ? j->given->gguf : tm_hf_report_format(report);
}

static void print_json(const export_job *j, const tm_hf_source *source, const tm_hf_report *report, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, j->given->gguf ? "file" : "folder", j->given->out);
    tm_json_string(&json, "architecture", source->form->architecture);
    tm_json_bool(&json, "adapter", tm_hf_source_of_adapters(source));
    tm_json_i64(&json, "tensors", (int64_t)report->tensors);
    tm_json_i64(&json, "parameters", report->elements);
    tm_json_string(&json, "dtype", j->given->gguf ? j->given->gguf : tm_dtype_name(report->dtype));
    tm_json_i64(&json, "bytes", (int64_t)report->bytes);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static tm_status export(const char *path, const char *adapter, const export_job *j, tm_text *out, tm_error *err)
{
    tm_hf_source source;
    tm_hf_report report;
    char         bytes[32], parameters[40];
    tm_status    st = tm_hf_source_open(path, j->given->step, tm_cli_config(), &source, err);
    if (st == TM_OK && j->given->ema) st = tm_hf_source_average(&source, err);
    if (st == TM_OK && adapter) st = tm_hf_source_adapt(&source, adapter, err);
    if (st == TM_OK)
        st = j->given->gguf ? tm_hf_export_gguf(&source, &j->gguf, &report, err)
                            : tm_hf_export(&source, &j->folder, &report, err);
    if (st == TM_OK && j->given->json)
        print_json(j, &source, &report, out);
    else if (st == TM_OK && tm_hf_source_of_adapters(&source))
        tm_text_printf(out, "%s: adapter of %s, %zu tensors, %s parameters in float32, %s\n", j->given->out,
                       source.form->architecture, report.tensors, tm_format_grouped(parameters, report.elements),
                       tm_format_bytes(bytes, (double)report.bytes));
    else if (st == TM_OK)
        tm_text_printf(out, "%s: %s, %zu tensors, %s parameters in %s, %s\n", j->given->out, source.form->architecture,
                       report.tensors, tm_format_grouped(parameters, report.elements), format_of(j, &report),
                       tm_format_bytes(bytes, (double)report.bytes));
    tm_hf_source_close(&source);
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const export_options *given = line->options;
    export_job            j = { .given = given, .folder = { .folder = given->out } };
    tm_text               out = { 0 };
    const char           *path = line->words[0], *adapter = NULL, *line_tokenizer = given->tokenizer;
    TM_TRY(tm_cli_find_model(line, &path, &adapter, err));
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &line_tokenizer, err));
    if (given->gguf && given->dtype)
        return tm_fail(err, TM_USAGE, "--dtype is for a directory; with --gguf the format is --gguf's own: %s",
                       given->gguf);
    if (given->tokenizer && !given->gguf)
        return tm_fail(err, TM_USAGE, "--tokenizer is for a file (--gguf); a directory gets copies of the model's own");
    j.folder.shard_bytes = (int64_t)(given->gigabytes * 1e9);
    j.folder.dtype = tm_hf_export_format(given->dtype);
    j.gguf = (tm_gguf_options){ .path = given->out, .format = given->gguf, .tokenizer = line_tokenizer };
    tm_status st = export(path, adapter, &j, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(export_options, out), .value = "PATH", .required = true,
      .help = "directory, or with --gguf file, that is written; must not hold a model yet" },
    { "gguf", 0, TM_OPTION_CHOICE, offsetof(export_options, gguf), .value = "FORMAT", .choices = "f32|bf16|q8_0",
      .help = "write a GGUF file for llama.cpp, with matrices in this format" },
    { "tokenizer", 0, TM_OPTION_TEXT, offsetof(export_options, tokenizer), .value = "FILE",
      .help = "with --gguf: the model's tokenizer, a file or directory; default: its own" },
    { "dtype", 0, TM_OPTION_CHOICE, offsetof(export_options, dtype), .value = "NAME", .choices = "bfloat16|float32",
      .help = "format of the weights; default: that of the model" },
    { "step", 0, TM_OPTION_I64, offsetof(export_options, step), .value = "N", .fallback = "-1", .lo = -1, .hi = 1e15,
      .help = "the checkpoint of step N; -1: the newest" },
    { "ema", 0, TM_OPTION_FLAG, offsetof(export_options, ema),
      .help = "of a run: the averages of its weights (training.ema_decay)" },
    { "max-shard-size", 0, TM_OPTION_F64, offsetof(export_options, gigabytes), .value = "GB", .fallback = "5",
      .lo = 1e-6, .hi = 1e6, .help = "largest size of a file, in 10^9 bytes; a larger model has several and an index" },
    TM_OPTION_JSON(export_options),
};

const tm_cli_command tm_command_export = {
    .name = "export",
    .summary = "write a model as a Hugging Face directory or a GGUF file",
    .words = "RUN|DIR|FILE",
    .least = 1,
    .most = 1,
    .about =
        "Writes config.json and safetensors that transformers loads: of the newest checkpoint of a run directory, or "
        "of a Hugging Face directory (whose tokenizer is copied). Of a run of adapters (lora.rank): the adapter as "
        "PEFT loads it, of an image model as diffusers does. With --gguf one file that llama.cpp loads.",
    TM_CLI_OPTIONS(rows, export_options),
    .run = run,
};
