/* SPDX-License-Identifier: Apache-2.0 */
/* The prefetch thread: right batches in the right order, rows beyond the end, closing at any moment. */
#include "base/arena.h"
#include "data/source.h"
#include "data/source_kind.h"
#include "support/threads_left.h"

#include <time.h>

#include "support/test.h"

enum { T = 24, BATCH = 3 };

static int open_source(void **state)
{
    tm_source_options options = { .name = "synthetic", .vocab = 64, .seq = T, .seed = 8 };
    tm_error          err = { 0 };
    return tm_source_open(&options, (tm_source **)state, &err) == TM_OK ? 0 : -1;
}

static int close_source(void **state)
{
    tm_source_close(*state);
    return 0;
}

static void expect_batch(const tm_source *source, tm_split split, const tm_batch *batch, int64_t first)
{
    int32_t x[T + 1];
    assert_int_equal(batch->target_tokens, BATCH * T);
    for (int64_t row = 0; row < BATCH; row++) {
        tm_source_sample(source, split, first + row, x);
        assert_memory_equal((int32_t *)batch->field[0] + row * T, x, T * sizeof *x);
        assert_memory_equal((int32_t *)batch->field[1] + row * T, x + 1, T * sizeof *x);
    }
}

/* An endless source, then one of the same batch again and again: how many samples are different ones? */
TEST(different_samples_are_counted)
{
    int64_t    seen, unique;
    tm_batch   batch;
    tm_loader *loader = tm_loader_open(*test_state, TM_SPLIT_TRAIN, BATCH, 0, 1);
    for (int i = 0; i < 100; i++) tm_loader_next(loader, &batch);
    tm_loader_unique(loader, &seen, &unique, NULL);
    assert_true(seen >= 100 * BATCH && unique == seen);
    for (int i = 0; i < 1500; i++) tm_loader_next(loader, &batch);
    tm_loader_unique(loader, &seen, &unique, NULL);
    assert_true(seen == 4096 && unique == 4096);
    tm_loader_close(loader);
    tm_source_options options = { .name = "mock", .vocab = 2, .seq = 2, .seed = 8 }; /* eight samples there are */
    tm_source        *source;
    assert_ok(tm_source_open(&options, &source, err));
    loader = tm_loader_open(source, TM_SPLIT_TRAIN, BATCH, 0, 1);
    for (int i = 0; i < 100; i++) tm_loader_next(loader, &batch);
    tm_loader_unique(loader, &seen, &unique, NULL);
    assert_true(seen >= 100 * BATCH && unique == 8);
    tm_loader_close(loader);
    tm_source_close(source);
}

TEST(handing_out_takes_no_memory)
{
    tm_loader *loader = tm_loader_open(*test_state, TM_SPLIT_TRAIN, BATCH, 0, 3);
    tm_batch   batch;
    assert_non_null(loader);
    unsigned long long before = tm_alloc_count();
    for (int i = 0; i < 100; i++) tm_loader_next(loader, &batch);
    assert_true(tm_alloc_count() == before);
    tm_loader_close(loader);
}

TEST(closing_works_while_full_empty_or_unused)
{
    for (int i = 0; i < 60; i++) {
        tm_loader *loader = tm_loader_open(*test_state, TM_SPLIT_TRAIN, BATCH, 5, 1 + i % 4);
        tm_batch   batch;
        assert_non_null(loader);
        for (int n = 0; n < i % 5; n++) tm_loader_next(loader, &batch);
        if (i % 3 == 0) nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL); /* full */
        tm_loader_close(loader);
    }
    tm_loader_close(NULL);
}

/* --- a source with fields of its own ------------------------------------------------------------------------------ */

enum { WIDTH = 5 };

/* Sample i: image (2, WIDTH) of i + element / 100, label () i, three weights of even samples, one of odd ones. */
static tm_status picture_row(const tm_source *source, tm_split split, int64_t index, int32_t *scratch,
                             void *const *fields, int64_t *weight, tm_error *err)
{
    (void)source, (void)split, (void)scratch, (void)err;
    for (int i = 0; i < 2 * WIDTH; i++) ((float *)fields[0])[i] = (float)index + (float)i / 100;
    *(int64_t *)fields[1] = index;
    *weight = index % 2 ? 1 : 3;
    return TM_OK;
}

TEST(a_source_declares_its_fields)
{
    static const tm_source_kind pictures = { .traits.name = "pictures", .row = picture_row };
    tm_source                   source = {
                          .kind = &pictures, .options = { .seq = 1 }, .n_fields = 2, .facts = { .validation_samples = 4 }
    };
    source.fields[0] = (tm_field){ "image", TM_F32, tm_shape_2(2, WIDTH), 0.5 };
    source.fields[1] = (tm_field){ "label", TM_I64, { .rank = 0 }, -7 };
    tm_loader *loader = tm_loader_open(&source, TM_SPLIT_VALIDATION, BATCH, 0, 2);
    tm_batch   batch;
    assert_non_null(loader);
    for (int64_t n = 0; n < 2; n++) {
        tm_loader_next(loader, &batch);
        assert_int_equal(batch.target_tokens, n == 0 ? 3 + 1 + 3 : 1);
        for (int64_t row = 0; row < BATCH; row++) {
            int64_t      index = n * BATCH + row;
            const float *image = (const float *)batch.field[0] + row * 2 * WIDTH;
            for (int i = 0; i < 2 * WIDTH; i++)
                assert_true(image[i] == (index < 4 ? (float)index + (float)i / 100 : 0.5f));
            assert_int_equal(((const int64_t *)batch.field[1])[row], index < 4 ? index : -7);
        }
    }
    tm_loader_close(loader);
}

/* Nothing reads ahead then; without reading ahead no thread is needed. */
TEST(the_system_gives_no_thread)
{
    tm_batch batch;
    threads_left = 0;
    assert_null(tm_loader_open(*test_state, TM_SPLIT_TRAIN, BATCH, 0, 2));
    tm_loader *loader = tm_loader_open(*test_state, TM_SPLIT_TRAIN, BATCH, 0, 0);
    threads_left = -1;
    assert_non_null(loader);
    tm_loader_next(loader, &batch);
    expect_batch(*test_state, TM_SPLIT_TRAIN, &batch, 0);
    tm_loader_close(loader);
}

TESTS_ALONE
TEST_FIXTURE(open_source, close_source)
