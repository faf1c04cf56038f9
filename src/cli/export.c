/* SPDX-License-Identifier: Apache-2.0 */
/* cli/export.c - `trainmark export`: a model into a Hugging Face folder. */
#include "cli/cli.h"
#include "hf/source.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: trainmark export RUN|FOLDER -o DIR [--dtype bfloat16|float32] [--step N] [--max_shard_size GB]\n\n"
    "Writes config.json and safetensors that transformers loads: of the newest checkpoint of a run's directory, or of "
    "a\n"
    "Hugging Face folder (whose tokenizer is copied).\n\n"
    "  -o DIR                 is made; must not hold a model yet\n"
    "  --dtype NAME           of the weights: bfloat16 (default) or float32\n"
    "  --step N               the checkpoint of step N instead of the newest\n"
    "  --max_shard_size GB    of one file, 10^9 bytes (default 5); more becomes several files and an index\n";

static tm_status number(const char *name, const char *text, double lo, double hi, double *out, tm_error *err)
{
    char *end;
    *out = strtod(text, &end);
    if (*end || end == text || !(*out >= lo && *out <= hi))
        return tm_fail(err, TM_USAGE, "%s is '%.100s', wanted a number from %g to %g", name, text, lo, hi);
    return TM_OK;
}

static tm_status export(const char *path, int64_t step, const tm_hf_export_options *options, tm_text *out,
                        tm_error *err)
{
    tm_hf_source source;
    tm_hf_report report;
    char         bytes[32], parameters[40];
    tm_status    st = tm_hf_source_open(path, step, tm_cli_config(), &source, err);
    if (st == TM_OK) st = tm_hf_export(&source, options, &report, err);
    if (st == TM_OK)
        tm_text_printf(out, "%s: %s, %zu tensors, %s parameters in %s, %s\n", options->folder,
                       source.form->architecture, report.tensors, tm_format_grouped(parameters, report.elements),
                       tm_dtype_name(options->dtype), tm_format_bytes(bytes, (double)report.bytes));
    tm_hf_source_close(&source);
    return st;
}

tm_status tm_command_export(int argc, char **argv, tm_error *err)
{
    tm_hf_export_options o = { .folder = NULL };
    const char          *dtype = "bfloat16", *step = "-1", *shard = "5", *path;
    double               gigabytes, at;
    const tm_cli_option  options[] = {
         { "-o", &o.folder, NULL }, { "--out", &o.folder, NULL },         { "--dtype", &dtype, NULL },
         { "--step", &step, NULL }, { "--max_shard_size", &shard, NULL }, { NULL, NULL, NULL }
    };
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    TM_TRY(tm_cli_arguments(argc, argv, argv[0], options, &path, err));
    if (!o.folder || !*o.folder) return tm_fail(err, TM_USAGE, "-o DIR is missing: the folder that is written");
    TM_TRY(number("--max_shard_size", shard, 1e-6, 1e6, &gigabytes, err));
    TM_TRY(number("--step", step, -1, 1e15, &at, err));
    o.shard_bytes = (int64_t)(gigabytes * 1e9);
    if (strcmp(dtype, "bfloat16") != 0 && strcmp(dtype, "float32") != 0)
        return tm_fail(err, TM_USAGE, "--dtype is '%.100s', wanted bfloat16 or float32", dtype);
    o.dtype = strcmp(dtype, "bfloat16") == 0 ? TM_BF16 : TM_F32;
    tm_text   out = { 0 };
    tm_status st = export(path, (int64_t)at, &o, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}
