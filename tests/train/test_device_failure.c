/* SPDX-License-Identifier: Apache-2.0 */
/* A device that fails at its n-th call, for every n, in runs that save, evaluate, certify, look and write, and while
 * tokens are read one by one: the failure is told, no call follows, and nothing is lost (the sanitizers count). */
#include "support/test.h"
#include "device/backend.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/source_files.h"
#include "support/training.h"
#include "train/generate/decode.h"
#include "train/run/run.h"

/* --- the device --------------------------------------------------------------------------------------------------- */

enum { NEVER = -1 };
static int  calls, fail_at; /* calls: since it was set to 0 */
static bool failed;

static tm_status count(tm_error *err)
{
    if (fail_at == NEVER) return TM_OK;
    if (failed) fail_msg("call %d came after the failure at call %d", calls + 1, fail_at);
    if (++calls != fail_at) return TM_OK;
    failed = true;
    return tm_fail(err, TM_DEVICE, "planted at call %d", calls);
}

/* A call that is counted goes on to the device `late`. */
#define COUNTED(name, parameters, ...)                                                                                 \
    static tm_status count_##name parameters                                                                           \
    {                                                                                                                  \
        TM_TRY(count(err));                                                                                            \
        return tm_backend_late.name(__VA_ARGS__);                                                                      \
    }
COUNTED(alloc, (tm_device * device, size_t bytes, tm_address *out, tm_error *err), device, bytes, out, err)
COUNTED(queue_open, (tm_device * device, tm_queue **out, tm_error *err), device, out, err)
COUNTED(write, (tm_queue * queue, tm_address to, const void *from, size_t n, tm_error *err), queue, to, from, n, err)
COUNTED(read, (tm_queue * queue, void *to, tm_address from, size_t n, tm_error *err), queue, to, from, n, err)
COUNTED(fill, (tm_queue * queue, tm_address to, unsigned char v, size_t n, tm_error *err), queue, to, v, n, err)
COUNTED(launch, (tm_queue * queue, const tm_kernel *kernel, const tm_call *call, tm_error *err), queue, kernel, call,
        err)
COUNTED(wait, (tm_queue * queue, tm_error *err), queue, err)
COUNTED(instant_open, (tm_device * device, tm_instant **out, tm_error *err), device, out, err)
COUNTED(record, (tm_queue * queue, tm_instant *instant, tm_error *err), queue, instant, err)
COUNTED(time, (const tm_instant *a, const tm_instant *b, double *seconds, tm_error *err), a, b, seconds, err)
COUNTED(wait_for, (tm_queue * queue, tm_instant *instant, tm_error *err), queue, instant, err)
COUNTED(bind, (tm_device * device, tm_error *err), device, err)
COUNTED(play, (tm_device * device, tm_bound *bound, tm_error *err), device, bound, err)

static tm_device *open_failing(bool one_by_one)
{
    static tm_backend b;
    tm_device        *device;
    b = tm_backend_late;
    b.name = "failing";
    b.alloc = count_alloc, b.queue_open = count_queue_open, b.write = count_write, b.read = count_read;
    b.fill = count_fill, b.launch = count_launch, b.wait = count_wait, b.instant_open = count_instant_open;
    b.record = count_record, b.time = count_time, b.wait_for = count_wait_for, b.bind = count_bind;
    b.play = count_play;
    fail_at = NEVER;
    assert_ok(tm_device_open_backend(&b, 1, false, &device, err));
    tm_device_one_by_one(device, one_by_one); /* each launch may fail */
    return device;
}

/* How many calls `what` makes; each of them fails once, or one of `every`. */
static int fail_each(tm_status (*what)(tm_device *device, tm_error *err), bool one_by_one, int every)
{
    for (int n = 1;; n += every) {
        tm_device *device = open_failing(one_by_one);
        tm_error   err = { 0 };
        char       wanted[60];
        calls = 0, failed = false, fail_at = n;
        tm_status st = what(device, &err);
        fail_at = NEVER;
        snprintf(wanted, sizeof wanted, "planted at call %d", n);
        if (st != (failed ? TM_DEVICE : TM_OK) || (failed && !strstr(err.text, wanted)))
            fail_msg("a failure at call %d of %d: %s: '%s'", n, calls, tm_status_text(st), err.text);
        tm_device_close(device);
        if (!failed) return calls;
    }
}

/* --- what it is used for ------------------------------------------------------------------------------------------ */

static tm_run_options options;
static tm_source     *source;

static tm_status run(tm_device *device, tm_error *err)
{
    volatile sig_atomic_t stop = 0;
    tm_event_bus          bus = { 0 };
    char                  second[600];
    tm_status             st = tm_run(&options, device, source, &bus, &stop, err);
    snprintf(second, sizeof second, "%.550s/step-00000002", options.checkpoint_folder);
    if (access(second, F_OK) == 0) test_tree_remove(strdup(second)); /* of this run, if it came that far */
    return st;
}

#define SMALL                                                                                                          \
    "tiny-llama --model.n_layers 1 --model.dim 32 --model.n_heads 1 --model.n_kv_heads 1 --model.head_dim 32 "         \
    "--model.ffn_dim 32 --training.seq_len 8 --training.local_batch_size 2 --training.threads 1 --data.source text "   \
    "--data.validation_fraction 0.1 --model.vocab_size 257 --data.sample_tokens 2 --validation.steps 1 "               \
    "--training.stop_at_target false --lr_scheduler.warmup_steps 1 --training.grad_accumulation 2 "

/* The second step of a run, which the first one left a checkpoint for. */
FULL_TEST(runs_tell_that_the_device_failed)
{
    static const struct {
        const char *words;
        bool        one_by_one;
        int         every, least;
    } rows[] = {
        { SMALL, false, 1, 300 },
        { SMALL "--debug.certificate_after true", true, 3, 400 },
        { SMALL "--debug.certificate_after true --model.n_experts 2 --model.n_experts_per_token 1 "
                "--model.moe_aux_loss 0.01 --data.sample_tokens 0",
          true, 11, 400 },
        { SMALL "--training.dtype bfloat16 --debug.microscope 1 --debug.certificate_after true "
                "--training.seq_len 64 --training.local_batch_size 4",
          true, 7, 400 },
        { SMALL "--lora.rank 2 --lora.targets all-linear,lm_head --lora.dora true --lora.base_format nf4 "
                "--model.dim 64 --model.ffn_dim 64 --model.head_dim 64",
          true, 2, 300 },
    };
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1); /* hundreds of checkpoints: not to a disk */
    test_source_files_write();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_error err = { 0 };
        char     words[1500], folder[20];
        snprintf(words, sizeof words, "%s --training.steps 2 --data.path %s", rows[i].words,
                 test_in_folder("text.txt"));
        tm_config *config = test_run_of(words, &options);
        snprintf(folder, sizeof folder, "checkpoints%zu", i);
        options.checkpoint = true, options.checkpoint_folder = test_in_folder(folder);
        if (tm_source_open(&options.source, &source, &err) != TM_OK) fail_msg("%s", err.text);
        options.steps = 1;
        tm_device *device = open_failing(false);
        if (run(device, &err) != TM_OK) fail_msg("%s: %s", words, err.text); /* leaves a checkpoint of step 1 */
        tm_device_close(device);
        options.steps = 2;
        int n = fail_each(run, rows[i].one_by_one, rows[i].every);
        print_message("# %d calls\n", n);
        if (n < rows[i].least) fail_msg("%s: %d calls", words, n);
        tm_source_close(source);
        tm_config_destroy(config);
    }
}

static tm_status decode(tm_device *device, tm_error *err)
{
    static const int32_t  tokens[] = { 3, 1, 4 };
    const tm_step_options o = test_llama_options();
    tm_decoder           *decoder;
    double                logits[96];
    TM_TRY(tm_decoder_open(device, &o.shape, o.precision, o.seq, 1, &decoder, err));
    tm_status st = tm_decoder_feed(decoder, tokens, 3, logits, err);
    tm_decoder_close(decoder);
    return st;
}

TEST(reading_tokens_tells_that_the_device_failed)
{
    assert_true(fail_each(decode, true, 1) > 30);
}

TEST_FIXTURE(NULL, test_folder_teardown)
