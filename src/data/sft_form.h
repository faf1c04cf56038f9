/* SPDX-License-Identifier: Apache-2.0 */
/* data/sft_form.h - rows of data for fine-tuning in the forms in which they are published, as prompts and answers;
 * private to this room. docs/fine-tuning.md has the table. */
#ifndef TM_DATA_SFT_FORM_H
#define TM_DATA_SFT_FORM_H

#include "base/status.h"
#include "base/text.h"
#include "data/source.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct tm_sft_form tm_sft_form;

/* `column_map` is "ROLE=COLUMN,..." or NULL. TM_INVALID: not such a list, or a role that no format has. */
TM_MUST_USE tm_status tm_sft_form_open(tm_sft_format format, const char *column_map, tm_sft_form **out, tm_error *err);
void                  tm_sft_form_close(tm_sft_form *form); /* NULL is fine */

/* The columns that rows may be asked for; they live as long as the form. */
const char *const *tm_sft_form_columns(const tm_sft_form *form, size_t *n);

/* A row as a conversation or as a prompt and an answer; or as a pair of them with one prompt. */
typedef struct {
    json_t *messages; /* role, content, ...; NULL: prompt and answer */
    json_t *more;     /* further variables of a chat template, or NULL */
    tm_text prompt, answer;
    bool    nothing; /* an empty text: no sample, and no mistake; of pairs: the answers do not differ */
    bool    paired;  /* messages or answer are the chosen ones, and there are */
    json_t *rejected_messages;
    tm_text rejected;
    size_t  shared; /* messages of the prompt, with which both begin; without a pair: what follows them is trained on */
} tm_sft_row;

/* Replaces *out. The first row decides the layout for all. `place` ("'x.jsonl', line 7") begins every message.
 * TM_INVALID: a column that is missing, null, empty or of another type; a role that nobody has. */
TM_MUST_USE tm_status tm_sft_form_read(tm_sft_form *form, const json_t *row, const char *place, tm_sft_row *out,
                                       tm_error *err);
void                  tm_sft_row_fini(tm_sft_row *row); /* a zeroed one is fine */

/* What was found: "completion (prompt=report, completion=summary)"; "" before the first row. */
const char *tm_sft_form_describe(const tm_sft_form *form);

#endif
