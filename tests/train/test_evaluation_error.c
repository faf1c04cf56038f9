/* SPDX-License-Identifier: Apache-2.0 */
/* How well an evaluation knows its loss: the standard error of a mean, worked out by hand. How many batches it has, and
 * whether its loss is the one that a run is to reach. */
#include "support/test.h"
#include "support/folder.h"
#include "support/source_files.h"
#include "train/run/run_state.h"

/* 1 2 3 4 5: mean 3, sum of squares 55, squared deviations 10; the deviation is sqrt(10 / 4), its error that / sqrt(5).
 */
TEST(the_error_of_a_mean)
{
    assert_true(fabs(run_mean_error(3, 55, 5) - sqrt(0.5)) < 1e-12);
    assert_true(fabs(run_mean_error(3, 2 * 55, 10) - sqrt(2. / 9)) < 1e-12); /* each twice: 20 / 9 / 10 */
    assert_true(isnan(run_mean_error(3, 9, 1)) && isnan(run_mean_error(3, 27, 3)));
}

static tm_source *open_source(const char *name, const char *path, int64_t seq)
{
    tm_source        *source;
    tm_source_options o = {
        .name = name, .path = path, .vocab = path ? 257 : 64, .seq = seq, .seed = 1, .validation_fraction = 0.5
    };
    assert_ok(tm_source_open(&o, &source, err));
    return source;
}

static int64_t batches_of(const tm_source *source, int64_t rows, int64_t validation_batch, int64_t steps)
{
    const tm_run_options o = { .step = { .micro_batch = rows, .validation_batch = validation_batch },
                               .validation_steps = steps };
    const run            r = { .options = &o, .held_out = source };
    return run_validation_batches(&r);
}

/* Of an endless source 32,768 tokens, the last batch whole; else all samples, 64 batches of them at most. */
TEST(batches_of_an_evaluation)
{
    static const struct {
        int64_t seq, rows, batches;
    } endless[] = { { 256, 8, 16 }, { 151, 31, 8 }, { 100, 3, 110 }, { 40000, 1, 1 } }; /* 7 x 4681 = 32767 */
    for (size_t i = 0; i < sizeof endless / sizeof endless[0]; i++) {
        tm_source *source = open_source("synthetic", NULL, endless[i].seq);
        assert_int_equal(batches_of(source, endless[i].rows, 0, -1), endless[i].batches);
        assert_int_equal(batches_of(source, 99, endless[i].rows, -1), endless[i].batches);
        assert_int_equal(batches_of(source, endless[i].rows, 0, 1000000), 1000000);
        assert_int_equal(batches_of(source, endless[i].rows, 0, 0), 0);
        tm_source_close(source);
    }
    test_source_files_write();
    tm_source    *text = open_source("text", test_in_folder("text.txt"), 4);
    int64_t       n = tm_source_describe(text)->validation_samples;
    const int64_t some[][3] = {
        { 1, -1, 64 }, { 1, 1000000, n }, { n, -1, 1 }, { n - 1, -1, 2 }, { (n + 2) / 3, -1, 3 }
    };
    assert_in_range(n, 64, 1000000);
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
        assert_int_equal(batches_of(text, some[i][0], 0, some[i][1]), some[i][2]);
    tm_source_close(text);
}

/* A loss that is the target reaches it, and so does one that is as far above the least one as it may be. */
TEST(targets_are_reached)
{
    tm_source   *source = open_source("synthetic", NULL, 16);
    double       floor = tm_source_describe(source)->validation_floor;
    const double loss = floor + 0.5;
    const struct {
        double target, gap, loss;
        bool   stop, reached;
    } rows[] = {
        { loss, 0, loss, false, true }, { loss, 0, nextafter(loss, 100), false, false },
        { 0, 0.5, loss, true, true },   { 0, 0.5, nextafter(loss, 100), true, false },
        { 0, 0.5, loss, false, false }, { loss, 0, (double)NAN, true, false },
    };
    assert_true(floor > 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const tm_run_options o = { .target_loss = rows[i].target,
                                   .target_gap = rows[i].gap,
                                   .stop_at_target = rows[i].stop };
        const run            r = { .options = &o, .held_out = source, .evaluation = { .loss = rows[i].loss } };
        assert_int_equal(run_target_reached(&r), rows[i].reached);
    }
    tm_source_close(source);
}

/* Asked for where the verdict compares with it: of text, not of a language whose entropy is known. */
TEST(a_compressor_is_asked_about_text)
{
    static const char *const names[] = { "text", "synthetic" };
    test_source_files_write();
    for (int k = 0; k < 2; k++) {
        tm_source           *source = open_source(names[k], k ? NULL : test_in_folder("text.txt"), 16);
        const tm_run_options o = { .source = { .name = names[k] } };
        const run            r = { .options = &o, .held_out = source };
        assert_true(tm_source_compressed(source) > 0 && (run_compressed(&r) > 0) == (k == 0));
        tm_source_close(source);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
