/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sft_form.h"

#include "base/arena.h"
#include "base/json_input.h"
#include "data/sft_message.h"

#include <string.h>

/* What the columns of a format are called here. */
typedef enum {
    MESSAGES,
    CONVERSATIONS,
    INSTRUCTION,
    INPUT,
    OUTPUT,
    PROMPT,
    COMPLETION,
    TEXT,
    CHOSEN,
    REJECTED,
    ROLES
} role;

static const char *const role_names[ROLES] = { "messages", "conversations", "instruction", "input",  "output",
                                               "prompt",   "completion",    "text",        "chosen", "rejected" };

enum { MOST = 3 };

typedef struct {
    role        role;
    const char *column; /* as published; data.column_map gives another */
    bool        optional;
} place_of;

/* The layouts that are known, the first that fits a row is taken. */
typedef struct {
    tm_sft_format format;
    int           n;
    place_of      columns[MOST];
} layout;

static const layout layouts[] = {
    { TM_SFT_MESSAGES, 1, { { MESSAGES, "messages", false } } },
    { TM_SFT_CONVERSATIONS, 1, { { CONVERSATIONS, "conversations", false } } },
    { TM_SFT_CONVERSATIONS, 1, { { CONVERSATIONS, "data", false } } }, /* UltraChat: texts, in turns */
    { TM_SFT_INSTRUCTION,
      3,
      { { INSTRUCTION, "instruction", false }, { INPUT, "input", true }, { OUTPUT, "output", false } } },
    { TM_SFT_COMPLETION, 2, { { PROMPT, "prompt", false }, { COMPLETION, "completion", false } } },
    { TM_SFT_COMPLETION, 2, { { PROMPT, "report", false }, { COMPLETION, "summary", false } } }, /* GovReport */
    { TM_SFT_COMPLETION, 2, { { PROMPT, "input", false }, { COMPLETION, "output", false } } },   /* the same, SCROLLS */
    { TM_SFT_TEXT, 1, { { TEXT, "text", false } } },                                             /* WikiText */
    { TM_SFT_PREFERENCE,
      3,
      { { PROMPT, "prompt", true }, { CHOSEN, "chosen", false }, { REJECTED, "rejected", false } } },
    { TM_SFT_PREFERENCE,
      3,
      { { PROMPT, "question", false }, { CHOSEN, "response_j", false }, { REJECTED, "response_k", false } } },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

struct tm_sft_form {
    tm_arena     *arena;
    tm_sft_format format;
    const char   *mapped[ROLES]; /* by data.column_map, or NULL */
    const layout *layout;        /* NULL before the first row */
    const char   *columns[ROLES + LAYOUTS * MOST];
    size_t        n_columns;
    const char   *description;
};

const char *tm_sft_format_name(tm_sft_format format)
{
    static const char *const names[] = { "auto",       "messages", "conversations", "instruction",
                                         "completion", "text",     "preference" };
    return names[format];
}

static const char *column_of(const tm_sft_form *form, const place_of *p)
{
    return form->mapped[p->role] ? form->mapped[p->role] : p->column;
}

static bool fits_format(const tm_sft_form *form, const layout *l)
{
    return form->format == TM_SFT_AUTO || form->format == l->format;
}

/* --- data.column_map ---------------------------------------------------------------------------------------------- */

static bool format_has(const tm_sft_form *form, int which)
{
    for (size_t i = 0; i < LAYOUTS; i++)
        for (int k = 0; k < layouts[i].n; k++)
            if (fits_format(form, &layouts[i]) && (int)layouts[i].columns[k].role == which) return true;
    return false;
}

static tm_status read_pair(tm_sft_form *form, const char *pair, size_t n, tm_error *err)
{
    const char *equals = memchr(pair, '=', n);
    size_t      length = equals ? (size_t)(equals - pair) : 0;
    tm_text     known = { 0 };
    if (!equals || length == 0 || length + 1 == n)
        return tm_fail(err, TM_INVALID, "data.column_map has '%.*s', wanted NAME=COLUMN,NAME=COLUMN", (int)n, pair);
    for (int r = 0; r < ROLES; r++) {
        if (!format_has(form, r)) continue;
        if (strlen(role_names[r]) == length && strncmp(role_names[r], pair, length) == 0) {
            tm_text_fini(&known);
            if (form->mapped[r]) return tm_fail(err, TM_INVALID, "data.column_map names '%s' twice", role_names[r]);
            form->mapped[r] = tm_arena_text_n(form->arena, equals + 1, n - length - 1);
            return TM_OK;
        }
        tm_text_printf(&known, "%s%s", known.length ? ", " : "", role_names[r]);
    }
    tm_fail(err, TM_INVALID, "data.column_map: '%.*s' is no part of data.format %s; wanted %s", (int)length, pair,
            tm_sft_format_name(form->format), known.data);
    tm_text_fini(&known);
    return TM_INVALID;
}

static tm_status read_map(tm_sft_form *form, const char *text, tm_error *err)
{
    while (text && *text) {
        size_t n = strcspn(text, ",");
        TM_TRY(read_pair(form, text, n, err));
        text += n + (text[n] == ',');
    }
    return TM_OK;
}

static void add_column(tm_sft_form *form, const char *column)
{
    for (size_t i = 0; i < form->n_columns; i++)
        if (strcmp(form->columns[i], column) == 0) return;
    form->columns[form->n_columns++] = column;
}

tm_status tm_sft_form_open(tm_sft_format format, const char *column_map, tm_sft_form **out, tm_error *err)
{
    tm_arena    *arena = tm_arena_create();
    tm_sft_form *form = tm_arena_take(arena, sizeof *form);
    *form = (tm_sft_form){ .arena = arena, .format = format, .description = "" };
    tm_status st = read_map(form, column_map, err);
    for (size_t i = 0; i < LAYOUTS; i++)
        for (int k = 0; k < layouts[i].n; k++)
            if (fits_format(form, &layouts[i])) add_column(form, column_of(form, &layouts[i].columns[k]));
    add_column(form, "tools");
    if (st == TM_OK)
        *out = form;
    else
        tm_sft_form_close(form);
    return st;
}

void tm_sft_form_close(tm_sft_form *form)
{
    if (form) tm_arena_destroy(form->arena);
}

const char *const *tm_sft_form_columns(const tm_sft_form *form, size_t *n)
{
    *n = form->n_columns;
    return form->columns;
}

const char *tm_sft_form_describe(const tm_sft_form *form)
{
    return form->description;
}

/* --- which layout ------------------------------------------------------------------------------------------------- */

/* "a, b" of at most 300 bytes. */
static void list_columns(const json_t *row, tm_text *out)
{
    const char *name;
    json_t     *value;
    json_object_foreach((json_t *)(uintptr_t)row, name, value)
    {
        if (out->length > 300) break;
        tm_text_printf(out, "%s%.60s", out->length ? ", " : "", name);
    }
    if (out->length == 0) tm_text_add(out, "none");
}

static void list_layouts(const tm_sft_form *form, tm_text *out)
{
    for (size_t i = 0; i < LAYOUTS; i++) {
        if (!fits_format(form, &layouts[i])) continue;
        tm_text_add(out, out->length ? "; or " : "");
        for (int k = 0, n = 0; k < layouts[i].n; k++)
            if (!layouts[i].columns[k].optional)
                tm_text_printf(out, "%s%.60s", n++ ? " and " : "", column_of(form, &layouts[i].columns[k]));
    }
}

static void describe(tm_sft_form *form)
{
    tm_text text = { 0 };
    tm_text_add(&text, tm_sft_format_name(form->layout->format));
    bool changed = false;
    for (int k = 0; k < form->layout->n; k++) {
        const place_of *p = &form->layout->columns[k];
        if (strcmp(column_of(form, p), role_names[p->role]) == 0) continue;
        tm_text_printf(&text, "%s%s=%s", changed ? ", " : " (", role_names[p->role], column_of(form, p));
        changed = true;
    }
    tm_text_add(&text, changed ? ")" : "");
    form->description = tm_arena_text(form->arena, text.data);
    tm_text_fini(&text);
}

static tm_status choose(tm_sft_form *form, const json_t *row, const char *place, tm_error *err)
{
    for (size_t i = 0; i < LAYOUTS; i++) {
        bool all = fits_format(form, &layouts[i]);
        for (int k = 0; all && k < layouts[i].n; k++)
            all = layouts[i].columns[k].optional || json_object_get(row, column_of(form, &layouts[i].columns[k]));
        for (int r = 0; all && r < ROLES; r++) { /* what is mapped is used */
            bool used = !form->mapped[r];
            for (int k = 0; k < layouts[i].n; k++) used |= (int)layouts[i].columns[k].role == r;
            all = used;
        }
        if (!all) continue;
        form->layout = &layouts[i];
        describe(form);
        return TM_OK;
    }
    tm_text there = { 0 }, wanted = { 0 };
    list_columns(row, &there);
    list_layouts(form, &wanted);
    tm_fail(err, TM_INVALID,
            "%s: the columns are %s; data.format %s wants %s; name what they are with data.format and data.column_map "
            "(prompt=QUESTION,completion=ANSWER)",
            place, there.data, tm_sft_format_name(form->format), wanted.data);
    tm_text_fini(&there);
    tm_text_fini(&wanted);
    return TM_INVALID;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Column k of the layout, NULL where an optional one has nothing. */
static tm_status get_column(const tm_sft_form *form, const json_t *row, int k, const char *place, const json_t **out,
                            tm_error *err)
{
    const place_of *p = &form->layout->columns[k];
    const char     *column = column_of(form, p);
    const json_t   *value = json_object_get(row, column);
    tm_text         there = { 0 };
    *out = NULL;
    if (p->optional && (!value || json_is_null(value))) return TM_OK;
    if (!value) {
        list_columns(row, &there);
        tm_fail(err, TM_INVALID, "%s: no column '%s'; the columns are %s", place, column, there.data);
        tm_text_fini(&there);
        return TM_INVALID;
    }
    *out = value;
    return TM_OK;
}

static tm_status is_other(const tm_sft_form *form, int k, const json_t *value, const char *wanted, const char *place,
                          tm_error *err)
{
    return tm_fail(err, TM_INVALID, "%s: column '%s' is %s, wanted %s", place,
                   column_of(form, &form->layout->columns[k]), tm_sft_type_of(value), wanted);
}

static tm_status get_text(const tm_sft_form *form, const json_t *row, int k, const char *place, const json_t **out,
                          tm_error *err)
{
    TM_TRY(get_column(form, row, k, place, out, err));
    if (!*out) return TM_OK;
    if (!json_is_string(*out)) return is_other(form, k, *out, "a text", place, err);
    return tm_sft_check_text(*out, place, column_of(form, &form->layout->columns[k]), err);
}

static void add_json(tm_text *out, const json_t *text)
{
    tm_text_add_n(out, json_string_value(text), json_string_length(text));
}

/* The prompt that Alpaca was published with. */
static void add_instruction(const json_t *instruction, const json_t *input, tm_text *out)
{
    const bool with = input && !tm_sft_is_blank(input);
    tm_text_printf(out,
                   "Below is an instruction that describes a task%s. Write a response that appropriately completes "
                   "the request.\n\n### Instruction:\n",
                   with ? ", paired with an input that provides further context" : "");
    add_json(out, instruction);
    if (with) {
        tm_text_add(out, "\n\n### Input:\n");
        add_json(out, input);
    }
    tm_text_add(out, "\n\n### Response:\n");
}

static tm_status is_empty(const tm_sft_form *form, int k, const char *place, tm_error *err)
{
    return tm_fail(err, TM_INVALID, "%s: column '%s' is empty", place, column_of(form, &form->layout->columns[k]));
}

static tm_status read_prompted(const tm_sft_form *form, const json_t *row, const char *place, tm_sft_row *out,
                               tm_error *err);

static tm_status read_texts(const tm_sft_form *form, const json_t *row, const char *place, tm_sft_row *out,
                            tm_error *err)
{
    const json_t *value[MOST] = { NULL };
    if (form->layout->format == TM_SFT_COMPLETION) {
        TM_TRY(get_column(form, row, 0, place, &value[0], err));
        if (json_is_array(value[0])) return read_prompted(form, row, place, out, err);
    }
    for (int k = 0; k < form->layout->n; k++) TM_TRY(get_text(form, row, k, place, &value[k], err));
    if (form->layout->format == TM_SFT_TEXT) {
        out->nothing = tm_sft_is_blank(value[0]);
        add_json(&out->answer, value[0]);
        return TM_OK;
    }
    const int last = form->layout->n - 1;
    if (tm_sft_is_blank(value[0])) return is_empty(form, 0, place, err);
    if (tm_sft_is_blank(value[last])) return is_empty(form, last, place, err);
    if (form->layout->format == TM_SFT_INSTRUCTION)
        add_instruction(value[0], value[1], &out->prompt);
    else
        add_json(&out->prompt, value[0]);
    add_json(&out->answer, value[last]);
    return TM_OK;
}

/* --- conversations ------------------------------------------------------------------------------------------------ */

/* Texts in turns, the user first. */
static tm_status read_turn(const json_t *given, size_t turn, const char *place, json_t *list, tm_error *err)
{
    if (tm_sft_is_blank(given)) return tm_fail(err, TM_INVALID, "%s, turn %zu: the text is empty", place, turn);
    json_t *message = json_object();
    json_object_set_new(message, "role", json_string(turn % 2 == 1 ? "user" : "assistant"));
    json_object_set(message, "content", (json_t *)(uintptr_t)given);
    json_array_append_new(list, message);
    return TM_OK;
}

/* Column `tools`, which templates have as such: a list, or one as a text (as tables of texts only have it). */
static tm_status read_tools(const json_t *row, const char *place, tm_sft_row *out, tm_error *err)
{
    json_t      *given = json_object_get(row, "tools"), *list = json_incref(given);
    const char  *text = json_string_value(given);
    json_error_t where;
    if (text) json_decref(list), list = json_null();
    if (text && !tm_sft_is_blank(given)) list = tm_json_input(text, json_string_length(given), 0, &where);
    bool good = !given || json_is_null(list) || json_is_array(list);
    if (json_array_size(list) > 0) out->more = json_pack("{s:O}", "tools", list);
    json_decref(list);
    if (good) return TM_OK;
    return tm_fail(err, TM_INVALID, "%s: column 'tools' is %s, wanted an array of tools", place,
                   text ? "a text that is no array of JSON" : tm_sft_type_of(given));
}

static tm_status read_conversation(const tm_sft_form *form, const json_t *row, const char *place, tm_sft_row *out,
                                   tm_error *err)
{
    const tm_sft_format format = form->layout->format;
    const char         *column = column_of(form, &form->layout->columns[0]);
    const json_t       *given = json_object_get(row, column), *one;
    size_t              i;
    tm_text             there = { 0 };
    if (!given) {
        list_columns(row, &there);
        tm_fail(err, TM_INVALID, "%s: no column '%s'; the columns are %s", place, column, there.data);
        tm_text_fini(&there);
        return TM_INVALID;
    }
    if (!json_is_array(given))
        return tm_fail(err, TM_INVALID, "%s: column '%s' is %s, wanted an array of messages", place, column,
                       tm_sft_type_of(given));
    if (json_array_size(given) == 0) return tm_fail(err, TM_INVALID, "%s: column '%s' is empty", place, column);
    out->messages = json_array();
    json_array_foreach(given, i, one)
    {
        if (format == TM_SFT_CONVERSATIONS && json_is_string(one))
            TM_TRY(read_turn(one, i + 1, place, out->messages, err));
        else
            TM_TRY(tm_sft_read_message(format, one, i + 1, place, out->messages, err));
    }
    return read_tools(row, place, out, err);
}

/* --- two answers to a prompt -------------------------------------------------------------------------------------- */

enum { ASKED, PREFERRED, OTHER }; /* columns of the layouts */

/* Bytes that both texts begin with: whole characters, without a blank at their end, which belongs to the answers. */
static size_t common_bytes(const json_t *a, const json_t *b)
{
    const char *x = json_string_value(a), *y = json_string_value(b);
    size_t n = 0, most = json_string_length(a) < json_string_length(b) ? json_string_length(a) : json_string_length(b);
    while (n < most && x[n] == y[n]) n++;
    while (n > 0 && n < json_string_length(a) && ((unsigned char)x[n] & 0xc0) == 0x80) n--;
    if (n > 0 && x[n - 1] == ' ') n--;
    return n;
}

static bool rest_is_blank(const json_t *text, size_t from)
{
    const char *p = json_string_value(text) + from;
    return p[strspn(p, " \t\r\n")] == '\0';
}

static tm_status read_text_pair(const tm_sft_form *form, const json_t *const value[MOST], const char *place,
                                tm_sft_row *out, tm_error *err)
{
    const json_t *prompt = value[ASKED], *chosen = value[PREFERRED], *rejected = value[OTHER];
    size_t        from = prompt ? 0 : common_bytes(chosen, rejected);
    if (prompt && !json_is_string(prompt))
        return is_other(form, ASKED, prompt, "a text, as the answers are", place, err);
    if (prompt && tm_sft_is_blank(prompt)) return is_empty(form, ASKED, place, err);
    for (int k = PREFERRED; k <= OTHER && prompt; k++)
        if (tm_sft_is_blank(value[k])) return is_empty(form, k, place, err);
    out->nothing = json_equal(chosen, rejected) || rest_is_blank(chosen, from) || rest_is_blank(rejected, from);
    if (prompt && strcmp(form->layout->columns[ASKED].column, "question") == 0) { /* as its makers ask it */
        tm_text_add(&out->prompt, "Question: ");
        add_json(&out->prompt, prompt);
        tm_text_add(&out->prompt, "\n\nAnswer: ");
    } else {
        tm_text_add_n(&out->prompt, json_string_value(prompt ? prompt : chosen),
                      prompt ? json_string_length(prompt) : from);
    }
    tm_text_add_n(&out->answer, json_string_value(chosen) + from, json_string_length(chosen) - from);
    tm_text_add_n(&out->rejected, json_string_value(rejected) + from, json_string_length(rejected) - from);
    return TM_OK;
}

static tm_status read_list(const tm_sft_form *form, const json_t *given, int k, const char *place, json_t *to,
                           tm_error *err)
{
    const json_t *one;
    size_t        i;
    tm_text       where = { 0 };
    tm_status     st = TM_OK;
    if (!json_is_array(given)) return is_other(form, k, given, "an array of messages, as the answers are", place, err);
    if (json_array_size(given) == 0) return is_empty(form, k, place, err);
    tm_text_printf(&where, "%s, column '%s'", place, column_of(form, &form->layout->columns[k]));
    json_array_foreach(given, i, one)
    {
        if (st == TM_OK) st = tm_sft_read_message(TM_SFT_MESSAGES, one, i + 1, where.data, to, err);
    }
    tm_text_fini(&where);
    return st;
}

/* Messages of a prompt and messages that answer it (TRL): only these are trained on. */
static tm_status read_prompted(const tm_sft_form *form, const json_t *row, const char *place, tm_sft_row *out,
                               tm_error *err)
{
    out->messages = json_array();
    for (int k = 0; k < form->layout->n; k++) {
        const json_t *value;
        TM_TRY(get_column(form, row, k, place, &value, err));
        if (!json_is_array(value))
            return is_other(form, k, value, "an array of messages, as the prompt is", place, err);
        if (k > 0) out->shared = json_array_size(out->messages);
        TM_TRY(read_list(form, value, k, place, out->messages, err));
    }
    return read_tools(row, place, out, err);
}

static bool ends_with_answer(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char   *who = json_string_value(json_object_get(last, "role"));
    return who && strcmp(who, "assistant") == 0;
}

/* The prompt's messages, or those that both conversations begin with. */
static tm_status read_message_pair(const tm_sft_form *form, const json_t *row, const json_t *const value[MOST],
                                   const char *place, tm_sft_row *out, tm_error *err)
{
    const json_t *prompt = json_is_array(value[ASKED]) ? value[ASKED] : NULL; /* a text repeats what they begin with */
    json_t       *both[2];
    out->messages = json_array();
    out->rejected_messages = json_array();
    both[0] = out->messages;
    both[1] = out->rejected_messages;
    for (int k = 0; k < 2; k++) {
        if (prompt) TM_TRY(read_list(form, prompt, ASKED, place, both[k], err));
        out->shared = json_array_size(both[k]);
        TM_TRY(read_list(form, value[PREFERRED + k], PREFERRED + k, place, both[k], err));
        if (!ends_with_answer(both[k]))
            return tm_fail(err, TM_INVALID, "%s: the last message of column '%s' is no answer (role assistant)", place,
                           column_of(form, &form->layout->columns[PREFERRED + k]));
    }
    out->nothing = json_equal(both[0], both[1]);
    while (!prompt && !out->nothing &&
           json_equal(json_array_get(both[0], out->shared), json_array_get(both[1], out->shared)))
        out->shared++;
    size_t least =
        json_array_size(both[0]) < json_array_size(both[1]) ? json_array_size(both[0]) : json_array_size(both[1]);
    if (out->shared >= least) out->nothing = true; /* one is the other's beginning */
    if (out->shared == 0 && !out->nothing)
        return tm_fail(
            err, TM_INVALID, "%s: columns '%s' and '%s' begin with different messages, so there is no prompt", place,
            column_of(form, &form->layout->columns[PREFERRED]), column_of(form, &form->layout->columns[OTHER]));
    return read_tools(row, place, out, err);
}

static tm_status read_pair_row(const tm_sft_form *form, const json_t *row, const char *place, tm_sft_row *out,
                               tm_error *err)
{
    const json_t *value[MOST] = { NULL };
    for (int k = 0; k < form->layout->n; k++) TM_TRY(get_column(form, row, k, place, &value[k], err));
    out->paired = true;
    if (json_is_string(value[PREFERRED]) && json_is_string(value[OTHER]))
        return read_text_pair(form, value, place, out, err);
    for (int k = PREFERRED; k <= OTHER; k++) {
        const bool text = json_is_string(value[k]) && json_is_array(value[PREFERRED + OTHER - k]);
        if (text || !(json_is_array(value[k]) || json_is_string(value[k])))
            return is_other(form, k, value[k],
                            text ? "an array of messages, as the other answer is" : "a text or an array of messages",
                            place, err);
    }
    return read_message_pair(form, row, value, place, out, err);
}

static void clear(tm_text *text)
{
    if (text->data) text->length = 0;
    tm_text_add_n(text, "", 0);
}

tm_status tm_sft_form_read(tm_sft_form *form, const json_t *row, const char *place, tm_sft_row *out, tm_error *err)
{
    json_decref(out->messages);
    json_decref(out->rejected_messages);
    json_decref(out->more);
    out->messages = out->rejected_messages = out->more = NULL;
    out->nothing = out->paired = false;
    out->shared = 0;
    clear(&out->prompt);
    clear(&out->answer);
    clear(&out->rejected);
    if (!form->layout) TM_TRY(choose(form, row, place, err));
    bool talk = form->layout->format == TM_SFT_MESSAGES || form->layout->format == TM_SFT_CONVERSATIONS;
    if (form->layout->format == TM_SFT_PREFERENCE) return read_pair_row(form, row, place, out, err);
    return talk ? read_conversation(form, row, place, out, err) : read_texts(form, row, place, out, err);
}

void tm_sft_row_fini(tm_sft_row *row)
{
    json_decref(row->messages);
    json_decref(row->rejected_messages);
    json_decref(row->more);
    tm_text_fini(&row->prompt);
    tm_text_fini(&row->answer);
    tm_text_fini(&row->rejected);
    *row = (tm_sft_row){ 0 };
}
