/* SPDX-License-Identifier: Apache-2.0 */
/* What a run takes from a checkpoint beside the tensors: numbers no run wrote are refused; a run that was stopped
 * leaves the same bytes as one that was not. (Other data: test_whole_runs.c, tests/cli/test_attacks.sh.) */
#include "support/test.h"
#include "base/file.h"
#include "run_fixture.h"
#include "support/folder.h"
#include "train/checkpoint/description.h"
#include "train/checkpoint/io.h"
#include "train/run/run_state.h"

static int64_t               stop_after;
static volatile sig_atomic_t stopped;
static double                first_loss_told;

static void hear(tm_sink *sink, const tm_event *event)
{
    (void)sink;
    if (event->kind == TM_EVENT_STEP_DONE && event->step_done.step == stop_after) stopped = 1;
    if (event->kind == TM_EVENT_RUN_ENDED) first_loss_told = event->run_ended.loss_first;
}

static tm_run_options options_of(const char *folder, int64_t steps)
{
    tm_run_options o = small_run("synthetic", steps);
    o.learning_rate = 3e-3;
    o.checkpoint = true;
    o.checkpoint_folder = folder;
    o.schedule.steps = 8;
    return o;
}

static tm_status go(const tm_run_options *options, tm_error *err)
{
    tm_sink sink = { .handle = hear };
    stopped = 0;
    return run_small(options, "cpu", 1, &sink, &stopped, err);
}

/* The state of a checkpoint; its index in `bytes`. */
static tm_checkpoint_state state_in(const char *folder, int step, tm_text *bytes)
{
    char                name[600];
    tm_arena           *arena = tm_arena_create();
    tm_checkpoint_index index;
    snprintf(name, sizeof name, "%s/step-%08d/index.bin", folder, step);
    tm_text_fini(bytes);
    assert_ok(tm_file_read(name, 1 << 20, bytes, err));
    const unsigned char *data = (const unsigned char *)bytes->data;
    assert_ok(tm_checkpoint_index_decode(data, bytes->length, arena, &index, err));
    tm_arena_destroy(arena);
    return index.state;
}

/* --- scalars ------------------------------------------------------------------------------------------------------ */

/* Saves step 6 again with these. */
static void save_scalars(const tm_run_options *options, const tm_checkpoint_scalar *scalars, size_t n_scalars)
{
    tm_trainer                 *trainer = test_trainer_on("cpu", 1, &options->step, 1);
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
    tm_checkpoint_state         state;
    tm_checkpoint_report        report;
    const char                 *folder = options->checkpoint_folder;
    assert_ok(tm_checkpoint_load_newest(folder, 6, &state, tensors, n, &report, err));
    state.n_scalars = 0;
    for (size_t i = 0; i < n_scalars; i++) tm_checkpoint_add_scalar(&state, scalars[i].name, scalars[i].value);
    assert_ok(tm_checkpoint_save(folder, &state, tensors, n, 0, err));
    test_trainer_end(trainer);
}

/* One that is missing, one more, one out of its range; else they are the run's, in any order. */
TEST(scalars_are_those_of_a_run)
{
    enum { COUNT, MEAN, FIRST_LOSS, DEVIATION, ANOTHER };
    static const char *const names[] = { "head_loss_count", "head_loss_mean", "first_loss", "head_loss_deviation",
                                         "another" };
    static const struct {
        int         n, changed;
        double      to;
        tm_status   status;
        const char *words;
    } rows[] = {
        { 5, ANOTHER, 1, TM_INVALID, "it holds scalar 'another' = 1, which this program does not know" },
        { 3, ANOTHER, 1, TM_INVALID, "scalar 'head_loss_deviation' is expected and is missing; continue with" },
        { 4, FIRST_LOSS, (double)NAN, TM_FORMAT, "'first_loss' is nan" },
        { 4, FIRST_LOSS, -1, TM_FORMAT, "'first_loss' is -1, wanted 0 to 1e+06" },
        { 4, FIRST_LOSS, 1e6 + 1, TM_FORMAT, "'first_loss' is 1e+06" },
        { 4, MEAN, (double)INFINITY, TM_FORMAT, "'head_loss_mean' is inf" },
        { 4, MEAN, -1, TM_FORMAT, "'head_loss_mean' is -1" },
        { 4, DEVIATION, -0.1, TM_FORMAT, "'head_loss_deviation' is -0.1" },
        { 4, COUNT, 7, TM_FORMAT, "'head_loss_count' is 7, wanted 0 to 6" },
        { 4, COUNT, 5.5, TM_FORMAT, "'head_loss_count' is 5.5, wanted an integer" },
        { 4, COUNT, -6, TM_FORMAT, "'head_loss_count' is -6" },
        { 4, COUNT, 6, TM_OK, "" },
        { 4, FIRST_LOSS, 1e6, TM_OK, "" },
        { 4, FIRST_LOSS, 4.3125, TM_OK, "" },
    };
    char          *folder = test_tree_make();
    tm_run_options o = options_of(folder, 6);
    tm_error       err;
    assert_int_equal(go(&o, &err), TM_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_checkpoint_scalar scalars[] = { { "", 5 }, { "", 4.25 }, { "", 4.3125 }, { "", 0.01 }, { "", 1 } };
        for (int k = 0; k < 5; k++) snprintf(scalars[k].name, sizeof scalars[k].name, "%s", names[k]);
        scalars[rows[i].changed].value = rows[i].to;
        o.checkpoint_load_step = 6;
        o.steps = 7;
        save_scalars(&o, scalars, (size_t)rows[i].n);
        assert_int_equal(go(&o, &err), rows[i].status);
        if (!strstr(err.text, rows[i].words)) fail_msg("'%s' lacks '%s'", err.text, rows[i].words);
        if (rows[i].status != TM_OK) assert_non_null(strstr(err.text, "the checkpoint of step 6 in '"));
    }
    assert_true(first_loss_told == 4.3125);
    test_tree_remove(folder);
}

/* --- what it is of ------------------------------------------------------------------------------------------------ */

static tm_status count_loads(void *context, tm_trainer *trainer, tm_error *err)
{
    (void)trainer, (void)err;
    ++*(int *)context;
    return TM_OK;
}

/* Weights that a run begins with are loaded once: a run that goes on has those of its checkpoint. */
TEST(weights_are_not_loaded_again)
{
    char          *folder = test_tree_make();
    tm_run_options o = options_of(folder, 2);
    int            loads = 0;
    o.load_weights = count_loads;
    o.load_context = &loads;
    for (int i = 0; i < 3; i++, o.steps += 2) {
        assert_ok(go(&o, err));
        assert_int_equal(loads, 1);
    }
    test_tree_remove(folder);
}

/* Of its model: its name, as much of it as there is room for; adapters where there are some; the order in which this
 * device sums products. */
TEST(a_checkpoint_says_what_it_is_of)
{
    tm_device *device = test_device_open("cpu", 1);
    char       name[100] = "", sums[100];
    memset(name, 'n', 80);
    snprintf(sums, sizeof sums, "sums %s", tm_device_describe(device)->sums[0]);
    for (int64_t rank = 0; rank < 3; rank += 2) {
        char          *folder = test_tree_make();
        tm_run_options o = options_of(folder, 1);
        tm_text        wanted = { 0 }, index = { 0 };
        o.model_name = name;
        o.step.adapters =
            (tm_adapters){ .rank = rank, .alpha = 4, .base = TM_DTYPE_COUNT, .dora = true, .dropout = 0.25 };
        strcpy(o.step.adapters.targets, "wq");
        assert_ok(go(&o, err));
        tm_checkpoint_state state = state_in(folder, 1, &index);
        assert_true(strlen(state.model) == 63 && strncmp(state.model, name, 63) == 0);
        tm_description_print(&o.step.shape, &wanted);
        if (rank > 0) tm_text_add(&wanted, "lora.rank 2\nlora.scale 2\nlora.dora true\nlora.dropout 0.25\nlora.base ");
        assert_memory_equal(state.description, wanted.data, wanted.length);
        if (tm_device_describe(device)->sums[0]) assert_non_null(strstr(state.description + wanted.length, sums));
        tm_text_fini(&wanted), tm_text_fini(&index);
        test_tree_remove(folder);
    }
    tm_device_close(device);
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

/* Stopped while the head was still being taken in, and again after it. */
TEST(a_stopped_run_leaves_the_same_index)
{
    enum { STEPS = 12 };
    static const char *const count[] = { "head_loss_count", "first_loss", "head_loss_mean", "head_loss_deviation" };
    static const int64_t     stops[] = { 2, 3, 8, -1 };
    char                    *whole_run = test_tree_make(), *parts = test_tree_make();
    tm_run_options           o = options_of(whole_run, STEPS);
    tm_text                  a = { 0 }, b = { 0 };
    double                   values[4];
    tm_error                 err;
    stop_after = -1;
    assert_int_equal(go(&o, &err), TM_OK);
    o = options_of(parts, STEPS);
    for (int i = 0; i < 4; i++) {
        stop_after = stops[i];
        assert_int_equal(go(&o, &err), stops[i] > 0 ? TM_INTERRUPTED : TM_OK);
    }
    tm_checkpoint_state state = state_in(whole_run, STEPS, &a);
    (void)state_in(parts, STEPS, &b);
    assert_int_equal(a.length, b.length);
    assert_memory_equal(a.data, b.data, a.length);
    for (int more = 0; more < 2; more++) { /* of a longer run the head would be 8 losses, but some of them are gone */
        assert_int_equal(tm_checkpoint_scalars(&state, count, values, 4, &err), TM_OK);
        assert_true(values[0] == 5);
        if (more) break;
        o.steps = 80;
        stop_after = STEPS + 2;
        assert_int_equal(go(&o, &err), TM_INTERRUPTED);
        state = state_in(parts, STEPS + 2, &b);
    }
    tm_text_fini(&a), tm_text_fini(&b);
    test_tree_remove(whole_run), test_tree_remove(parts);
}
