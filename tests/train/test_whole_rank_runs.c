/* SPDX-License-Identifier: Apache-2.0 */
/* What small runs of several ranks tell, to the letter but for times: steps, evaluations, looks through the microscope,
 * products in low precision, certificates, what is saved, how each rank fared; with the kernels that every processor
 * has. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/train/test_whole_rank_runs; git diff tests/train/whole-rank-runs.txt
 */
#include "support/test.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/source_files.h"
#include "support/training.h"
#include "support/whole.h"

#include "../comm/world.h"
#include "base/log.h"
#include "stats/sampling.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_RANKS = 4, DEADLINE = 120 };

typedef struct {
    tm_sink           sink;
    tm_text           out;
    tm_run_options    options;
    bool              only_evaluates;
    tm_status         status[MAX_RANKS];
    tm_error          err[MAX_RANKS];
    tm_run_evaluation evaluation[MAX_RANKS];
    double            seconds[64]; /* of the steps so far */
    int64_t           steps;
} job;

static void add_measures(tm_text *out, const tm_named_f64 *named, size_t n)
{
    for (size_t i = 0; i < n; i++) tm_text_printf(out, ", %s %.6g", named[i].name, named[i].value);
    tm_text_add(out, "\n");
}

static void add_look(tm_text *out, const tm_look *l)
{
    tm_text_printf(out, "  look %lld: %s beside %s, losses %.6g %.6g, bound %.6g, first %s, worst %s\n",
                   (long long)l->step, l->format, l->reference, l->loss, l->reference_loss, l->bound,
                   l->first ? l->first->name : "-", l->worst ? l->worst->name : "-");
    for (size_t i = 0; i < l->n_tensors; i += 2) {
        const tm_look_tensor *t = &l->tensors[i];
        double                bins = 0, reference = 0;
        for (int k = 0; k < l->n_exponents; k++)
            bins += (k + 1) * t->exponents[k], reference += (k + 1) * t->reference_exponents[k];
        tm_text_printf(out,
                       "    %s %s %s, %lld, error %.3g, cosine %.4g, under %.3g, over %.3g, amax %.4g %.4g, zeros %.3g "
                       "%.3g, exponents %g %g, %d\n",
                       t->name, t->kind, t->format, (long long)t->elements, t->error, t->cosine, t->underflow,
                       t->overflow, t->amax, t->reference_amax, t->zeros, t->reference_zeros, bins, reference,
                       t->diverges);
    }
}

static void add_certificate(tm_text *out, const char *what, const tm_certificate *c)
{
    if (!c->losses) return;
    tm_text_printf(
        out,
        "    %s: done %d, %d groups, %.3g beside %.3g, band %.2g, gradients %d, ahead %d, rows %d, causal %d, "
        "context %d, in %s, '%s' '%s'\n",
        what, c->done, c->groups, c->measured, c->expected, c->band, c->gradients, c->looked_ahead, c->rows, c->causal,
        c->context, c->losses, c->inexact, c->reason);
}

static void add_ended(tm_text *out, const tm_run_ended *e)
{
    tm_text_printf(out,
                   "  ended: '%s', interrupted %d, %lld steps, %lld samples, losses %.7g %.7g %.7g, %.6g bits, planned "
                   "%lld, weights %016llx, curve %lld",
                   e->stopped, e->interrupted, (long long)e->steps, (long long)e->samples, e->loss_first, e->loss_last,
                   e->loss_validation, e->bits_per_byte, (long long)e->planned_bytes,
                   (unsigned long long)e->weights_hash, (long long)e->curve.steps);
    add_measures(out, e->measures, e->n_measures);
    add_certificate(out, "certificate", &e->certificate);
    add_certificate(out, "after", &e->certificate_after);
    for (size_t r = 0; r < e->n_ranks; r++)
        tm_text_printf(out, "    rank %d, data %d, %lld targets, used %lld\n", e->ranks[r].rank, e->ranks[r].data_rank,
                       (long long)e->ranks[r].target_tokens, (long long)e->ranks[r].used_bytes);
    if (e->sample) tm_text_add(out, "    sample:");
    for (const char *c = e->sample; c && *c; c++) tm_text_printf(out, " %02x", (unsigned char)*c);
    if (e->sample) tm_text_add(out, "\n");
}

/* The tokens of a step that a rank's rate counts: all of one step, whatever time they took. */
static void add_rate(tm_text *out, const job *j, const tm_sample_summary *speed)
{
    double sum = 0;
    assert_int_equal(speed->warmup + speed->n, j->steps);
    for (int64_t i = speed->warmup; i < j->steps; i++) sum += j->seconds[i];
    tm_text_printf(out, "    %.9g tokens a step\n", speed->rate * sum / (double)speed->n);
}

static void listen(tm_sink *sink, const tm_event *event)
{
    job                  *j = (job *)sink;
    tm_text              *out = &j->out;
    const tm_run_started *s = &event->run_started;
    const tm_step_done   *d = &event->step_done;
    const tm_evaluation  *v = &event->evaluation;
    if (event->kind == TM_EVENT_RUN_STARTED) {
        tm_text_printf(out,
                       "  started: steps %lld from %lld, batch %lld of %lld, %lld parameters, %d devices, accumulation "
                       "%lld, evaluated %lld, planned %lld\n",
                       (long long)s->steps, (long long)s->first_step, (long long)s->batch_tokens,
                       (long long)s->recipe.global_batch, (long long)s->parameters, s->devices,
                       (long long)s->recipe.accumulation, (long long)s->recipe.eval_samples,
                       (long long)s->planned_bytes);
        tm_text_printf(
            out, "    %s by %s in %s %s %s, micro-batches of %lld, ranks %lld %lld %lld %lld, gpus %d, %d threads\n",
            s->precision, s->recipe.optimizer, s->recipe.precision_linear, s->recipe.precision_attention,
            s->recipe.precision_communication, (long long)s->recipe.micro_batch, (long long)s->recipe.tensor_ranks,
            (long long)s->recipe.pipeline_ranks, (long long)s->recipe.context_ranks, (long long)s->recipe.expert_ranks,
            s->gpus, s->threads);
    } else if (event->kind == TM_EVENT_STEP_DONE) {
        assert_true(j->steps < (int64_t)(sizeof j->seconds / sizeof *j->seconds));
        j->seconds[j->steps++] = d->seconds;
        tm_text_printf(out, "  step %lld: loss %.7g, norm %.6g, rate %.6g, %lld tokens, used %lld", (long long)d->step,
                       d->loss, d->grad_norm, d->learning_rate, (long long)d->tokens, (long long)d->used_bytes);
        add_measures(out, d->measures, d->n_measures);
    } else if (event->kind == TM_EVENT_EVALUATION) {
        tm_text_printf(out, "  evaluated at %lld, %lld samples: %.7g, %.6g bits, %lld tokens, last %d",
                       (long long)v->step, (long long)v->samples, v->loss, v->bits_per_byte, (long long)v->tokens,
                       v->last);
        add_measures(out, v->measures, v->n_measures);
    } else if (event->kind == TM_EVENT_CHECKPOINT) {
        tm_text_printf(out, "  checkpoint at %lld, %lld bytes\n", (long long)event->checkpoint.step,
                       (long long)event->checkpoint.bytes);
    } else if (event->kind == TM_EVENT_LOOK) {
        add_look(out, &event->look);
    } else if (event->kind == TM_EVENT_QUANTIZED) {
        tm_text_printf(out, "  quantized %lld:", (long long)event->quantized.step);
        for (size_t i = 0; i < event->quantized.n_factors; i++) {
            const tm_quantized_factor *f = &event->quantized.factors[i];
            tm_text_printf(out, " %s %s %.4g %.4g %.3g %.3g,", f->linear, f->factor, f->amax, f->scale, f->saturated,
                           f->flushed);
        }
        tm_text_add(out, "\n");
    } else if (event->kind == TM_EVENT_RUN_ENDED) {
        add_ended(out, &event->run_ended);
        if (event->run_ended.steps > 0) add_rate(out, j, event->run_ended.speed);
    }
}

static void run_rank(tm_comm *comm, void *context)
{
    job                  *j = context;
    int                   rank = tm_comm_rank(comm);
    tm_run_options        o = j->options;
    tm_ranks              own;
    tm_device            *device;
    tm_source            *source;
    volatile sig_atomic_t stop = 0;
    o.step.layout.rank = rank;
    CHECK_OK(tm_ranks_open(&o.step.layout.mesh, comm, &own, err));
    o.ranks = &own;
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    CHECK_OK(tm_device_limit_isa(device, "base", err));
    tm_device_join(device, &own.groups);
    CHECK_OK(tm_source_open(&o.source, &source, err));
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &j->sink }, .count = rank == 0 };
    if (j->only_evaluates)
        j->status[rank] = tm_run_evaluate(&o, device, source, &stop, &j->evaluation[rank], &j->err[rank]);
    else
        j->status[rank] = tm_run(&o, device, source, &bus, &stop, &j->err[rank]);
    tm_source_close(source);
    tm_device_close(device);
    tm_ranks_close(&own);
}

/* ---- the runs ---- */

#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 2 --model.ffn_dim 64 "          \
    "--model.vocab_size 64 --training.seq_len 16 --training.local_batch_size 2 --training.threads 1 "                  \
    "--training.stop_at_target false --optimizer.lr 0.01 --lr_scheduler.warmup_steps 2 --training.steps 2 "
#define MIXTRAL TINY "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "
#define TWO "--parallelism.ranks 2 "
#define FOUR "--parallelism.ranks 4 "
#define COPIES "--parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1 "
#define TP "--parallelism.tensor_parallel_degree 2 "
#define CP "--parallelism.context_parallel_degree 2 "
#define PP "--parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 2 "
#define EP "--parallelism.expert_parallel_degree 2 "
#define NONE "--validation.enable false "
#define HELD "--validation.steps 3 --validation.freq 1 "
#define SAVES "--checkpoint.enable --checkpoint.folder saved --checkpoint.interval 1 "
#define BF16 "--training.dtype bfloat16 "
#define LOOKS BF16 "--debug.microscope 2 "
#define PAIRS "--data.source preference --data.path pairs.jsonl --data.validation_fraction 0.3 --model.vocab_size 257 "
#define TEXT "--data.source text --data.path text.txt --data.validation_fraction 0.2 --model.vocab_size 257 "
#define CERTIFIED "--debug.certificate true --debug.certificate_after true "

static const char *const runs[] = {
    TINY TWO COPIES HELD "--training.grad_accumulation 2",
    TINY TWO HELD   CERTIFIED,
    TINY TWO PP     HELD "--training.separate_sums 2",
    TINY TWO NONE   LOOKS,
    TINY TWO        NONE "--quantize.recipe fp8_delayed --quantize.log_freq 1 ",
    TINY TWO        NONE "--optimizer.name Muon --optimizer.groups=[{\"params\":\"*norm*\",\"lr_scale\":\"2\"}]",
    TINY TWO        NONE "--optimizer.name AdamW8bit --model.dim 128 --parallelism.data_parallel_shard_strategy optim",
    TINY TWO        NONE
    "--optimizer.decay matrices --optimizer.weight_decay 0.5 --parallelism.fsdp_reshard_after_forward always",
    TINY TWO         NONE "--training.dtype bfloat16 --training.regime pure --optimizer.bf16_stochastic_round true",
    TINY TWO         NONE "--lora.rank 2 --lora.dora true --lora.targets wq,w2",
    TINY TWO         NONE "--lora.rank 2 --lora.dropout 0.25 --lora.base_format nf4 --model.dim 64 --model.ffn_dim 128",
    TINY TWO TP HELD CERTIFIED "--model.tied true",
    TINY TWO TP NONE LOOKS,
    TINY TWO TP      NONE "--quantize.recipe fp8_rowwise --quantize.log_freq 1",
    TINY TWO TP      NONE "--lora.rank 2 --lora.dropout 0.25 --lora.targets all-linear,lm_head",
    TINY TWO TP HELD PAIRS CERTIFIED "--training.seq_len 32",
    TINY TWO CP HELD       CERTIFIED,
    TINY TWO CP NONE       LOOKS "--parallelism.context_parallel_rotate_method alltoall",
    TINY TWO CP            NONE "--quantize.recipe fp8_tensorwise --quantize.log_freq 2",
    TINY TWO CP            NONE "--lora.rank 2 --lora.dropout 0.25 --lora.targets wq,w2",
    TINY FOUR TP CP NONE   CERTIFIED,
    TINY TWO PP HELD       CERTIFIED,
    TINY TWO PP HELD       CERTIFIED "--parallelism.pipeline_parallel_divide_head true --model.tied true",
    TINY TWO PP NONE       CERTIFIED "--parallelism.pipeline_parallel_schedule ZBVZeroBubble --model.n_layers 4",
    TINY TWO PP NONE       LOOKS,
    TINY TWO PP NONE       LOOKS "--parallelism.pipeline_parallel_schedule Interleaved1F1B --model.n_layers 4",
    TINY TWO PP            NONE "--quantize.recipe fp8_tensorwise --quantize.log_freq 1",
    TINY TWO PP HELD PAIRS CERTIFIED "--training.seq_len 32",
    TINY TWO PP HELD       TEXT "--data.sample_tokens 12",
    TINY TWO HELD          TEXT "--data.sample_tokens 12",
    TINY TWO PP            NONE "--lora.rank 2 --lora.layers 0 --lora.targets wq",
    TINY FOUR PP           HELD "--training.max_norm 0.1",
    TINY FOUR PP NONE      LOOKS "--parallelism.data_parallel_replicate_degree 2",
    MIXTRAL TWO EP HELD    CERTIFIED "--model.moe_aux_loss 0.1",
    MIXTRAL TWO EP NONE    LOOKS,
    MIXTRAL TWO TP         NONE "--model.moe_aux_loss 0.1 --model.moe_aux_loss_per_sequence false",
    MIXTRAL TWO PP         NONE "--model.moe_aux_loss 0.1",
    TINY TWO SAVES         HELD,
    TINY TWO TP SAVES      NONE "--training.steps 3",
    TINY TWO PP SAVES      NONE "--training.steps 4",
    TINY FOUR CP SAVES     NONE "--training.steps 5 --training.local_batch_size 1",
    TINY TWO CP SAVES      NONE "--training.steps 5",
    TINY TWO SAVES         NONE "--training.steps 9 --debug.seed 3",
    TINY TWO SAVES         NONE "--training.steps 9 --model.dim 64",
};

static void run_all(job *j, const char *what)
{
    int ranks = tm_mesh_ranks(&j->options.step.layout.mesh);
    j->sink.handle = listen;
    run_world(ranks, NULL, DEADLINE, false, run_rank, j);
    tm_text_printf(&j->out, "  %s", what);
    for (int r = 0; r < ranks; r++)
        tm_text_printf(&j->out, " %d%s%.*s", j->status[r] == TM_OK ? 0 : tm_status_exit_code(j->status[r]),
                       j->status[r] == TM_OK ? "" : ": ", (int)strcspn(j->err[r].text, ";"), j->err[r].text);
    for (int r = 0; r < ranks && j->only_evaluates; r++)
        tm_text_printf(&j->out, ", %.7g %.6g %.6g %lld", j->evaluation[r].loss, j->evaluation[r].error,
                       j->evaluation[r].bits_per_byte, (long long)j->evaluation[r].tokens);
    tm_text_add(&j->out, "\n");
}

static void runs_of_ranks_tell_what_is_recorded(void **state)
{
    tm_text all = { 0 };
    char   *back = getcwd(NULL, 0), path[4096];
    (void)state;
    test_source_files_write();
    assert_int_equal(chdir(test_folder()), 0);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        tm_config *config = test_full_config();
        tm_error   err = { 0 };
        job        j = { .only_evaluates = false }, evaluated;
        tm_text_printf(&all, "\n%s\n", runs[i] + strlen(TINY));
        if (test_read_run(config, runs[i], &j.options, &err) != TM_OK) fail_msg("%s: %s", runs[i], err.text);
        j.options.checkpoint_folder = j.options.checkpoint ? "saved" : NULL;
        evaluated = j;
        run_all(&j, "exit");
        tm_text_add(&all, j.out.data);
        tm_text_fini(&j.out);
        if (strstr(runs[i], HELD)) {
            evaluated.only_evaluates = true;
            run_all(&evaluated, "evaluated alone");
            tm_text_add(&all, evaluated.out.data);
            tm_text_fini(&evaluated.out);
        }
        tm_config_destroy(config);
    }
    assert_int_equal(chdir(back), 0);
    snprintf(path, sizeof path, "%s/tests/train/whole-rank-runs.txt", back);
    free(back);
    whole_is(path, &all);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(runs_of_ranks_tell_what_is_recorded) };

TM_TESTS(tests, NULL, test_folder_teardown)
