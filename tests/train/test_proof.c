/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that look like training: which of them are looked at, in their first step and behind their last one, and what
 * is said of those that were none. */
#include "support/test.h"
#include "run_fixture.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "train/run/run_state.h"

/* --- whole runs --------------------------------------------------------------------------------------------------- */

static tm_run_ended told;
static char         reason[TM_REASON_BYTES], after[TM_REASON_BYTES];

static void hear(tm_sink *sink, const tm_event *event)
{
    (void)sink;
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    told = event->run_ended;
    snprintf(reason, sizeof reason, "%s", event->run_ended.reason);
    snprintf(after, sizeof after, "%s", event->run_ended.certificate_after.reason);
}

static tm_run_options options_of(int64_t steps)
{
    tm_run_options o = small_run("synthetic", steps);
    o.certify = true;
    return o;
}

static tm_status go(const tm_run_options *options)
{
    tm_sink  sink = { .handle = hear };
    tm_error err;
    reason[0] = '\0';
    return run_small(options, "cpu", 1, &sink, NULL, &err);
}

/* Steps before the checkpoint count in the verdict, so the others are looked at. */
TEST_WITH(who_goes_on_is_certified, NULL, test_folder_teardown)
{
    tm_run_options o = options_of(45);
    o.schedule.steps = 90;
    o.checkpoint = true;
    o.checkpoint_folder = test_in_folder("checkpoint");
    o.checkpoint_keep = 1;
    assert_int_equal(go(&o), TM_OK);
    assert_false(told.certificate.done);
    o.steps = 90;
    if (go(&o) != TM_OK) fail_msg("%s", reason);
    assert_true(told.certificate.done && told.certificate.gradients && told.certificate.causal);
}

/* Attention of the other layers uses context, so the tokens tell nothing: the gradients do. */
TEST(attention_must_look_back_in_every_layer)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    for (int i = 0; i < 3; i++) {
        tm_run_options o = options_of(60);
        o.source.name = "mock";
        o.step.precision = precisions[i];
        o.step.shape.n_layers = 3;
        o.step.shape.window = 1;
        o.step.shape.window_every = 2;
        assert_int_equal(go(&o), TM_NUMBERS);
        if (!strstr(reason, "the attention of layers 0, 2 is dead: the gradients of its wq and wk are nothing but"))
            fail_msg("%s", reason);
        assert_true(told.certificate.gradients && told.certificate.context);
        o.step.shape.window = 2;
        if (go(&o) != TM_OK) fail_msg("%s", reason);
        o.step.shape.window = 1; /* a key and a sink are two to choose from */
        o.step.shape.sinks = true;
        if (go(&o) != TM_OK) fail_msg("%s", reason);
    }
}

/* It was not looked at in the first step. */
TEST(what_is_found_behind_the_last_step_counts)
{
    static const char wanted[] = "after the last step: no token changes the loss of any target behind it: the model "
                                 "uses no context";
    tm_run_options    o = small_run("mock", 60);
    o.certify_after = true;
    o.step.shape.window = 1;
    assert_int_equal(go(&o), TM_NUMBERS);
    assert_string_equal(reason, wanted);
    assert_string_equal(after, wanted + strlen("after the last step: "));
    assert_true(told.certificate_after.done && told.certificate_after.gradients && !told.certificate.done);
    o.step.shape.window = 2;
    if (go(&o) != TM_OK) fail_msg("%s", reason);
    assert_true(told.certificate_after.done && told.certificate_after.context);
}

/* Of 120 samples of an epoch with so many rows, three of four of those that there are. */
TEST_WITH(rows_must_be_different, NULL, test_folder_teardown)
{
    static const struct {
        int         rows, different;
        const char *reason; /* "": they are different enough */
    } cases[] = { { 120, 90, "" },
                  { 120, 89, "only 89 of the 120 training samples are distinct" },
                  { 60, 45, "" },
                  { 60, 44, "only 44 of the 120 training samples are distinct" },
                  { 400, 400, "" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_run_options o = options_of(60);
        tm_text        text = { 0 };
        for (int row = 0; row < cases[i].rows; row++)
            tm_text_printf(&text, "x%030d.",
                           row % (cases[i].different - 1) * 7919); /* behind the last one is the end */
        test_put(test_folder(), "rows.txt", text.data);
        tm_text_fini(&text);
        o.certify = false;
        o.prefetch = 0; /* nothing is read that is not trained on */
        o.step.shape.vocab_size = 257;
        o.step.shape.n_layers = 1;
        o.source = (tm_source_options){ .name = "text", .path = test_in_folder("rows.txt"), .vocab = 257, .seq = 32 };
        assert_ok(tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, err));
        assert_int_equal(go(&o), cases[i].reason[0] ? TM_NUMBERS : TM_OK);
        if (cases[i].reason[0]) assert_string_equal(reason, cases[i].reason);
    }
}

/* Losses in float32 beside the run's own are made ready where a look is to come, and can be of use. */
TEST(losses_in_float32_are_for_those_who_look)
{
    static const struct {
        int64_t     steps;
        const char *is;
        bool        ready;
    } cases[] = { { 50, "certified narrow", true },
                  { 50, "certified", false },
                  { 49, "certified narrow", false },
                  { 9, "certified narrow to-a-target", true },
                  { 50, "narrow to-a-target", false },
                  { 9, "behind narrow", true },
                  { 50, "certified narrow quantized", false },
                  { 50, "certified narrow null", false },
                  { 9, "behind narrow null", false },
                  { 50, "certified narrow turns", false },
                  { 9, "behind narrow turns", false },
                  { 50, "certified narrow no-fields", false } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char    *is = cases[i].is;
        tm_run_options o = options_of(cases[i].steps);
        run            r = { .options = &o, .device = test_device_open(strstr(is, "null") ? "null" : "cpu", 1) };
        o.certify = strstr(is, "certified"), o.certify_after = strstr(is, "behind");
        o.stop_at_target = strstr(is, "target"), o.turn_fd = strstr(is, "turns") ? 3 : 0;
        o.step.quantize.on = strstr(is, "quantized");
        if (strstr(is, "narrow")) o.step.precision = &tm_precision_bf16;
        if (strstr(is, "no-fields")) o.step.n_fields = 0;
        if (run_step_options(&r).exact != (cases[i].ready ? &tm_precision_f32 : NULL)) fail_msg("%s", is);
        tm_device_close(r.device);
    }
}

/* --- what is said of steps ---------------------------------------------------------------------------------------- */

/* What such a run is like: its device, losses (NULL: zeros), and which part of a parameter (NULL: none) gets a gradient
 * of zero behind its step, but for an element (-1: all of it). */
typedef struct {
    const char   *device;
    const double *losses;
    const char   *dead;
    int64_t       alive;
} like;

static void deaden(tm_trainer *trainer, const like *l)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; l->dead && i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        for (int k = 0; t->role == TM_ROLE_PARAMETER && k < t->n_pieces; k++) {
            if (strcmp(t->pieces[k].name, l->dead) != 0) continue;
            double *values = test_values_read(trainer, t->gradient);
            int64_t columns = tm_shape_elements(t->shape) / t->shape.n[0], first = t->pieces[k].row * columns;
            for (int64_t e = 0; e < t->pieces[k].rows * columns; e++) values[first + e] = e == l->alive;
            test_values_write(trainer, t->gradient, values);
            free(values);
        }
    }
}

/* Of steps that went as `r` says, behind one that is real. */
static void proof_says(const tm_run_options *o, run r, like l, const char *wanted)
{
    double     none[60] = { 0 };
    uint64_t   hash;
    tm_source *source;
    r.options = o;
    r.device = test_device_open(l.device ? l.device : "cpu", 1);
    assert_ok(tm_source_open(&o->source, &source, err));
    r.source = source;
    r.trainer = test_trainer_open(r.device, &o->step, 5);
    r.loader = tm_loader_open_part(source, TM_SPLIT_TRAIN, 2, (tm_loader_part){ .ranks = 1 }, 0, 0);
    r.progress.first_step = 1, r.progress.losses = l.losses ? (double *)(uintptr_t)l.losses : none;
    assert_ok(run_remember(&r, err));
    test_batch batch = test_batch_random(o->step.micro_batch, o->step.seq, o->step.shape.vocab_size, 5);
    test_step(r.trainer, 1, 1e-2, 1, &batch);
    deaden(r.trainer, &l);
    assert_ok(run_check_proof(&r, &hash, err));
    assert_true(hash == test_weights_hash(r.trainer));
    if (*wanted ? !strstr(r.certified.not_training, wanted) : r.certified.not_training[0])
        fail_msg("'%s', wanted '%s'", r.certified.not_training, wanted);
    free(r.certified.hashes);
    test_batch_fini(&batch);
    tm_loader_close(r.loader);
    tm_trainer_close(r.trainer);
    tm_source_close(source);
    tm_device_close(r.device);
}

static const run good = { .progress.finite = true, .progress.done = 60, .progress.last_norm = 1 };

/* A hundredth of the steps' time, and 5 us a step, may be counted twice. */
TEST(phases_are_no_longer_than_their_steps)
{
    static const struct {
        double      all, accounted;
        int64_t     done;
        const char *unreal;
    } cases[] = { { 1, 1.01029, 60, "" },
                  { 1, 1.01031, 60, "the phases of the steps take 1.01 s together, the steps 1 s" },
                  { 0.2, 0.20201, 2, "" },
                  { 0.2, 0.202011, 2, "the phases of the steps take 0.202 s together, the steps 0.2 s" },
                  { 3, 9, 0, "" } };
    const tm_run_options o = options_of(60);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run r = good;
        r.progress.done = cases[i].done;
        r.timing.all_seconds = cases[i].all, r.timing.accounted_seconds = cases[i].accounted;
        proof_says(&o, r, (like){ 0 }, cases[i].unreal);
        r.progress.finite = false; /* which says enough */
        proof_says(&o, r, (like){ 0 }, "");
    }
}

/* In wide formats every tensor moves; in narrow ones small steps may be rounded away. */
TEST(what_must_move_in_each_format)
{
    static const struct {
        const tm_precision *precision;
        const char         *device, *unreal;
    } cases[] = { { &tm_precision_f32, "cpu", "norm.weight is trained, but has not moved" },
                  { &tm_precision_bf16_pure, "cpu", "" },
                  { &tm_precision_f64, "reference", "norm.weight is trained, but has not moved" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_run_options o = options_of(60);
        o.step.precision = cases[i].precision;
        o.step.groups[0] = (tm_group){ .place = "test", .lr_scale = 1, .format = TM_DTYPE_COUNT };
        o.step.groups[0].hyper = o.step.hyper;
        o.step.groups[1] = o.step.groups[0];
        o.step.n_groups = 1;
        proof_says(&o, good, (like){ .device = cases[i].device }, "");
        o.step.n_groups = 2;
        o.step.groups[1].lr_scale = 0;
        strcpy(o.step.groups[1].patterns, "norm.weight");
        proof_says(&o, good, (like){ .device = cases[i].device }, cases[i].unreal);
    }
}

/* Every named part, to its last element, in a run whose gradients were looked at and are not all zero. */
TEST(every_part_has_a_gradient)
{
    enum { PIECE = 1 << 18 }; /* elements that are read at a time */
    static const char *const parts[] = { "tok_embeddings.weight", "layers.0.feed_forward.w1.weight",
                                         "layers.1.feed_forward.w3.weight", "layers.1.ffn_norm.weight",
                                         "output.weight" };
    static const int64_t     last[] = { -1, PIECE - 1, PIECE, 2 * PIECE + 63 };
    tm_run_options           o = options_of(60);
    run                      r = good;
    like                     output = { .dead = "output.weight", .alive = -1 };
    proof_says(&o, r, output, ""); /* nobody has looked */
    r.certified.first = (tm_certificate){ .done = true, .gradients = true };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (int64_t alive = -1; alive <= 63; alive += alive < 0 ? 1 : 63) {
            char wanted[200] = "";
            if (alive < 0) snprintf(wanted, sizeof wanted, "no gradient reaches %s", parts[i]);
            proof_says(&o, r, (like){ .dead = parts[i], .alive = alive }, wanted);
        }
    r.progress.last_norm = 0;
    proof_says(&o, r, output, "");
    r.progress.last_norm = 1;
    o.step.shape.vocab_size = 2 * PIECE / 64 + 1;
    for (int k = 0; k < 4; k++)
        proof_says(&o, r, (like){ .dead = "output.weight", .alive = last[k] },
                   k == 0 ? "no gradient reaches output.weight" : "");
}

/* The losses of the main job are known. */
FULL_TEST(the_main_job_with_its_losses_is_real)
{
    static const double stored[] = {
#define LOSS(value) value,
#include "train/run/curve.def"
#undef LOSS
    };
    tm_run_options o;
    run            r = good;
    double         losses[3];
    r.progress.done = 3;
    tm_config *config = test_run_of("tiny-llama", &o);
    memcpy(losses, stored, sizeof losses);
    proof_says(&o, r, (like){ .losses = losses }, "");
    losses[2] += 9;
    proof_says(&o, r, (like){ .losses = losses }, "the loss of step 3 is ");
    tm_config_destroy(config);
}
