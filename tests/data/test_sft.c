/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of rows for fine-tuning: parquet as JSON, what is a target, truncation, packed samples, order, pairs; and
 * options that cannot be. Forms of rows: test_sft_rows.c. */
#include "data/opened.h"
#include "data/rows.h"
#include "data/sft_tokens.h"
#include "data/source_kind.h"
#include "support/folder.h"
#include "support/full_config.h"

#define FIXTURES "tests/data/sft/"

/* --- rows --------------------------------------------------------------------------------------------------------- */

static const char *const all_columns[] = { "messages", "data",   "instruction", "input",
                                           "output",   "report", "summary",     "text" };
enum { COLUMNS = sizeof all_columns / sizeof all_columns[0] };

static json_t *read_rows(const char *path)
{
    tm_rows *rows;
    json_t  *all = json_array(), *row;
    assert_ok(tm_rows_open(path, all_columns, COLUMNS, &rows, err));
    for (;;) {
        assert_ok(tm_rows_next(rows, &row, err));
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

/* The tokens of answers are those that transformers marks ({% generation %}). */
TEST(targets_are_those_of_transformers)
{
    json_error_t problem;
    json_t      *root = json_load_file("tests/token/chat/ids.json", 0, &problem), *one;
    size_t       k, met = 0, some = 0;
    if (!root) fail_msg("%s", problem.text);
    tm_sft_options o = { .tokenizer = "tests/token/chat/gpt-oss" };
    tm_sft_coder  *coder;
    assert_ok(tm_sft_coder_open(&o, &coder, err));
    json_array_foreach(json_object_get(root, "gpt-oss"), k, one)
    {
        json_t    *variables = json_array_get(one, 0), *ids = json_array_get(one, 1), *mask = json_array_get(one, 2);
        tm_sft_row row = { .messages = json_object_get(variables, "messages"), .more = variables };
        tm_ids     got[2] = { { 0 } };
        if (json_is_true(json_object_get(variables, "add_generation_prompt"))) continue;
        assert_ok(tm_sft_encode(coder, &row, "row", got, err));
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
    float   reference[SEQ];
    int64_t weight;
} row;

static void get_row(const tm_source *source, tm_split split, int64_t index, row *out)
{
    int32_t scratch[SEQ + 1];
    void   *at[] = { out->tokens, out->targets, out->positions, out->first_key, out->reference };
    memset(out, 0, sizeof *out);
    assert_ok(tm_source_row(source, split, index, scratch, at, &out->weight, err));
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
    tm_source_options o = options_of(make_file());
    tm_source        *source = open_source(&o);
    int64_t           rows = tm_source_describe(source)->train_samples, samples = 0, tokens = 0;
    bool              seen[ROWS] = { false };
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
    row               r;
    int64_t           whole;
    o.sft.packed = false;
    source = open_source(&o);
    whole = tm_source_describe(source)->train_samples;
    tm_source_close(source);
    assert_int_equal(whole, ROWS);
    o.seq = 24;
    source = open_source(&o); /* truncated; some lose their answer */
    int64_t cut = tm_source_describe(source)->train_samples;
    for (int64_t i = 0; i < cut; i++) {
        get_row(source, TM_SPLIT_TRAIN, i, &r);
        assert_true(r.weight >= 1);
    }
    tm_source_close(source);
    o.sft.overlong = TM_OVERLONG_DROP;
    source = open_source(&o);
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
        source = open_source(&o);
        for (int64_t i = 0; i < tm_source_describe(source)->train_samples; i++) {
            get_row(source, TM_SPLIT_TRAIN, i, &r);
            targets[k] += r.weight;
        }
        tm_source_close(source);
    }
    assert_int_equal(targets[0], targets[1]);
    o.sft.overlong = TM_OVERLONG_ERROR;
    expect_refusal(&o, "rows.jsonl', line 3: 29 tokens, a sample has at most 25", "data.overlong");
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
    tm_source *source = open_source(&o);
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
    char *first = strstr(text.data, "complexion"), words[64];
    int   line = 1;
    for (char *p = text.data; p < first; p++) line += *p == '\n';
    snprintf(words, sizeof words, "line %d: no column 'completion'", line);
    expect_refusal(&o, words, "");
    tm_text_fini(&text);
}

/* --- pairs of answers --- */

enum { PAIR = 40 };

static tm_source *open_pairs(const char *lines, tm_overlong overlong, bool packed)
{
    test_file_write(test_folder(), "pairs.jsonl", lines);
    return open_source(&(tm_source_options){ .name = "preference",
                                             .path = test_in_folder("pairs.jsonl"),
                                             .seq = PAIR,
                                             .seed = 1,
                                             .sft = { .packed = packed, .overlong = overlong } });
}

/* prompt "ab", answers "cde" and "f": chosen and rejected one behind the other, each from position 0, the prompt masked
 */
TEST(a_pair_is_two_sequences_of_a_row)
{
    static const int32_t tokens[] = { 'a', 'b', 'c', 'd', 'e', 'a', 'b', 'f' };
    static const int32_t targets[] = { -100, 'c', 'd', 'e', 256, -100, 'f', 256 };
    static const int32_t positions[] = { 0, 1, 2, 3, 4, 0, 1, 2 }, first_key[] = { 0, 0, 0, 0, 0, 5, 5, 5 };
    for (int packed = 0; packed < 2; packed++) {
        tm_source *source = open_pairs("{\"prompt\": \"ab\", \"chosen\": \"cde\", \"rejected\": \"f\"}\n",
                                       TM_OVERLONG_TRUNCATE, packed);
        row        r;
        get_row(source, TM_SPLIT_TRAIN, 0, &r);
        assert_memory_equal(r.tokens, tokens, sizeof tokens);
        assert_memory_equal(r.targets, targets, sizeof targets);
        assert_memory_equal(r.positions, positions, sizeof positions);
        assert_memory_equal(r.first_key, first_key, sizeof first_key);
        assert_int_equal(r.weight, 1);
        for (int t = 8; t < PAIR; t++) {
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
    tm_source *source = open_pairs(lines, TM_OVERLONG_TRUNCATE, false);
    assert_int_equal(tm_source_describe(source)->train_samples, 2);
    for (int64_t i = 0; i < 2; i++) {
        row r;
        get_row(source, TM_SPLIT_TRAIN, i, &r);
        if (r.tokens[0] != 'p') continue;
        assert_int_equal(r.first_key[PAIR / 2 - 1], 0);
        assert_int_equal(r.first_key[PAIR / 2], PAIR / 2); /* 21 tokens take 20 places */
        assert_int_equal(r.targets[PAIR / 2 - 1], '9');    /* and do not end with the end */
    }
    tm_source_close(source);
    source = open_pairs(lines, TM_OVERLONG_DROP, false);
    assert_int_equal(tm_source_describe(source)->train_samples, 1);
    tm_source_close(source);
}

/* --- what is wrong --- */

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
        tm_source_options o = options_of(path);
        o.sft = cases[i].o;
        expect_refusal(&o, cases[i].words, "");
    }
    tm_source_options o = options_of(path);
    o.vocab = 100;
    expect_refusal(&o, "set model.vocab_size to 257 or more", "");
    o = options_of(path);
    o.validation_fraction = 0.001;
    expect_refusal(&o, "raise data.validation_fraction", "");
}

TESTS_IN_ORDER
TEST_FIXTURE(NULL, test_folder_teardown)
