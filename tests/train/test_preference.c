/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on pairs: they begin where model and reference are one, to the last bit; packing changes no loss; another
 * reference is refused. (Threads and stops: tests/differential.) */
#include "support/test.h"
#include "pairs_fixture.h"
#include "run_fixture.h"
#include "op/preference.h"
#include "train/trainer/preference.h"

static tm_status run(const tm_run_options *options, int threads, listener *l, tm_error *err)
{
    *l = (listener){ .sink = { .handle = listen } };
    return run_small(options, "cpu", threads, &l->sink, NULL, err);
}

static void run_well(const tm_run_options *options, int threads, listener *l)
{
    tm_error err;
    if (run(options, threads, l, &err) != TM_OK) fail_msg("%s", err.text);
}

TEST(runs_begin_where_model_and_reference_are_one)
{
    static listener l;
    static const struct {
        tm_preference_attr loss;
        double             start;
    } cases[] = { { { .kind = TM_PREFERENCE_SIGMOID, .beta = 0.2 }, 0.69314718055994531 },
                  { { .kind = TM_PREFERENCE_SIGMOID, .beta = 0.2, .label_smoothing = 0.3 }, 0.69314718055994531 },
                  { { .kind = TM_PREFERENCE_HINGE, .beta = 0.2 }, 1 },
                  { { .kind = TM_PREFERENCE_IPO, .beta = 0.2 }, 6.25 },
                  { { .kind = TM_PREFERENCE_ROBUST, .beta = 0.2, .label_smoothing = 0.3 }, 0.69314718055994531 },
                  { { .kind = TM_PREFERENCE_EXO, .beta = 0.2, .label_smoothing = 0.125 }, 0.41333928659223396 },
                  { { .kind = TM_PREFERENCE_NCA, .beta = 0.2 }, 1.3862943611198906 },
                  { { .kind = TM_PREFERENCE_BCO, .beta = 0.2 }, 1.3862943611198906 },
                  { { .kind = TM_PREFERENCE_SPPO, .beta = 0.2 }, 12.5 },
                  { { .kind = TM_PREFERENCE_APO_ZERO, .beta = 0.2 }, 1 },
                  { { .kind = TM_PREFERENCE_APO_DOWN, .beta = 0.2 }, 1 },
                  { { .kind = TM_PREFERENCE_SIGMOID_NORM, .beta = 0.2 }, 0.69314718055994531 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int packed = 0; packed < 2; packed++) {
            tm_run_options o = options_of(3, packed);
            o.step.preference = cases[i].loss;
            run_well(&o, 2, &l);
            assert_true(is_near(l.step[0].loss, cases[i].start, 1e-15 + 1e-14 * cases[i].start));
            assert_true(is_near(tm_preference_start(&cases[i].loss), cases[i].start, 1e-14 * cases[i].start));
            for (int k = 0; k < 4; k++) assert_true(is_near(l.measures[0][k], 0, 0)); /* no difference at all */
            assert_true(l.measures[0][4] < 0 && l.measures[0][5] < 0);
            assert_true(l.step[0].grad_norm > 0);
            assert_true(l.step[1].loss < l.step[0].loss);
            assert_true(l.measures[2][3] > 0 && l.measures[2][2] > 0);
            assert_true(is_near(l.measures[2][3], l.measures[2][0] - l.measures[2][1], 1e-12));
            assert_int_equal(l.step[0].tokens, 4 * SEQ);
            assert_in_range(l.end.n_measures, 6, 16); /* without an evaluation those of the last step */
        }
}

TEST(sums_are_told_by_the_pair)
{
    tm_named_f64 told[TM_PREFERENCE_MEASURES];
    const double record[TM_PREFERRED_COUNT] = {
        [TM_PREFERRED_PAIRS] = 4, [TM_PREFERRED_CHOSEN] = 6,         [TM_PREFERRED_REJECTED] = -2,
        [TM_PREFERRED_RIGHT] = 3, [TM_PREFERRED_LOGPS_CHOSEN] = -40, [TM_PREFERRED_LOGPS_REJECTED] = -72
    };
    const double wanted[] = { 1.5, -0.5, 0.75, 2, -10, -18 };
    tm_preference_measure(record, told);
    for (int k = 0; k < TM_PREFERENCE_MEASURES; k++) {
        assert_string_equal(told[k].name, names[k]);
        assert_true(is_near(told[k].value, wanted[k], 0));
    }
}

static tm_status change_one(void *context, tm_trainer *trainer, tm_error *err)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    const float     value = 0.125f;
    (void)context;
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (graph->tensors[i].role == TM_ROLE_PARAMETER)
            return tm_trainer_write(trainer, (tm_tensor_id)i, 0, &value, sizeof value, err);
    return TM_OK;
}

/* A run that goes on has the reference that it began with. (Threads and stops: tests/differential.) */
TEST(another_reference_is_refused)
{
    static listener l;
    tm_run_options  o = options_of(3, true);
    tm_error        err;
    o.checkpoint = true;
    o.checkpoint_folder = test_in_folder("full");
    run_well(&o, 2, &l);
    o.steps = 4;
    run_well(&o, 2, &l);
    assert_true(l.steps == 1 && l.step[0].step == 4);
    o.steps = 5;
    o.load_weights = change_one; /* to begin with: another reference */
    assert_int_equal(run(&o, 2, &l, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "dpo.reference"));
    o.load_weights = NULL;
    o.reference_free = true;
    assert_int_equal(run(&o, 2, &l, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "dpo.reference"));
}

/* Losses of all pairs together, without a reference. */
static double sum_of(bool packed, int64_t *pairs)
{
    tm_run_options o = options_of(1, packed);
    tm_source     *source;
    tm_error       err = { 0 };
    double         sum = 0;
    o.source.validation_fraction = 0;
    o.step.micro_batch = o.step.accumulation = 1;
    if (tm_source_open(&o.source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    tm_device  *device = test_device_open("cpu", 2);
    tm_trainer *trainer = test_trainer_open(device, &o.step, 3);
    int64_t     rows = tm_source_describe(source)->train_samples;
    assert_true(packed ? rows < PAIRS / 2 : rows == PAIRS);
    *pairs = 0;
    for (int64_t i = 0; i < rows; i++) {
        int32_t        scratch[SEQ + 1], ints[4][SEQ];
        float          reference[SEQ];
        int64_t        weight;
        double         loss, record[TM_PREFERRED_COUNT];
        void          *at[] = { ints[0], ints[1], ints[2], ints[3], reference };
        tm_micro_batch batch = { .field = { ints[0], ints[1], ints[2], ints[3], reference } };
        if (tm_source_row(source, TM_SPLIT_TRAIN, i, scratch, at, &weight, &err) != TM_OK) fail_msg("%s", err.text);
        if (tm_trainer_evaluate(trainer, &batch, &loss, &err) != TM_OK) fail_msg("%s", err.text);
        if (tm_trainer_preferred(trainer, record, &err) != TM_OK) fail_msg("%s", err.text);
        assert_true(is_near(record[TM_PREFERRED_PAIRS], (double)weight, 0));
        *pairs += weight;
        sum += loss;
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
    tm_source_close(source);
    return sum;
}

TEST(packed_pairs_have_their_own_loss)
{
    int64_t packed_pairs, pairs;
    double  packed = sum_of(true, &packed_pairs), apart = sum_of(false, &pairs);
    assert_int_equal(packed_pairs, PAIRS);
    assert_int_equal(pairs, PAIRS);
    if (!is_near(packed, apart, 1e-5 * apart)) fail_msg("%.9g, alone %.9g", packed, apart);
}

/* What was read of the reference: its losses of the same rows, and only where there is a target. */
TEST(references_are_kept_with_their_samples)
{
    tm_run_options o = options_of(1, true);
    tm_source     *source;
    tm_error       err = { 0 };
    if (tm_source_open(&o.source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    int64_t rows = tm_source_describe(source)->train_samples;
    assert_true(rows > 1);
    for (int64_t i = 0; i < rows; i++) {
        float losses[SEQ];
        for (int64_t t = 0; t < SEQ; t++) losses[t] = (float)(1000 * i + t);
        tm_source_keep_reference(source, TM_SPLIT_TRAIN, i, losses);
    }
    for (int64_t i = 0; i < 2 * rows; i++) { /* a second epoch has the same rows in another order */
        int32_t scratch[SEQ + 1], ints[4][SEQ];
        float   reference[SEQ];
        int64_t weight, documents = 0, last = 0;
        void   *at[] = { ints[0], ints[1], ints[2], ints[3], reference };
        if (tm_source_row(source, TM_SPLIT_TRAIN, i, scratch, at, &weight, &err) != TM_OK) fail_msg("%s", err.text);
        for (int64_t t = 0; t < SEQ; t++)
            if (ints[3][t] == t) documents++, last = t;
        int64_t used = documents % 2 ? last : SEQ; /* the odd one is what is left of the row */
        assert_int_equal(documents / 2, weight);
        if (i < rows)
            for (int64_t t = 0; t < used; t++) assert_true(is_near((double)reference[t], (double)(1000 * i + t), 0));
        for (int64_t t = used; t < SEQ; t++) assert_true(is_near((double)reference[t], 0, 0));
        assert_true(is_near(fmod((double)reference[0], 1000), 0, 0));
    }
    tm_source_close(source);
}

/* --- what makes a run valid --------------------------------------------------------------------------------------- */

static int begin(void **state)
{
    (void)state;
    write_rows();
    return 0;
}

TEST_FIXTURE(begin, test_folder_teardown)
