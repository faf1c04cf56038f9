/* SPDX-License-Identifier: Apache-2.0 */
/* token/chat_answers.c - where in the text of a conversation the answers are. */
#include "token/chat.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* No text has it. */
static const char mark[] = "\x01mark\x01";

typedef struct {
    const tm_chat *chat;
    const json_t  *messages, *more;
    const tm_text *whole;
    size_t         turn; /* of the answer that is looked for */
} search;

/* The first n messages, the last of them perhaps with the mark as its text. */
static json_t *first_messages(const search *s, size_t n, bool marked)
{
    json_t *list = json_array(), *message;
    for (size_t i = 0; i < n; i++) {
        message = json_array_get(s->messages, i);
        if (marked && i == s->turn) {
            message = json_copy(message);
            json_object_set_new(message, "content", json_string(mark));
            json_array_append_new(list, message);
        } else {
            json_array_append(list, message);
        }
    }
    return list;
}

static tm_status render(const search *s, size_t n, bool marked, bool prompt, tm_text *out, tm_error *err)
{
    json_t *messages = first_messages(s, n, marked);
    tm_text_add_n(out, "", 0);
    tm_status st = tm_chat_render(s->chat, messages, s->more, prompt, out, NULL, err);
    json_decref(messages);
    return st;
}

static bool begins_with(const tm_text *whole, const tm_text *begin)
{
    return begin->length <= whole->length && memcmp(whole->data, begin->data, begin->length) == 0;
}

static tm_status cannot_find(const search *s, tm_error *err)
{
    return tm_fail(err, TM_INVALID,
                   "turn %zu: the chat template does not show this answer as it is, so its place is not known; take a "
                   "template that marks answers with {%% generation %%}, or set data.train_on_input true",
                   s->turn + 1);
}

/* The answer's own text, by the mark in its place, and what follows a last answer. */
static tm_status find_by_mark(const search *s, size_t *begin, size_t *end, tm_error *err)
{
    const tm_text *whole = s->whole;
    tm_text        all = { 0 }, last = { 0 };
    tm_status      st = render(s, json_array_size(s->messages), true, false, &all, err);
    if (st == TM_OK) st = render(s, s->turn + 1, true, false, &last, err);
    const char *at = st == TM_OK ? memmem(all.data, all.length, mark, sizeof mark - 1) : NULL;
    const char *tail = at ? memmem(last.data, last.length, mark, sizeof mark - 1) : NULL;
    if (tail) {
        size_t before = (size_t)(at - all.data), after = all.length - before - (sizeof mark - 1);
        tail += sizeof mark - 1;
        size_t n = (size_t)(last.data + last.length - tail);
        if (before + after > whole->length || memcmp(whole->data, all.data, before) != 0 ||
            memcmp(whole->data + whole->length - after, at + sizeof mark - 1, after) != 0) {
            tail = NULL;
        } else {
            *begin = before;
            *end = whole->length - after;
            for (; n > 0 && *end < whole->length && whole->data[*end] == *tail; n--, tail++) ++*end;
        }
    }
    if (st == TM_OK && !tail) st = cannot_find(s, err);
    tm_text_fini(&all);
    tm_text_fini(&last);
    return st;
}

static tm_status find_answer(const search *s, tm_template_span *out, tm_error *err)
{
    tm_text   before = { 0 }, with = { 0 };
    size_t    begin = 0, end = 0;
    bool      first = render(s, s->turn, false, true, &before, NULL) == TM_OK && begins_with(s->whole, &before);
    bool      last = render(s, s->turn + 1, false, false, &with, NULL) == TM_OK && begins_with(s->whole, &with);
    tm_status st = TM_OK;
    if (!first || !last || with.length < before.length) st = find_by_mark(s, &begin, &end, err);
    *out = (tm_template_span){ first ? before.length : begin, last ? with.length : end };
    if (st == TM_OK && out->end < out->begin) st = cannot_find(s, err);
    tm_text_fini(&before);
    tm_text_fini(&with);
    return st;
}

static bool is_answer(const json_t *message, bool *counts)
{
    const char   *role = json_string_value(json_object_get(message, "role"));
    const json_t *weight = json_object_get(message, "weight");
    *counts = !weight || !json_is_number(weight) || json_number_value(weight) > 0;
    return role && strcmp(role, "assistant") == 0;
}

/* What a template marks, without one answer; another one may follow it within the same mark. What ends a turn can be
 * something else behind a last answer, so `answer` can end before what is marked does. */
static void leave_out(tm_template_spans *spans, const tm_template_span *answer, bool followed)
{
    size_t n = spans->count;
    for (size_t i = 0; i < n; i++) {
        tm_template_span *span = &spans->data[i], rest = { followed ? answer->end : span->end, span->end };
        if (answer->end <= span->begin || answer->begin >= span->end) continue;
        span->end = answer->begin > span->begin ? answer->begin : span->begin;
        if (rest.begin >= rest.end) continue;
        spans->data = tm_grow(spans->data, &spans->capacity, spans->count, sizeof *spans->data);
        memmove(&spans->data[i + 2], &spans->data[i + 1], (spans->count - i - 1) * sizeof *spans->data);
        spans->data[i + 1] = rest;
        spans->count++;
        return; /* spans do not overlap */
    }
}

tm_status tm_chat_render_answers(const tm_chat *chat, const json_t *messages, const json_t *more, tm_text *out,
                                 tm_template_spans *spans, tm_error *err)
{
    search     s = { .chat = chat, .messages = messages, .more = more, .whole = out };
    const bool marks = tm_chat_marks_generation(chat);
    TM_ASSERT(out->length == 0);
    spans->count = 0;
    tm_text_add_n(out, "", 0);
    TM_TRY(tm_chat_render(chat, messages, more, false, out, marks ? spans : NULL, err));
    for (; s.turn < json_array_size(messages); s.turn++) {
        tm_template_span answer;
        bool             counts;
        if (!is_answer(json_array_get(messages, s.turn), &counts) || marks == counts) continue;
        TM_TRY(find_answer(&s, &answer, err));
        if (marks) {
            leave_out(spans, &answer, is_answer(json_array_get(messages, s.turn + 1), &counts));
            continue;
        }
        spans->data = tm_grow(spans->data, &spans->capacity, spans->count, sizeof *spans->data);
        spans->data[spans->count++] = answer;
    }
    return TM_OK;
}
