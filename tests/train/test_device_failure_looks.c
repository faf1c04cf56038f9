/* SPDX-License-Identifier: Apache-2.0 */
/* A device that fails at its n-th call, for every n, in a run, while a certificate is made, numbers are looked at,
 * weights are hashed or made, tokens are generated: the failure is told, no call follows, and nothing is lost (the
 * sanitizers count). */
#include "support/test.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/certify/certificate.h"
#include "train/certify/dead_attention.h"
#include "train/generate/decode.h"
#include "train/generate/generate.h"
#include "train/trainer/microscope.h"
#include "train/run/run_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failing_fixture.h"
#include "run_fixture.h"

/* What is done with a trainer; `trainer` NULL: it opens one. */
typedef tm_status (*deed)(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b,
                          tm_error *err);

static tm_step_options small_options(void)
{
    tm_step_options o = test_llama_options();
    o.shape.n_layers = 1;
    o.shape.dim = 32, o.shape.n_heads = o.shape.n_kv_heads = 1, o.shape.ffn_dim = 32, o.shape.vocab_size = 40;
    o.seq = 8, o.micro_batch = 2;
    return o;
}

/* How many calls it makes; each of them fails once, or one of `every`. */
static int fail_each(const tm_step_options *o, bool opened, deed what, int every)
{
    const tm_backend backend = failing();
    for (int n = 1;; n += every) {
        tm_device *device;
        tm_error   err = { 0 };
        char       wanted[60];
        fail_at = NEVER;
        assert_int_equal(tm_device_open_backend(&backend, 1, false, &device, &err), TM_OK);
        tm_device_one_by_one(device, true); /* each launch may fail */
        tm_trainer *trainer = opened ? test_trainer_open(device, o, 3) : NULL;
        test_batch  b = test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, 3);
        if (opened) test_step(trainer, 1, 1e-3, 1, &b);
        calls = 0, failed = false, fail_at = n;
        tm_status st = what(device, trainer, o, &b, &err);
        fail_at = NEVER;
        snprintf(wanted, sizeof wanted, "planted at call %d", n);
        if (st != (failed ? TM_DEVICE : TM_OK) || (failed && !strstr(err.text, wanted)))
            fail_msg("a failure at call %d of %d: status %d (%s), '%s'", n, calls, (int)st, tm_status_text(st),
                     err.text);
        test_batch_fini(&b);
        tm_trainer_close(trainer);
        tm_device_close(device);
        if (!failed) return calls;
    }
}

static tm_micro_batch fed(const test_batch *b)
{
    return (tm_micro_batch){ .field = { b->tokens, b->targets }, .target_tokens = b->target_tokens };
}

static tm_status certify(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b, tm_error *err)
{
    tm_certificate c;
    tm_micro_batch batch = fed(b);
    (void)device, (void)o;
    tm_status st = tm_certify_anew(trainer, &batch, 3, &c, err);
    if (st == TM_OK && !c.done) fail_msg("%s", c.reason);
    return st;
}

FULL_TEST(while_gradients_are_certified)
{
    tm_step_options o = small_options();
    assert_true(fail_each(&o, true, certify, 1) > 100);
    o.precision = &tm_precision_bf16;
    o.exact = &tm_precision_f32;
    o.micro_batch = 4, o.seq = 64; /* so large that losses in float32 take no memory */
    assert_true(fail_each(&o, true, certify, 2) > 100);
    o = small_options();
    o.accumulation = 2;
    o.shape.moe =
        (tm_moe_shape){ .experts = 2, .top_k = 1, .ffn_dim = 32, .normalise = true, .scale = 1, .aux_loss = 0.01 };
    assert_true(fail_each(&o, true, certify, 4) > 100);
}

static tm_status look(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b, tm_error *err)
{
    tm_looked      seen = { 0 };
    tm_micro_batch batch = fed(b);
    (void)device, (void)o;
    tm_status st = tm_trainer_begin(trainer, 1, 1e-3, 1, b->target_tokens, err);
    if (st == TM_OK) st = tm_looked_take(&seen, trainer, &batch, 1, 0.1, err);
    if (st == TM_OK) assert_true(seen.look.n_tensors > 10 && seen.look.worst);
    tm_looked_fini(&seen);
    return st;
}

TEST(while_numbers_are_looked_at)
{
    tm_step_options o = small_options();
    o.precision = &tm_precision_bf16;
    o.compared = &tm_precision_f32;
    assert_true(fail_each(&o, true, look, 1) > 20);
}

static tm_status hash(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b, tm_error *err)
{
    uint64_t all = 0, base = 0;
    (void)device, (void)o, (void)b;
    TM_TRY(tm_trainer_weights_hash(trainer, &all, err));
    TM_TRY(tm_trainer_base_hash(trainer, &base, err));
    assert_true(all != 0 && base != 0 && all != base);
    return TM_OK;
}

static tm_status open_one(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b,
                          tm_error *err)
{
    (void)b;
    TM_TRY(tm_trainer_open(device, o, 3, &trainer, err));
    tm_trainer_close(trainer);
    return TM_OK;
}

FULL_TEST(while_weights_are_made_and_hashed)
{
    tm_step_options o = small_options();
    o.adapters = (tm_adapters){ .rank = 2, .alpha = 7, .base = TM_NF4_BLOCKS, .place = "test", .seed = 1 };
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "all-linear");
    o.shape.dim = 64, o.shape.ffn_dim = 64; /* blocks of 64 */
    assert_true(fail_each(&o, true, hash, 1) > 15);
    assert_true(fail_each(&o, false, open_one, 1) > 20);
}

static tm_source *source;

static tm_status generate(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b,
                          tm_error *err)
{
    tm_text text = { 0 };
    char   *decoded;
    (void)device, (void)o, (void)b;
    tm_status st = tm_generate(trainer, source, 5, 3, 60, &text, &decoded, err);
    if (st == TM_OK) assert_true(text.length >= 4);
    tm_text_fini(&text);
    return st;
}

static tm_status find_dead(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b,
                           tm_error *err)
{
    tm_text layers = { 0 };
    (void)device, (void)b;
    tm_status st = dead_attention_find(trainer, &o->shape, NULL, &layers, err);
    tm_text_fini(&layers);
    return st;
}

/* Behind the last step of a run. */
static tm_status prove(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b, tm_error *err)
{
    tm_run_options options = { .step = *o, .source = { .name = "text" }, .certify_after = true, .seed = 3 };
    double         losses[1] = { 4 };
    uint64_t       weights;
    run            r = { .options = &options, .device = device, .source = source, .trainer = trainer };
    (void)b;
    r.progress.finite = true, r.progress.done = 1, r.progress.first_step = 1, r.progress.losses = losses,
    r.progress.last_norm = 1;
    r.certified.first.done = r.certified.first.gradients = true;
    r.loader = tm_loader_open_part(source, TM_SPLIT_TRAIN, 2, (tm_loader_part){ .ranks = 1 }, 0, 0);
    tm_status st = run_remember(&r, err);
    if (st == TM_OK) {
        for (size_t i = 0; i < tm_trainer_step_of(trainer)->graph->n_tensors; i++)
            r.certified.hashes[i]++; /* all has moved */
        st = run_check_proof(&r, &weights, err);
    }
    free(r.certified.hashes);
    tm_loader_close(r.loader);
    return st;
}

FULL_TEST(while_a_run_ends)
{
    tm_step_options   o = small_options();
    char             *folder = test_tree_make();
    tm_source_options from = { .name = "text", .path = folder, .vocab = 258, .seq = o.seq, .validation_fraction = 0.5 };
    tm_error          err = { 0 };
    test_file_write(folder, "a.txt", "the quick brown fox jumps over the lazy dog, and the dog sleeps on in the sun");
    assert_int_equal(tm_source_open(&from, &source, &err), TM_OK);
    o.shape.vocab_size = 258, o.sample = true;
    assert_int_equal(tm_source_fields(&from, o.fields, &o.n_fields, &err), TM_OK);
    assert_true(fail_each(&o, true, find_dead, 1) >= 2);
    assert_true(fail_each(&o, true, prove, 2) > 100);
    o.adapters =
        (tm_adapters){ .rank = 2, .alpha = 7, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1, .dora = true };
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "lm_head");
    assert_true(fail_each(&o, true, generate, 1) > 40);
    tm_source_close(source);
    test_tree_remove(folder);
}

static tm_status decode(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b, tm_error *err)
{
    tm_decoder *decoder;
    double     *logits = malloc((size_t)o->shape.vocab_size * sizeof *logits);
    (void)trainer;
    tm_status st = tm_decoder_open(device, &o->shape, o->precision, o->seq, 1, &decoder, err);
    if (st == TM_OK) {
        st = tm_decoder_feed(decoder, b->tokens, 3, logits, err);
        tm_decoder_close(decoder);
    }
    free(logits);
    return st;
}

TEST(while_tokens_are_read_one_by_one)
{
    tm_step_options o = small_options();
    assert_true(fail_each(&o, false, decode, 1) > 30);
}

/* Steps, an evaluation, a checkpoint, tokens. */
static tm_run_options of_run;

static tm_status run_on(tm_device *device, tm_trainer *trainer, const tm_step_options *o, test_batch *b, tm_error *err)
{
    volatile sig_atomic_t stop = 0;
    tm_event_bus          bus = { 0 };
    char                  second[600];
    (void)trainer, (void)o, (void)b;
    tm_device_one_by_one(device, false);
    played = 0;
    tm_status st = tm_run(&of_run, device, source, &bus, &stop, err);
    snprintf(second, sizeof second, "%.550s/step-00000002", of_run.checkpoint_folder);
    if (access(second, F_OK) == 0) test_tree_remove(strdup(second)); /* of this run, if it came that far */
    assert_int_equal(tm_status_exit_code(st), st == TM_OK ? 0 : 1);
    return st;
}

FULL_TEST(while_a_run_trains)
{
    char             path[600], checkpoints[600];
    tm_error         err = { 0 };
    const tm_backend backend = failing();
    tm_device       *device;
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1); /* hundreds of checkpoints: not to a disk */
    char *folder = test_tree_make();
    FILE *f = fopen(strcat(strcpy(path, folder), "/text.txt"), "w");
    assert_non_null(f);
    for (int i = 0; i < 20000; i++) fprintf(f, "%d\n", i * i);
    fclose(f);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", folder);
    of_run = small_run("synthetic", 1);
    of_run.validate = of_run.checkpoint = true, of_run.validation_steps = 1;
    of_run.checkpoint_folder = checkpoints;
    of_run.sample_tokens = 2;
    of_run.source =
        (tm_source_options){ .name = "text", .path = path, .validation_fraction = 0.1, .vocab = 257, .seq = 8 };
    of_run.step.n_fields = 0;
    of_run.step.shape.vocab_size = 257, of_run.step.shape.n_layers = 1;
    of_run.step.seq = 8, of_run.step.sample = true, of_run.step.accumulation = 2;
    if (tm_source_open(&of_run.source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    fail_at = NEVER;
    assert_int_equal(tm_device_open_backend(&backend, 1, false, &device, &err), TM_OK);
    if (run_on(device, NULL, NULL, NULL, &err) != TM_OK) fail_msg("%s", err.text); /* leaves a checkpoint of step 1 */
    tm_device_close(device);
    of_run.steps = 2, of_run.schedule.steps = 4;
    assert_true(fail_each(&of_run.step, false, run_on, 1) > 300);
    assert_true(played >= 3); /* programs without a ledger: evaluation, two tokens */
    tm_source_close(source);
    test_tree_remove(folder);
}
