/* SPDX-License-Identifier: Apache-2.0 */
/* What a run takes from a checkpoint beside the tensors: numbers no run wrote are refused; a run that was stopped
 * leaves the same bytes as one that was not. (Other data: test_whole_runs.c, tests/cli/test_attacks.sh.) */
#include "support/test.h"
#include "support/training.h"
#include "support/whole.h"

#include "checkpoint_fixture.h"
#include "run_fixture.h"
#include "train/checkpoint/description.h"
#include "train/run/run_state.h"

#include <fcntl.h>
#include <math.h>

static int64_t               stop_after;
static volatile sig_atomic_t stopped;

static double      first_loss_told;
static const char *device_name = "cpu";

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
    o.step.recompute.cheap = true;
    o.schedule.steps = 8;
    return o;
}

static tm_status go(const tm_run_options *options, tm_error *err)
{
    tm_sink sink = { .handle = hear };
    stopped = 0;
    return run_small(options, device_name, 1, &sink, &stopped, err);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static tm_status take(tm_checkpoint_state state, tm_error *err)
{
    tm_run_options options = options_of("folder", 6);
    tm_device     *device = test_device_open(device_name, 1);
    tm_source     *source;
    assert_int_equal(tm_source_open(&options.source, &source, err), TM_OK);
    run       r = { .options = &options, .source = source, .device = device };
    tm_status st = run_take_state(&r, &state, err);
    tm_source_close(source);
    tm_device_close(device);
    return st;
}

static tm_checkpoint_state state_of(double first, double mean, double deviation, double count)
{
    tm_checkpoint_state s = { .step = 60, .samples_consumed = 480, .seed = 77 };
    tm_checkpoint_add_scalar(&s, "first_loss", first);
    tm_checkpoint_add_scalar(&s, "head_loss_mean", mean);
    tm_checkpoint_add_scalar(&s, "head_loss_deviation", deviation);
    tm_checkpoint_add_scalar(&s, "head_loss_count", count);
    return s;
}

TEST(numbers_no_run_wrote_are_refused)
{
    const double nan_value = (double)NAN, infinite = (double)INFINITY;
    const struct {
        double      first, mean, deviation, count;
        const char *words;
    } bad[] = {
        { nan_value, 4, 0.1, 6, "'first_loss' is nan" },
        { -1, 4, 0.1, 6, "'first_loss' is -1, wanted 0 to 1e+06" },
        { 1e308, 4, 0.1, 6, "'first_loss' is 1e+308" },
        { 4, nan_value, 0.1, 6, "'head_loss_mean' is nan" },
        { 4, -1, 0.1, 6, "'head_loss_mean' is -1" },
        { 4, infinite, 0.1, 6, "'head_loss_mean' is inf" },
        { 4, 1e308, 0.1, 6, "'head_loss_mean' is 1e+308" },
        { 4, 4, -0.1, 6, "'head_loss_deviation' is -0.1" },
        { 4, 4, nan_value, 6, "'head_loss_deviation' is nan" },
        { 4, 4, 0.1, 61, "'head_loss_count' is 61, wanted 0 to 60" },
        { 4, 4, 0.1, 5.5, "'head_loss_count' is 5.5, wanted an integer" },
        { 4, 4, 0.1, -6, "'head_loss_count' is -6" },
        { 4, 4, 0.1, nan_value, "'head_loss_count' is nan" },
    };
    tm_error err = { 0 };
    if (take(state_of(4.5, 4, 0.1, 6), &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(take(state_of(0, 0, 0, 0), &err), TM_OK);
    assert_int_equal(take(state_of(1e6, 4, 0.1, 60), &err), TM_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err = (tm_error){ 0 };
        assert_int_equal(take(state_of(bad[i].first, bad[i].mean, bad[i].deviation, bad[i].count), &err), TM_FORMAT);
        assert_says(&err, bad[i].words);
    }
}

/* Saves step 6 again with these scalars. */
static void save_with(const tm_run_options *options, const tm_checkpoint_scalar *scalars, size_t n_scalars)
{
    tm_device                  *device = test_device_open("cpu", 1);
    tm_trainer                 *trainer = test_trainer_open(device, &options->step, 1);
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
    tm_checkpoint_state         state;
    tm_checkpoint_report        report;
    tm_error                    err = { 0 };
    const char                 *folder = options->checkpoint_folder;
    assert_int_equal(tm_checkpoint_load_newest(folder, 6, &state, tensors, n, &report, &err), TM_OK);
    state.n_scalars = 0;
    for (size_t i = 0; i < n_scalars; i++) tm_checkpoint_add_scalar(&state, scalars[i].name, scalars[i].value);
    assert_int_equal(tm_checkpoint_save(folder, &state, tensors, n, 0, &err), TM_OK);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* Scalars have names: a checkpoint that lacks one, or has one more, is not gone on from. */
TEST(names_decide)
{
    /* in another order than the program writes them; the numbers are made up, and told at the end of the run */
    const tm_checkpoint_scalar kept[] = { { "another", 1 },
                                          { "head_loss_count", 5 },
                                          { "head_loss_mean", 4.25 },
                                          { "first_loss", 4.3125 },
                                          { "head_loss_deviation", 0.01 } };
    fixture                    f = new_fixture();
    tm_run_options             o = options_of(f.folder, 6);
    tm_error                   err;
    assert_int_equal(go(&o, &err), TM_OK);
    o.steps = 8;
    save_with(&o, kept, 5);
    assert_int_equal(go(&o, &err), TM_INVALID);
    assert_says(&err, "the checkpoint of step 6 in '");
    assert_says(&err, "it holds scalar 'another' = 1, which this program does not know");
    save_with(&o, kept + 1, 3);
    assert_int_equal(go(&o, &err), TM_INVALID);
    assert_says(&err, "scalar 'head_loss_deviation' is expected and is missing; continue with");
    save_with(&o, kept + 1, 4);
    assert_int_equal(go(&o, &err), TM_OK);
    assert_true(first_loss_told == 4.3125);
    clear(f.folder);
}

/* --- weights that it begins with ---------------------------------------------------------------------------------- */

static tm_status count_loads(void *context, tm_trainer *trainer, tm_error *err)
{
    (void)trainer, (void)err;
    ++*(int *)context;
    return TM_OK;
}

/* Weights that a run begins with are loaded once: a run that goes on has those of its checkpoint. */
TEST(weights_are_not_loaded_again)
{
    fixture        f = new_fixture();
    tm_run_options o = options_of(f.folder, 2);
    tm_error       err;
    int            loads = 0;
    o.load_weights = count_loads;
    o.load_context = &loads;
    for (int i = 0; i < 3; i++, o.steps += 2) {
        assert_int_equal(go(&o, &err), TM_OK);
        assert_int_equal(loads, 1);
    }
    clear(f.folder);
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

static tm_text index_of(const fixture *f, int step)
{
    char    path[600];
    tm_text text = { 0 };
    snprintf(path, sizeof path, "%s/step-%08d/" TM_CHECKPOINT_INDEX, f->folder, step);
    int  fd = open(path, O_RDONLY);
    char part[4096];
    assert_true(fd >= 0);
    for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;) tm_text_add_n(&text, part, (size_t)n);
    close(fd);
    return text;
}

/* What a checkpoint says of its model: its name, as much of it as there is room for; adapters where there are some; the
 * order in which this device sums products. */
TEST(a_checkpoint_says_what_it_is_of)
{
    tm_device  *device = test_device_open("cpu", 1);
    const char *sums = tm_device_describe(device)->sums[0];
    for (int64_t rank = 0; rank < 3; rank++) {
        fixture             f = new_fixture();
        tm_run_options      o = options_of(f.folder, 1);
        tm_error            err;
        tm_text             wanted = { 0 };
        tm_arena           *arena = tm_arena_create();
        tm_checkpoint_index index;
        char                name[100] = "";
        memset(name, 'n', 80);
        name[62] = 'o';
        o.model_name = name;
        if (rank > 0)
            o.step.adapters = (tm_adapters){ .rank = rank, .alpha = 4, .base = TM_DTYPE_COUNT, .place = "here" };
        if (rank > 0) strcpy(o.step.adapters.targets, "wq");
        if (rank == 2) o.step.adapters.dora = true, o.step.adapters.dropout = 0.25;
        assert_int_equal(go(&o, &err), TM_OK);
        tm_text text = index_of(&f, 1);
        assert_int_equal(tm_checkpoint_index_decode((const unsigned char *)text.data, text.length, arena, &index, &err),
                         TM_OK);
        assert_true(index.n_files == 1 && index.files[0].writer == -1); /* one process: tensors are whole */
        name[63] = '\0';
        assert_string_equal(index.state.model, name);
        tm_description_print(&o.step.shape, &wanted);
        if (rank > 0)
            tm_text_printf(&wanted, "lora.rank %d\nlora.scale %d\n%slora.base ", (int)rank, 4 / (int)rank,
                           rank == 2 ? "lora.dora true\nlora.dropout 0.25\n" : "");
        const char *at = index.state.description;
        assert_memory_equal(at, wanted.data, wanted.length);
        at += wanted.length;
        if (rank > 0) at += strcspn(at, "\n") + 1;
        tm_text_fini(&wanted);
        tm_text_printf(&wanted, sums ? "sums %s\n" : "", sums);
        assert_string_equal(at, wanted.data ? wanted.data : "");
        tm_text_fini(&wanted);
        tm_text_fini(&text);
        tm_arena_destroy(arena);
        clear(f.folder);
    }
    tm_device_close(device);
}

static double head_count(const fixture *f, int step)
{
    tm_text             text = index_of(f, step);
    tm_arena           *arena = tm_arena_create();
    tm_checkpoint_index index;
    double              count = -1;
    tm_error            err = { 0 };
    if (tm_checkpoint_index_decode((const unsigned char *)text.data, text.length, arena, &index, &err) != TM_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < index.state.n_scalars; i++)
        if (strcmp(index.state.scalars[i].name, "head_loss_count") == 0) count = index.state.scalars[i].value;
    tm_arena_destroy(arena);
    tm_text_fini(&text);
    return count;
}

/* Stopped while the head was still being taken in, and again after it. */
TEST(a_stopped_run_leaves_the_same_index)
{
    enum { STEPS = 12 };
    fixture        whole = new_fixture(), parts = new_fixture();
    tm_run_options o = options_of(whole.folder, STEPS);
    tm_error       err;
    stop_after = -1;
    assert_int_equal(go(&o, &err), TM_OK);
    o = options_of(parts.folder, STEPS);
    static const int64_t stops[] = { 2, 3, 8, -1 };
    for (int i = 0; i < 4; i++) {
        stop_after = stops[i];
        assert_int_equal(go(&o, &err), stops[i] > 0 ? TM_INTERRUPTED : TM_OK);
    }
    tm_text a = index_of(&whole, STEPS), b = index_of(&parts, STEPS);
    assert_int_equal(a.length, b.length);
    assert_memory_equal(a.data, b.data, a.length);
    tm_text_fini(&a);
    tm_text_fini(&b);
    assert_true(head_count(&whole, STEPS) == 5);
    o.steps = 80; /* its head would be 8 losses, but some of them are gone */
    stop_after = STEPS + 2;
    assert_int_equal(go(&o, &err), TM_INTERRUPTED);
    assert_true(head_count(&parts, STEPS + 2) == 5);
    clear(whole.folder);
    clear(parts.folder);
}
