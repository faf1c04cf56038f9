/* SPDX-License-Identifier: Apache-2.0 */
#include "data/pack.h"

#include "base/json.h"
#include "cli/cli.h"
#include "cli/data.h"

#include <string.h>

typedef struct {
    const char *out, *format, *answer;
    int64_t     seq;
    bool        json;
} pack_options;

static tm_status pack(tm_cli_line *line, tm_error *err)
{
    const pack_options *given = line->options;
    const char         *path = line->words[0];
    TM_TRY(tm_cli_find_hub(line, TM_HUB_DATASET, &path, err));
    const tm_pack_options o = {
        .path = path, .out = given->out, .format = given->format, .seq = given->seq, .answer = given->answer
    };
    const char *what = strcmp(o.format, "megatron") == 0 ? "documents" : "rows";
    int64_t     rows = 0;
    tm_text     text = { 0 };
    TM_TRY(tm_data_pack(&o, &rows, err));
    if (given->json) {
        tm_json json = { .out = &text, .indent = true };
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "out", o.out);
        tm_json_string(&json, "format", o.format);
        tm_json_i64(&json, what, rows);
        tm_json_close(&json, '}');
        tm_text_add(&text, "\n");
    } else {
        tm_text_printf(&text, "%s: %lld %s\n", o.out, (long long)rows, what);
    }
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static const tm_option rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(pack_options, out), .value = "FILE", .required = true,
      .help = "files to write: FILE.bin and FILE.idx, or FILE (.npy)" },
    { "format", 0, TM_OPTION_CHOICE, offsetof(pack_options, format), .value = "NAME", .fallback = "megatron",
      .choices = "megatron|govreport", .help = "megatron: an indexed data set; govreport: rows of --seq-len tokens" },
    { "seq-len", 0, TM_OPTION_I64, offsetof(pack_options, seq), .value = "N", .fallback = "8192", .lo = 2,
      .hi = 1 << 24, .help = "govreport: tokens in a row" },
    { "answer-after", 0, TM_OPTION_TEXT, offsetof(pack_options, answer), .value = "TEXT",
      .help = "govreport: count only what follows TEXT in a file (mask 1)" },
    TM_OPTION_JSON(pack_options),
};

const tm_cli_command tm_data_command_pack = {
    .name = "pack",
    .summary = "make a token file from text: bytes are tokens",
    .words = "PATH",
    .least = 1,
    .most = 1,
    .about = "Makes a token file from text: bytes are tokens, 256 ends each file. PATH is a file or a directory. "
             "`trainmark data tokenize` does it with a tokenizer.",
    TM_CLI_OPTIONS(rows, pack_options),
    .run = pack,
};
