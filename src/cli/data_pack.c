/* SPDX-License-Identifier: Apache-2.0 */
#include "data/pack.h"

#include "cli/cli.h"
#include "cli/data.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: trainmark data pack PATH --out FILE [--format megatron|govreport] [--seq-len N] [--answer-after TEXT]\n\n"
    "Makes a token file of text: bytes are tokens, 256 ends each file.\n\n"
    "  --format megatron    FILE.bin and FILE.idx, a document for each file (default)\n"
    "  --format govreport   FILE (.npy): the files one after another, in rows of --seq-len tokens (default 8192)\n"
    "  --answer-after TEXT  govreport: only what follows TEXT in a file counts (mask 1), without the end of the file\n";

static tm_status pack(const tm_pack_options *options, tm_error *err)
{
    int64_t rows = 0;
    tm_text text = { 0 };
    TM_TRY(tm_data_pack(options, &rows, err));
    tm_text_printf(&text, "%s: %lld %s\n", options->out, (long long)rows,
                   strcmp(options->format, "megatron") == 0 ? "documents" : "rows");
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

tm_status tm_data_command_pack(int argc, char **argv, tm_error *err)
{
    tm_pack_options      o = { .format = "megatron" };
    const char          *seq = "8192";
    const tm_cli_option options[] = { { "--out", &o.out, NULL },
                                       { "--format", &o.format, NULL },
                                       { "--seq-len", &seq, NULL },
                                       { "--answer-after", &o.answer, NULL },
                                       { NULL, NULL, NULL } };
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    TM_TRY(tm_data_arguments(argc, argv, options, &o.path, err));
    char *end;
    o.seq = strtoll(seq, &end, 10);
    if (*end || end == seq || o.seq < 2 || o.seq > 1 << 24)
        return tm_fail(err, TM_USAGE, "--seq-len is '%.100s', wanted 2 to %d", seq, 1 << 24);
    if (strcmp(o.format, "megatron") != 0 && strcmp(o.format, "govreport") != 0)
        return tm_fail(err, TM_USAGE, "--format is '%.100s', wanted megatron or govreport", o.format);
    if (!o.out || !*o.out) return tm_fail(err, TM_USAGE, "--out is missing: the name of what is written");
    return pack(&o, err);
}
