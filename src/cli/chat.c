/* SPDX-License-Identifier: Apache-2.0 */
/* cli/chat.c - `trainmark chat`: a conversation with a model, line by line. What was read is not read again: only what
 * a turn adds to the text of the conversation goes through the model. */
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/speak.h"
#include "token/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    speak_options speak;
    const char   *system;
    int64_t       context;
} chat_options;

typedef struct {
    const chat_options *o;
    speaker             speaker;
    tm_chat *template; /* NULL: lines are prompts of their own */
    json_t  *messages;
    int32_t *read; /* the tokens that the model has read */
    int64_t  n_read, length;
} talk;

/* The template of the run's data, else that of the tokenizer's directory. None of them: that is said, and no failure.
 */
static tm_status open_template(talk *t, tm_error *err)
{
    const tm_hf_source *source = &t->speaker.source;
    const char         *given = t->o->speak.tokenizer;
    const char         *folder = given ? given : tm_hf_source_tokenizer(source);
    const char         *named = source->checkpoint ? tm_config_text(source->config, "data.chat_template") : NULL;
    tm_error            own = { 0 };
    tm_status           st;
    if (named && *named && tm_file_exists(named)) return tm_chat_open_file(named, folder, &t->template, err);
    st = tm_chat_open(folder, named && *named ? named : NULL, &t->template, &own);
    if (st == TM_OK) return tm_chat_check_tokenizer(t->speaker.tokenizer, err);
    if (st != TM_INVALID || (named && *named)) return tm_fail(err, st, "%s", own.text);
    tm_note("the model has no chat template: every line is a prompt of its own");
    return TM_OK;
}

static void begin(talk *t)
{
    json_decref(t->messages);
    t->messages = json_array();
    if (t->o->system)
        json_array_append_new(t->messages, json_pack("{s:s, s:s}", "role", "system", "content", t->o->system));
}

static void add_message(talk *t, const char *role, const char *text)
{
    json_array_append_new(t->messages, json_pack("{s:s, s:s}", "role", role, "content", text));
}

/* The ids of the whole conversation with what precedes an answer; without a template of the line alone. */
static tm_status ids_of(talk *t, const char *line, tm_ids *out, tm_error *err)
{
    tm_text           text = { 0 };
    tm_template_spans spans = { 0 };
    *out = (tm_ids){ 0 };
    if (!t->template) return speak_encode(&t->speaker, line, strlen(line), out, err);
    tm_status st = tm_chat_render(t->template, t->messages, NULL, true, &text, &spans, err);
    if (st == TM_OK) {
        tm_token_encoder *encoder = tm_token_encoder_create(t->speaker.tokenizer);
        st = tm_token_encoder_encode(encoder, text.data, text.length, 0, out, err);
        tm_token_encoder_destroy(encoder);
    }
    tm_text_fini(&text);
    free(spans.data);
    return st;
}

/* Reads what the model has not read yet; all of it where the text has changed before that. */
static tm_status take_in(talk *t, const tm_ids *ids, tm_error *err)
{
    int64_t n = (int64_t)ids->count, same = 0;
    if (n < 1) return tm_fail(err, TM_INVALID, "the prompt has no tokens");
    if (n >= t->length)
        return tm_fail(err, TM_INVALID,
                       "the conversation has %lld tokens, there is room for %lld; /new begins another, --context N "
                       "takes a longer one",
                       (long long)n, (long long)t->length);
    while (same < t->n_read && same < n && ids->data[same] == t->read[same]) same++;
    if (!t->template || same < t->n_read || same == n) {
        tm_decoder_restart(t->speaker.decoder);
        same = 0;
    }
    TM_TRY(speak_read(&t->speaker, ids->data + same, n - same, err));
    memcpy(t->read, ids->data, (size_t)n * sizeof *t->read);
    t->n_read = n;
    return TM_OK;
}

/* Prints what is whole of the text behind *shown. */
static tm_status show(const tm_text *text, size_t *shown, bool last, tm_error *err)
{
    size_t  end = *shown;
    tm_text part = { 0 };
    while (end < text->length) {
        size_t n = tm_utf8_length((const unsigned char *)text->data + end);
        if (n == 0 && !last && text->length - end < 4) break; /* the rest of a character may come */
        end += n ? n : 1;
    }
    tm_text_add_n(&part, text->data + *shown, end - *shown);
    *shown = end;
    tm_status st = tm_cli_print(&part, err);
    tm_text_fini(&part);
    return st;
}

static tm_status answer(talk *t, tm_text *text, tm_error *err)
{
    int32_t  *ids = tm_alloc((size_t)t->length * sizeof *ids);
    int64_t   n = 0;
    size_t    shown = 0;
    tm_status st = TM_OK;
    while (st == TM_OK && n < t->o->speak.max_tokens && t->n_read < t->length) {
        int32_t next = speak_next(&t->speaker);
        if (speak_ends(&t->speaker, next)) break;
        ids[n++] = next;
        text->length = 0;
        tm_tokenizer_decode(t->speaker.tokenizer, ids, (size_t)n, false, text);
        st = show(text, &shown, false, err);
        t->read[t->n_read++] = next;
        if (st == TM_OK && t->n_read < t->length) st = speak_read(&t->speaker, &next, 1, err);
    }
    tm_text_add(text, "");
    if (st == TM_OK) st = show(text, &shown, true, err);
    free(ids);
    return st;
}

static tm_status turn(talk *t, const char *line, tm_error *err)
{
    tm_ids  ids;
    tm_text text = { 0 }, end = { 0 };
    if (strcmp(line, "/new") == 0) {
        begin(t);
        return TM_OK;
    }
    add_message(t, "user", line);
    TM_TRY(ids_of(t, line, &ids, err));
    tm_status st = take_in(t, &ids, err);
    free(ids.data);
    if (st == TM_OK) st = answer(t, &text, err);
    if (st == TM_OK) add_message(t, "assistant", text.data);
    tm_text_add(&end, "\n");
    if (st == TM_OK) st = tm_cli_print(&end, err);
    tm_text_fini(&text);
    tm_text_fini(&end);
    return st;
}

static tm_status converse(talk *t, tm_error *err)
{
    char     *line = NULL;
    size_t    room = 0;
    bool      asks = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    tm_status st = TM_OK;
    if (asks) fputs("/new begins another conversation, Ctrl-D ends\n", stderr);
    while (st == TM_OK) {
        if (asks) fputs("> ", stderr);
        ssize_t n = getline(&line, &room, stdin);
        if (n < 0) break;
        if (n > 0 && line[n - 1] == '\n') line[--n] = '\0';
        if (n > 0) st = turn(t, line, err);
    }
    if (asks) fputc('\n', stderr);
    free(line);
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    chat_options *o = line->options;
    const char   *path = line->words[0];
    talk          t = { .o = o };
    TM_TRY(tm_cli_find_model(line, &path, &o->speak.adapter, err));
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &o->speak.tokenizer, err));
    tm_status st = speak_open(&t.speaker, path, &o->speak, err);
    if (st == TM_OK && tm_model_images(&t.speaker.source.shape))
        st = tm_fail(err, TM_UNSUPPORTED, "'%.300s' is a model of images; only texts are continued", path);
    if (st == TM_OK) st = speak_open_tokenizer(&t.speaker, err);
    if (st == TM_OK) st = open_template(&t, err);
    if (st == TM_OK) {
        int64_t most = tm_model_max_length(&t.speaker.source.shape);
        t.length = o->context < most ? o->context : most;
        t.read = tm_alloc((size_t)t.length * sizeof *t.read);
        st = speak_load(&t.speaker, t.length, 1, err);
    }
    begin(&t);
    if (st == TM_OK) st = converse(&t, err);
    speak_close(&t.speaker);
    tm_chat_close(t.template);
    json_decref(t.messages);
    free(t.read);
    return st;
}

static const tm_option rows[] = {
    { "system", 0, TM_OPTION_TEXT, offsetof(chat_options, system), .value = "TEXT",
      .help = "what the model is told before the conversation" },
    { "context", 0, TM_OPTION_I64, offsetof(chat_options, context), .value = "N", .fallback = "2048", .lo = 2,
      .hi = 1 << 24, .help = "tokens of a conversation at most; the model's positions are another limit" },
    SPEAK_ROWS(chat_options, "256", "0.7"),
    TM_OPTION_DEVICE(speak_options),
};

const tm_cli_command tm_command_chat = {
    .name = "chat",
    .summary = "talk to a Hugging Face directory or a trained model",
    .words = "DIR|RUN",
    .least = 1,
    .most = 1,
    .about = "Reads lines from standard input and prints the model's answers. A model with a chat template reads the "
             "whole conversation; to one without, every line is a prompt of its own. /new begins another conversation.",
    TM_CLI_OPTIONS(rows, chat_options),
    .run = run,
};
