/* SPDX-License-Identifier: Apache-2.0 */
/* Which runs are looked at while they train and behind their last step, and what is said where several things are
 * wrong: on devices that compute nothing, in float64, in turns, with losses that are known. */
#include "support/test.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"

#include "proof_fixture.h"
#include "run_fixture.h"

#include <stdio.h>
#include <string.h>

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
    return small_run("mock", steps);
}

static tm_status go(const tm_run_options *options, const char *name, tm_error *err)
{
    tm_sink sink = { .handle = hear };
    return run_small(options, name, 1, &sink, NULL, err);
}

/* Losses in float32 beside the run's own are made ready where a look is to come, and can be of use. */
TEST(losses_in_float32_are_for_those_who_look)
{
    static const struct {
        const char *what;
        int64_t     steps;
        bool        certify, certify_after, stop_at_target, null, narrow, quantized, ready;
        int         turn_fd;
    } cases[] = { { "judged", .steps = 50, .certify = true, .narrow = true, .ready = true },
                  { "in float32", .steps = 50, .certify = true },
                  { "too short", .steps = 49, .certify = true, .narrow = true },
                  { "to a target", .steps = 9, .certify = true, .narrow = true, .stop_at_target = true, .ready = true },
                  { "nobody asks", .steps = 50, .narrow = true, .stop_at_target = true },
                  { "behind it", .steps = 9, .certify_after = true, .narrow = true, .ready = true },
                  { "quantized", .steps = 50, .certify = true, .narrow = true, .quantized = true },
                  { "computes nothing", .steps = 50, .certify = true, .narrow = true, .null = true },
                  { "nor behind it", .steps = 9, .certify_after = true, .narrow = true, .null = true },
                  { "in turns", .steps = 50, .certify = true, .narrow = true, .turn_fd = 3 },
                  { "in turns, behind it", .steps = 9, .certify_after = true, .narrow = true, .turn_fd = 3 } };
    for (int fields = 0; fields < 2; fields++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            tm_run_options o = options_of(cases[i].steps);
            run            r = { .options = &o, .device = test_device_open(cases[i].null ? "null" : "cpu", 1) };
            o.certify = cases[i].certify, o.certify_after = cases[i].certify_after;
            o.stop_at_target = cases[i].stop_at_target, o.turn_fd = cases[i].turn_fd;
            o.step.quantize.on = cases[i].quantized;
            if (cases[i].narrow) o.step.precision = &tm_precision_bf16;
            if (!fields) o.step.n_fields = 0;
            const tm_precision *wanted = fields && cases[i].ready ? &tm_precision_f32 : NULL;
            if (run_step_options(&r).exact != wanted) fail_msg("%s, %d", cases[i].what, fields);
            tm_device_close(r.device);
        }
}

/* It was not looked at in the first step. */
TEST(what_is_found_behind_the_last_step_counts)
{
    static const char wanted[] = "after the last step: no token changes the loss of any target behind it: the model "
                                 "uses no context";
    tm_run_options    o = options_of(60);
    tm_error          err = { 0 };
    o.certify_after = true;
    o.step.shape.window = 1;
    assert_int_equal(go(&o, "cpu", &err), TM_NUMBERS);
    assert_string_equal(reason, wanted);
    assert_string_equal(err.text, wanted);
    assert_string_equal(after, wanted + strlen("after the last step: "));
    assert_true(told.certificate_after.done && told.certificate_after.gradients && !told.certificate.done);
    o.step.shape.window = 2;
    if (go(&o, "cpu", &err) != TM_OK) fail_msg("%s", reason);
    assert_true(told.certificate_after.done && told.certificate_after.context);
}

/* --- what is said of steps -----------------------------------------------------------------------------------------
 */

/* In wide formats every tensor moves; in narrow ones small steps may be rounded away. */
TEST(what_must_move_in_each_format)
{
    static const struct {
        const tm_precision *precision;
        const char         *device, *unreal;
    } cases[] = { { &tm_precision_f32, "cpu", "norm.weight is trained, but has not moved" },
                  { &tm_precision_bf16_pure, "cpu", "" },
                  { &tm_precision_f64, "reference", "norm.weight is trained, but has not moved" } };
    const run like = { .progress.finite = true, .progress.done = 60 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_run_options o = options_of(60);
        proof          p = { .device = cases[i].device };
        o.step.precision = cases[i].precision;
        o.step.groups[0] = (tm_group){ .place = "test", .lr_scale = 1, .format = TM_DTYPE_COUNT };
        o.step.groups[0].hyper = o.step.hyper;
        o.step.groups[1] = o.step.groups[0];
        o.step.n_groups = 1;
        assert_string_equal(proof_says(&o, &like, &p), "");
        o.step.n_groups = 2;
        o.step.groups[1].lr_scale = 0;
        snprintf(o.step.groups[1].patterns, sizeof o.step.groups[1].patterns, "norm.weight");
        assert_string_equal(proof_says(&o, &like, &p), cases[i].unreal);
    }
}

/* The losses of the main job are known. */
FULL_TEST(the_main_job_with_its_losses_is_real)
{
    static const double stored[] = {
#define LOSS(value) value,
#include "train/run/curve.def"
#undef LOSS
    };
    tm_config     *config = test_full_config();
    tm_run_options o;
    tm_error       err = { 0 };
    run            like = { .progress.finite = true, .progress.done = 3 };
    double         losses[3];
    proof          p = { .device = "cpu", .losses = losses };
    if (test_read_run(config, "tiny-llama", &o, &err) != TM_OK) fail_msg("%s", err.text);
    memcpy(losses, stored, sizeof losses);
    assert_string_equal(proof_says(&o, &like, &p), "");
    losses[2] += 9;
    assert_non_null(strstr(proof_says(&o, &like, &p), "the loss of step 3 is "));
    tm_config_destroy(config);
}
