/* SPDX-License-Identifier: Apache-2.0 */
/* Text becomes ids by several threads: nothing is lost, whoever is faster; a call that was stopped goes on; a state
 * whose hash fits, but whose numbers are not of this text, is found. */
#include "support/folder.h"
#include "support/threads_left.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/tokenize.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"

/* A document is one word of "a" to "c": reading it costs nothing beside encoding it. */
static const char tokenizer[] =
    "{\"added_tokens\": [{\"id\": 6, \"content\": \"<|end|>\", \"special\": true}], "
    "\"normalizer\": null, \"pre_tokenizer\": null, \"decoder\": null, \"post_processor\": "
    "null, \"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"merges\": [[\"a\", \"b\"]], "
    "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"?\": 4, \"ab\": 5}}}\n";

enum { DOCUMENTS = 24, BYTES = 4000 };
static uint16_t wanted[DOCUMENTS * (BYTES + 1)];
static size_t   n_wanted;

static char letter(int document, int i)
{
    return "abcab"[(unsigned)(i * 7 + document * (i / 11 + 1)) % 5];
}

/* Lines of JSON, and the ids that they are. */
static void make_corpus(void)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    n_wanted = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        tm_text_add(&text, "{\"text\": \"");
        for (int i = 0; i < BYTES; i++) {
            char c = letter(d, i);
            tm_text_add_n(&text, &c, 1);
            if (c == 'b' && i > 0 && letter(d, i - 1) == 'a')
                wanted[n_wanted - 1] = 5;
            else
                wanted[n_wanted++] = (uint16_t)(c - 'a');
        }
        tm_text_add(&text, "\"}\n");
        wanted[n_wanted++] = 6;
    }
    assert_int_equal(tm_file_write(test_in_folder("rows.jsonl"), text.data, text.length, &err), TM_OK);
    assert_int_equal(tm_file_write(test_in_folder("tokenizer.json"), tokenizer, sizeof tokenizer - 1, &err), TM_OK);
    tm_text_fini(&text);
}

static tm_status tokenize(int threads, const volatile sig_atomic_t *stop, tm_tokenize_result *result, tm_error *err)
{
    static char         rows[300], name[300], out[300];
    const char *const   paths[] = { rows };
    tm_tokenize_options o = { .paths = paths, .n_paths = 1, .end = 6, .field = "text" };
    snprintf(rows, sizeof rows, "%s", test_in_folder("rows.jsonl"));
    snprintf(name, sizeof name, "%s", test_in_folder("tokenizer.json"));
    snprintf(out, sizeof out, "%s", test_in_folder("set"));
    o.tokenizer = name;
    o.out = out;
    o.threads = threads;
    o.batch_bytes = BYTES;
    o.stop = stop;
    *err = (tm_error){ 0 };
    return tm_data_tokenize(&o, result, err);
}

static void expect_all(const tm_tokenize_result *result)
{
    tm_text  bin = { 0 };
    tm_error err = { 0 };
    assert_int_equal(result->documents, DOCUMENTS);
    assert_int_equal(result->tokens, n_wanted);
    assert_int_equal(tm_file_read(test_in_folder("set.bin"), 1 << 24, &bin, &err), TM_OK);
    assert_int_equal(bin.length, n_wanted * 2);
    assert_memory_equal(bin.data, wanted, n_wanted * 2);
    tm_text_fini(&bin);
}

/* The one who reads waits for those who encode, and not the other way round. */
TEST(nothing_is_lost_between_threads)
{
    tm_tokenize_result result;
    tm_error           err;
    make_corpus();
    for (int threads = 1; threads <= 3; threads++) {
        if (tokenize(threads, NULL, &result, &err) != TM_OK) fail_msg("%s", err.text);
        expect_all(&result);
        assert_int_equal(result.resumed_tokens, 0);
        assert_int_equal(result.files, 1);
    }
}

static void change(int at, int64_t by)
{
    unsigned char bytes[64];
    int64_t       member;
    uint64_t      hash;
    FILE         *f = fopen(test_in_folder("set.tokenize"), "r+b");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), sizeof bytes);
    memcpy(&member, bytes + at, 8);
    member += by;
    memcpy(bytes + at, &member, 8);
    hash = tm_hash(bytes + 8, 48);
    memcpy(bytes + 56, &hash, 8);
    rewind(f);
    assert_int_equal(fwrite(bytes, 1, sizeof bytes, f), sizeof bytes);
    fclose(f);
}

TEST(a_stopped_call_goes_on_where_it_was)
{
    enum { BATCHES = 16, TEXT_BYTES = 40 };
    volatile sig_atomic_t stop = 1;
    tm_tokenize_result    result;
    tm_error              err;
    char                  said[400];
    make_corpus();
    for (int k = 0; k < 3; k++) {
        assert_int_equal(tokenize(2, &stop, &result, &err), TM_INTERRUPTED);
        snprintf(said, sizeof said, "the same command continues after %lld tokens", (long long)result.tokens);
        assert_string_equal(err.text, said);
        assert_true(result.tokens > 0 && result.resumed_tokens == (k == 0 ? 0 : result.tokens)); /* stopped at once */
    }
    /* not as many bytes in so many batches; more batches than there are */
    const struct {
        int     at;
        int64_t by;
    } changes[] = { { BATCHES, 1 }, { BATCHES, 1000000 }, { TEXT_BYTES, -1 }, { TEXT_BYTES, 1 } };
    snprintf(said, sizeof said, "'%s.tokenize' is not of this text; remove it to begin anew", test_in_folder("set"));
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        change(changes[i].at, changes[i].by);
        assert_int_equal(tokenize(1, NULL, &result, &err), TM_FORMAT);
        assert_string_equal(err.text, said);
        assert_false(tm_file_exists(test_in_folder("set.bin")));
        change(changes[i].at, -changes[i].by);
    }
    if (tokenize(2, NULL, &result, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(result.resumed_tokens > 0);
    expect_all(&result);
}

/* One that reads and one that encodes will do, however many are wanted; without them nothing is written. */
TEST(the_system_gives_few_threads)
{
    tm_tokenize_result result;
    tm_error           err;
    make_corpus();
    for (int left = 0; left < 2; left++) {
        threads_left = left;
        assert_int_equal(tokenize(3, NULL, &result, &err), TM_INTERNAL);
        assert_string_equal(err.text, "cannot start a thread");
        assert_false(tm_file_exists(test_in_folder("set.bin")) || tm_file_exists(test_in_folder("set.idx")));
    }
    threads_left = 2;
    if (tokenize(3, NULL, &result, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(threads_left, 0);
    threads_left = -1;
    expect_all(&result);
}

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
