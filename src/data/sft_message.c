/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sft_message.h"

#include "base/json_input.h"
#include "base/text.h"

#include <string.h>

const char *tm_sft_type_of(const json_t *value)
{
    static const char *const types[] = { "an object", "an array", "a text", "a number",
                                         "a number",  "true",     "false",  "null" };
    return types[json_typeof(value)];
}

bool tm_sft_is_blank(const json_t *text)
{
    const char *p = json_string_value(text);
    return p[strspn(p, " \t\r\n")] == '\0';
}

/* A text, or the first of those in a message, that has what no text here can have. */
tm_status tm_sft_check_text(const json_t *value, const char *place, const char *name, tm_error *err)
{
    const char   *key, *problem = tm_json_text_problem(value, false);
    const json_t *one;
    size_t        i;
    if (problem) return tm_fail(err, TM_INVALID, "%s: '%s' %s", place, name, problem);
    json_array_foreach(value, i, one) TM_TRY(tm_sft_check_text(one, place, name, err));
    json_object_foreach((json_t *)(uintptr_t)value, key, one) TM_TRY(tm_sft_check_text(one, place, key, err));
    return TM_OK;
}

/* What a template calls the one who speaks; NULL: nobody. */
static const char *speaker(tm_sft_format format, const char *given)
{
    static const char *const rows[][2] = { { "system", "system" },       { "user", "user" },
                                           { "assistant", "assistant" }, { "tool", "tool" },
                                           { "developer", "developer" }, { "human", "user" },
                                           { "gpt", "assistant" } };
    const size_t             n = sizeof rows / sizeof rows[0] - (format == TM_SFT_MESSAGES ? 2 : 0);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i][0], given) == 0) return rows[i][1];
    return NULL;
}

/* The text of a message's content: a text, or a list of parts of the type text, which is their texts one after another.
 * *out is released by the caller; NULL: there is none. */
static tm_status read_content(const json_t *given, size_t turn, const char *place, const char *what, json_t **out,
                              tm_error *err)
{
    tm_text       text = { 0 };
    const json_t *part;
    size_t        i;
    *out = json_is_string(given) ? json_incref((json_t *)(uintptr_t)given) : NULL;
    json_array_foreach(given, i, part)
    {
        const char   *type = json_string_value(json_object_get(part, "type"));
        const json_t *words = json_object_get(part, "text");
        if (!type || strcmp(type, "text") != 0 || !json_is_string(words)) {
            tm_text_fini(&text);
            return tm_fail(err, TM_INVALID,
                           "%s, turn %zu: part %zu of '%s' is %s%.60s%s, wanted {\"type\": \"text\", "
                           "\"text\": ...}: only texts are read",
                           place, turn, i + 1, what, type ? "of the type '" : "without a text", type ? type : "",
                           type ? "'" : "");
        }
        if (json_object_get(part, "train") || json_object_get(part, "weight")) {
            tm_text_fini(&text);
            return tm_fail(
                err, TM_UNSUPPORTED,
                "%s, turn %zu: part %zu of '%s' says what of an answer is learned, and answers are learned as "
                "a whole; leave its 'train' and 'weight' out",
                place, turn, i + 1, what);
        }
        tm_text_add_n(&text, json_string_value(words), json_string_length(words));
    }
    if (json_array_size(given) > 0) *out = json_stringn_nocheck(text.data, text.length);
    tm_text_fini(&text);
    return TM_OK;
}

/* Is this answer one to learn? OpenAI and mistral-finetune say it with `weight`, ms-swift with `loss` or `loss_scale`,
 * axolotl with `train`, which asks for other turns, too: the others count for answers only. */
static tm_status read_wanted(const json_t *given, bool answer, size_t turn, const char *place, bool *out, tm_error *err)
{
    static const struct {
        const char *name, *wanted;
        bool        boolean, of_others;
    } members[] = { { .name = "weight", .wanted = "1 nor 0" },
                    { .name = "loss_scale", .wanted = "1 nor 0" },
                    { .name = "loss", .wanted = "true nor false", .boolean = true },
                    { .name = "train", .wanted = "true nor false", .boolean = true, .of_others = true } };
    *out = true;
    if (json_array_size(json_object_get(given, "train_detail")) > 0)
        return tm_fail(err, TM_UNSUPPORTED,
                       "%s, turn %zu: 'train_detail' is not supported: answers are learned as a whole; leave it out",
                       place, turn);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const json_t *value = json_object_get(given, members[i].name);
        double        x = json_is_boolean(value) ? (double)json_is_true(value) : json_number_value(value);
        bool          is_no = x >= 0 && x <= 0, is_yes = x >= 1 && x <= 1;
        if (!value || json_is_null(value) || (!answer && !members[i].of_others)) continue;
        if (!(members[i].boolean ? json_is_boolean(value) : json_is_number(value)) || (!is_no && !is_yes))
            return tm_fail(
                err, TM_UNSUPPORTED,
                "%s, turn %zu: '%s' is neither %s, and answers that count otherwise are not supported; leave it "
                "out to learn all answers alike",
                place, turn, members[i].name, members[i].wanted);
        if (!answer && is_yes)
            return tm_fail(err, TM_UNSUPPORTED,
                           "%s, turn %zu: '%s' is true, and of a conversation only answers are learned, or all of it "
                           "with data.train_on_input; leave it out",
                           place, turn, members[i].name);
        *out &= is_yes;
    }
    return TM_OK;
}

/* A message with a role, or with "from" and "value"; conversations may have either. */
tm_status tm_sft_read_message(tm_sft_format format, const json_t *given, size_t turn, const char *place, json_t *list,
                              tm_error *err)
{
    const bool    has_role = json_object_get(given, "role") && !json_object_get(given, "from");
    const bool    from = format == TM_SFT_CONVERSATIONS && !has_role;
    const char   *who = from ? "from" : "role", *what = from ? "value" : "content";
    const json_t *name = json_object_get(given, who), *content = json_object_get(given, what);
    if (!json_is_object(given))
        return tm_fail(err, TM_INVALID, "%s, turn %zu: %s, wanted an object with '%s' and '%s'", place, turn,
                       tm_sft_type_of(given), who, what);
    if (!name)
        return tm_fail(err, TM_INVALID,
                       "%s, turn %zu: '%s' is missing, wanted a message with '%s' and '%s'; rows that are no messages "
                       "stand in a line each, or in one array that is the file",
                       place, turn, who, who, what);
    if (!json_is_string(name))
        return tm_fail(err, TM_INVALID, "%s, turn %zu: '%s' is %s, wanted a text", place, turn, who,
                       tm_sft_type_of(name));
    const char *speaks = speaker(format, json_string_value(name));
    if (!speaks)
        return tm_fail(err, TM_INVALID, "%s, turn %zu: unknown role '%.60s'; wanted %s", place, turn,
                       json_string_value(name),
                       from ? "human, gpt, system or tool" : "system, developer, user, assistant or tool");
    bool wanted, answer = strcmp(speaks, "assistant") == 0;
    TM_TRY(read_wanted(given, answer, turn, place, &wanted, err));
    bool    calls = json_array_size(json_object_get(given, "tool_calls")) > 0;
    json_t *text;
    TM_TRY(read_content(content, turn, place, what, &text, err));
    tm_status st = TM_OK;
    if (!text && !(calls && (!content || json_is_null(content))))
        st = tm_fail(err, TM_INVALID, "%s, turn %zu: '%s' is %s, wanted a text", place, turn, what,
                     !content                 ? "missing"
                     : json_is_array(content) ? "empty"
                                              : tm_sft_type_of(content));
    else if (text && tm_sft_is_blank(text) && answer && !calls)
        st = tm_fail(err, TM_INVALID, "%s, turn %zu: the answer is empty", place, turn);
    json_t *message = from ? json_object() : json_copy((json_t *)(uintptr_t)given);
    json_object_set_new(message, "role", json_string(speaks));
    if (!wanted) json_object_set_new(message, "weight", json_integer(0)); /* for tm_chat_render_answers */
    if (text)
        json_object_set_new(message, "content", text);
    else if (content)
        json_object_set(message, "content", (json_t *)(uintptr_t)content);
    if (st == TM_OK) st = tm_sft_check_text(message, place, "message", err);
    json_array_append_new(list, message);
    return st;
}
