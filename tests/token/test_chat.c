/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations give the ids that transformers gives them (tools/make_chat_fixtures.py), and where the answers are in
 * their text is found with every template. */
#include "support/json.h"
#include "token/chat.h"

#include "support/test.h"

#define FOLDERS "tests/token/chat/"

static json_t *load(void)
{
    const char *path = getenv("IDS");
    return test_json(path ? path : FOLDERS "ids.json");
}

static tm_chat *open_chat(const char *name)
{
    char     path[256];
    tm_chat *chat;
    snprintf(path, sizeof path, FOLDERS "%s", name);
    assert_ok(tm_chat_open(path, NULL, &chat, err));
    return chat;
}

static void check_ids(const char *name, size_t k, tm_token_encoder *encoder, const tm_text *text, const json_t *wanted)
{
    tm_ids ids = { 0 };
    assert_ok(tm_token_encoder_encode(encoder, text->data, text->length, 0, &ids, err));
    if (ids.count != json_array_size(wanted))
        fail_msg("%s %zu: %zu ids, wanted %zu: %s", name, k, ids.count, json_array_size(wanted), text->data);
    for (size_t i = 0; i < ids.count; i++)
        if (ids.data[i] != json_integer_value(json_array_get(wanted, i)))
            fail_msg("%s %zu: id %zu is %d: %s", name, k, i, (int)ids.data[i], text->data);
    free(ids.data);
}

TEST(ids_are_those_of_transformers)
{
    json_t     *root = load(), *cases, *one;
    const char *name;
    size_t      k, met = 0;
    json_object_foreach(root, name, cases)
    {
        char          path[256];
        tm_error      err = { 0 };
        tm_tokenizer *tokenizer;
        tm_chat      *chat = open_chat(name);
        snprintf(path, sizeof path, FOLDERS "%s", name);
        if (tm_tokenizer_open(path, NULL, &tokenizer, &err) != TM_OK) fail_msg("%s", err.text);
        assert_int_equal(tm_chat_check_tokenizer(tokenizer, &err), TM_OK);
        tm_token_encoder *encoder = tm_token_encoder_create(tokenizer);
        json_array_foreach(cases, k, one)
        {
            json_t *variables = json_array_get(one, 0);
            tm_text text = { 0 };
            bool    prompt = json_is_true(json_object_get(variables, "add_generation_prompt"));
            if (tm_chat_render(chat, json_object_get(variables, "messages"), variables, prompt, &text, NULL, &err) !=
                TM_OK)
                fail_msg("%s %zu: %s", name, k, err.text);
            check_ids(name, k, encoder, &text, json_array_get(one, 1));
            tm_text_fini(&text);
            met++;
        }
        tm_token_encoder_destroy(encoder);
        tm_tokenizer_close(tokenizer);
        tm_chat_close(chat);
    }
    assert_true(met >= 100);
    json_decref(root);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* "system" if asked for, then turns of the user and the assistant, whose texts occur nowhere else. */
static json_t *conversation(int turns, bool system)
{
    json_t *messages = json_array();
    char    text[64];
    if (system) json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "system", "content", "Sys [tem]"));
    for (int i = 0; i < turns; i++) {
        snprintf(text, sizeof text, "%s Q%d? ", i % 2 ? " " : "", i);
        json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", text));
        snprintf(text, sizeof text, "%sA%d. %s", i == 1 ? "  " : "", i, i == 2 ? "\n" : "");
        json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "assistant", "content", text));
    }
    return messages;
}

static void check_answers(const char *name, const tm_chat *chat, const char *end, int turns, bool system)
{
    json_t           *messages = conversation(turns, system);
    tm_text           text = { 0 }, plain = { 0 };
    tm_template_spans spans = { 0 };
    tm_error          err = { 0 };
    if (tm_chat_render_answers(chat, messages, NULL, &text, &spans, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    assert_int_equal(tm_chat_render(chat, messages, NULL, false, &plain, NULL, &err), TM_OK);
    assert_string_equal(text.data, plain.data);
    assert_int_equal(spans.count, turns);
    for (int i = 0; i < turns; i++) {
        char wanted[16], answer[512];
        snprintf(wanted, sizeof wanted, "A%d.", i);
        snprintf(answer, sizeof answer, "%.*s", (int)(spans.data[i].end - spans.data[i].begin),
                 text.data + spans.data[i].begin);
        if (!strstr(answer, wanted)) fail_msg("%s, answer %d: '%s' of '%s'", name, i, answer, text.data);
        if (strchr(answer, 'Q') || strstr(answer, "Sys") || strstr(answer, "user") || strstr(answer, "INST"))
            fail_msg("%s, answer %d has more than itself: '%s' of '%s'", name, i, answer, text.data);
        if (!strstr(answer, end)) fail_msg("%s, answer %d has no '%s': '%s' of '%s'", name, i, end, answer, text.data);
        assert_true(i == 0 || spans.data[i].begin >= spans.data[i - 1].end);
    }
    json_decref(messages);
    tm_text_fini(&text);
    tm_text_fini(&plain);
    free(spans.data);
}

TEST(answers_are_found_with_every_template)
{
    static const char *const templates[][2] = { { "llama2", "</s>" },   { "llama3", "<|eot_id|>" },
                                                { "mistral", "</s>" },  { "qwen3", "<|im_end|>" },
                                                { "deepseek", "</s>" }, { "gpt-oss", "<|" } };
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        tm_chat *chat = open_chat(templates[i][0]);
        assert_int_equal(tm_chat_marks_generation(chat), strcmp(templates[i][0], "gpt-oss") == 0);
        for (int turns = 1; turns <= 3; turns++)
            for (int system = 0; system < 2; system++)
                check_answers(templates[i][0], chat, templates[i][1], turns, system);
        tm_chat_close(chat);
    }
}

static tm_chat *chat_of(const char *text)
{
    char     path[] = "/tmp/tm-chat-XXXXXX";
    FILE    *file = fdopen(mkstemp(path), "w");
    tm_chat *chat;
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_ok(tm_chat_open_file(path, NULL, &chat, err));
    remove(path);
    return chat;
}

TEST(a_damaged_file_is_refused)
{
    char     path[] = "/tmp/tm-chat-XXXXXX";
    FILE    *file = fdopen(mkstemp(path), "w");
    tm_chat *chat;
    assert_non_null(file);
    fputs("GGUF\3", file);
    fclose(file);
    assert_refused(tm_chat_open(path, NULL, &chat, err), TM_FORMAT, path);
    remove(path);
}

/* A template may mark answers that follow each other as one. */
TEST(answers_within_one_mark_are_told_apart)
{
    static const char text[] = "<{{ messages[0].content }}>{% generation %}{% for m in messages[1:] %}{{ m.content }}"
                               "{% endfor %}.{% endgeneration %}";
    static const char *const shown[] = { "<q>[abc.]", "<q>a[bc.]", "<q>[a]b[c.]", "<q>ab[c.]",
                                         "<q>[ab]c.", "<q>a[b]c.", "<q>[a]bc.",   "<q>abc." };
    tm_chat                 *chat = chat_of(text);
    for (unsigned without = 0; without < 8; without++) {
        json_t           *messages = json_array();
        tm_text           out = { 0 }, seen = { 0 };
        tm_template_spans spans = { 0 };
        json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", "q"));
        for (unsigned i = 0; i < 3; i++)
            json_array_append_new(messages, json_pack("{s:s,s:s#,s:i}", "role", "assistant", "content", &"abc"[i], 1,
                                                      "weight", (int)!(without >> i & 1)));
        assert_ok(tm_chat_render_answers(chat, messages, NULL, &out, &spans, err));
        for (size_t at = 0; at <= out.length; at++) {
            for (size_t i = 0; i < spans.count; i++)
                if (spans.data[i].end == at && spans.data[i].begin < at) tm_text_add(&seen, "]");
            for (size_t i = 0; i < spans.count; i++)
                if (spans.data[i].begin == at && spans.data[i].end > at) tm_text_add(&seen, "[");
            if (at < out.length) tm_text_add_n(&seen, out.data + at, 1);
        }
        assert_string_equal(seen.data, shown[without]);
        json_decref(messages);
        tm_text_fini(&out);
        tm_text_fini(&seen);
        free(spans.data);
    }
    tm_chat_close(chat);
}

/* The place of an answer that a template does not show as it is cannot be known. */
TEST(an_answer_that_is_not_shown_is_an_error)
{
    static const char text[] = "{% for m in messages %}{% if m.role == 'user' %}<{{ m.content }}>{% else %}"
                               "{{ m.content|upper }}{{ messages|length }}{% endif %}{% endfor %}";
    tm_chat          *chat = chat_of(text);
    tm_text           out = { 0 };
    tm_template_spans spans = { 0 };
    json_t           *messages = conversation(2, false);
    assert_refused(tm_chat_render_answers(chat, messages, NULL, &out, &spans, err), TM_INVALID,
                   "turn 2: the chat template does not show this answer as it is");
    tm_chat_close(chat);
    json_decref(messages);
    tm_text_fini(&out);
    free(spans.data);
}
