/* SPDX-License-Identifier: Apache-2.0 */
/* All that small runs tell, to the letter: every event with every number, by a clock that goes on by a millisecond
 * whenever the run looks at it, with the kernels that every processor has. What the machine says of itself is left out.
 * After a change that is meant:
 *     TM_RECORD=1 build/release/tests/train/test_whole_runs; git diff tests/train/whole-runs.txt
 */
#include "support/full_config.h"
#include "support/source_files.h"
#include "support/folder.h"
#include "support/looked_clock.h"
#include "support/training.h"
#include "support/whole.h"

#include "base/arena.h"
#include "base/log.h"
#include "stats/sampling.h"
#include "train/run/run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

/* ---- who listens ---- */

typedef struct {
    tm_sink                sink;
    tm_text               *out;
    int64_t                stop_at; /* step; 0: never */
    volatile sig_atomic_t *stop;
} listener;

static void add_named(tm_text *out, const char *what, const tm_named_f64 *named, size_t n)
{
    if (n > 0) tm_text_printf(out, "    %s:", what);
    for (size_t i = 0; i < n; i++) tm_text_printf(out, " %s %.6g,", named[i].name, named[i].value);
    if (n > 0) tm_text_add(out, "\n");
}

static void add_started(tm_text *out, const tm_run_started *s)
{
    const tm_recipe *r = &s->recipe;
    tm_text_printf(
        out,
        "  started: %s %s %s %s %s %s, %lld parameters, steps %lld from %lld, batch %lld, %d devices (%d), %d "
        "threads, seed %llu, floor %.6g, peak %.6g, planned %lld\n",
        s->model, s->precision, s->device, s->kernels, s->sums, s->data_source, (long long)s->parameters,
        (long long)s->steps, (long long)s->first_step, (long long)s->batch_tokens, s->devices, s->gpus, s->threads,
        (unsigned long long)s->seed, s->loss_floor, s->peak_flops, (long long)s->planned_bytes);
    tm_text_printf(
        out,
        "    recipe: %s, %s, batch %lld, %lld micro-batches of %lld, sequences of %lld, evaluated %lld, warm-up %lld, "
        "decay %lld, rate %.6g to %.6g, betas %.6g %.6g, eps %.6g, decay %.6g, norm %.6g, adapters %lld %.6g, every "
        "%lld, formats %s %s %s, ranks %lld %lld %lld %lld\n",
        r->optimizer, r->schedule, (long long)r->global_batch, (long long)r->accumulation, (long long)r->micro_batch,
        (long long)r->sequence_length, (long long)r->eval_samples, (long long)r->warmup_steps,
        (long long)r->decay_steps, r->learning_rate, r->end_learning_rate, r->beta1, r->beta2, r->eps, r->weight_decay,
        r->max_norm, (long long)r->lora_rank, r->lora_alpha, (long long)r->eval_interval, r->precision_linear,
        r->precision_attention, r->precision_communication, (long long)r->tensor_ranks, (long long)r->pipeline_ranks,
        (long long)r->context_ranks, (long long)r->expert_ranks);
    add_named(out, "flops a token", s->flops_per_token, s->n_flops_per_token);
    tm_text_add(out, "    memory:");
    for (size_t i = 0; i < s->n_memory; i++)
        tm_text_printf(out, " %s %lld,", s->memory[i].name, (long long)s->memory[i].value);
    tm_text_add(out, "\n    work:");
    for (size_t i = 0; i < s->n_work; i++)
        tm_text_printf(out, " %s %.9g %.9g,", s->work[i].name, s->work[i].flops, s->work[i].bytes);
    tm_text_printf(out, "\n    along %zu points:", s->n_points);
    for (size_t i = 0; i < s->n_memory_along; i++) {
        int64_t sum = 0;
        for (size_t p = 0; p < s->n_points; p++) sum += s->memory_along[i].bytes[p] * (int64_t)(p % 5 + 1);
        tm_text_printf(out, " %s %lld,", s->memory_along[i].name, (long long)sum);
    }
    tm_text_add(out, "\n");
}

static void add_step(tm_text *out, const tm_step_done *s)
{
    tm_text_printf(out, "  step %lld: loss %.7g, norm %.6g, rate %.6g, %lld tokens, %.6g s, used %lld\n",
                   (long long)s->step, s->loss, s->grad_norm, s->learning_rate, (long long)s->tokens, s->seconds,
                   (long long)s->used_bytes);
    add_named(out, "phases", s->phases, s->n_phases);
    add_named(out, "measures", s->measures, s->n_measures);
}

static void add_certificate(tm_text *out, const char *what, const tm_certificate *c)
{
    tm_text_printf(
        out,
        "    %s: done %d, %d groups, %.4g beside %.4g, band %.4g, gradients %d, ahead %d, rows %d, causal %d, "
        "context %d, %.6g s, '%s'\n",
        what, c->done, c->groups, c->measured, c->expected, c->band, c->gradients, c->looked_ahead, c->rows, c->causal,
        c->context, c->seconds, c->reason);
}

static void add_speed(tm_text *out, const tm_sample_summary *s)
{
    tm_text_printf(
        out,
        "    speed: n %lld, warm-up %lld, outliers %lld, worth %.6g, median %.6g %.6g %.6g, variation %.6g, rate "
        "%.6g (%.6g %.6g, %.6g), median %.6g (%.6g %.6g), stop %d\n",
        (long long)s->n, (long long)s->warmup, (long long)s->outliers, s->effective_n, s->median, s->p5, s->p95,
        s->variation, s->rate, s->rate_lo, s->rate_hi, s->half_width, s->median_rate, s->median_rate_lo,
        s->median_rate_hi, s->stop);
}

/* Of the reason what is said of training: behind it the machine comes. How often a run looks at the clock depends on
 * its kernels: of its seconds two digits. */
static void add_ended(tm_text *out, const tm_run_ended *e)
{
    const char *about = strstr(e->reason, "; but the figures");
    bool        machine = e->verdict == TM_VERDICT_NOISY || about;
    tm_text_printf(
        out,
        "  ended: %s, '%.*s', stopped '%s', interrupted %d, %lld steps, %lld samples, image %lld, losses %.7g %.7g "
        "%.7g %.7g, %.6g bits a byte, planned %lld, disk %lld, weights %016llx, first step %.2g, %.2g s, curve %lld "
        "%d, ranks %zu\n",
        machine ? "valid" : tm_verdict_name(e->verdict), (int)strcspn(e->reason, ";"), e->reason, e->stopped,
        e->interrupted, (long long)e->steps, (long long)e->samples, (long long)e->image_tokens, e->loss_first,
        e->loss_last, e->loss_validation, e->loss_floor, e->bits_per_byte, (long long)e->planned_bytes,
        (long long)e->disk_bytes, (unsigned long long)e->weights_hash, e->first_step_seconds, e->seconds,
        (long long)e->curve.steps, e->curve.equal, e->n_ranks);
    add_named(out, "measures", e->measures, e->n_measures);
    add_speed(out, e->speed);
    add_certificate(out, "certificate", &e->certificate);
    add_certificate(out, "after", &e->certificate_after);
    tm_text_add(out, "    seconds:");
    for (int64_t i = 0; i < e->steps && i < 8; i++) tm_text_printf(out, " %.6g", e->step_seconds[i]);
    tm_text_printf(out, "\n    sample: %s\n", e->sample ? e->sample : "-");
}

static void add_look(tm_text *out, const tm_look *l)
{
    tm_text_printf(
        out,
        "  look %lld: %s beside %s, losses %.6g %.6g, bound %.6g, %.6g s, %zu tensors, exponents from %d, %d, first "
        "%s, worst %s\n",
        (long long)l->step, l->format, l->reference, l->loss, l->reference_loss, l->bound, l->seconds, l->n_tensors,
        l->first_exponent, l->n_exponents, l->first ? l->first->name : "-", l->worst ? l->worst->name : "-");
    for (size_t i = 0; i < l->n_tensors; i += 3) {
        const tm_look_tensor *t = &l->tensors[i];
        tm_text_printf(
            out,
            "    %s %s %s, %lld, error %.3g, cosine %.4g, under %.3g, over %.3g, amax %.4g %.4g, zeros %.3g %.3g, %d\n",
            t->name, t->kind, t->format, (long long)t->elements, t->error, t->cosine, t->underflow, t->overflow,
            t->amax, t->reference_amax, t->zeros, t->reference_zeros, t->diverges);
    }
}

static void listen(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    tm_text  *out = l->out;
    switch (event->kind) {
    case TM_EVENT_RUN_STARTED:
        add_started(out, &event->run_started);
        break;
    case TM_EVENT_STEP_DONE:
        if (event->step_done.step < 8 || event->step_done.step % 20 == 0) add_step(out, &event->step_done);
        if (event->step_done.step == l->stop_at) *l->stop = 1;
        break;
    case TM_EVENT_EVALUATION_STARTED:
        tm_text_printf(out, "  evaluation at %lld, %lld samples\n", (long long)event->evaluation_started.step,
                       (long long)event->evaluation_started.samples);
        break;
    case TM_EVENT_EVALUATION:
        tm_text_printf(out, "  evaluated at %lld, %lld samples: %.7g, %.6g bits, %lld tokens, %.6g s, last %d\n",
                       (long long)event->evaluation.step, (long long)event->evaluation.samples, event->evaluation.loss,
                       event->evaluation.bits_per_byte, (long long)event->evaluation.tokens, event->evaluation.seconds,
                       event->evaluation.last);
        add_named(out, "measures", event->evaluation.measures, event->evaluation.n_measures);
        break;
    case TM_EVENT_CHECKPOINT:
        tm_text_printf(out, "  checkpoint at %lld in %s, %lld bytes, %.6g s\n", (long long)event->checkpoint.step,
                       event->checkpoint.path, (long long)event->checkpoint.bytes, event->checkpoint.seconds);
        break;
    case TM_EVENT_LOOK:
        add_look(out, &event->look);
        break;
    case TM_EVENT_QUANTIZED:
        tm_text_printf(out, "  quantized %lld:", (long long)event->quantized.step);
        for (size_t i = 0; i < event->quantized.n_factors; i++) {
            const tm_quantized_factor *f = &event->quantized.factors[i];
            tm_text_printf(out, " %s %s %.4g %.4g %.3g %.3g,", f->linear, f->factor, f->amax, f->scale, f->saturated,
                           f->flushed);
        }
        tm_text_add(out, "\n");
        break;
    case TM_EVENT_RUN_ENDED:
        add_ended(out, &event->run_ended);
    }
}

/* ---- the runs ---- */

#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 "          \
    "--training.seq_len 16 --training.local_batch_size 2 --training.threads 1 --training.stop_at_target false "        \
    "--optimizer.lr 0.01 --lr_scheduler.warmup_steps 2 "
#define SAVES "--checkpoint.enable --checkpoint.folder saved "

/* Keys; words in the file's folder. stop_at: a signal comes in this step. */
static const struct {
    const char *what, *words;
    int64_t     stop_at;
    const char *isa;
    const char *folder;        /* of checkpoints, whether they are enabled or not; "": none; NULL: as the words say */
    int64_t     quantize_freq; /* 0: as the words say */
} runs[] = {
    { .what = "plain", .words = TINY "--training.steps 3 --validation.enable false" },
    { .what = "micro-batches, evaluations",
      .words = TINY "--training.steps 5 --training.global_batch_size 6 --validation.freq 2 --validation.steps 3 "
                    "--debug.seed 9 --optimizer.weight_decay 0.3 --training.max_norm 0.1" },
    { .what = "evaluated from a step on, by sequences",
      .words = TINY "--training.steps 4 --validation.freq 1 --validation.first 3 --validation.steps 2 "
                    "--validation.local_batch_size 1 --validation.average sequences" },
    { .what = "longer held-out sequences",
      .words = TINY "--training.steps 2 --validation.steps 2 --validation.local_batch_size 3 --validation.seq_len 24" },
    { .what = "ended by the target",
      .words = TINY "--training.steps 9 --training.target_loss 9 --validation.freq 2 --validation.steps 1" },
    { .what = "ended by the gap",
      .words =
          TINY "--training.steps 9 --training.stop_at_target true --training.target_loss_gap 7 --validation.freq 3 "
               "--validation.steps 1" },
    { .what = "interrupted",
      .words = TINY "--training.steps 9 --validation.freq 2 --validation.steps 1",
      .stop_at = 3 },
    { .what = "not finite",
      .words = TINY
      "--training.steps 9 --optimizer.lr 100 --optimizer.eps 1e-30 --training.max_norm 0 --validation.steps 1" },
    { .what = "judged",
      .words = TINY "--training.steps 60 --training.local_batch_size 4 --validation.steps 2 --debug.certificate true "
                    "--debug.certificate_after true" },
    { .what = "nothing learned", .words = TINY "--training.steps 60 --optimizer.lr 1e-9 --validation.steps 2" },
    { .what = "nothing moves",
      .words = TINY "--training.steps 60 --optimizer.lr 0 --optimizer.weight_decay 0 --validation.steps 2" },
    { .what = "random tokens", .words = TINY "--training.steps 60 --data.source mock --validation.steps 2" },
    { .what = "precise enough",
      .words = TINY "--training.steps 200 --metrics.target_half_width 0.2 --validation.enable false" },
    { .what = "slowed down", .words = TINY "--training.steps 4 --debug.slowdown_pct 50 --validation.enable false" },
    { .what = "saved", .words = TINY SAVES "--training.steps 4 --checkpoint.interval 2 --validation.enable false" },
    { .what = "gone on",
      .words = TINY SAVES "--training.steps 7 --checkpoint.interval 3 --validation.steps 1 --validation.freq 6" },
    { .what = "nothing left to do", .words = TINY SAVES "--training.steps 7 --validation.steps 1" },
    { .what = "gone on with another seed", .words = TINY SAVES "--training.steps 9 --debug.seed 5" },
    { .what = "gone on with another model", .words = TINY SAVES "--training.steps 9 --model.rope_theta 77" },
    { .what = "gone on with other data", .words = TINY SAVES "--training.steps 9 --data.source mock" },
    { .what = "gone on with other data, all the same",
      .words = TINY SAVES "--training.steps 8 --data.source mock --checkpoint.allow_changed_data "
                          "--validation.steps 1" },
    { .what = "from an earlier step",
      .words = TINY SAVES "--training.steps 8 --checkpoint.load_step 6 --validation.steps 1" },
    { .what = "from a step that is not there", .words = TINY SAVES "--training.steps 9 --checkpoint.load_step 5" },
    { .what = "bfloat16 and stochastic",
      .words = TINY "--training.steps 3 --training.dtype bfloat16 --training.regime pure "
                    "--optimizer.bf16_stochastic_round true --validation.steps 1" },
    { .what = "groups",
      .words = TINY "--training.steps 3 "
                    "--optimizer.groups=[{\"params\":\"*norm*\",\"weight_decay\":\"0\",\"lr_scale\":\"2\"},{\"params\":"
                    "\"layers.0.*\",\"trained\":\"false\"}] "
                    "--validation.enable false" },
    { .what = "adapters",
      .words = TINY
      "--training.steps 3 --lora.rank 2 --lora.alpha 6 --lora.dropout 0.25 --lora.targets wq,wv --validation.steps 1" },
    { .what = "adapters with lengths",
      .words = TINY "--training.steps 2 --lora.rank 2 --lora.dora true --lora.init gaussian --lora.targets wq,wv "
                    "--validation.steps 1" },
    { .what = "adapters beside narrow weights",
      .words = TINY "--training.steps 2 --lora.rank 2 --lora.base_format nf4 --lora.rslora true --validation.steps 1" },
    { .what = "under the microscope",
      .words = TINY "--training.steps 3 --training.dtype bfloat16 --training.mixed_precision_param bfloat16 "
                    "--debug.microscope 2 --validation.enable false" },
    { .what = "quantized",
      .words =
          TINY "--training.steps 3 --quantize.recipe fp8_tensorwise --quantize.log_freq 2 --validation.enable false" },
    { .what = "in four bits",
      .words = TINY "--training.steps 1 --quantize.recipe mxfp4 --model.dim 64 --training.seq_len 32 "
                    "--quantize.log_freq 1 --validation.enable false" },
    { .what = "in four bits, then eight",
      .words =
          TINY "--training.steps 3 --quantize.recipe nvfp4 --quantize.switch_recipe mxfp8 --quantize.switch_step 2 "
               "--quantize.log_freq 1 --model.dim 64 --training.seq_len 32 --validation.enable false" },
    { .what = "in six bits",
      .words = TINY "--training.steps 1 --quantize.recipe mxfp6_e3m2 --quantize.output_recipe mxfp8 --model.dim 64 "
                    "--training.seq_len 32 --training.dtype bfloat16 --validation.enable false" },
    { .what = "in eight bits, with a history",
      .words = TINY "--training.steps 3 --quantize.recipe fp8_delayed --fp8_amax_history_len 2 --quantize.log_freq 1 "
                    "--training.dtype bfloat16 --training.regime pure --validation.enable false" },
    { .what = "experts",
      .words = TINY "--training.steps 3 --model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 "
                    "--model.moe_ffn_dim 32 --model.moe_aux_loss 0.01 --validation.steps 1 "
                    "--debug.certificate_after true" },
    { .what = "text, nothing held out",
      .words = TINY "--training.steps 1 --data.source text --data.path text.txt --data.validation_fraction 0 "
                    "--model.vocab_size 257 --validation.steps 1" },
    { .what = "text",
      .words = TINY "--training.steps 3 --data.source text --data.path text.txt --data.validation_fraction 0.2 "
                    "--model.vocab_size 257 "
                    "--data.sample_tokens 30 --validation.steps 2" },
    { .what = "rows",
      .words = TINY "--training.steps 3 --data.source sft --data.path rows.jsonl --data.validation_fraction 0.3 "
                    "--model.vocab_size 257 --validation.steps 2" },
    { .what = "pairs",
      .words = TINY
      "--training.steps 3 --data.source preference --data.path pairs.jsonl --data.validation_fraction 0.3 "
      "--model.vocab_size 257 --training.seq_len 32 --dpo.beta 0.3 --dpo.label_smoothing 0.1 --validation.steps 2 "
      "--debug.certificate_after true" },
    { .what = "packed rows",
      .words = TINY "--training.steps 3 --data.source govreport --data.path train.npy --training.seq_len 24 "
                    "--model.vocab_size 64 --data.pad_token 3" },
    { .what = "indexed",
      .words = TINY
      "--training.steps 3 --data.source megatron --data.path set --model.vocab_size 64 --data.validation_path set "
      "--validation.steps 2 --data.separate_documents true" },
    { .what = "images",
      .words = "tiny-flux --training.steps 2 --training.local_batch_size 2 --training.threads 1 --validation.steps 1 "
               "--model.dim 64 --model.n_heads 2 --optimizer.lr 0.001 --training.stop_at_target false "
               "--debug.certificate_after true" },
    { .what = "recomputed in chunks",
      .words =
          TINY "--training.steps 2 --activation_checkpoint.mode full --loss.chunk_tokens 7 --validation.enable false" },
    { .what = "cosine",
      .words = TINY "--training.steps 6 --lr_scheduler.decay_type cosine --lr_scheduler.decay_ratio 0.5 "
                    "--lr_scheduler.min_lr_factor 0.1 --validation.enable false" },
    { .what = "parts",
      .words = TINY
      "--training.steps 2 --training.grad_accumulation 4 --training.separate_sums 2 --validation.enable false" },
    { .what = "adapters with lengths, of narrow weights in bfloat16",
      .words =
          TINY "--training.steps 2 --lora.rank 2 --lora.dora true --lora.base_format nf4 --training.dtype bfloat16 "
               "--training.mixed_precision_param bfloat16 --validation.enable false" },
    { .what = "pairs, held out in other lengths and batches",
      .words =
          TINY "--training.steps 2 --data.source preference --data.path pairs.jsonl --data.validation_fraction 0.3 "
               "--model.vocab_size 257 --training.seq_len 32 --validation.seq_len 48 --validation.local_batch_size 3 "
               "--validation.steps 2" },
    { .what = "not finite in the end",
      .words = TINY "--training.steps 9 --optimizer.name SGD --optimizer.lr 100 --training.max_norm 0 "
                    "--validation.enable false" },
    { .what = "stopped, and saved though nothing else is",
      .words = TINY "--training.steps 9 --validation.enable false",
      .stop_at = 3,
      .folder = "other" },
    { .what = "not gone on with, nor saved",
      .words = TINY "--training.steps 4 --validation.enable false",
      .folder = "other" },
    { .what = "nowhere to save",
      .words = TINY "--training.steps 4 --checkpoint.enable --checkpoint.interval 2 --validation.enable false",
      .folder = "" },
    { .what = "stopped, nowhere to save",
      .words = TINY "--training.steps 4 --checkpoint.enable --checkpoint.interval 2 --validation.enable false",
      .stop_at = 3,
      .folder = "" },
    { .what = "gone on with, but the end is not saved",
      .words = TINY "--training.steps 5 --checkpoint.enable --checkpoint.interval 4 --disable_last_saving true "
                    "--validation.enable false",
      .folder = "other" },
    { .what = "stopped, no sample",
      .words = TINY "--training.steps 3 --data.source text --data.path text.txt --data.validation_fraction 0.2 "
                    "--model.vocab_size 257 --data.sample_tokens 30 --validation.enable false",
      .stop_at = 2 },
    { .what = "not finite, no sample",
      .words = TINY "--training.steps 9 --data.source text --data.path text.txt --data.validation_fraction 0.2 "
                    "--model.vocab_size 257 --data.sample_tokens 30 --optimizer.name SGD --optimizer.lr 100 "
                    "--training.max_norm 0 --validation.enable false" },
    { .what = "stopped by the last step, a sample",
      .words = TINY "--training.steps 2 --data.source text --data.path text.txt --data.validation_fraction 0.2 "
                    "--model.vocab_size 257 --data.sample_tokens 30 --validation.enable false",
      .stop_at = 2 },
    { .what = "nothing is quantized",
      .words = TINY "--training.steps 2 --validation.enable false",
      .quantize_freq = 1 },
    { .what = "quantized, nothing told",
      .words = TINY "--training.steps 2 --quantize.recipe fp8_tensorwise --quantize.log_freq 0 "
                    "--validation.enable false" },
};

static tm_status run(const tm_run_options *options, const char *isa, listener *l, tm_error *err)
{
    static volatile sig_atomic_t stop;
    tm_device                   *device;
    tm_source                   *source;
    TM_TRY(tm_device_open("cpu", options->threads, &device, err));
    assert_int_equal(tm_device_limit_isa(device, isa, err), TM_OK);
    tm_device_allow_reference(device, options->reference_kernels);
    stop = 0;
    l->stop = &stop;
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &l->sink }, .count = 1 };
    tm_status    st = tm_source_open(&options->source, &source, err);
    if (st == TM_OK) {
        st = tm_run(options, device, source, &bus, &stop, err);
        tm_source_close(source);
    }
    tm_device_close(device);
    return st;
}

static void evaluate(const tm_run_options *options, tm_text *out)
{
    static volatile sig_atomic_t stop;
    tm_device                   *device;
    tm_source                   *source;
    tm_run_evaluation            found;
    tm_error                     err = { 0 };
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK);
    if (tm_source_open(&options->source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    tm_status st = tm_run_evaluate(options, device, source, &stop, &found, &err);
    tm_text_printf(out, "  evaluated alone: %d, loss %.7g, error %.6g, bits %.6g, %lld tokens %s\n",
                   st == TM_OK ? 0 : tm_status_exit_code(st), found.loss, found.error, found.bits_per_byte,
                   (long long)found.tokens, err.text);
    tm_source_close(source);
    tm_device_close(device);
}

static void runs_tell_what_is_recorded(void **state)
{
    tm_text out = { 0 };
    char   *back = getcwd(NULL, 0), path[4096];
    (void)state;
    look_ns = 1000000;
    tm_log_set_level(TM_LOG_ERROR);
    test_source_files_write();
    assert_int_equal(chdir(test_folder()), 0);
    whole_log_open();
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        tm_config     *config = test_full_config();
        tm_run_options options;
        tm_error       err = { 0 };
        listener       l = { .sink = { .handle = listen }, .out = &out, .stop_at = runs[i].stop_at };
        tm_text_printf(&out, "\n%s\n", runs[i].what);
        if (test_read_run(config, runs[i].words, &options, &err) != TM_OK) fail_msg("%s: %s", runs[i].what, err.text);
        const char *folder = runs[i].folder ? runs[i].folder : options.checkpoint ? "saved" : "";
        options.checkpoint_folder = *folder ? folder : NULL;
        if (*folder && !options.checkpoint) options.checkpoint_interval = 2; /* which is not meant */
        if (runs[i].quantize_freq) options.quantize_freq = runs[i].quantize_freq;
        tm_status st = run(&options, runs[i].isa ? runs[i].isa : "base", &l, &err);
        tm_text_printf(&out, "  exit %d%s%.*s\n", st == TM_OK ? 0 : tm_status_exit_code(st), st == TM_OK ? "" : ": ",
                       (int)strcspn(err.text, ";"), err.text);
        whole_log_take(&out);
        if (strstr(runs[i].words, "validation.steps")) evaluate(&options, &out);
        tm_config_destroy(config);
        whole_log_take(&out);
    }
    whole_log_close();
    assert_int_equal(chdir(back), 0);
    snprintf(path, sizeof path, "%s/tests/train/whole-runs.txt", back);
    free(back);
    whole_is(path, &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(runs_tell_what_is_recorded) };

TM_TESTS_ALONE(tests, NULL, test_folder_teardown)
