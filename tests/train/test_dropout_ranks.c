/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout before adapters, of ranks that have sequences in parts: what is left out goes by the place in the whole. */
#include "support/test.h"
#include "ranks_fixture.h"

#define RATE 2e-2

static tm_adapters lora(double dropout)
{
    tm_adapters a = { .rank = 4, .alpha = 8, .dropout = dropout, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    snprintf(a.targets, sizeof a.targets, "all-linear");
    return a;
}

static tm_step_options adapted(double dropout)
{
    tm_step_options o = model_options(0);
    o.layout.reshard = true;
    o.layout.prefetch = 1;
    o.adapters = lora(dropout);
    return o;
}

static job alone_with(tm_step_options o, int whole, int steps)
{
    job j = ranks_job(o, 1, 1, TM_SHARE_COPIES, steps);
    j.whole = whole;
    j.rate = RATE;
    rank_body(NULL, &j);
    return j;
}

/* Which elements are left out goes by the place in whole sequences, of all samples of a micro-batch. */
static void parts_of_sequences_drop_what_one_rank_drops(void **state)
{
    static const struct {
        int  shard, context, steps;
        bool ring, recomputed;
    } layouts[] = {
        { 1, 2, 25, false, false }, { 1, 4, 25, false, true }, { 2, 2, 25, false, false }, { 1, 2, 25, true, false }
    };
    (void)state;
    for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
        tm_step_options o = adapted(0.25);
        o.micro_batch = 2;
        o.accumulation = 2;
        o.recompute.every_n = layouts[l].recomputed;
        o.layout.sharing = TM_SHARE_ALL;
        o.layout.ring = layouts[l].ring;
        job alone = alone_with(o, layouts[l].shard, layouts[l].steps), full = alone;
        job j = ranks_job(o, 1, layouts[l].shard, TM_SHARE_ALL, layouts[l].steps);
        j.rate = RATE;
        full.o.adapters.dropout = 0;
        rank_body(NULL, &full);
        j.context = layouts[l].context;
        run_job(&j);
        double far = apart(&j, &alone);
        print_message("# layout %d: losses %.3g apart\n", (int)l, far);
        if (!(far <= 1e-5)) fail_msg("layout %d: losses are %.3g apart", (int)l, far);
        int last = layouts[l].steps - 1;
        assert_true(fabs(alone.loss[last] - full.loss[last]) > 1e-4 * full.loss[last]); /* something is left out */
    }
}

static void parts_of_images_are_refused(void **state)
{
    (void)state;
    tm_error        err = { 0 };
    tm_step_options o = shareable(3);
    tm_device      *device = test_device_open("cpu", 1);
    tm_chooser      chooser = tm_device_chooser(device);
    tm_step        *step = NULL;
    o.adapters = lora(0.25);
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_CP] = 2;
    o.layout.sharing = TM_SHARE_ALL;
    assert_int_equal(tm_step_create(&o, &chooser, &step, &err), TM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "lora.dropout"));
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parts_of_sequences_drop_what_one_rank_drops),
    cmocka_unit_test(parts_of_images_are_refused),
};

TM_TESTS(tests, NULL, NULL)
