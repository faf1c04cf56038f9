/* SPDX-License-Identifier: Apache-2.0 */
/* The stored losses of the main job: whose they are, and that the same bits pass for them. */
#include "support/test.h"
#include "support/full_config.h"

#include "base/hash.h"
#include "train/run/curve.h"

static const double stored[] = {
#define LOSS(value) value,
#include "train/run/curve.def"
#undef LOSS
};
enum { STEPS = sizeof stored / sizeof stored[0] };

static tm_status load_nothing(void *context, struct tm_trainer *trainer, tm_error *err)
{
    (void)context, (void)trainer, (void)err;
    return TM_OK;
}

static bool is_main(const char *key, const char *value)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    if (tm_config_apply_preset(config, "tiny-llama", &err) != TM_OK || tm_config_finish(config, &err) != TM_OK)
        fail_msg("%s", err.text);
    if (key) tm_config_set(config, key, value, "test");
    if (tm_run_options_read(config, &options, &err) != TM_OK) fail_msg("%s", err.text);
    bool    is = tm_curve_is_main(&options);
    tm_text text = { 0 };
    tm_curve_describe(&options, &text);
    if (!is && !key) print_message("%s0x%016llx\n", text.data, (unsigned long long)tm_hash(text.data, text.length));
    tm_text_fini(&text);
    options.load_weights = load_nothing; /* other weights have other losses */
    assert_false(tm_curve_is_main(&options));
    tm_config_destroy(config);
    return is;
}

/* Whoever changes the main job sees it here, and stores its losses anew. */
TEST(the_main_job_is_known)
{
    static const char *const other[][2] = {
        { "debug.seed", "2" },
        { "optimizer.lr", "0.002" },
        { "training.dtype", "bfloat16" },
        { "training.steps", "240" },
        { "model.n_layers", "3" },
        { "training.local_batch_size", "8" },
        { "training.max_norm", "2" },
        { "training.seq_len", "128" },
        { "optimizer.beta1", "0.8" },
        { "model.vocab_size", "128" },
        { "data.source", "mock" },
        { "model.sliding_window", "7" },
        { "model.tied", "true" },
        { "lr_scheduler.warmup_steps", "19" },
    };
    assert_true(is_main(NULL, NULL));
    assert_true(is_main("training.threads", "1")); /* which changes no bit */
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (is_main(other[i][0], other[i][1])) fail_msg("%s counts for nothing", other[i][0]);
}

TEST(the_same_bits_are_equal)
{
    static const struct {
        const char *sums;
        int         first, n, steps;
        bool        changed, equal; /* changed: the 18th by a bit, which is in the band */
    } rows[] = {
        { "fused", 1, STEPS, STEPS, false, true },
        { "fused", 100, STEPS - 99, STEPS - 99, false, true }, /* goes on */
        { "rounded-twice", 1, STEPS, STEPS, false, false },    /* another order: in the band */
        { NULL, 1, STEPS, STEPS, false, false },
        { "fused", 1, STEPS, STEPS, true, false },
        { "fused", 1, 17, 17, true, true },
        { "fused", 1, 1, 1, false, true },
        { "fused", 1, 0, 0, false, false },
        { "fused", STEPS, 3, 1, false, true }, /* the last one that is known */
        { "fused", STEPS + 1, 5, 0, false, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double   losses[STEPS + 10] = { 0 };
        char     why[TM_REASON_BYTES];
        tm_curve curve;
        memcpy(losses, stored, sizeof stored);
        if (rows[i].changed) losses[17] = nextafter(losses[17], 9);
        tm_curve_compare(rows[i].sums, losses + rows[i].first - 1, rows[i].first, rows[i].n, &curve, why);
        if (curve.equal != rows[i].equal || curve.steps != rows[i].steps || why[0]) fail_msg("row %zu: %s", i, why);
    }
}
