/* SPDX-License-Identifier: Apache-2.0 */
/* `data tokenize`: which files there are and which are left out; the same ids whatever the size of the batches and the
 * number of threads; what goes on after a call that was stopped, and what begins anew. */
#include "support/folder.h"
#include "support/full_config.h"
#include "support/threads_left.h"
#include "support/whole.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/indexed.h"
#include "data/tokenize.h"
#include "data/tokenize_output.h"

#include "support/test.h"

/* Bytes as tokens: "a" to "d", "ab", another one, and the end. */
static const char tokenizer[] =
    "{\"added_tokens\": [{\"id\": 6, \"content\": \"<|end|>\", \"special\": true}], "
    "\"normalizer\": null, \"pre_tokenizer\": null, \"decoder\": null, \"post_processor\": "
    "null, \"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"merges\": [[\"a\", \"b\"]], "
    "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"?\": 4, \"ab\": 5}}}\n";

/* The set as text: "|" is the end of a text, "/" that of a document of the index. */
static void is_set(const char *name, const char *wanted)
{
    static const char *const names[] = { "a", "b", "c", "d", "?", "ab", "|" };
    tm_indexed               set;
    tm_text                  found = { 0 };
    int32_t                  id;
    assert_ok(tm_indexed_open(name, &set, err));
    for (int64_t d = 0, t = 0; d < set.documents; d++) {
        for (int64_t end = t + tm_indexed_length(&set, d); t < end; t++)
            tm_text_add(&found, tm_indexed_token(&set, t, &id) && id < 7 ? names[id] : "#");
        tm_text_add(&found, "/");
    }
    assert_string_equal(found.data, wanted);
    tm_indexed_close(&set);
    tm_text_fini(&found);
}

static void refused_with(tm_status st, const tm_error *err, const char *words)
{
    if ((st != TM_OK) != (words != NULL) || (words && !strstr(err->text, words)))
        fail_msg("'%s', wanted '%s'", err->text, words ? words : "");
}

#define TWO(...) .paths = (const char *const[]){ __VA_ARGS__ }, .n_paths = 2
#define ONE(path) .paths = (const char *const[]){ path }, .n_paths = 1

/* found: files, documents, tokens, bytes; left out: binary, the same, unreadable, empty. */
TEST(documents_do_not_depend_on_batches_and_threads)
{
    static const int64_t sizes[] = { 0, 1, 5, 7, 11, 30, 64, 100 }; /* 11: a line of p.jsonl.gz */
    const struct {
        tm_tokenize_options options;
        const char         *found, *left_out, *wanted, *refused;
    } all[] = {
        { { ONE("all"), .end = 6 }, "3 3 18 19", "1 2 2 2", "abcd|/dcba|/ab?cd??abab|/", NULL },
        { { TWO("b.txt", "all/a*"), .end = -2 }, "3 3 10 11", "0 0 0 0", "ddd/abcd/dcba/", NULL },
        { { ONE("j.jsonl"), .end = 6, .field = "text" }, "1 4 12 98", "0 0 0 0", "ab|/c?d?|/|/bad|/", NULL },
        { { ONE("j.jsonl"), .end = -2, .field = "text" }, "1 3 8 98", "0 0 0 0", "ab/c?d?/bad/", NULL },
        { { TWO("p.jsonl.gz", "t.txt.gz"), .end = 6, .field = "a" }, "2 3 9 27", "0 0 0 0", "b|/cc|/ab?d|/", NULL },
        { { TWO("all/.hidden", "d?r"), .end = 6 }, "2 2 7 5", "0 0 0 0", "dddd|/d|/", NULL },
        { { ONE("rows.parquet"), .end = 6, .field = "text" }, "1 51 560 715", "0 0 0 0", NULL, NULL },
        { { TWO("j.jsonl", "b.txt"), .end = 6 }, "2 0 0 0", "0 0 0 0", NULL, "'j.jsonl' has fields" },
        { { ONE("j.jsonl"), .end = 6, .input = "text" }, "1 0 0 0", "0 0 0 0", NULL, "is JSON lines, not text" },
        { { ONE("j.jsonl"), .end = 6, .field = "none" }, "1 0 0 0", "0 0 0 0", NULL, "line 1: no text in field 'none" },
        { { ONE("all/binary"), .end = 6 }, "1 0 0 0", "0 0 0 0", NULL, "'all/binary' is a binary file, wanted text" },
        { { ONE("gone"), .end = 6 }, "0 0 0 0", "0 0 0 0", NULL, "cannot reach 'gone': No such file or directory" },
        { { ONE("empty"), .end = 6 }, "0 0 0 0", "0 0 0 1", NULL, "no text in 'empty'" },
        { { ONE("b.txt"), .end = 7 }, "0 0 0 0", "0 0 0 0", NULL, "--end is 7, but 'tokenizer.json' has ids below 7" },
        { { ONE("b.txt"), .end = -1 },
          "0 0 0 0",
          "0 0 0 0",
          NULL,
          "end-of-text token of 'tokenizer.json' is not known" },
        { { ONE("b.txt"), .end = 6, .out = "no/such" },
          "1 0 0 0",
          "0 0 0 0",
          NULL,
          "cannot create 'no/such.bin.part'" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int k = 0; k < 8; k++) {
            tm_tokenize_options o = all[i].options;
            tm_tokenize_result  r;
            tm_error            err = { 0 };
            tm_text             told = { 0 };
            char                found[80], left_out[80];
            int                 warnings = 0;
            o.tokenizer = "tokenizer.json";
            o.out = o.out ? o.out : "out";
            o.batch_bytes = sizes[k];
            o.threads = 1 + k % 3;
            refused_with(tm_data_tokenize(&o, &r, &err), &err, all[i].refused);
            snprintf(found, sizeof found, "%lld %lld %lld %lld", (long long)r.files, (long long)r.documents,
                     (long long)r.tokens, (long long)r.bytes);
            snprintf(left_out, sizeof left_out, "%lld %lld %lld %lld", (long long)r.binary, (long long)r.duplicate,
                     (long long)r.unreadable, (long long)r.empty);
            assert_string_equal(found, all[i].found);
            assert_string_equal(left_out, all[i].left_out);
            assert_true(r.resumed_tokens == 0 && !r.wide);
            if (all[i].wanted) is_set("out", all[i].wanted);
            whole_log_take(&told); /* each that is left out with something inside, by its name */
            for (const char *at = told.data; at && (at = strstr(at, "  warning: 'all/")); at++) warnings++;
            assert_int_equal(warnings, r.binary + r.duplicate + r.unreadable + (i == 0)); /* and the link that loops */
            assert_true(i > 0 || strstr(told.data, "'all/deep/up' leads back to a directory that it lies in"));
            tm_text_fini(&told);
        }
}

/* ---- a call that was stopped ---- */

enum { DOCUMENTS = 24, BYTES = 4000 };
static uint16_t wanted_ids[DOCUMENTS * (BYTES + 1)];
static size_t   n_wanted;

/* Lines of JSON, and the ids that they are. A document is one word: reading it costs nothing beside encoding it. */
static void make_corpus(void)
{
    tm_text text = { 0 };
    n_wanted = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        char before = 0;
        tm_text_add(&text, "{\"text\": \"");
        for (int i = 0; i < BYTES; i++) {
            char c = "abcab"[(unsigned)(i * 7 + d * (i / 11 + 1)) % 5];
            tm_text_add_n(&text, &c, 1);
            if (c == 'b' && before == 'a')
                wanted_ids[n_wanted - 1] = 5;
            else
                wanted_ids[n_wanted++] = (uint16_t)(c - 'a');
            before = c;
        }
        tm_text_add(&text, "\"}\n");
        wanted_ids[n_wanted++] = 6;
    }
    test_file_write(".", "rows.jsonl", text.data);
    tm_text_fini(&text);
}

static tm_status tokenize(int threads, int32_t end, const volatile sig_atomic_t *stop, tm_tokenize_result *result,
                          tm_error *err)
{
    const tm_tokenize_options o = { ONE("rows.jsonl"),    .out = "set", .tokenizer = "tokenizer.json",
                                    .field = "text",      .end = end,   .threads = threads,
                                    .batch_bytes = BYTES, .stop = stop };
    *err = (tm_error){ 0 };
    return tm_data_tokenize(&o, result, err);
}

static void expect_all(const tm_tokenize_result *result)
{
    tm_text bin = { 0 };
    assert_int_equal(result->documents, DOCUMENTS);
    assert_int_equal(result->tokens, n_wanted);
    assert_ok(tm_file_read("set.bin", 1 << 24, &bin, err));
    assert_int_equal(bin.length, n_wanted * 2);
    assert_memory_equal(bin.data, wanted_ids, n_wanted * 2);
    tm_text_fini(&bin);
    for (size_t i = 0; i < 4; i++) {
        static const char *const gone[] = { "set.bin.part", "set.lengths.part", "set.tokenize", "set.tokenize.new" };
        assert_false(tm_file_exists(gone[i]));
    }
}

static void stopped(void)
{
    volatile sig_atomic_t stop = 1;
    tm_tokenize_result    result;
    assert_refused(tokenize(2, 6, &stop, &result, err), TM_INTERRUPTED, "");
}

/* Number k of the saved state becomes `value`, or grows by it, with a hash that fits. */
static void change(int k, int64_t value, bool by)
{
    int64_t  saved[8];
    uint64_t hash;
    FILE    *f = fopen("set.tokenize", "r+b");
    assert_non_null(f);
    assert_int_equal(fread(saved, 8, 8, f), 8);
    saved[k] = value + (by ? saved[k] : 0);
    hash = tm_hash(saved + 1, 48);
    memcpy(saved + 7, &hash, 8);
    rewind(f);
    assert_int_equal(fwrite(saved, 8, 8, f), 8);
    fclose(f);
}

TEST(a_stopped_call_goes_on_where_it_was)
{
    enum { BATCHES = 2, TEXT_BYTES = 5 };
    volatile sig_atomic_t stop = 1;
    tm_tokenize_result    result;
    tm_error              err;
    char                  said[400];
    make_corpus();
    for (int k = 0; k < 3; k++) {
        assert_int_equal(tokenize(2, 6, &stop, &result, &err), TM_INTERRUPTED);
        snprintf(said, sizeof said, "the same command continues after %lld tokens", (long long)result.tokens);
        assert_string_equal(err.text, said);
        assert_true(result.tokens > 0 && result.resumed_tokens == (k == 0 ? 0 : result.tokens)); /* stopped at once */
    }
    /* not as many bytes in so many batches; more batches than there are */
    static const int64_t changes[][2] = { { BATCHES, 1 }, { BATCHES, 1000000 }, { TEXT_BYTES, -1 }, { TEXT_BYTES, 1 } };
    for (size_t i = 0; i < 4; i++) {
        change((int)changes[i][0], changes[i][1], true);
        assert_int_equal(tokenize(1, 6, NULL, &result, &err), TM_FORMAT);
        assert_string_equal(err.text, "'set.tokenize' is not of this text; remove it to begin anew");
        assert_false(tm_file_exists("set.bin"));
        change((int)changes[i][0], -changes[i][1], true);
    }
    FILE *f = fopen("set.bin.part", "ab"); /* what came after the last save is cut off */
    assert_true(f && fputs("more", f) >= 0 && fclose(f) == 0);
    if (tokenize(2, 6, NULL, &result, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(result.resumed_tokens > 0);
    expect_all(&result);
}

/* Files that are gone or too short, a state with a wrong bit, numbers that nobody saved, other options. */
TEST(what_is_damaged_begins_anew)
{
    static const char *const files[] = { "set.tokenize", "set.bin.part", "set.lengths.part" };
    static const int64_t     huge[] = { -1, INT64_C(1) << 61, INT64_C(1) << 62, INT64_MAX, INT64_MIN };
    tm_tokenize_result       result;
    tm_error                 err;
    make_corpus();
    for (int i = 0; i < 6 + 8 + 4 * 5 + 1; i++) {
        stopped();
        if (i < 3) assert_int_equal(unlink(files[i]), 0);
        if (i >= 3 && i < 6) assert_int_equal(truncate(files[i - 3], i == 5 ? 3 : 10), 0);
        if (i >= 6 && i < 14) {
            FILE *f = fopen("set.tokenize", "r+b");
            assert_true(f && fseek(f, 8 * (i - 6), SEEK_SET) == 0);
            const int c = fgetc(f);
            assert_true(fseek(f, -1, SEEK_CUR) == 0 && fputc(c ^ 1, f) >= 0 && fclose(f) == 0);
        }
        if (i >= 14 && i < 34) change((const int[]){ 3, 4, 5, 6 }[(i - 14) / 5], huge[(i - 14) % 5], false);
        if (i == 34) assert_int_equal(tokenize(1, -2, NULL, &result, &err), TM_OK);
        if (i < 34 && tokenize(1, 6, NULL, &result, &err) != TM_OK) fail_msg("%d: %s", i, err.text);
        if (result.resumed_tokens != 0) fail_msg("%d: goes on", i);
        if (i < 34) expect_all(&result);
    }
}

/* One that reads and one that encodes will do, however many are wanted; without them nothing is written. */
TEST(the_system_gives_few_threads)
{
    tm_tokenize_result result;
    tm_error           err;
    make_corpus();
    for (int left = 0; left < 2; left++) {
        threads_left = left;
        assert_int_equal(tokenize(3, 6, NULL, &result, &err), TM_INTERNAL);
        assert_string_equal(err.text, "cannot start a thread");
        assert_false(tm_file_exists("set.bin") || tm_file_exists("set.idx"));
    }
    threads_left = 2;
    if (tokenize(3, 6, NULL, &result, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(threads_left, 0);
    threads_left = -1;
    expect_all(&result);
}

/* Ids of four bytes; a document that is under way goes on; two calls do not write the same files. */
TEST(ids_may_be_wide)
{
    static const int32_t ids[] = { 1, 65536, 70000 };
    tm_tokenize_output   first, second;
    tm_tokenize_result   result;
    tm_indexed           set;
    make_corpus();
    for (int k = 0; k < 2; k++) {
        assert_ok(tm_tokenize_output_open("set", true, 5, &first, err));
        assert_int_equal(first.state.open, k);
        tm_tokenize_output_add(&first, ids + k, k ? 2 : 1);
        if (k) tm_tokenize_output_end_document(&first);
        assert_ok(tm_tokenize_output_save(&first, err));
        if (!k) tm_tokenize_output_close(&first);
    }
    assert_refused(tokenize(1, 6, NULL, &result, err), TM_INVALID, "another process is writing 'set.bin'");
    assert_ok(tm_tokenize_output_finish(&first, err));
    assert_ok(tm_tokenize_output_open("set", true, 5, &second, err)); /* of what is finished no part */
    tm_tokenize_output_add(&second, ids, 3);
    tm_tokenize_output_close(&second);
    tm_tokenize_output_close(&first);
    assert_ok(tm_indexed_open("set", &set, err));
    assert_true(set.documents == 1 && set.tokens == 3 && set.token_bytes == 4);
    for (int32_t t = 0, id; t < 3; t++) assert_true(tm_indexed_token(&set, t, &id) && id == ids[t]);
    tm_indexed_close(&set);
}

/* ---- the files ---- */

static int write_all(void **state)
{
    static const char *const files[][2] = {
        { "all/a", "abcd" },
        { "all/a2", "dcba" },
        { "all/b", "abcd" },
        { "all/deep/c", "abcd" },
        { "all/deep/d", "ab\ncd\n\nabab" },
        { "all/empty", "" },
        { "all/z", "" },
        { "all/.hidden/h", "dddd" },
        { "all/bad.gz", "no gzip" },
        { "dir/in", "d" },
        { "b.txt", "ddd" },
        { "empty/x", "" },
        { "tokenizer.json", tokenizer },
        { "j.jsonl", "{\"name\": \"x\", \"text\": \"ab\", \"other\": \"y\"}\n \t\r\n\n"
                     "{\"text\": \"c\\u0000d\\n\"}\n{\"text\": \"\"}\n{\"text\": \"bad\"}" },
    };
    tm_text  parquet = { 0 };
    tm_error err = { 0 };
    (void)state;
    tm_log_set_level(TM_LOG_ERROR);
    if (tm_file_read("tests/data/parquet/none-1.parquet", 1 << 24, &parquet, &err) != TM_OK) return -1;
    test_folder_enter();
    whole_log_open();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) test_put(".", files[i][0], files[i][1]);
    test_file_pack("p.jsonl.gz", "{\"a\": \"b\"}\n{\"a\": \"cc\"}\n");
    test_file_pack("t.txt.gz", "ab\nd");
    if (tm_file_write("all/binary", "a\0b", 3, &err) != TM_OK) return -1;
    if (tm_file_write("rows.parquet", parquet.data, parquet.length, &err) != TM_OK) return -1;
    tm_text_fini(&parquet);
    return symlink("gone", "all/dangling") == 0 && symlink("..", "all/deep/up") == 0 ? 0 : -1;
}

static int go_back(void **state)
{
    whole_log_close();
    return test_folder_teardown(state);
}

TESTS_ALONE
TEST_FIXTURE(write_all, go_back)
