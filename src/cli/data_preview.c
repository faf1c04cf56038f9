/* SPDX-License-Identifier: Apache-2.0 */
#include "data/preview.h"

#include "base/plain.h"
#include "cli/cli.h"
#include "cli/data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *tokenizer, *format, *column_map, *chat_template;
    int64_t     seq, first, n;
    bool        train_on_input, json;
} preview_options;

static tm_sft_format format_of(const char *name)
{
    tm_sft_format format = TM_SFT_AUTO;
    while (strcmp(tm_sft_format_name(format), name) != 0) format++; /* the option takes no other */
    return format;
}

static tm_status preview(tm_cli_line *line, tm_error *err)
{
    preview_options *o = line->options;
    const char      *no_colour = getenv("NO_COLOR"), *path = line->words[0];
    tm_text          text = { 0 };
    TM_TRY(tm_cli_find_hub(line, TM_HUB_DATASET, &path, err));
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &o->tokenizer, err));
    tm_preview_options wanted = { .path = path,
                                  .sft = { .format = format_of(o->format),
                                           .column_map = o->column_map,
                                           .tokenizer = o->tokenizer,
                                           .chat_template = o->chat_template,
                                           .train_on_input = o->train_on_input },
                                  .seq = o->seq,
                                  .first = o->first,
                                  .n = o->n,
                                  .json = o->json,
                                  .colour = !o->json && isatty(STDOUT_FILENO) && !(no_colour && *no_colour) };
    tm_status          st = tm_data_preview(&wanted, &text, err);
    if (st == TM_OK) st = wanted.colour ? tm_cli_print_coloured(&text, err) : tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static const tm_option rows[] = {
    { "tokenizer", 0, TM_OPTION_TEXT, offsetof(preview_options, tokenizer), .value = "PATH",
      .help = "tokenizer file, or a model's directory with its template; default: bytes" },
    { "format", 0, TM_OPTION_CHOICE, offsetof(preview_options, format), .fallback = "auto",
      .choices = "auto|messages|conversations|instruction|completion|text|preference",
      .help = "row format; auto: inferred from the columns of the first row" },
    { "column-map", 0, TM_OPTION_TEXT, offsetof(preview_options, column_map), .value = "MAP",
      .help = "names of the columns in the file: prompt=QUESTION,completion=ANSWER" },
    { "chat-template", 0, TM_OPTION_TEXT, offsetof(preview_options, chat_template), .value = "FILE",
      .help = "a file with a chat template, or the name of one in the directory" },
    { "train-on-input", 0, TM_OPTION_FLAG, offsetof(preview_options, train_on_input),
      .help = "prompts also count in the loss" },
    { "seq-len", 0, TM_OPTION_I64, offsetof(preview_options, seq), .value = "N", .fallback = "0", .lo = 0,
      .hi = 1 << 24, .help = "cut samples as training.seq_len N does; 0: do not cut them" },
    { "first", 0, TM_OPTION_I64, offsetof(preview_options, first), .value = "N", .fallback = "1", .lo = 1, .hi = 1e15,
      .help = "number of the first row" },
    { "samples", 'n', TM_OPTION_I64, offsetof(preview_options, n), .value = "N", .fallback = "3", .lo = 1, .hi = 1e9,
      .help = "how many" },
    TM_OPTION_JSON(preview_options),
};

const tm_cli_command tm_data_command_preview = {
    .name = "preview",
    .summary = "print samples for fine-tuning as text, and mark what counts in the loss",
    .words = "PATH",
    .least = 1,
    .most = 1,
    .about = "Prints rows of data for fine-tuning (lines of JSON, an array of JSON, parquet; a file, a directory or a "
             "pattern) as the model reads them. Text that does not count in the loss is between [[ and ]]; with color, "
             "the text that counts is green instead. Special tokens are shown by their names.\n",
    TM_CLI_OPTIONS(rows, preview_options),
    .run = preview,
};
