/* SPDX-License-Identifier: Apache-2.0 */
/* cli/data_encode.c - `trainmark data encode`: pictures and captions become what a FLUX.1 model is trained on. */
#include "encoder/cache.h"

#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/data.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *model, *out, *size, *caption, *file, *otherwise, *filter, *dtype, *part, *device, *isa;
    int64_t     text_len, per_file, held_out, threads;
    bool        skip_broken, json;
} encode_options;

/* "2/4": part 2 of 4. */
static tm_status read_part(const char *text, int64_t *part, int64_t *parts, tm_error *err)
{
    char *end;
    *part = strtoll(text, &end, 10);
    bool both = end != text && *end == '/';
    *parts = both ? strtoll(end + 1, &end, 10) : 0;
    if (*end || *part < 0 || *parts < 1 || *part >= *parts)
        return tm_fail(err, TM_USAGE, "--part '%.60s': wanted K/N, part K of N, counted from 0 to N - 1", text);
    return TM_OK;
}

static void tell_broken(const char *name, const tm_error *why)
{
    (void)name; /* the message has it */
    tm_warn("left out: %s", why->text);
}

static bool stopped(void)
{
    return tm_cli_stop != 0;
}

static void print(const encode_options *o, const tm_cache_report *r, tm_text *out)
{
    double seconds = r->read_seconds + r->picture_seconds + r->text_seconds;
    if (o->json) {
        tm_json json = { .out = out, .indent = true };
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "out", o->out);
        tm_json_i64(&json, "pictures", r->pictures);
        tm_json_i64(&json, "held_out", r->held_out);
        tm_json_i64(&json, "files_written", r->files);
        tm_json_i64(&json, "files_found", r->found);
        tm_json_i64(&json, "broken", r->broken);
        tm_json_i64(&json, "captions_cut", r->cut);
        tm_json_i64(&json, "device_bytes", r->bytes);
        tm_json_f64(&json, "read_seconds", r->read_seconds);
        tm_json_f64(&json, "picture_seconds", r->picture_seconds);
        tm_json_f64(&json, "text_seconds", r->text_seconds);
        tm_json_close(&json, '}');
        tm_text_add(out, "\n");
        return;
    }
    tm_text_printf(out, "%s: %lld pictures encoded into %lld files", o->out, (long long)r->pictures,
                   (long long)r->files);
    if (r->found) tm_text_printf(out, ", %lld files were there", (long long)r->found);
    if (r->broken) tm_text_printf(out, ", %lld broken pictures left out", (long long)r->broken);
    tm_text_add(out, "\n");
    if (r->cut)
        tm_text_printf(out, "%lld captions were longer than %lld tokens and were cut\n", (long long)r->cut,
                       (long long)o->text_len);
    if (r->pictures)
        tm_text_printf(out, "%.2f pictures/s: reading %.2f s, autoencoder %.2f s, text encoders %.2f s\n",
                       (double)r->pictures / seconds, r->read_seconds, r->picture_seconds, r->text_seconds);
    if (r->held_out == 0)
        tm_text_add(out,
                    "no pictures are held out; --held-out N, or a directory validation/, gives a run its evaluation\n");
}

static tm_status open_device(const encode_options *o, tm_device **device, tm_error *err)
{
    TM_TRY(tm_device_open(o->device, (int)o->threads, device, err));
    return o->isa ? tm_device_limit_isa(*device, o->isa, err) : TM_OK;
}

static tm_status encode(tm_cli_line *line, tm_error *err)
{
    const encode_options *o = line->options;
    const char           *model = o->model;
    tm_device            *device = NULL;
    tm_cache_report       report;
    tm_cache_options      cache = {
             .pictures = line->words[0],
             .out = o->out,
             .list = { .file = o->file, .caption = o->caption, .otherwise = o->otherwise, .held_out = o->held_out },
             .text_len = o->text_len,
             .per_file = o->per_file,
             .filter = strcmp(o->filter, "lanczos") == 0 ? TM_IMAGE_LANCZOS : TM_IMAGE_BILINEAR,
             .compute = strcmp(o->dtype, "bfloat16") == 0 ? TM_BF16 : TM_F32,
             .skip_broken = o->skip_broken,
             .parts = 1,
             .stop = stopped,
             .broken = tell_broken,
    };
    tm_text out = { 0 };
    TM_TRY(tm_cli_read_size(o->size, "--size", &cache.width, &cache.height, err));
    if (o->part) TM_TRY(read_part(o->part, &cache.part, &cache.parts, err));
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &model, err));
    cache.model = model;
    tm_cli_heed_stop();
    tm_status st = open_device(o, &device, err);
    if (st == TM_OK) st = tm_cache_make(device, &cache, &report, err);
    if (device) tm_device_close(device);
    if (st == TM_OK) print(o, &report, &out);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "model", 0, TM_OPTION_TEXT, offsetof(encode_options, model), .value = "DIR", .required = true,
      .help = "directory of FLUX.1 as diffusers ships it: vae, text_encoder, ..." },
    { "out", 'o', TM_OPTION_TEXT, offsetof(encode_options, out), .value = "DIR", .required = true,
      .help = "directory of the encoded files, for data.path" },
    { "size", 0, TM_OPTION_TEXT, offsetof(encode_options, size), .value = "N|WxH", .fallback = "256",
      .help = "pixels: pictures are resized and cropped from the middle" },
    { "text-tokens", 0, TM_OPTION_I64, offsetof(encode_options, text_len), .value = "N", .fallback = "512", .lo = 1,
      .hi = 1 << 16, .help = "tokens that T5 reads of a caption: model.text_len" },
    { "caption-column", 0, TM_OPTION_TEXT, offsetof(encode_options, caption), .value = "NAME",
      .help = "column of the captions; default: text or caption" },
    { "file-column", 0, TM_OPTION_TEXT, offsetof(encode_options, file), .value = "NAME",
      .help = "column of the pictures; default: file_name, in parquet image" },
    { "caption", 0, TM_OPTION_TEXT, offsetof(encode_options, otherwise), .value = "TEXT", .may_be_empty = true,
      .help = "caption of pictures that have none" },
    { "held-out", 0, TM_OPTION_I64, offsetof(encode_options, held_out), .value = "N", .fallback = "0", .lo = 0,
      .hi = 1e9, .help = "pictures to hold out for evaluations" },
    { "filter", 0, TM_OPTION_CHOICE, offsetof(encode_options, filter), .value = "NAME", .fallback = "lanczos",
      .choices = "lanczos|bilinear", .help = "how pictures are resized" },
    { "skip-broken", 0, TM_OPTION_FLAG, offsetof(encode_options, skip_broken),
      .help = "leave out pictures that cannot be read, and name them" },
    { "per-file", 0, TM_OPTION_I64, offsetof(encode_options, per_file), .value = "N", .fallback = "32", .lo = 1,
      .hi = 65536, .help = "pictures of a file" },
    { "part", 0, TM_OPTION_TEXT, offsetof(encode_options, part), .value = "K/N",
      .help = "encode part K of N only, for several machines" },
    { "dtype", 0, TM_OPTION_CHOICE, offsetof(encode_options, dtype), .value = "NAME", .fallback = "float32",
      .choices = "float32|bfloat16", .help = "format of weights and products; texts are stored in it" },
    TM_OPTION_DEVICE(encode_options),
    TM_OPTION_JSON(encode_options),
};

const tm_cli_command tm_data_command_encode = {
    .name = "encode",
    .summary = "encode pictures and captions for FLUX.1",
    .words = "PATH",
    .least = 1,
    .most = 1,
    .about =
        "Encodes pictures and captions once, for training with data.source latents. PATH is a directory of pictures "
        "with "
        "metadata.csv, metadata.jsonl or a NAME.txt beside each, or a parquet file. Stopped work goes on where it was; "
        "files that were encoded otherwise are refused.",
    TM_CLI_OPTIONS(rows, encode_options),
    .run = encode,
};
