/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of data for fine-tuning: every form and layout, what is a target, truncation, splits and order; and
 * what is wrong is refused with its row. */
#include "data/preview.h"
#include "data/rows.h"
#include "data/sft_tokens.h"
#include "data/source_kind.h"
#include "support/refusal.h"
#include "support/folder.h"
#include "support/full_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define FIXTURES "tests/data/sft/"

/* --- rows --------------------------------------------------------------------------------------------------------- */

static const char *const all_columns[] = { "messages", "data",   "instruction", "input",
                                           "output",   "report", "summary",     "text" };
enum { COLUMNS = sizeof all_columns / sizeof all_columns[0] };

static json_t *read_rows(const char *path)
{
    tm_rows *rows;
    tm_error err = { 0 };
    json_t  *all = json_array(), *row;
    if (tm_rows_open(path, all_columns, COLUMNS, &rows, &err) != TM_OK) fail_msg("%s", err.text);
    for (;;) {
        if (tm_rows_next(rows, &row, &err) != TM_OK) fail_msg("%s", err.text);
        if (!row) break;
        json_array_append_new(all, row);
        assert_int_equal(tm_rows_number(rows), json_array_size(all));
    }
    tm_rows_close(rows);
    return all;
}

/* Parquet gives the rows that the same writer put into lines of JSON, in the columns that are wanted. */
TEST(parquet_is_as_json)
{
    static const char *const names[] = { "wikitext", "ultrachat", "alpaca", "govreport" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[2][128];
        snprintf(path[0], sizeof path[0], FIXTURES "%s.parquet", names[i]);
        snprintf(path[1], sizeof path[1], FIXTURES "%s.jsonl", names[i]);
        json_t *parquet = read_rows(path[0]), *lines = read_rows(path[1]);
        assert_int_equal(json_array_size(parquet), json_array_size(lines));
        assert_true(json_array_size(parquet) >= 12);
        for (size_t r = 0; r < json_array_size(lines); r++) {
            json_t *a = json_array_get(parquet, r), *b = json_array_get(lines, r);
            size_t  met = 0;
            for (size_t c = 0; c < COLUMNS; c++) {
                if (!json_equal(json_object_get(a, all_columns[c]), json_object_get(b, all_columns[c])) &&
                    json_object_get(b, all_columns[c]))
                    fail_msg("%s, row %zu, column %s", names[i], r, all_columns[c]);
                met += json_object_get(a, all_columns[c]) != NULL;
            }
            assert_true(met >= 1);
        }
        json_decref(parquet);
        json_decref(lines);
    }
}

TEST(lists_may_be_empty)
{
    json_t *got = read_rows(FIXTURES "lists.parquet");
    json_t *wanted = json_loads("[{\"data\":[]},{\"data\":[\"a\"]},{\"data\":[]},{\"data\":[\"b\",\"c\",\"d\"]},"
                                "{\"data\":[]},{\"data\":[\"e\"]}]",
                                0, NULL);
    assert_true(json_equal(got, wanted));
    json_decref(got);
    json_decref(wanted);
    got = read_rows(FIXTURES "ragged.parquet");
    wanted = json_loads("[{\"messages\":[{\"content\":\"x\",\"role\":null}]},"
                        "{\"messages\":[{\"content\":null,\"role\":\"user\"},{\"content\":null,\"role\":null}]},"
                        "{\"messages\":[]},{\"messages\":[]}]",
                        0, NULL);
    assert_true(json_equal(got, wanted));
    json_decref(got);
    json_decref(wanted);
}

/* --- what is a target --------------------------------------------------------------------------------------------- */

/* A line of JSON as "[[prompt]]answer". */
static char *shown(const char *line, tm_sft_options sft, tm_text *out)
{
    tm_error           err = { 0 };
    tm_preview_options o = { .path = test_in_folder("one.jsonl"), .sft = sft, .first = 1, .n = 1 };
    test_file_write(test_folder(), "one.jsonl", line);
    if (out->data) out->length = 0;
    if (tm_data_preview(&o, out, &err) != TM_OK) fail_msg("%s: %s", line, err.text);
    return strchr(out->data, '\n') + 1;
}

#define CHATML                                                                                                         \
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|/|>{% endfor %}"                                          \
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"

TEST(prompts_are_masked)
{
    static const struct {
        const char *line, *map, *wanted;
        bool        all;
    } cases[] = {
        { "{\"prompt\": \"2+2=\", \"completion\": \"4\"}", NULL, "[[2+2=]]4<|end|>\n", false },
        { "{\"prompt\": \"2+2=\", \"completion\": \"4\"}", NULL, "2+2=4<|end|>\n", true },
        { "{\"q\": \"2+2=\", \"a\": \"4\"}", "prompt=q,completion=a", "[[2+2=]]4<|end|>\n", false },
        { "{\"report\": \"long\", \"summary\": \"short\"}", NULL, "[[long]]short<|end|>\n", false },
        { "{\"input\": \"long\", \"output\": \"short\"}", NULL, "[[long]]short<|end|>\n", false },
        { "{\"text\": \"words\"}", NULL, "words<|end|>\n", false },
        { "{\"instruction\": \"Add.\", \"input\": \"\", \"output\": \"4\"}", NULL,
          "[[Below is an instruction that describes a task. Write a response that appropriately completes the "
          "request.\n\n### Instruction:\nAdd.\n\n### Response:\n]]4<|end|>\n",
          false },
        { "{\"instruction\": \"Add.\", \"input\": \"2, 2\", \"output\": \"4\"}", NULL,
          "[[Below is an instruction that describes a task, paired with an input that provides further context. Write "
          "a response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n2, 2\n\n### "
          "Response:\n]]4<|end|>\n",
          false },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Yo\"},"
          "{\"role\": \"user\", \"content\": \"A?\"}, {\"role\": \"assistant\", \"content\": \"B\"}]}",
          NULL, "[[<|user|>Hi<|/|><|assistant|>]]Yo<|/|>[[<|user|>A?<|/|><|assistant|>]]B<|/|>\n", false },
        { "{\"conversations\": [{\"from\": \"human\", \"value\": \"Hi\"}, {\"from\": \"gpt\", \"value\": \"Yo\"}]}",
          NULL, "[[<|user|>Hi<|/|><|assistant|>]]Yo<|/|>\n", false },
        /* ShareGPT's rows with the words of OpenAI; its content in parts; TRL's prompt and completion as messages, of
         * which only the completion is trained on; columns that nobody reads */
        { "{\"conversations\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"from\": \"gpt\", \"value\": \"Yo\"}]}",
          NULL, "[[<|user|>Hi<|/|><|assistant|>]]Yo<|/|>\n", false },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"H\"}, {\"type\": "
          "\"text\", "
          "\"text\": \"i\"}]}, {\"role\": \"assistant\", \"content\": \"Yo\"}]}",
          NULL, "[[<|user|>Hi<|/|><|assistant|>]]Yo<|/|>\n", false },
        { "{\"prompt\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Yo\"}, "
          "{\"role\": "
          "\"user\", \"content\": \"A?\"}], \"completion\": [{\"role\": \"assistant\", \"content\": \"B\"}]}",
          NULL, "[[<|user|>Hi<|/|><|assistant|>Yo<|/|><|user|>A?<|/|><|assistant|>]]B<|/|>\n", false },
        { "{\"prompt\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"completion\": [{\"role\": \"assistant\", "
          "\"content\": "
          "\"B\"}]}",
          NULL, "<|user|>Hi<|/|><|assistant|>B<|/|>\n", true },
        { "{\"prompt\": \"a\", \"completion\": \"b\", \"score\": NaN, \"id\": 12345678901234567890, \"x\": "
          "\"\\u0000\\ud83d\"}",
          NULL, "[[a]]b<|end|>\n", false },
        { "{\"id\": \"0\", \"data\": [\"Hi\", \"Yo\", \"So\"]}", NULL,
          "[[<|user|>Hi<|/|><|assistant|>]]Yo<|/|>[[<|user|>So<|/|>]]\n", false },
    };
    tm_text out = { 0 };
    test_file_write(test_folder(), "chatml.jinja", CHATML);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_sft_options sft = { .column_map = cases[i].map,
                               .chat_template = test_in_folder("chatml.jinja"),
                               .train_on_input = cases[i].all };
        assert_string_equal(shown(cases[i].line, sft, &out), cases[i].wanted);
    }
    tm_text_fini(&out);
}

/* The tokens of answers are those that transformers marks ({% generation %}). */
TEST(targets_are_those_of_transformers)
{
    json_error_t problem;
    json_t      *root = json_load_file("tests/token/chat/ids.json", 0, &problem), *one;
    size_t       k, met = 0, some = 0;
    if (!root) fail_msg("%s", problem.text);
    tm_sft_options o = { .tokenizer = "tests/token/chat/gpt-oss" };
    tm_sft_coder  *coder;
    tm_error       err = { 0 };
    if (tm_sft_coder_open(&o, &coder, &err) != TM_OK) fail_msg("%s", err.text);
    json_array_foreach(json_object_get(root, "gpt-oss"), k, one)
    {
        json_t    *variables = json_array_get(one, 0), *ids = json_array_get(one, 1), *mask = json_array_get(one, 2);
        tm_sft_row row = { .messages = json_object_get(variables, "messages"), .more = variables };
        tm_ids     got[2] = { { 0 } };
        if (json_is_true(json_object_get(variables, "add_generation_prompt"))) continue;
        if (tm_sft_encode(coder, &row, "row", got, &err) != TM_OK) fail_msg("%s", err.text);
        assert_int_equal(got[0].count, json_array_size(ids));
        for (size_t i = 0; i < got[0].count; i++) {
            bool target = json_integer_value(json_array_get(mask, i)) != 0;
            assert_int_equal(tm_sft_id(got[0].data[i]), json_integer_value(json_array_get(ids, i)));
            if ((got[0].data[i] >= 0) != target) fail_msg("case %zu, token %zu: a target? %d", k, i, !target);
            some += target;
        }
        met++;
        free(got[0].data);
    }
    assert_true(met >= 5 && some >= 20);
    tm_sft_coder_close(coder);
    json_decref(root);
}

/* --- the source --------------------------------------------------------------------------------------------------- */

enum { SEQ = 64, ROWS = 90 };

static const char *make_file(void)
{
    tm_text text = { 0 };
    for (int i = 0; i < ROWS; i++) {
        tm_text_printf(&text, "{\"prompt\": \"q%d:", i);
        for (int k = 0; k < i * 5 % 31; k++) tm_text_printf(&text, "%c", 'a' + (i + k) % 26);
        tm_text_printf(&text, "\", \"completion\": \"");
        for (int k = 0; k <= i * 7 % 23; k++) tm_text_printf(&text, "%c", 'A' + (i * 3 + k) % 26);
        tm_text_add(&text, "\"}\n");
    }
    test_file_write(test_folder(), "rows.jsonl", text.data);
    tm_text_fini(&text);
    return test_in_folder("rows.jsonl");
}

typedef struct {
    int32_t tokens[SEQ], targets[SEQ], positions[SEQ], first_key[SEQ];
    int64_t weight;
} row;

static void get_row(const tm_source *source, tm_split split, int64_t index, row *out)
{
    int32_t  scratch[SEQ + 1];
    tm_error err = { 0 };
    void    *at[] = { out->tokens, out->targets, out->positions, out->first_key };
    memset(out, 0, sizeof *out);
    if (tm_source_row(source, split, index, scratch, at, &out->weight, &err) != TM_OK) fail_msg("%s", err.text);
}

static tm_source *open_source(tm_source_options o)
{
    tm_source *source;
    tm_error   err = { 0 };
    if (tm_source_open(&o, &source, &err) != TM_OK) fail_msg("%s", err.text);
    return source;
}

static tm_source_options options_of(const char *path)
{
    return (tm_source_options){
        .name = "sft", .path = path, .vocab = 257, .seq = SEQ, .seed = 3, .sft = { .packed = true }
    };
}

/* Every sample is in one row, whole, behind its own beginning; the weight counts its answer. */
TEST(rows_hold_samples)
{
    tm_source *source = open_source(options_of(make_file()));
    int64_t    rows = tm_source_describe(source)->train_samples, samples = 0, tokens = 0;
    bool       seen[ROWS] = { false };
    for (int64_t i = 0; i < rows; i++) {
        row     r;
        int64_t targets = 0;
        get_row(source, TM_SPLIT_TRAIN, i, &r);
        for (int t = 0; t < SEQ; t++) {
            bool begins = t == 0 || r.positions[t] == 0;
            assert_int_equal(r.positions[t], begins ? 0 : r.positions[t - 1] + 1);
            assert_int_equal(r.first_key[t], t - r.positions[t]);
            targets += r.targets[t] >= 0;
            if (r.targets[t] >= 0) assert_true(r.targets[t] == 256 || (r.targets[t] >= 'A' && r.targets[t] <= 'Z'));
            if (r.targets[t] >= 0 && r.targets[t] != 256) assert_int_equal(r.tokens[t + 1], r.targets[t]);
            if (begins && r.tokens[t] == 'q') {
                int number = 0;
                for (int k = t + 1; k < SEQ && r.tokens[k] >= '0' && r.tokens[k] <= '9'; k++)
                    number = 10 * number + r.tokens[k] - '0';
                assert_true(number < ROWS && !seen[number]);
                seen[number] = true;
                samples++;
            }
            tokens += r.tokens[t] != 0;
        }
        assert_int_equal(r.weight, targets);
    }
    assert_int_equal(samples, ROWS);
    assert_true((double)tokens >= 0.95 * (double)(rows * SEQ));
    tm_source_close(source);
}

TEST(what_is_too_long)
{
    tm_source_options o = options_of(make_file());
    tm_source        *source;
    tm_error          err = { 0 };
    row               r;
    int64_t           whole;
    o.sft.packed = false;
    source = open_source(o);
    whole = tm_source_describe(source)->train_samples;
    tm_source_close(source);
    assert_int_equal(whole, ROWS);
    o.seq = 24;
    source = open_source(o); /* truncated; some lose their answer */
    int64_t cut = tm_source_describe(source)->train_samples;
    for (int64_t i = 0; i < cut; i++) {
        get_row(source, TM_SPLIT_TRAIN, i, &r);
        assert_true(r.weight >= 1);
    }
    tm_source_close(source);
    o.sft.overlong = TM_OVERLONG_DROP;
    source = open_source(o);
    int64_t dropped = tm_source_describe(source)->train_samples;
    for (int64_t i = 0; i < dropped; i++) { /* each has its end */
        bool ends = false;
        get_row(source, TM_SPLIT_TRAIN, i, &r);
        for (int t = 0; t < 24; t++) ends |= r.targets[t] == 256;
        assert_true(ends);
    }
    tm_source_close(source);
    assert_true(dropped < cut && cut < ROWS);
    o.sft.overlong = TM_OVERLONG_SPLIT; /* every target of the whole samples is in one part */
    int64_t targets[2] = { 0, 0 };
    for (int k = 0; k < 2; k++) {
        o.seq = k == 0 ? SEQ : 24;
        source = open_source(o);
        for (int64_t i = 0; i < tm_source_describe(source)->train_samples; i++) {
            get_row(source, TM_SPLIT_TRAIN, i, &r);
            targets[k] += r.weight;
        }
        tm_source_close(source);
    }
    assert_int_equal(targets[0], targets[1]);
    o.sft.overlong = TM_OVERLONG_ERROR;
    assert_int_equal(tm_source_open(&o, &source, &err), TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "rows.jsonl', line 3: 29 tokens, a sample has at most 25"));
    assert_non_null(strstr(err.text, "data.overlong"));
}

TEST(rows_are_outlined)
{
    tm_source_options o = options_of(FIXTURES "wikitext.jsonl");
    tm_text           text = { 0 };
    tm_error          err = { 0 };
    o.seq = 2048;
    if (tm_source_outline(&o, &text, &err) != TM_OK) fail_msg("%s", err.text);
    assert_non_null(strstr(text.data, "36 rows of text; training 18 samples")); /* the others are empty */
    tm_text_fini(&text);
}

/* Many rows are encoded by several threads: in their order, and of two wrong ones the first is told. */
TEST(many_rows)
{
    enum { MANY = 1200 };
    tm_text text = { 0 };
    for (int i = 0; i < MANY; i++)
        tm_text_printf(&text, "{\"prompt\": \"%d:\", \"completion\": \"%.*s.\"}\n", i, i % 17, "abcdefghijklmnopq");
    test_file_write(test_folder(), "many.jsonl", text.data);
    tm_source_options o = options_of(make_file());
    o.validation_path = test_in_folder("many.jsonl");
    o.sft.packed = false;
    tm_source *source = open_source(o);
    assert_int_equal(tm_source_describe(source)->validation_samples, MANY);
    for (int i = 0; i < MANY; i++) {
        row  r;
        char wanted[SEQ];
        get_row(source, TM_SPLIT_VALIDATION, i, &r);
        int n = snprintf(wanted, sizeof wanted, "%d:%.*s.", i, i % 17, "abcdefghijklmnopq");
        for (int t = 0; t < n; t++) assert_int_equal(r.tokens[t], wanted[t]);
        assert_int_equal(r.weight, i % 17 + 2);
    }
    tm_source_close(source);
    for (int i = 0; i < MANY; i++)
        if (i == 903 || i == 910) memcpy(strstr(text.data + 30 * i, "completion"), "complexion", 10);
    test_file_write(test_folder(), "many.jsonl", text.data);
    tm_error err = { 0 };
    assert_int_equal(tm_source_open(&o, &source, &err), TM_INVALID);
    char *first = strstr(text.data, "complexion"), words[64];
    int   line = 1;
    for (char *p = text.data; p < first; p++) line += *p == '\n';
    snprintf(words, sizeof words, "line %d: no column 'completion'", line);
    refusal_is_sound(&err);
    if (!strstr(err.text, words)) fail_msg("wanted '%s' in: %s", words, err.text);
    tm_text_fini(&text);
}

/* --- what is wrong ------------------------------------------------------------------------------------------------ */

TEST(what_is_wrong_is_named)
{
    static const struct {
        const char *content, *words;
    } cases[] = {
        { "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}\n",
          "line 2: no column 'completion'; the columns are prompt" },
        { "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\", \"completion\": \" \\n\"}\n",
          "line 2: column 'completion' is empty" },
        { "[{\"prompt\": \"a\", \"completion\": \"b\"}, {\"prompt\": null, \"completion\": \"b\"}]",
          "row 2: column 'prompt' is null" },
        { "{\"title\": \"a\", \"body\": \"b\"}\n",
          "line 1: the columns are title, body; data.format auto wants messages" },
        { "{\"messages\": \"hello\"}\n", "line 1: column 'messages' is a text, wanted an array of messages" },
        { "{\"messages\": []}\n", "line 1: column 'messages' is empty" },
        { "{\"messages\": [{\"role\": \"user\"}]}\n", "line 1, turn 1: 'content' is missing" },
        { "{\"messages\": [{\"role\": \"bot\", \"content\": \"a\"}]}\n",
          "line 1, turn 1: unknown role 'bot'; wanted system, developer, user, assistant or tool" },
        { "{\"conversations\": [{\"from\": \"robot\", \"value\": \"a\"}]}\n",
          "turn 1: unknown role 'robot'; wanted human" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\"}]}\n",
          "line 1, turn 2: the answer is empty" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}\n",
          "turn 1: part 1 of 'content' is without a text, wanted {\"type\": \"text\"" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": []}]}\n", "'content' is empty, wanted a text" },
        { "{\"text\": \"a\\u0000b\"}\n", "'text' has the character \"\\u0000\"" },
        { "{\"prompt\": \"a\", \"completion\": \"b\\ud83d\"}\n", "'completion' has half a surrogate pair" },
        { "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": \"b\"}\n",
          "column 'completion' is a text, wanted an array of messages, as the prompt is" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"refuse\"}]}\n", "refuses this conversation: no" },
        { "{\"text\": \"\"}\n{\"text\": \"  \"}\n", "nothing to train on" },
        { "", "it holds no rows" },
        { "\n\n", "it holds no rows" },
        { "{\"data\": [{\"prompt\": \"a\", \"completion\": \"b\"}]}\n",
          "line 1, turn 1: 'from' is missing, wanted a message with 'from' and 'value'; rows that are no messages" },
    };
    test_file_write(test_folder(), "refuses.jinja",
                    "{% for m in messages %}{% if m.content == 'refuse' %}{{ raise_exception('no') }}{% endif %}"
                    "{{ m.content }}{% endfor %}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_error          err = { 0 };
        tm_source        *source = NULL;
        tm_source_options o = options_of(test_in_folder("wrong.data"));
        test_file_write(test_folder(), "wrong.data", cases[i].content);
        o.sft.chat_template = test_in_folder("refuses.jinja");
        tm_status st = tm_source_open(&o, &source, &err);
        if (st == TM_OK || tm_status_exit_code(st) != 4) fail_msg("%s: accepted", cases[i].content);
        refusal_is_sound(&err);
        if (!strstr(err.text, cases[i].words) || !strstr(err.text, "wrong.data"))
            fail_msg("'%s': wanted '%s' in: %s", cases[i].content, cases[i].words, err.text);
    }
}

TEST(options_that_cannot_be)
{
    static const struct {
        tm_sft_options o;
        const char    *words;
    } cases[] = {
        { { .column_map = "prompt" }, "data.column_map has 'prompt', wanted NAME=COLUMN" },
        { { .column_map = "prompt=" }, "wanted NAME=COLUMN" },
        { { .column_map = "question=q" }, "'question' is no part of data.format auto; wanted messages" },
        { { .format = TM_SFT_TEXT, .column_map = "prompt=q" }, "'prompt' is no part of data.format text; wanted text" },
        { { .column_map = "prompt=a,prompt=b" }, "names 'prompt' twice" },
        { { .format = TM_SFT_MESSAGES }, "data.format messages wants messages" },
        { { .tokenizer = "nowhere" }, "nowhere" },
    };
    const char *path = make_file();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_error          err = { 0 };
        tm_source        *source = NULL;
        tm_source_options o = options_of(path);
        o.sft = cases[i].o;
        tm_status st = tm_source_open(&o, &source, &err);
        if (st == TM_OK) fail_msg("case %zu: accepted", i);
        refusal_is_sound(&err);
        if (!strstr(err.text, cases[i].words)) fail_msg("wanted '%s' in: %s", cases[i].words, err.text);
    }
    tm_source_options o = options_of(path);
    tm_source        *source;
    tm_error          err = { 0 };
    o.vocab = 100;
    assert_int_equal(tm_source_open(&o, &source, &err), TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "set model.vocab_size to 257 or more"));
    o = options_of(path);
    o.validation_fraction = 0.001;
    err = (tm_error){ 0 };
    assert_int_equal(tm_source_open(&o, &source, &err), TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "raise data.validation_fraction"));
}

TESTS_IN_ORDER
TEST_FIXTURE(NULL, test_folder_teardown)
