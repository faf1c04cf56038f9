/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on pairs: they begin where model and reference are one, to the last bit; another reference is refused.
 * (Packing: test_sft.c; threads and stops: tests/differential; numbers of another program: tests/hf.) */
#include "support/test.h"
#include "op/preference.h"
#include "run_fixture.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "train/trainer/preference.h"

enum { SEQ = 96, PAIRS = 60, MOST = 8, MEASURES = TM_PREFERENCE_MEASURES };

typedef struct {
    tm_sink      sink;
    tm_step_done step[MOST];
    double       measures[MOST][MEASURES];
    int          steps, evaluations;
    size_t       n_last;
} listener;

static void listen(tm_sink *sink, const tm_event *event)
{
    static const char *const names[MEASURES] = { "rewards/chosen",  "rewards/rejected", "rewards/accuracies",
                                                 "rewards/margins", "logps/chosen",     "logps/rejected" };
    listener                *l = (listener *)sink;
    if (event->kind == TM_EVENT_RUN_ENDED) l->n_last = event->run_ended.n_measures;
    if (event->kind == TM_EVENT_EVALUATION) { /* nothing has moved */
        assert_true(fabs(event->evaluation.loss - 0.69314718055994531) < 1e-14 && event->evaluation.n_measures >= 4);
        for (int k = 0; k < 4; k++) assert_true(!(event->evaluation.measures[k].value != 0));
        l->evaluations++;
    }
    if (event->kind != TM_EVENT_STEP_DONE) return;
    assert_true(l->steps < MOST && event->step_done.n_measures == MEASURES);
    for (int k = 0; k < MEASURES; k++) {
        assert_string_equal(event->step_done.measures[k].name, names[k]);
        l->measures[l->steps][k] = event->step_done.measures[k].value;
    }
    l->step[l->steps++] = event->step_done;
}

/* Chosen answers are of capitals, rejected ones of small letters; lengths differ. */
static int write_rows(void **state)
{
    tm_text text = { 0 };
    (void)state;
    for (int i = 0; i < PAIRS; i++) {
        tm_text_printf(&text, "{\"prompt\": \"%c%d?\", \"chosen\": \"", 'a' + i % 26, i);
        for (int k = 0; k < 2 + i * 3 % 11; k++) tm_text_printf(&text, "%c", 'A' + (i + k * 3) % 26);
        tm_text_add(&text, "\", \"rejected\": \"");
        for (int k = 0; k < 2 + i * 5 % 13; k++) tm_text_printf(&text, "%c", 'a' + (i + k * 7) % 26);
        tm_text_add(&text, "\"}\n");
    }
    test_file_write(test_folder(), "pairs.jsonl", text.data);
    tm_text_fini(&text);
    return 0;
}

static tm_run_options options_of(int64_t steps, bool packed)
{
    tm_run_options o = small_run("synthetic", steps);
    o.learning_rate = 1e-3;
    o.step.shape.vocab_size = 257;
    o.step.seq = SEQ;
    o.step.accumulation = 2;
    o.step.preference = (tm_preference_attr){ .kind = TM_PREFERENCE_SIGMOID, .beta = 0.2 };
    o.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = 1000, .decay_ratio = 0 };
    o.source = (tm_source_options){ .name = "preference",
                                    .path = test_in_folder("pairs.jsonl"),
                                    .vocab = 257,
                                    .seq = SEQ,
                                    .seed = o.seed,
                                    .sft = { .packed = packed } };
    assert_ok(tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, err));
    return o;
}

static tm_status run(const tm_run_options *options, listener *l, tm_error *err)
{
    *l = (listener){ .sink = { .handle = listen } };
    return run_small(options, "cpu", 2, &l->sink, NULL, err);
}

static bool is_near(double a, double b, double slack)
{
    return fabs(a - b) <= slack;
}

TEST(runs_begin_where_model_and_reference_are_one)
{
    static const struct {
        int    kind;
        double smoothing, start;
    } cases[] = { { TM_PREFERENCE_SIGMOID, 0, 0.69314718055994531 },
                  { TM_PREFERENCE_SIGMOID, 0.3, 0.69314718055994531 },
                  { TM_PREFERENCE_HINGE, 0, 1 },
                  { TM_PREFERENCE_IPO, 0, 6.25 },
                  { TM_PREFERENCE_ROBUST, 0.3, 0.69314718055994531 },
                  { TM_PREFERENCE_EXO, 0.125, 0.41333928659223396 },
                  { TM_PREFERENCE_NCA, 0, 1.3862943611198906 },
                  { TM_PREFERENCE_BCO, 0, 1.3862943611198906 },
                  { TM_PREFERENCE_SPPO, 0, 12.5 },
                  { TM_PREFERENCE_APO_ZERO, 0, 1 },
                  { TM_PREFERENCE_APO_DOWN, 0, 1 },
                  { TM_PREFERENCE_SIGMOID_NORM, 0, 0.69314718055994531 } };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        static listener l;
        tm_run_options  o = options_of(3, i % 2);
        double          start = cases[i / 2].start;
        o.step.preference =
            (tm_preference_attr){ .kind = cases[i / 2].kind, .beta = 0.2, .label_smoothing = cases[i / 2].smoothing };
        assert_ok(run(&o, &l, err));
        assert_true(is_near(l.step[0].loss, start, 1e-15 + 1e-14 * start));
        assert_true(is_near(tm_preference_start(&o.step.preference), start, 1e-14 * start));
        for (int k = 0; k < 4; k++) assert_true(is_near(l.measures[0][k], 0, 0)); /* no difference at all */
        assert_true(l.measures[0][4] < 0 && l.measures[0][5] < 0 && l.step[0].grad_norm > 0);
        assert_true(l.step[1].loss < l.step[0].loss);
        assert_true(l.measures[2][3] > 0 && l.measures[2][2] > 0);
        assert_true(is_near(l.measures[2][3], l.measures[2][0] - l.measures[2][1], 1e-12));
        assert_int_equal(l.step[0].tokens, 4 * SEQ);
        assert_in_range(l.n_last, 6, 16); /* without an evaluation those of the last step */
    }
}

/* Rows of the same length and number, and of others. */
TEST(held_out_pairs_have_their_reference)
{
    for (int i = 0; i < 4; i++) {
        static listener l;
        tm_run_options  o = options_of(2, i % 2);
        o.learning_rate = 0;
        o.validate = true, o.validation_freq = 1, o.validation_steps = -1;
        o.source.validation_fraction = 0.3;
        if (i / 2) {
            tm_source_options held_out = o.source;
            int               n;
            held_out.seq = o.step.validation_seq = 64, o.step.validation_batch = 3;
            assert_ok(tm_source_fields(&held_out, o.step.validation_fields, &n, err));
        }
        assert_ok(run(&o, &l, err));
        assert_int_equal(l.evaluations, 2);
    }
}

TEST(sums_are_told_by_the_pair)
{
    static const double record[TM_PREFERRED_COUNT] = {
        [TM_PREFERRED_PAIRS] = 4, [TM_PREFERRED_CHOSEN] = 6,         [TM_PREFERRED_REJECTED] = -2,
        [TM_PREFERRED_RIGHT] = 3, [TM_PREFERRED_LOGPS_CHOSEN] = -40, [TM_PREFERRED_LOGPS_REJECTED] = -72
    };
    static const double wanted[] = { 1.5, -0.5, 0.75, 2, -10, -18 };
    tm_named_f64        told[MEASURES];
    tm_preference_measure(record, told);
    for (int k = 0; k < MEASURES; k++) assert_true(is_near(told[k].value, wanted[k], 0));
}

static tm_status change_one(void *context, tm_trainer *trainer, tm_error *err)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    const float     value = 0.125f;
    tm_tensor_id    id = 0;
    (void)context;
    while (graph->tensors[id].role != TM_ROLE_PARAMETER) id++;
    return tm_trainer_write(trainer, id, 0, &value, sizeof value, err);
}

/* A run that goes on has the reference that it began with. */
TEST(another_reference_is_refused)
{
    static listener l;
    tm_run_options  o = options_of(3, true);
    o.checkpoint = true;
    o.checkpoint_folder = test_in_folder("full");
    for (; o.steps <= 4; o.steps++) assert_ok(run(&o, &l, err));
    assert_true(l.steps == 1 && l.step[0].step == 4);
    for (int free_of_it = 0; free_of_it < 2; free_of_it++) {
        o.load_weights = free_of_it ? NULL : change_one; /* to begin with: another reference */
        o.reference_free = free_of_it;
        assert_refused(run(&o, &l, err), TM_INVALID, "dpo.reference");
    }
}

/* What was read of the reference: its losses of the same rows, and only where there is a target. */
TEST(references_are_kept_with_their_samples)
{
    tm_run_options o = options_of(1, true);
    tm_source     *source;
    assert_ok(tm_source_open(&o.source, &source, err));
    int64_t rows = tm_source_describe(source)->train_samples;
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
        assert_ok(tm_source_row(source, TM_SPLIT_TRAIN, i, scratch, at, &weight, err));
        for (int64_t t = 0; t < SEQ; t++)
            if (ints[3][t] == t) documents++, last = t;
        int64_t used = documents % 2 ? last : SEQ; /* the odd one is what is left of the row */
        assert_int_equal(documents / 2, weight);
        for (int64_t t = 0; t < SEQ; t++)
            if (i < rows || t >= used)
                assert_true(is_near((double)reference[t], t < used ? (double)(1000 * i + t) : 0, 0));
        assert_true(is_near(fmod((double)reference[0], 1000), 0, 0));
    }
    assert_true(rows > 1);
    tm_source_close(source);
}

TEST_FIXTURE(write_rows, test_folder_teardown)
