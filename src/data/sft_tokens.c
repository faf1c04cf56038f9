/* SPDX-License-Identifier: Apache-2.0 */
/* data/sft_tokens.c - encodes prompts, answers and conversations.
 *
 * A prompt and an answer are encoded apart: no token crosses the border. A conversation is encoded as a whole, as the
 * reference library does; a token is a target if it has a byte of an answer.
 */
#include "data/sft_tokens.h"

#include "base/arena.h"
#include "base/file.h"
#include "token/chat.h"

#include <stdlib.h>
#include <string.h>

enum { END_OF_BYTES = 256, BYTE_VALUES = 256 };

struct tm_sft_coder {
    tm_sft_options    options;
    char             *folder, *template; /* copies of the options' */
    tm_tokenizer     *tokenizer;         /* NULL: bytes */
    tm_token_encoder *encoder;
    tm_chat          *chat;
    tm_text           text, part;
    tm_template_spans spans;
    tm_ids            ids;
    int32_t          *lengths; /* by id, -1: not known yet; NULL: none is */
    bool              shares;  /* tokenizer, template and their names are another one's */
};

static char *copy(const char *text)
{
    return text ? strcpy(tm_alloc(strlen(text) + 1), text) : NULL;
}

tm_status tm_sft_coder_open(const tm_sft_options *options, tm_sft_coder **out, tm_error *err)
{
    const bool    bytes = !options->tokenizer || strcmp(options->tokenizer, "byte") == 0;
    tm_sft_coder *c = tm_alloc(sizeof *c);
    *c = (tm_sft_coder){ .options = *options };
    c->folder = bytes ? NULL : copy(options->tokenizer);
    c->template = copy(options->chat_template);
    tm_status st = bytes ? TM_OK : tm_tokenizer_open(c->folder, NULL, &c->tokenizer, err);
    if (st == TM_OK && c->tokenizer) c->encoder = tm_token_encoder_create(c->tokenizer);
    if (st == TM_OK)
        *out = c;
    else
        tm_sft_coder_close(c);
    return st;
}

tm_sft_coder *tm_sft_coder_share(const tm_sft_coder *coder)
{
    tm_sft_coder *c = tm_alloc(sizeof *c);
    *c = (tm_sft_coder){ .options = coder->options,
                         .folder = coder->folder,
                         .template = coder->template,
                         .tokenizer = coder->tokenizer,
                         .chat = coder->chat,
                         .shares = true };
    if (c->tokenizer) c->encoder = tm_token_encoder_create(c->tokenizer);
    return c;
}

void tm_sft_coder_close(tm_sft_coder *coder)
{
    if (!coder) return;
    tm_token_encoder_destroy(coder->encoder);
    tm_text_fini(&coder->text);
    tm_text_fini(&coder->part);
    free(coder->spans.data);
    free(coder->ids.data);
    free(coder->lengths);
    if (!coder->shares) {
        tm_tokenizer_close(coder->tokenizer);
        tm_chat_close(coder->chat);
        free(coder->folder);
        free(coder->template);
    }
    free(coder);
}

tm_status tm_sft_vocabulary(const tm_sft_options *options, int64_t *size, tm_error *err)
{
    tm_sft_coder *coder;
    TM_TRY(tm_sft_coder_open(options, &coder, err));
    *size = coder->tokenizer ? tm_tokenizer_describe(coder->tokenizer)->vocab : END_OF_BYTES + 1;
    tm_sft_coder_close(coder);
    return TM_OK;
}

static void put(tm_ids *ids, int32_t id, bool target)
{
    ids->data = tm_grow(ids->data, &ids->capacity, ids->count, sizeof *ids->data);
    ids->data[ids->count++] = target ? id : -1 - id;
}

static tm_status encode(const tm_sft_coder *c, const char *text, size_t bytes, unsigned flags, tm_ids *out,
                        tm_error *err)
{
    if (c->encoder) return tm_token_encoder_encode(c->encoder, text, bytes, flags, out, err);
    for (size_t i = 0; i < bytes; i++) put(out, (unsigned char)text[i], true);
    return TM_OK;
}

/* --- prompts and answers ------------------------------------------------------------------------------------------ */

static tm_status end_of_text(const tm_sft_coder *c, int32_t *out, tm_error *err)
{
    *out = c->tokenizer ? tm_tokenizer_describe(c->tokenizer)->eos : END_OF_BYTES;
    if (*out >= 0) return TM_OK;
    const char *missing = tm_tokenizer_describe(c->tokenizer)->eos_missing;
    if (missing)
        return tm_fail(
            err, TM_INVALID,
            "'%s' calls '%.100s' its eos_token, and its tokenizer has no such token, so a model would not learn "
            "where an answer ends; add it to the tokenizer, or name another",
            c->folder, missing);
    return tm_fail(err, TM_INVALID,
                   "'%s' has no token that ends a text (</s>, <|endoftext|>, ...), so a model would "
                   "not learn where an answer ends; take another tokenizer",
                   c->folder);
}

static tm_status encode_answer(tm_sft_coder *c, const tm_sft_row *row, const tm_text *answer, tm_ids *out,
                               tm_error *err)
{
    const bool prompted = row->prompt.length > 0;
    int32_t    end;
    TM_TRY(end_of_text(c, &end, err));
    TM_TRY(encode(c, row->prompt.data, row->prompt.length, TM_ENCODE_SPECIAL | TM_ENCODE_UNFINISHED, out, err));
    for (size_t i = 0; prompted && !c->options.train_on_input && i < out->count; i++) out->data[i] = -1 - out->data[i];
    unsigned flags = prompted ? TM_ENCODE_CONTINUED : 0;
    TM_TRY(encode(c, answer->data, answer->length, flags, out, err));
    put(out, end, true);
    return TM_OK;
}

/* --- conversations ------------------------------------------------------------------------------------------------ */

static tm_status open_template(tm_sft_coder *c, tm_error *err)
{
    if (c->tokenizer) TM_TRY(tm_chat_check_tokenizer(c->tokenizer, err));
    if (c->template && tm_file_exists(c->template)) return tm_chat_open_file(c->template, c->folder, &c->chat, err);
    if (c->folder) return tm_chat_open(c->folder, c->template, &c->chat, err);
    if (c->template)
        return tm_fail(err, TM_INVALID,
                       "data.chat_template '%s' is not a file, and data.tokenizer names no directory that "
                       "could have one of that name",
                       c->template);
    return tm_fail(err, TM_INVALID,
                   "conversations need a chat template: give data.tokenizer a model's directory with one, or "
                   "data.chat_template a file");
}

static bool in_span(const tm_template_spans *spans, size_t begin, size_t end)
{
    for (size_t i = 0; i < spans->count; i++)
        if (begin < spans->data[i].end && end > spans->data[i].begin) return true;
    return false;
}

/* Bytes of a token's text by itself. */
static size_t length_of(tm_sft_coder *c, int32_t id)
{
    if (!c->tokenizer) return id < BYTE_VALUES;
    if (!c->lengths) {
        size_t n = (size_t)tm_tokenizer_describe(c->tokenizer)->vocab;
        c->lengths = tm_alloc(n * sizeof *c->lengths);
        for (size_t i = 0; i < n; i++) c->lengths[i] = -1;
    }
    if (c->lengths[id] < 0) {
        c->part.length = 0;
        tm_tokenizer_decode(c->tokenizer, &id, 1, true, &c->part);
        c->lengths[id] = (int32_t)c->part.length;
    }
    return (size_t)c->lengths[id];
}

/* Where tokens are pieces of the text one after another, their lengths tell what each covers; false: they are not. */
static bool mark_by_lengths(tm_sft_coder *c, tm_ids *ids)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) at += length_of(c, ids->data[i]);
    if (at != c->text.length) return false;
    c->part.length = 0;
    tm_text_add_n(&c->part, "", 0);
    tm_sft_decode(c, ids->data, ids->count, true, &c->part);
    if (c->part.length != c->text.length || memcmp(c->part.data, c->text.data, at) != 0) return false;
    at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        size_t n = length_of(c, ids->data[i]);
        if (!in_span(&c->spans, at, at + n)) ids->data[i] = -1 - ids->data[i];
        at += n;
    }
    return true;
}

/* How many tokens of the whole the first `bytes` of the text begin with. */
static tm_status count_tokens(tm_sft_coder *c, size_t bytes, const tm_ids *whole, size_t *out, tm_error *err)
{
    c->ids.count = 0;
    TM_TRY(encode(c, c->text.data, bytes, 0, &c->ids, err));
    for (*out = 0; *out < whole->count && *out < c->ids.count;)
        if (c->ids.data[*out] == whole->data[*out])
            ++*out;
        else
            break;
    return TM_OK;
}

/* By encoding what precedes each border. */
static tm_status mark_by_prefixes(tm_sft_coder *c, tm_ids *ids, tm_error *err)
{
    size_t *border = tm_alloc((2 * c->spans.count + 1) * sizeof *border), n = 0;
    for (size_t i = 0; i < c->spans.count; i++) {
        const size_t at[2] = { c->spans.data[i].begin, c->spans.data[i].end };
        for (int k = 0; k < 2; k++) {
            tm_status st = count_tokens(c, at[k], ids, &border[n++], err);
            if (st != TM_OK) {
                free(border);
                return st;
            }
        }
    }
    for (size_t i = 0, k = 0; i < ids->count; i++) {
        while (k < n && i >= border[k + 1]) k += 2;
        if (k >= n || i < border[k]) ids->data[i] = -1 - ids->data[i];
    }
    free(border);
    return TM_OK;
}

static void clear(tm_text *text)
{
    text->length = 0;
    tm_text_add_n(text, "", 0);
}

/* The text of one conversation of a pair. Its answer is what follows the text of the prompt's messages and of what
 * precedes an answer; where a template shows the prompt otherwise without it, what follows their common beginning. */
static tm_status render_pair(tm_sft_coder *c, const json_t *messages, const tm_sft_row *row, tm_error *err)
{
    json_t *prompt = json_array();
    size_t  n = 0;
    for (size_t i = 0; i < row->shared; i++) json_array_append(prompt, json_array_get(messages, i));
    clear(&c->part);
    tm_status st = tm_chat_render(c->chat, prompt, row->more, true, &c->part, NULL, err);
    json_decref(prompt);
    if (st == TM_OK) st = tm_chat_render(c->chat, messages, row->more, false, &c->text, NULL, err);
    if (st != TM_OK) return st;
    while (n < c->part.length && n < c->text.length && c->part.data[n] == c->text.data[n]) n++;
    c->spans.data = tm_grow(c->spans.data, &c->spans.capacity, 0, sizeof *c->spans.data);
    c->spans.data[0].begin = n;
    c->spans.data[0].end = c->text.length;
    c->spans.count = 1;
    return TM_OK;
}

/* Where more than answers is learned, or all that follows a prompt, every answer has to be. */
static tm_status all_count(const json_t *messages, size_t from, tm_error *err)
{
    for (size_t i = from; i < json_array_size(messages); i++) {
        const json_t *weight = json_object_get(json_array_get(messages, i), "weight");
        if (json_is_number(weight) && json_number_value(weight) <= 0)
            return tm_fail(err, TM_UNSUPPORTED,
                           "turn %zu is not to be learned, which is built for conversations whose answers are learned, "
                           "not for data.train_on_input, completions and preferences; leave the message out",
                           i + 1);
    }
    return TM_OK;
}

static tm_status encode_conversation(tm_sft_coder *c, const tm_sft_row *row, const json_t *messages, tm_ids *out,
                                     tm_error *err)
{
    if (!c->chat) TM_TRY(open_template(c, err));
    clear(&c->text);
    if (row->paired || row->shared > 0 || c->options.train_on_input) TM_TRY(all_count(messages, row->shared, err));
    if (row->paired || (row->shared > 0 && !c->options.train_on_input))
        TM_TRY(render_pair(c, messages, row, err));
    else if (c->options.train_on_input)
        TM_TRY(tm_chat_render(c->chat, messages, row->more, false, &c->text, NULL, err));
    else
        TM_TRY(tm_chat_render_answers(c->chat, messages, row->more, &c->text, &c->spans, err));
    TM_TRY(encode(c, c->text.data, c->text.length, 0, out, err));
    if (c->options.train_on_input || mark_by_lengths(c, out)) return TM_OK;
    return mark_by_prefixes(c, out, err);
}

tm_status tm_sft_encode(tm_sft_coder *coder, const tm_sft_row *row, const char *place, tm_ids out[2], tm_error *err)
{
    const json_t  *messages[2] = { row->messages, row->rejected_messages };
    const tm_text *answers[2] = { &row->answer, &row->rejected };
    tm_error       why = { 0 };
    tm_status      st = TM_OK;
    out[0].count = out[1].count = 0;
    if (row->paired && coder->options.train_on_input)
        return tm_fail(
            err, TM_UNSUPPORTED,
            "%s: data.train_on_input counts prompts in a loss of tokens, and the loss of two answers compares what "
            "follows their prompt; leave it out",
            place);
    for (int k = 0; k < (row->paired ? 2 : 1) && st == TM_OK; k++)
        st = row->messages ? encode_conversation(coder, row, messages[k], &out[k], &why)
                           : encode_answer(coder, row, answers[k], &out[k], &why);
    return st == TM_OK ? TM_OK : tm_fail(err, st, "%s: %s", place, why.text);
}

void tm_sft_decode(const tm_sft_coder *coder, const int32_t *tokens, size_t n, bool special, tm_text *out)
{
    for (size_t i = 0; i < n && !coder->tokenizer; i++) {
        int32_t id = tm_sft_id(tokens[i]);
        if (id < BYTE_VALUES)
            tm_text_add_n(out, &(char){ (char)id }, 1);
        else if (special)
            tm_text_add(out, "<|end|>");
    }
    if (!coder->tokenizer) return;
    int32_t *ids = tm_alloc((n + 1) * sizeof *ids);
    for (size_t i = 0; i < n; i++) ids[i] = tm_sft_id(tokens[i]);
    tm_tokenizer_decode(coder->tokenizer, ids, n, special, out);
    free(ids);
}
