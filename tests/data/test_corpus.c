/* SPDX-License-Identifier: Apache-2.0 */
/* Files, folders and patterns as batches: which files there are and which are left out, every part of every batch of
 * several sizes, the documents in it, and each refusal, to the letter. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/data/test_corpus; git diff tests/data/whole-corpus.txt
 */
#include "data/corpus.h"
#include "data/output.h"
#include "data/vocabulary.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/whole.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char tokenizer_text[] =
    "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": null, \"decoder\": null, \"post_processor\": "
    "null, \"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"merges\": [[\"a\", \"b\"]], "
    "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"?\": 4, \"ab\": 5}}}\n";

static char *back;

/* --- what is recorded ----------------------------------------------------------------------------- */

static void add_quoted(tm_text *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n')
            tm_text_add(out, "\\n");
        else if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            tm_text_printf(out, "\\x%02x", (unsigned char)text[i]);
        else
            tm_text_add_n(out, text + i, 1);
}

static tm_status add_document(void *context, const char *text, size_t bytes, bool begins, bool ends, tm_error *err)
{
    tm_text *out = context;
    tm_text_printf(out, "      %s%s '", begins ? "begins" : "", ends ? " ends" : "");
    add_quoted(out, text, bytes);
    tm_text_add(out, "'\n");
    return bytes == 4 && memcmp(text, "stop", 4) == 0 ? tm_fail(err, TM_INTERRUPTED, "the sink says stop") : TM_OK;
}

static void add_batch(const tm_text_batch *batch, const char *field, tm_text *out)
{
    tm_text_printf(out, "  batch of %zu bytes, at %lld\n", batch->text.length, (long long)batch->place);
    for (size_t i = 0; i < batch->count; i++) {
        const tm_part *p = &batch->parts[i];
        tm_error       err = { 0 };
        tm_text_printf(out, "    %s %zu + %zu%s%s%s, line %lld: '", p->file, p->at, p->length,
                       p->begins ? ", begins" : "", p->ends ? ", ends" : "", p->lines ? ", lines" : "",
                       (long long)p->line);
        add_quoted(out, batch->text.data + p->at, p->length);
        tm_text_add(out, "'\n");
        if (tm_part_documents(batch, p, field, add_document, out, &err) != TM_OK)
            tm_text_printf(out, "      -> %d: %s\n", tm_status_exit_code(err.status), err.text);
    }
}

static void add_corpus(const tm_tokenize_options *o, tm_text *out)
{
    tm_tokenize_result r = { 0 };
    tm_tokenizer      *tokenizer = NULL;
    tm_corpus         *corpus = NULL;
    tm_text_batch      batch = { 0 };
    tm_error           err = { 0 };
    assert_int_equal(tm_tokenizer_parse("t.json", tokenizer_text, sizeof tokenizer_text - 1, NULL, &tokenizer, &err),
                     TM_OK);
    tm_text_printf(out, "%s%s%s, input %s, field %s, batches of %lld\n", o->paths[0], o->n_paths > 1 ? " " : "",
                   o->n_paths > 1 ? o->paths[1] : "", o->input ? o->input : "by name", o->field ? o->field : "none",
                   (long long)o->batch_bytes);
    tm_status st = tm_corpus_open(o, tokenizer, &r, &corpus, &err);
    if (st == TM_OK) tm_text_printf(out, "  %lld bytes\n", (long long)tm_corpus_bytes(corpus));
    tm_text_printf(out, "  %lld files; left out %lld binary, %lld the same, %lld unreadable, %lld empty\n",
                   (long long)r.files, (long long)r.binary, (long long)r.duplicate, (long long)r.unreadable,
                   (long long)r.empty);
    for (bool more = true; st == TM_OK && more;) {
        tm_text_batch_clear(&batch);
        st = tm_corpus_next(corpus, &batch, &err);
        more = st == TM_OK && batch.count > 0;
        add_batch(&batch, o->field, out);
    }
    if (st != TM_OK) tm_text_printf(out, "  -> %d: %s\n", tm_status_exit_code(st), err.text);
    whole_log_take(out);
    tm_text_batch_fini(&batch);
    tm_corpus_close(corpus);
    tm_tokenizer_close(tokenizer);
}

static void batches_are_as_recorded(void **state)
{
    static const char *const all[] = { "all" }, *const twice[] = { "a.txt", "all/a*" }, *const json[] = { "j.jsonl" },
                             *const broken[] = { "broken.ndjson" }, *const packed[] = { "p.jsonl.gz", "t.txt.gz" },
                             *const parquet[] = { "rows.parquet" }, *const fifo[] = { "fifo" },
                             *const none[] = { "x*" }, *const slash[] = { "[z" }, *const bad[] = { "bad.gz" },
                             *const many[] = { "all/.hidden", "d?r" }, *const empty[] = { "none.txt" },
                             *const objects[] = { "o.txt" }, *const number[] = { "n.txt" },
                             *const one[] = { "one.txt" }, *const stop[] = { "stop.jsonl" };
    static const tm_tokenize_options sets[] = {
        { .paths = all, .n_paths = 1, .out = "t" },
        { .paths = all, .n_paths = 1, .out = "t", .batch_bytes = 1 },
        { .paths = all, .n_paths = 1, .out = "t", .batch_bytes = 5 },
        { .paths = twice, .n_paths = 2, .out = "t", .batch_bytes = 7 },
        { .paths = json, .n_paths = 1, .out = "t", .field = "text" },
        { .paths = json, .n_paths = 1, .out = "t", .field = "text", .batch_bytes = 10 },
        { .paths = json, .n_paths = 1, .out = "t", .field = "other", .batch_bytes = 64 },
        { .paths = json, .n_paths = 1, .out = "t" },
        { .paths = json, .n_paths = 1, .out = "t", .input = "text" },
        { .paths = json, .n_paths = 1, .out = "t", .input = "text", .tokenizer = "k.json" },
        { .paths = json, .n_paths = 1, .out = "t", .input = "parquet", .field = "text" },
        { .paths = stop, .n_paths = 1, .out = "t", .field = "a" },
        { .paths = broken, .n_paths = 1, .out = "t", .field = "a" },
        { .paths = packed, .n_paths = 2, .out = "t", .field = "a" },
        { .paths = packed, .n_paths = 2, .out = "t", .field = "a", .batch_bytes = 6 },
        { .paths = parquet, .n_paths = 1, .out = "t", .field = "text", .batch_bytes = 30 },
        { .paths = parquet, .n_paths = 1, .out = "t", .field = "none" },
        { .paths = parquet, .n_paths = 1, .out = "t" },
        { .paths = fifo, .n_paths = 1, .out = "t" },
        { .paths = none, .n_paths = 1, .out = "t" },
        { .paths = slash, .n_paths = 1, .out = "t" },
        { .paths = bad, .n_paths = 1, .out = "t" },
        { .paths = many, .n_paths = 2, .out = "t", .batch_bytes = 100 },
        { .paths = empty, .n_paths = 1, .out = "t" },
        { .paths = objects, .n_paths = 1, .out = "t" },
        { .paths = number, .n_paths = 1, .out = "t", .tokenizer = "k.json" },
        { .paths = one, .n_paths = 1, .out = "t" },
    };
    tm_text out = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) add_corpus(&sets[i], &out);
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/data/whole-corpus.txt", back);
    whole_is(path, &out);
}

/* --- which corpus it is ----------------------------------------------------------------------------- */

static uint64_t hash_of(const char *first, const char *second, const char *input)
{
    const char *const   paths[] = { first, second };
    tm_tokenize_options o = { .paths = paths, .n_paths = second ? 2 : 1, .out = "t", .input = input, .field = "text" };
    tm_tokenize_result  r = { 0 };
    tm_corpus          *corpus = NULL;
    tm_error            err = { 0 };
    if (tm_corpus_open(&o, NULL, &r, &corpus, &err) != TM_OK) fail_msg("%s", err.text);
    uint64_t hash = tm_corpus_hash(corpus);
    tm_corpus_close(corpus);
    return hash;
}

static void set_time(const char *path, time_t seconds, long nanoseconds)
{
    const struct timespec times[2] = { { seconds, nanoseconds }, { seconds, nanoseconds } };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void another_corpus_has_another_number(void **state)
{
    uint64_t was = 0;
    (void)state;
    set_time("h1", 1000, 5);
    set_time("h2", 1000, 5);
    was = hash_of("h1", NULL, "text");
    assert_true(hash_of("h1", NULL, "text") == was);
    assert_true(hash_of("h2", NULL, "text") != was);  /* the name */
    assert_true(hash_of("h1", "h2", "text") != was);  /* one more */
    assert_true(hash_of("h1", NULL, "jsonl") != was); /* what it is read as */
    assert_true(hash_of("h1", "h2", "text") != hash_of("h2", "h1", "text"));
    set_time("h1", 1001, 5);
    assert_true(hash_of("h1", NULL, "text") != was);
    set_time("h1", 1000, 6);
    assert_true(hash_of("h1", NULL, "text") != was);
    set_time("h1", 1000, 5);
    assert_true(hash_of("h1", NULL, "text") == was);
    test_file_write(".", "h1", "one byte more than before");
    set_time("h1", 1000, 5);
    assert_true(hash_of("h1", NULL, "text") != was);
}

/* Closed in the middle of a file of each kind: nothing stays open or mapped (support/leftovers.c looks). */
static void closed_in_the_middle(void **state)
{
    static const char *const files[] = { "rows.parquet", "p.jsonl.gz", "j.jsonl" };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        tm_tokenize_options o = { .paths = &files[i], .n_paths = 1, .out = "t", .field = "text", .batch_bytes = 1 };
        tm_tokenize_result  r = { 0 };
        tm_corpus          *corpus = NULL;
        tm_text_batch       batch = { 0 };
        tm_error            err = { 0 };
        assert_int_equal(tm_corpus_open(&o, NULL, &r, &corpus, &err), TM_OK);
        tm_text_batch_clear(&batch);
        assert_int_equal(tm_corpus_next(corpus, &batch, &err), TM_OK);
        assert_int_equal(batch.count, 1);
        tm_text_batch_fini(&batch);
        tm_corpus_close(corpus);
    }
}

/* A file that can be made, but not written to: nothing of it stays. */
static void an_output_without_a_descriptor(void **state)
{
    struct rlimit was, few;
    tm_output     out;
    tm_error      err = { 0 };
    (void)state;
    assert_int_equal(mkdir("only", 0700), 0);
    int next = open(".", O_RDONLY);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = (struct rlimit){ .rlim_cur = (rlim_t)next + 1, .rlim_max = was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    tm_status st = tm_output_open("only/x", &out, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(st, TM_IO);
    assert_string_equal(err.text, "cannot create 'only/x': Too many open files");
    assert_int_equal(rmdir("only"), 0); /* it is empty */
}

/* A tokenizer is learned from the same files; where it cannot be written that is said. */
static void a_vocabulary_of_a_folder(void **state)
{
    static const char *const    all[] = { "all" };
    const volatile sig_atomic_t stop = 1;
    tm_vocabulary_options       o = {
              .paths = all, .n_paths = 1, .pattern = "gpt2", .out = "learned.json", .goal = { .vocab = 258, .least = 2 }
    };
    tm_tokenize_result files;
    tm_bpe_result      result = { 0 };
    tm_tokenizer      *tokenizer = NULL;
    tm_error           err = { 0 };
    (void)state;
    if (tm_data_vocabulary(&o, &files, &result, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(files.files == 3 && files.binary == 1 && files.duplicate == 2 && files.unreadable == 2);
    assert_true(result.bytes == 19 && result.vocab == 258);
    assert_int_equal(tm_tokenizer_open("learned.json", NULL, &tokenizer, &err), TM_OK);
    assert_int_equal(tm_tokenizer_find(tokenizer, "ab", 2), 256); /* four times, "cd" twice */
    tm_tokenizer_close(tokenizer);
    o.out = "no/such/file";
    assert_int_equal(tm_data_vocabulary(&o, &files, &result, &err), TM_INVALID);
    o.out = "other.json";
    o.stop = &stop;
    err = (tm_error){ 0 };
    assert_int_equal(tm_data_vocabulary(&o, &files, &result, &err), TM_INTERRUPTED);
    assert_int_equal(access("other.json", F_OK), -1);
}

/* --- the files -------------------------------------------------------------------------------------- */

static int write_all(void **state)
{
    (void)state;
    back = getcwd(NULL, 0);
    tm_text  parquet = { 0 };
    tm_error err = { 0 };
    if (tm_file_read("tests/data/parquet/none-1.parquet", 1 << 24, &parquet, &err) != TM_OK) return -1;
    tm_log_set_level(TM_LOG_ERROR);
    if (chdir(test_folder()) != 0) return -1;
    for (size_t i = 0; i < 4; i++)
        if (mkdir((const char *[]){ "all", "all/deep", "dir", "all/.hidden" }[i], 0700) != 0) return -1;
    whole_log_open();
    test_file_write("all", "a", "abcd");
    test_file_write("all", "a2", "dcba");
    test_file_write("all", "b", "abcd");
    test_file_write("all/deep", "c", "abcd");
    test_file_write("all/deep", "d", "ab\ncd\n\nabab");
    test_file_write("all/.hidden", "h", "hidden");
    test_file_write("all", "empty", "");
    test_file_write("all", "z", "");
    if (tm_file_write("all/binary", "a\0b", 3, &err) != TM_OK) return -1;
    if (symlink("gone", "all/dangling") != 0 || symlink("..", "all/deep/up") != 0) return -1;
    test_file_write("all", "bad.gz", "no gzip");
    test_file_write("dir", "in", "in a directory");
    test_file_write(".", "a.txt", "the first");
    test_file_write(".", "h1", "some text");
    test_file_write(".", "h2", "some text!");
    test_file_write(".", "none.txt", "");
    test_file_write(".", "one.txt", "{");
    test_file_write(".", "bad.gz", "no gzip");
    test_file_write(".", "j.jsonl",
                    "{\"name\": \"x\", \"text\": \"ab\", \"other\": \"y\"}\n \t\r\n\n"
                    "{\"text\": \"c\\u0000d\\n\"}\n{\"text\": \"\"}\n{\"text\": \"last\"}");
    test_file_write(".", "o.txt", "{\"n\": 1, \"first\": \"x\", \"second\": \"y\"}\n");
    test_file_write(".", "n.txt", "{\"n\": 1}\nx");
    test_file_write(".", "broken.ndjson", "{\"a\": \"x\"}\n\n{\"a\" 1}\n");
    test_file_write(".", "stop.jsonl", "{\"a\": \"go\"}\n{\"a\": \"stop\"}\n{\"a\": \"never\"}\n");
    test_file_pack("p.jsonl.gz", "{\"a\": \"x\"}\n{\"a\": \"yy\"}\n");
    test_file_pack("t.txt.gz", "plain\ntext\n");
    if (tm_file_write("rows.parquet", parquet.data, parquet.length, &err) != TM_OK) return -1;
    tm_text_fini(&parquet);
    return mkfifo("fifo", 0600);
}

static int go_back(void **state)
{
    whole_log_close();
    if (chdir(back) != 0) return -1;
    free(back);
    return test_folder_teardown(state);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(batches_are_as_recorded),        cmocka_unit_test(another_corpus_has_another_number),
    cmocka_unit_test(a_vocabulary_of_a_folder),       cmocka_unit_test(closed_in_the_middle),
    cmocka_unit_test(an_output_without_a_descriptor),
};

TM_TESTS(tests, write_all, go_back)
