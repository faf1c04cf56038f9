/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of prompts with a chosen and a rejected answer: every form, what is a target, what is cut and left out; and what
 * is wrong is refused with its row and column. */
#include "data/preview.h"
#include "data/source.h"
#include "support/refusal.h"
#include "support/folder.h"
#include "support/full_config.h"

#include <string.h>

#include "support/test.h"

#define USER(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ANSWER(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define CHATML                                                                                                         \
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|/|>{% endfor %}"                                          \
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"

enum { SEQ = 40 };

static tm_source_options options_of(const char *line, const char *map)
{
    test_file_write(test_folder(), "chatml.jinja", CHATML);
    test_file_write(test_folder(), "pairs.jsonl", line);
    return (tm_source_options){
        .name = "preference",
        .path = test_in_folder("pairs.jsonl"),
        .seq = SEQ,
        .seed = 1,
        .sft = { .column_map = map, .chat_template = test_in_folder("chatml.jinja"), .packed = true }
    };
}

/* Both answers as "[[prompt]]answer", one line each. */
static void show(const char *line, const char *map, tm_text *out)
{
    tm_error           err = { 0 };
    tm_source_options  s = options_of(line, map);
    tm_preview_options o = { .path = s.path, .sft = s.sft, .first = 1, .n = 1 };
    tm_text            text = { 0 };
    o.sft.format = TM_SFT_PREFERENCE;
    if (tm_data_preview(&o, &text, &err) != TM_OK) fail_msg("%s: %s", line, err.text);
    char *chosen = strchr(text.data, '\n') + 1, *rejected = strstr(chosen, ", rejected: ");
    assert_non_null(rejected);
    while (rejected[-1] != '\n') rejected--; /* the line that says what follows, behind an empty one */
    assert_non_null(strstr(text.data, ", chosen: "));
    if (out->data) out->length = 0;
    tm_text_add_n(out, chosen, (size_t)(rejected - 1 - chosen));
    tm_text_add(out, strchr(rejected, '\n') + 1);
    tm_text_fini(&text);
}

TEST(every_form_is_read)
{
    static const struct {
        const char *line, *map, *wanted;
    } cases[] = {
        { "{\"prompt\": \"2+2=\", \"chosen\": \"4\", \"rejected\": \"5\"}", NULL,
          "[[2+2=]]4<|end|>\n[[2+2=]]5<|end|>\n" },
        { "{\"q\": \"2+2=\", \"good\": \"4\", \"bad\": \"5\"}", "prompt=q,chosen=good,rejected=bad",
          "[[2+2=]]4<|end|>\n[[2+2=]]5<|end|>\n" },
        /* the common beginning; a blank before the answers is theirs, a character is not cut */
        { "{\"chosen\": \"Human: hi Assistant: yes\", \"rejected\": \"Human: hi Assistant: no\"}", NULL,
          "[[Human: hi Assistant:]] yes<|end|>\n[[Human: hi Assistant:]] no<|end|>\n" },
        { "{\"chosen\": \"a: \\u00e9\", \"rejected\": \"a: \\u00e8\"}", NULL,
          "[[a:]] \xc3\xa9<|end|>\n[[a:]] \xc3\xa8<|end|>\n" },
        { "{\"question\": \"Why?\", \"response_j\": \"So.\", \"response_k\": \"No.\"}", NULL,
          "[[Question: Why?\n\nAnswer: ]]So.<|end|>\n[[Question: Why?\n\nAnswer: ]]No.<|end|>\n" },
        { "{\"prompt\": [" USER("Hi") "], \"chosen\": [" ANSWER("Yo") "], \"rejected\": [" ANSWER("No") "]}", NULL,
          "[[<|user|>Hi<|/|><|assistant|>]]Yo<|/|>\n[[<|user|>Hi<|/|><|assistant|>]]No<|/|>\n" },
        /* earlier answers that both have are of the prompt; a prompt of text beside conversations repeats it */
        { "{\"prompt\": \"Hi\", \"chosen\": [" USER("Hi") "," ANSWER("Yo") "," USER("A?") "," ANSWER(
              "B") "], \"rejected\": [" USER("Hi") "," ANSWER("Yo") "," USER("A?") "," ANSWER("C") "]}",
          NULL,
          "[[<|user|>Hi<|/|><|assistant|>Yo<|/|><|user|>A?<|/|><|assistant|>]]B<|/|>\n"
          "[[<|user|>Hi<|/|><|assistant|>Yo<|/|><|user|>A?<|/|><|assistant|>]]C<|/|>\n" },
    };
    tm_text out = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        show(cases[i].line, cases[i].map, &out);
        assert_string_equal(out.data, cases[i].wanted);
    }
    tm_text_fini(&out);
}

static tm_source *open_rows(const char *lines, tm_overlong overlong, bool packed)
{
    tm_source_options o = options_of(lines, NULL);
    tm_source        *source;
    tm_error          err = { 0 };
    o.sft.overlong = overlong;
    o.sft.packed = packed;
    if (tm_source_open(&o, &source, &err) != TM_OK) fail_msg("%s", err.text);
    return source;
}

typedef struct {
    int32_t tokens[SEQ], targets[SEQ], positions[SEQ], first_key[SEQ];
    float   reference[SEQ];
    int64_t weight;
} row;

static row get_row(const tm_source *source, int64_t index)
{
    int32_t  scratch[SEQ + 1];
    tm_error err = { 0 };
    row      r;
    void    *at[] = { r.tokens, r.targets, r.positions, r.first_key, r.reference };
    if (tm_source_row(source, TM_SPLIT_TRAIN, index, scratch, at, &r.weight, &err) != TM_OK) fail_msg("%s", err.text);
    return r;
}

/* prompt "ab", answers "cde" and "f": chosen and rejected one behind the other, each from position 0, the prompt masked
 */
TEST(a_pair_is_two_sequences_of_a_row)
{
    static const int32_t tokens[] = { 'a', 'b', 'c', 'd', 'e', 'a', 'b', 'f' };
    static const int32_t targets[] = { -100, 'c', 'd', 'e', 256, -100, 'f', 256 };
    static const int32_t positions[] = { 0, 1, 2, 3, 4, 0, 1, 2 }, first_key[] = { 0, 0, 0, 0, 0, 5, 5, 5 };
    for (int packed = 0; packed < 2; packed++) {
        tm_source *source =
            open_rows("{\"prompt\": \"ab\", \"chosen\": \"cde\", \"rejected\": \"f\"}\n", TM_OVERLONG_TRUNCATE, packed);
        row r = get_row(source, 0);
        assert_memory_equal(r.tokens, tokens, sizeof tokens);
        assert_memory_equal(r.targets, targets, sizeof targets);
        assert_memory_equal(r.positions, positions, sizeof positions);
        assert_memory_equal(r.first_key, first_key, sizeof first_key);
        assert_int_equal(r.weight, 1);
        for (int t = 8; t < SEQ; t++) {
            assert_int_equal(r.targets[t], -100);
            assert_int_equal(r.first_key[t], 8);
        }
        tm_source_close(source);
    }
}

/* Half a row each, cut at its end; a pair that has no target left on one side is none. */
TEST(long_answers_are_cut_or_left_out)
{
    static const char lines[] =
        "{\"prompt\": \"p\", \"chosen\": \"0123456789012345678901234567890\", \"rejected\": \"x\"}\n"
        "{\"prompt\": \"0123456789012345678901234567890\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
        "{\"prompt\": \"q\", \"chosen\": \"same\", \"rejected\": \"same\"}\n"
        "{\"prompt\": \"r\", \"chosen\": \"one\", \"rejected\": \"two\"}\n";
    tm_source *source = open_rows(lines, TM_OVERLONG_TRUNCATE, false);
    assert_int_equal(tm_source_describe(source)->train_samples, 2);
    for (int64_t i = 0; i < 2; i++) {
        row r = get_row(source, i);
        if (r.tokens[0] != 'p') continue;
        assert_int_equal(r.first_key[SEQ / 2 - 1], 0);
        assert_int_equal(r.first_key[SEQ / 2], SEQ / 2); /* 21 tokens take 20 places */
        assert_int_equal(r.targets[SEQ / 2 - 1], '9');   /* and do not end with the end */
    }
    tm_source_close(source);
    source = open_rows(lines, TM_OVERLONG_DROP, false);
    assert_int_equal(tm_source_describe(source)->train_samples, 1);
    tm_source_close(source);
}

TEST(what_is_wrong_is_refused)
{
    static const struct {
        const char *content, *words;
        tm_overlong overlong;
    } cases[] = {
        { "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n{\"prompt\": \"a\", \"chosen\": \"b\"}\n",
          "line 2: no column 'rejected'", 0 },
        { "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": [" ANSWER("c") "]}\n",
          "line 1: column 'chosen' is a text, wanted an array of messages", 0 },
        { "{\"prompt\": 3, \"chosen\": \"b\", \"rejected\": \"c\"}\n",
          "line 1: column 'prompt' is a number, wanted a text", 0 },
        { "{\"prompt\": \" \", \"chosen\": \"b\", \"rejected\": \"c\"}\n", "line 1: column 'prompt' is empty", 0 },
        { "{\"prompt\": [" USER("a") "], \"chosen\": [" USER("b") "], \"rejected\": [" ANSWER("c") "]}\n",
          "line 1: the last message of column 'chosen' is no answer", 0 },
        { "{\"chosen\": [" ANSWER("b") "], \"rejected\": [" ANSWER("c") "]}\n",
          "line 1: columns 'chosen' and 'rejected' begin "
          "with different messages",
          0 },
        { "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"01234567890123456789012345\"}\n",
          "line 1: 28 tokens, prompt and answer have at most 21 (training.seq_len / 2 + 1)", TM_OVERLONG_ERROR },
        { "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}\n",
          "1 rows, of them 1 without two different answers", 0 },
        { "", "pairs.jsonl", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_source_options o = options_of(cases[i].content, NULL);
        tm_source        *source;
        tm_error          err = { 0 };
        o.sft.overlong = cases[i].overlong;
        assert_int_equal(tm_source_open(&o, &source, &err), TM_INVALID);
        refusal_is_sound(&err);
        if (!strstr(err.text, cases[i].words) || !strstr(err.text, "pairs.jsonl"))
            fail_msg("%s: '%s' is not in '%s'", cases[i].content, cases[i].words, err.text);
    }
}

TESTS_IN_ORDER
TEST_FIXTURE(NULL, test_folder_teardown)
