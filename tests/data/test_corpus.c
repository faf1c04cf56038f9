/* SPDX-License-Identifier: Apache-2.0 */
/* Files, folders and patterns as batches: which files there are and which are left out, their documents whatever the
 * size of the batches. */
#include "data/corpus.h"

#include "base/file.h"
#include "base/log.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/whole.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char tokenizer_text[] =
    "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": null, \"decoder\": null, \"post_processor\": "
    "null, \"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"merges\": [[\"a\", \"b\"]], "
    "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"?\": 4, \"ab\": 5}}}\n";

static char *back;

/* --- documents ------------------------------------------------------------------------------------ */

/* Of all batches so far: documents, each with a | behind it, and lines of the file under way. */
typedef struct {
    tm_text     documents;
    bool        open;
    const char *file;
    int64_t     lines;
} heard;

static tm_status add_document(void *context, const char *text, size_t bytes, bool begins, bool ends, tm_error *err)
{
    heard *h = context;
    assert_int_equal(begins, !h->open);
    for (size_t i = 0; i < bytes; i++) tm_text_add_n(&h->documents, text[i] ? &text[i] : "@", 1);
    if (ends) tm_text_add(&h->documents, "|");
    h->open = !ends;
    (void)err;
    return TM_OK;
}

/* Parts lie one behind the other; the last one makes the batch full. */
static tm_status add_batch(const tm_tokenize_options *o, const tm_text_batch *batch, heard *h, tm_error *err)
{
    size_t at = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const tm_part *p = &batch->parts[i];
        if (!h->file || strcmp(h->file, p->file) != 0) h->lines = 0;
        h->file = p->file;
        assert_true(p->at == at && (p->length > 0 || p->ends));
        assert_true(o->batch_bytes == 0 || at < (size_t)o->batch_bytes);
        if (p->lines) assert_int_equal(p->line, 1 + h->lines);
        for (size_t k = 0; k < p->length; k++) h->lines += batch->text.data[p->at + k] == '\n';
        at += p->length;
        TM_TRY(tm_part_documents(batch, p, o->field, add_document, h, err));
    }
    assert_int_equal(at, batch->text.length);
    return TM_OK;
}

static tm_status read_all(const tm_tokenize_options *o, heard *h, tm_error *err)
{
    tm_tokenize_result r = { 0 };
    tm_tokenizer      *tokenizer = NULL;
    tm_corpus         *corpus = NULL;
    tm_text_batch      batch = { 0 };
    int64_t            place = 0;
    tm_status st = tm_tokenizer_parse("t.json", tokenizer_text, sizeof tokenizer_text - 1, NULL, &tokenizer, err);
    if (st == TM_OK) st = tm_corpus_open(o, tokenizer, &r, &corpus, err);
    for (bool more = st == TM_OK; st == TM_OK && more;) {
        tm_text_batch_clear(&batch);
        st = tm_corpus_next(corpus, &batch, err);
        more = batch.count > 0;
        if (st == TM_OK) st = add_batch(o, &batch, h, err);
        assert_true(st != TM_OK || (batch.place >= place && batch.place <= tm_corpus_bytes(corpus)));
        place = batch.place;
    }
    assert_true(st != TM_OK || (place == tm_corpus_bytes(corpus) && !h->open));
    tm_text_batch_fini(&batch);
    tm_corpus_close(corpus);
    tm_tokenizer_close(tokenizer);
    return st;
}

#define TWO_PATHS(...) .paths = (const char *const[]){ __VA_ARGS__ }, .n_paths = 2, .out = "t"
#define ONE_PATH(path) .paths = (const char *const[]){ path }, .n_paths = 1, .out = "t"

/* All documents come, in order and whole, however large batches are. Of the rows of parquet: the same ones. */
TEST(documents_do_not_depend_on_batches)
{
    static const int64_t sizes[] = { 0, 1, 5, 7, 11, 30, 64, 100 }; /* 11: a line of p.jsonl.gz */
    const struct {
        tm_tokenize_options options;
        const char         *wanted;
    } all[] = {
        { { ONE_PATH("all") }, "abcd|dcba|ab\ncd\n\nabab|" },
        { { TWO_PATHS("a.txt", "all/a*") }, "the first|abcd|dcba|" },
        { { ONE_PATH("j.jsonl"), .field = "text" }, "ab|c@d\n||last|" },
        { { TWO_PATHS("p.jsonl.gz", "t.txt.gz"), .field = "a" }, "x|yy|plain\ntext\n|" },
        { { TWO_PATHS("all/.hidden", "d?r") }, "hidden|in a directory|" },
        { { ONE_PATH("one.txt") }, "{|" },
        { { ONE_PATH("rows.parquet"), .field = "text" }, NULL },
    };
    static const char *const said[] = { "'all/dangling' cannot be read (No such file or directory): left out",
                                        "'all/deep/up' leads back to a directory that it lies in: left out",
                                        "'all/b' is the same as 'all/a': left out",
                                        "'all/deep/c' is the same as 'all/a': left out",
                                        "'all/bad.gz', near byte 7: incorrect header check",
                                        "'all/binary' is a binary file: left out" };
    tm_text                  log = { 0 };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        heard first = { 0 };
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            tm_tokenize_options o = all[i].options;
            heard               h = { 0 };
            tm_error            err = { 0 };
            o.batch_bytes = sizes[k];
            if (read_all(&o, &h, &err) != TM_OK) fail_msg("%s: %s", o.paths[0], err.text);
            assert_string_equal(h.documents.data, all[i].wanted ? all[i].wanted
                                                  : k           ? first.documents.data
                                                                : h.documents.data);
            if (k == 0)
                first = h;
            else
                tm_text_fini(&h.documents);
            if (i == 0 && k == 0) whole_log_take(&log);
        }
        assert_true(first.documents.length > 0);
        tm_text_fini(&first.documents);
    }
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) assert_non_null(strstr(log.data, said[i]));
    tm_text_fini(&log);
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
    test_file_write(".", "one.txt", "{");
    test_file_write(".", "j.jsonl",
                    "{\"name\": \"x\", \"text\": \"ab\", \"other\": \"y\"}\n \t\r\n\n"
                    "{\"text\": \"c\\u0000d\\n\"}\n{\"text\": \"\"}\n{\"text\": \"last\"}");
    test_file_pack("p.jsonl.gz", "{\"a\": \"x\"}\n{\"a\": \"yy\"}\n");
    test_file_pack("t.txt.gz", "plain\ntext\n");
    if (tm_file_write("rows.parquet", parquet.data, parquet.length, &err) != TM_OK) return -1;
    tm_text_fini(&parquet);
    return 0;
}

static int go_back(void **state)
{
    whole_log_close();
    if (chdir(back) != 0) return -1;
    free(back);
    return test_folder_teardown(state);
}

TEST_FIXTURE(write_all, go_back)
