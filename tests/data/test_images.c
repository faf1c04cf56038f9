/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of images: the times and left-out texts of the protocols, the mixture whose least loss is known, and encoded
 * images of files. */
#include "data/opened.h"
#include "data/flow.h"
#include "data/safetensors.h"
#include "support/folder.h"

enum { TOKENS = 16, CHANNELS = 8, TEXT = 2, WIDTH = 6, VECTOR = 5 };

typedef struct {
    float   noisy[TOKENS * CHANNELS], velocity[TOKENS * CHANNELS], time, text[TEXT * WIDTH], pooled[VECTOR];
    int64_t weight;
} sample;

static tm_source_options options_of(const char *name, tm_flow_protocol protocol)
{
    return (tm_source_options){ .name = name,
                                .seq = TEXT + TOKENS,
                                .seed = 7,
                                .flow = { .rows = 4,
                                          .tokens = TOKENS,
                                          .channels = CHANNELS,
                                          .text_len = TEXT,
                                          .text_dim = WIDTH,
                                          .vector_dim = VECTOR,
                                          .protocol = protocol,
                                          .dropout = (double)NAN,
                                          .spread = 0.5 } };
}

static sample row_of(const tm_source *source, tm_split split, int64_t index)
{
    sample      s;
    void *const fields[] = { s.noisy, s.velocity, &s.time, s.text, s.pooled };
    assert_ok(tm_source_row(source, split, index, NULL, fields, &s.weight, err));
    return s;
}

static double square(double x)
{
    return x * x;
}

TEST(evaluation_times_are_those_of_the_protocols)
{
    static const double first[] = { [TM_FLOW_TORCHTITAN] = 0.5, [TM_FLOW_MLPERF] = 0, [TM_FLOW_FLUXBENCHMARK] = 0.5 };
    for (int p = 0; p < 3; p++) {
        tm_source_options options = options_of("gaussians", (tm_flow_protocol)p);
        tm_source        *source = open_source(&options);
        for (int64_t i = 0; i < 20; i++)
            assert_float_equal(row_of(source, TM_SPLIT_VALIDATION, i).time, ((double)(i % 8) + first[p]) / 8, 1e-7);
        tm_source_close(source);
    }
}

/* Shifted logit-normal: on the grid, half of the times above 0.75. The others are uniform (test_flow_times.c). */
TEST(training_times_are_on_the_grid_of_the_protocol)
{
    enum { N = 4000 };
    tm_source_options options = options_of("gaussians", TM_FLOW_FLUXBENCHMARK);
    int               above = 0;
    for (int64_t i = 0; i < N; i++) {
        double t = tm_flow_time(&options, TM_SPLIT_TRAIN, i);
        double s = t / (3 - 2 * t) * 1000; /* the grid without its shift: whole numbers from 1 to 1000 */
        above += t > 0.75;
        assert_true(fabs(s - nearbyint(s)) < 1e-6 && s > 0.5 && s < 1000.5);
    }
    assert_true(abs(above - N / 2) < 150);
}

TEST(texts_are_left_out_as_the_protocols_say)
{
    enum { N = 4000 };
    static const double text[] = { 0.447, 0.1, 0 }, both[] = { 0.447 * 0.447, 0.1, 0 };
    for (int p = 0; p < 3; p++) {
        tm_source_options options = options_of("gaussians", (tm_flow_protocol)p);
        double            no_text = 0, no_pooled = 0, neither = 0;
        for (int64_t i = 0; i < N; i++) {
            bool a, b;
            tm_flow_dropped(&options, TM_SPLIT_TRAIN, i, &a, &b);
            no_text += a, no_pooled += b, neither += a && b;
            tm_flow_dropped(&options, TM_SPLIT_VALIDATION, i, &a, &b);
            assert_true(!a && !b);
        }
        assert_true(fabs(no_text / N - text[p]) < 0.03 && fabs(no_pooled / N - text[p]) < 0.03);
        assert_true(fabs(neither / N - both[p]) < 0.03);
    }
}

/* The image is its mean, which all its tokens share, and noise of the spread; what is mixed in is normal. */
TEST(the_mixture_is_what_its_least_loss_assumes)
{
    enum { N = 500 };
    tm_source_options options = options_of("gaussians", TM_FLOW_TORCHTITAN);
    tm_source        *source = open_source(&options);
    double            within = 0, noise = 0, mean_square = 0, least = 0;
    for (int64_t i = 0; i < N; i++) {
        sample s = row_of(source, TM_SPLIT_TRAIN, i);
        double t = (double)s.time, x0[TOKENS * CHANNELS];
        assert_int_equal(s.weight, TOKENS * CHANNELS);
        for (int k = 0; k < TOKENS * CHANNELS; k++) {
            x0[k] = (double)s.noisy[k] - t * (double)s.velocity[k];
            noise += square((double)s.noisy[k] + (1 - t) * (double)s.velocity[k]) / (N * TOKENS * CHANNELS);
        }
        for (int c = 0; c < CHANNELS; c++) {
            double mean = 0;
            for (int p = 0; p < TOKENS; p++) mean += x0[p * CHANNELS + c] / TOKENS;
            for (int p = 0; p < TOKENS; p++)
                within += square(x0[p * CHANNELS + c] - mean) / (N * (TOKENS - 1) * CHANNELS);
            mean_square += mean * mean / (N * CHANNELS);
        }
        least += 0.25 / (square(1 - t) * 0.25 + t * t) / N;
    }
    const tm_source_facts *facts = tm_source_describe(source);
    assert_true(fabs(within - 0.25) < 0.01 && fabs(noise - 1) < 0.02 && mean_square > 0.5 && mean_square < 2);
    assert_true(fabs(facts->floor - acos(-1) / 4) < 1e-9);
    assert_true(fabs(least - facts->floor) < 0.05);
    double eight = 0;
    for (int i = 0; i < 8; i++) eight += 0.25 / (square(1 - (i + 0.5) / 8) * 0.25 + square((i + 0.5) / 8)) / 8;
    assert_float_equal(facts->validation_floor, eight, 1e-6);
    sample a = row_of(source, TM_SPLIT_TRAIN, 3), b = row_of(source, TM_SPLIT_TRAIN, 3);
    assert_memory_equal(a.noisy, b.noisy, sizeof a.noisy);
    tm_source_close(source);
}

/* --- files --- */

static float first_number;               /* of files that are written */
static const char *const (*metadata)[2]; /* of the same; NULL: none */

/* Rows i of n samples hold the numbers 1000 i, 1000 i + 1, ... beyond the first number; of logvar -80 each, so that
 * latents are the means. */
static void write_file(const char *path, int64_t n, bool moments, int64_t text_width)
{
    tm_tensor_heading headings[] = {
        { .name = "latents", .dtype = TM_F32, .rank = 3, .n = { n, TOKENS, CHANNELS } },
        { .name = "logvar", .dtype = TM_F32, .rank = 4, .n = { n, CHANNELS / 4, 8, 8 } },
        { .name = "pooled", .dtype = TM_F32, .rank = 2, .n = { n, VECTOR } },
        { .name = "text", .dtype = TM_F32, .rank = 3, .n = { n, TEXT, text_width } },
    };
    tm_safetensors_writer *writer;
    if (moments)
        headings[0] = (tm_tensor_heading){ .name = "mean", .dtype = TM_F32, .rank = 4, .n = { n, CHANNELS / 4, 8, 8 } };
    tm_tensor_heading plain[3] = { headings[0], headings[2], headings[3] };
    assert_ok(tm_safetensors_create(path, moments ? headings : plain, moments ? 4 : 3, metadata, &writer, err));
    for (int h = 0; h < (moments ? 4 : 3); h++) {
        const tm_tensor_heading *t = moments ? &headings[h] : &plain[h];
        int64_t                  row = 1;
        for (int k = 1; k < t->rank; k++) row *= t->n[k];
        for (int64_t i = 0; i < n * row; i++) {
            float value = strcmp(t->name, "logvar") == 0 ? -80 : first_number + (float)(1000 * (i / row) + i % row);
            tm_safetensors_write(writer, &value, sizeof value);
        }
    }
    assert_ok(tm_safetensors_finish(writer, err));
}

static const char *at(const char *folder, const char *name)
{
    static char path[4][512];
    static int  k;
    char       *out = path[k++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

/* A model that wants more of anything than the files have: the tensor is named. */
TEST(files_fit_their_model)
{
    char *folder = test_tree_make();
    for (int moments = 0; moments < 2; moments++) {
        write_file(at(folder, "a.safetensors"), 2, moments, WIDTH);
        for (int k = 0; k < 5; k++) {
            const char       *image = moments ? "'mean' is" : "'latents' is";
            const char *const names[] = { image, image, "'text' is", "'text' is", "'pooled' is" };
            tm_source_options o = options_of("latents", TM_FLOW_FLUXBENCHMARK);
            int64_t *const    members[] = { &o.flow.tokens, &o.flow.channels, &o.flow.text_len, &o.flow.text_dim,
                                            &o.flow.vector_dim };
            o.path = folder;
            *members[k] += k < 2 ? 4 : 1;
            o.seq = o.flow.tokens + o.flow.text_len;
            expect_refusal(&o, names[k], "");
        }
    }
    tm_source_options o = options_of("latents", TM_FLOW_MLPERF);
    o.path = folder;
    expect_refusal(&o, "empty.safetensors", "");
    write_file(at(folder, "empty.safetensors"), 1, false, WIDTH + 1);
    expect_refusal(&o, "'text' is F32 [1, 2, 7]", "");
    write_file(at(folder, "a.safetensors"), 0, false, WIDTH);
    expect_refusal(&o, "at least one sample", "");
    test_tree_remove(folder);
}

/* What `trainmark data encode` writes: a folder with both parts, whose files say how they were made. */
TEST(a_folder_with_both_parts_says_how_it_was_encoded)
{
    static const char *const as[][2] = {
        { "encoded", "a" }, { "scaling_factor", "2" }, { "shift_factor", "-0.5" }, { 0 }
    };
    static const char *const other[][2] = { { "encoded", "b" }, { 0 } };
    static const char *const word[][2] = { { "scaling_factor", "two" }, { 0 } };
    tm_source_options        options = options_of("latents", TM_FLOW_FLUXBENCHMARK);
    char                    *folder = test_tree_make();
    assert_int_equal(mkdir(at(folder, "train"), 0700), 0);
    assert_int_equal(mkdir(at(folder, "validation"), 0700), 0);
    metadata = as;
    write_file(at(folder, "train/a.safetensors"), 3, true, WIDTH);
    write_file(at(folder, "validation/a.safetensors"), 2, true, WIDTH);
    options.path = folder;
    tm_source *source = open_source(&options);
    assert_true(tm_source_describe(source)->train_samples == 3 && tm_source_describe(source)->validation_samples == 2);
    sample s = row_of(source, TM_SPLIT_VALIDATION, 1);
    double x0 = (double)s.noisy[0] - (double)s.time * (double)s.velocity[0];
    assert_true(fabs(x0 - 2 * (1000 + 0.5)) < 1e-3);
    tm_source_close(source);
    metadata = other;
    write_file(at(folder, "validation/b.safetensors"), 2, true, WIDTH);
    expect_refusal(&options, "were encoded in different ways: 'a' and 'b'", "");
    metadata = NULL;
    write_file(at(folder, "validation/b.safetensors"), 2, true, WIDTH);
    expect_refusal(&options, "were encoded in different ways: 'a' and 'unknown'", "");
    metadata = word;
    write_file(at(folder, "train/a.safetensors"), 2, true, WIDTH);
    expect_refusal(&options, "the metadata 'scaling_factor' is 'two', wanted a number", "");
    metadata = NULL;
    test_tree_remove(folder);
}

/* n numbers that count from the first one on */
static void expect_numbers(const float *found, int n, double first)
{
    for (int k = 0; k < n; k++) assert_true((double)found[k] == first + k);
}

/* In training only, each for itself, as the protocol draws it; instead there are those of an empty text. */
TEST(left_out_texts_are_those_of_the_empty_one)
{
    enum { N = 200 };
    char             *folder = test_tree_make();
    tm_source_options options = options_of("latents", TM_FLOW_TORCHTITAN);
    int               times[2][2] = { { 0 } };
    write_file(at(folder, "a.safetensors"), 3, false, WIDTH);
    first_number = -7000;
    write_file(at(folder, "empty.safetensors"), 1, false, WIDTH);
    first_number = 0;
    options.path = options.validation_path = folder;
    tm_source *source = open_source(&options);
    for (int64_t i = 0; i < N; i++) {
        bool   no_text, no_pooled;
        sample s = row_of(source, TM_SPLIT_TRAIN, i);
        double first = 1000 * nearbyint(((double)s.noisy[0] - (double)s.time * (double)s.velocity[0]) / 1000);
        tm_flow_dropped(&options, TM_SPLIT_TRAIN, i, &no_text, &no_pooled);
        expect_numbers(s.text, TEXT * WIDTH, no_text ? -7000 : first);
        expect_numbers(s.pooled, VECTOR, no_pooled ? -7000 : first);
        times[no_text][no_pooled]++;
        s = row_of(source, TM_SPLIT_VALIDATION, i % 3);
        expect_numbers(s.text, TEXT * WIDTH, (double)(1000 * (i % 3)));
        expect_numbers(s.pooled, VECTOR, (double)(1000 * (i % 3)));
    }
    for (int k = 0; k < 4; k++) assert_true(times[k / 2][k % 2] > 10);
    tm_source_close(source);
    test_tree_remove(folder);
}

TESTS_IN_ORDER
