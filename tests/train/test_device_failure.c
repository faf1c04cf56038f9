/* SPDX-License-Identifier: Apache-2.0 */
/* A device that fails at its n-th call, for every n: the run ends with the device's message, no call follows, nothing
 * hangs, and nothing is lost (the sanitizers count). */
#include "support/test.h"
#include "support/folder.h"
#include "support/training.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failing_fixture.h"

enum { VOCAB = 257, SEQ = 8 };

static char *folder, path[600], checkpoints[600];

static tm_run_options options_of_run(int64_t steps)
{
    tm_run_options o = { .model_name = "small",
                         .steps = steps,
                         .learning_rate = 3e-3,
                         .max_norm = 1,
                         .seed = 7,
                         .prefetch = 1,
                         .validate = true,
                         .validation_steps = 1,
                         .target_gap = 0.05,
                         .checkpoint = true,
                         .checkpoint_folder = checkpoints,
                         .checkpoint_interval = 100,
                         .checkpoint_load_step = -1,
                         .sample_tokens = 2,
                         .step = test_llama_options() };
    o.step.shape.vocab_size = VOCAB;
    o.step.shape.n_layers = 1;
    o.step.seq = SEQ;
    o.step.sample = true;
    o.step.accumulation = 2;
    o.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY,
                                .steps = 4,
                                .warmup_steps = 1,
                                .decay_ratio = -1,
                                .decay = TM_DECAY_COSINE };
    o.source = (tm_source_options){
        .name = "text", .path = path, .validation_fraction = 0.1, .vocab = VOCAB, .seq = SEQ, .seed = 7
    };
    return o;
}

static tm_status run(const tm_backend *backend, int64_t steps, tm_error *err)
{
    tm_run_options        o = options_of_run(steps);
    volatile sig_atomic_t stop = 0;
    tm_event_bus          bus = { 0 };
    tm_device            *device;
    tm_source            *source;
    *err = (tm_error){ 0 };
    TM_TRY(tm_device_open_backend(backend, 1, false, &device, err));
    tm_status st = tm_source_open(&o.source, &source, err);
    if (st != TM_OK) fail_msg("%s", err->text);
    st = tm_run(&o, device, source, &bus, &stop, err);
    tm_source_close(source);
    tm_device_close(device);
    return st;
}

static void every_call_may_fail(void **state)
{
    (void)state;
    tm_backend backend = failing();
    tm_error   err;
    char       wanted[600];
    calls = fail_at = 0;
    failed = false;
    if (run(&tm_backend_late, 1, &err) != TM_OK) fail_msg("%s", err.text); /* leaves a checkpoint of step 1 */
    for (fail_at = 1;; fail_at++) {
        calls = 0;
        failed = false;
        played = 0;
        snprintf(wanted, sizeof wanted, "%.500s/step-00000002", checkpoints);
        test_tree_remove(strdup(wanted)); /* of the run before, if it came that far */
        tm_status st = run(&backend, 2, &err);
        if (!failed && st == TM_OK) break; /* fewer calls than that */
        snprintf(wanted, sizeof wanted, "planted at call %d", fail_at);
        if (st != TM_DEVICE || !strstr(err.text, wanted))
            fail_msg("a failure at call %d: status %d (%s), '%s'", fail_at, (int)st, tm_status_text(st), err.text);
        assert_int_equal(tm_status_exit_code(st), 1);
    }
    assert_true(fail_at > 300);
    assert_true(played >= 3); /* programs without a ledger: evaluation, two tokens */
}

static int set_up(void **state)
{
    (void)state;
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1); /* hundreds of checkpoints: not to a disk */
    folder = test_tree_make();
    snprintf(path, sizeof path, "%s/text.txt", folder);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 20000; i++) fprintf(f, "%d\n", i * i);
    return fclose(f);
}

static int tear_down(void **state)
{
    (void)state;
    test_tree_remove(folder);
    return 0;
}

static const struct CMUnitTest tests[] = {
    full_test(every_call_may_fail),
};

TM_TESTS(tests, set_up, tear_down)
