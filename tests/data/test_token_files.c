/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of token files: rows of packed sequences with their mask, samples of an indexed data set in the published
 * order, and what stops a run. */
#include "data/opened.h"
#include "data/indexed.h"
#include "data/packed.h"
#include "../support/folder.h"
#include "../support/full_config.h"

/* --- packed sequences --- */

enum { ROWS = 5, W = 6, PAD = 9 };

/* Row r of train.npy is 10 r .. 10 r + 5, all counted; validation.npy: two rows of the masks below. */
static const uint8_t held_masks[] = { 0, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0, 1 };

static void write_packed(void)
{
    int32_t ids[ROWS * W];
    uint8_t masks[ROWS * W];
    for (int r = 0; r < ROWS; r++)
        for (int t = 0; t < W; t++) {
            ids[r * W + t] = 10 * r + t;
            masks[r * W + t] = 1;
        }
    assert_ok(tm_packed_write(test_in_folder("train.npy"), ROWS, W, ids, masks, err));
    assert_ok(tm_packed_write(test_in_folder("validation.npy"), 2, W, ids, held_masks, err));
}

static tm_source_options packed_options(void)
{
    return (tm_source_options){
        .name = "govreport", .path = test_folder(), .vocab = 50, .seq = W, .seed = 3, .pad_token = PAD
    };
}

static void expect_row(const tm_source *source, int64_t index, const int32_t *tokens, const int32_t *targets)
{
    int32_t scratch[W + 1], x[W], y[W];
    assert_ok(tm_source_row(source, TM_SPLIT_VALIDATION, index, scratch, (void *[]){ x, y }, &(int64_t){ 0 }, err));
    assert_memory_equal(x, tokens, sizeof x);
    assert_memory_equal(y, targets, sizeof y);
}

TEST(a_mask_counts_at_the_input_or_at_the_target)
{
    write_packed();
    tm_source_options options = packed_options();
    tm_source        *source = open_source(&options);
    const int32_t     none = TM_IGNORED_TARGET;
    expect_row(source, 0, (int32_t[]){ 0, 1, 2, 3, 4, PAD }, (int32_t[]){ none, none, 3, none, 5, none });
    expect_row(source, 1, (int32_t[]){ 10, 11, 12, 13, 14, PAD }, (int32_t[]){ 11, 12, none, none, none, none });
    const tm_source_facts *facts = tm_source_describe(source);
    assert_int_equal(facts->train_samples, ROWS);
    assert_int_equal(facts->validation_samples, 2);
    assert_int_equal(facts->vocab_needed, 46);
    int64_t size = 0;
    assert_ok(tm_source_vocabulary(&options, &size, err));
    assert_int_equal(size, 46);
    assert_true(fabs(facts->unigram_entropy - log(4)) < 1e-12); /* 3, 5, 11, 12 */
    tm_source_close(source);
    options.mask = TM_MASK_TARGET;
    source = open_source(&options);
    expect_row(source, 0, (int32_t[]){ 0, 1, 2, 3, 4, PAD }, (int32_t[]){ none, 2, none, 4, 5, none });
    expect_row(source, 1, (int32_t[]){ 10, 11, 12, 13, 14, PAD }, (int32_t[]){ 11, none, none, none, 15, none });
    tm_source_close(source);
}

TEST(packed_data_that_does_not_fit_is_refused)
{
    write_packed();
    tm_source_options o = packed_options();
    o.seq = 5;
    expect_refusal(&o, "have 6 tokens, found training.seq_len 5", "set it to 6");
    o = packed_options();
    o.vocab = 45;
    expect_refusal(&o, "token 5 of row 4 is 45, model.vocab_size is 45",
                   "raise it, or give data of the model's tokenizer");
    o = packed_options();
    o.pad_token = 50;
    expect_refusal(&o, "data.pad_token is 50", "wanted 0 to 49");
    o = packed_options();
    o.path = NULL;
    expect_refusal(&o, "needs train.npy or its directory", "set data.path");
    o.path = test_in_folder("none.npy");
    expect_refusal(&o, "cannot open", "none.npy");
    o = packed_options();
    o.path = test_in_folder("train.npy"); /* a file alone: nothing is held out */
    tm_source *source = open_source(&o);
    assert_int_equal(tm_source_describe(source)->validation_samples, 0);
    assert_true(isnan(tm_source_describe(source)->unigram_entropy));
    tm_source_close(source);
    test_file_write(test_folder(), "validation.npy", "no numpy");
    o = packed_options();
    expect_refusal(&o, "validation.npy", "is not a numpy file");
}

TEST(a_file_shortened_in_a_run_is_noticed)
{
    write_packed();
    tm_source_options o = packed_options();
    tm_source        *source = open_source(&o);
    int32_t           scratch[W + 1], x[W], y[W];
    tm_error          err = { 0 };
    assert_int_equal(truncate(test_in_folder("train.npy"), 200), 0);
    assert_int_equal(tm_source_row(source, TM_SPLIT_TRAIN, 0, scratch, (void *[]){ x, y }, &(int64_t){ 0 }, &err),
                     TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "was shortened from"));
    tm_loader *loader = tm_loader_open(source, TM_SPLIT_TRAIN, 2, 0, 2);
    for (int i = 0; i < 5; i++) {
        tm_batch batch;
        tm_loader_next(loader, &batch);
        assert_non_null(batch.error);
        assert_int_equal(batch.error->status, TM_INVALID);
        assert_int_equal(batch.target_tokens, 0);
    }
    tm_loader_close(loader);
    tm_source_close(source);
}

/* --- indexed data sets --- */

/* The published example: documents of 5, 3, 7, 4 and 6 tokens, numbered through. */
static void write_indexed(const char *name, bool wide)
{
    const int32_t     lengths[] = { 5, 3, 7, 4, 6 };
    tm_indexed_writer writer;
    assert_ok(tm_indexed_begin(test_in_folder(name), wide, &writer, err));
    for (int32_t d = 0, token = 0; d < 5; d++) {
        for (int32_t t = 0; t < lengths[d]; t++, token++) tm_indexed_add(&writer, &token, 1);
        tm_indexed_end_document(&writer);
    }
    assert_ok(tm_indexed_finish(&writer, err));
}

static tm_source_options indexed_options(const char *name)
{
    return (tm_source_options){
        .name = "megatron", .path = test_in_folder(name), .vocab = 25, .seq = 4, .seed = 1234, .samples = 8
    };
}

/* The document of a token of the published example: its first token. */
static int32_t document_of(int32_t token)
{
    static const int32_t first[] = { 0, 5, 8, 15, 19 };
    int                  d = 4;
    while (first[d] > token) d--;
    return first[d];
}

/* A row of tokens x and targets behind it, where documents are kept apart. */
static void expect_documents(const tm_source *source, tm_split split, int64_t index, const int32_t wanted[5])
{
    int32_t scratch[5], x[4], y[4], positions[4], first_key[4], begin = 0;
    int64_t weight = -1, counts = 4;
    assert_ok(tm_source_row(source, split, index, scratch, (void *[]){ x, y, positions, first_key }, &weight, err));
    assert_memory_equal(x, wanted, sizeof x);
    for (int t = 0; t < 4; t++) {
        if (t > 0 && document_of(wanted[t]) != document_of(wanted[t - 1])) begin = t;
        bool last = document_of(wanted[t]) != document_of(wanted[t + 1]);
        counts -= last;
        assert_int_equal(positions[t], t - begin);
        assert_int_equal(first_key[t], begin);
        assert_int_equal(y[t], last ? TM_IGNORED_TARGET : wanted[t + 1]);
    }
    assert_int_equal(weight, counts);
}

TEST(documents_of_indexed_data_are_kept_apart)
{
    const int32_t train[8][5] = { { 19, 20, 21, 22, 23 }, { 10, 11, 12, 13, 14 }, { 6, 7, 8, 9, 10 },
                                  { 2, 3, 4, 5, 6 },      { 14, 15, 16, 17, 18 }, { 23, 24, 0, 1, 2 },
                                  { 18, 8, 9, 10, 11 },   { 18, 15, 16, 17, 18 } };
    write_indexed("set", false);
    write_indexed("held", true);
    tm_source_options o = indexed_options("set");
    o.validation_path = test_in_folder("held");
    o.separate = true;
    tm_source *source = open_source(&o);
    for (int i = 0; i < 7; i++) expect_documents(source, TM_SPLIT_TRAIN, i, train[i]); /* the last repeats one */
    for (int32_t w = 0; w < 6; w++) {
        const int32_t row[5] = { 4 * w, 4 * w + 1, 4 * w + 2, 4 * w + 3, 4 * w + 4 };
        expect_documents(source, TM_SPLIT_VALIDATION, w, row);
    }
    /* 20 targets that count, a byte each, and what zstd puts around them */
    double bytes = tm_source_compressed(source) * 20 / (8 * log(2));
    assert_true(fabs(bytes - rint(bytes)) < 1e-9 && bytes > 20 && bytes <= 36);
    tm_source_close(source);
}

TEST(indexed_data_that_does_not_fit_is_refused)
{
    write_indexed("set", false);
    tm_source_options o = indexed_options("set");
    o.vocab = 24; /* the token 24 is in the sixth sample */
    tm_source *source = open_source(&o);
    int32_t    scratch[5], x[4], y[4];
    tm_error   err = { 0 };
    assert_int_equal(tm_source_row(source, TM_SPLIT_TRAIN, 0, scratch, (void *[]){ x, y }, &(int64_t){ 0 }, &err),
                     TM_OK);
    assert_int_equal(tm_source_row(source, TM_SPLIT_TRAIN, 5, scratch, (void *[]){ x, y }, &(int64_t){ 0 }, &err),
                     TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "token 24 is not in the vocabulary, 0 to 23"));
    err = (tm_error){ 0 };
    assert_int_equal(truncate(test_in_folder("set.bin"), 48), 0);
    assert_int_equal(tm_source_row(source, TM_SPLIT_TRAIN, 0, scratch, (void *[]){ x, y }, &(int64_t){ 0 }, &err),
                     TM_INVALID);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "set.bin' was shortened from 50 to 48 bytes"));
    tm_source_close(source);
    o = indexed_options("set");
    expect_refusal(&o, "do not belong together", "set.bin");
    write_indexed("set", false);
    o = indexed_options("set");
    o.seq = 25;
    expect_refusal(&o, "has 25 tokens, a sample takes 26", "lower training.seq_len");
    o = indexed_options("set");
    o.seed = 1LL << 32;
    expect_refusal(&o, "debug.seed is 4294967296", "at most 4294967295");
    o = indexed_options("set");
    o.path = "";
    expect_refusal(&o, "PREFIX.bin and PREFIX.idx", "set data.path to PREFIX");
}

/* A file beside a set says how many ids its tokenizer has; of two sets the larger number counts. */
TEST(a_set_knows_its_vocabulary)
{
    static const char *const bad[] = { "",
                                       "[1]",
                                       "{\"vocabulary_size\": 0}",
                                       "{\"vocabulary_size\": 16777217}",
                                       "{\"vocabulary_size\": \"25\"}",
                                       "{\"vocabulary_size\": 25, \"vocabulary_size\": 26}" };
    char                     held[512];
    int64_t                  size = 1;
    tm_error                 err = { 0 };
    tm_source_options        o = indexed_options("known");
    write_indexed("known", false);
    assert_int_equal(tm_source_vocabulary(&o, &size, &err), TM_OK);
    assert_int_equal(size, 0);
    assert_int_equal(tm_indexed_vocabulary_write(test_in_folder("known.idx"), 25, "bytes", &err), TM_OK);
    assert_int_equal(tm_source_vocabulary(&o, &size, &err), TM_OK);
    assert_int_equal(size, 25);
    assert_int_equal(tm_indexed_vocabulary_write(test_in_folder("held"), 1 << 24, "bytes", &err), TM_OK);
    snprintf(held, sizeof held, "%s", test_in_folder("held.bin"));
    o.path = test_in_folder("known");
    o.validation_path = held;
    assert_int_equal(tm_source_vocabulary(&o, &size, &err), TM_OK);
    assert_int_equal(size, 1 << 24);
    o.validation_path = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        test_file_write(test_folder(), "known.vocabulary.json", bad[i]);
        err = (tm_error){ 0 };
        o.path = test_in_folder("known");
        assert_int_equal(tm_source_vocabulary(&o, &size, &err), TM_FORMAT);
        refusal_is_sound(&err);
        assert_non_null(strstr(err.text, "known.vocabulary.json'"));
    }
}

TESTS_IN_ORDER
TEST_FIXTURE(NULL, test_folder_teardown)
