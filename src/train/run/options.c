/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/options.c - from the finished configuration to the plain values of a run. */
#include "op/preference.h"
#include "train/generate/euler.h"
#include "train/settings/keys.h"
#include "train/settings/quantize.h"
#include "train/run/run.h"
#include "train/settings/save_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is(const tm_config *config, const char *key, const char *value)
{
    const char *text = tm_config_text(config, key);
    return text && strcmp(text, value) == 0;
}

static const tm_precision *precision_of(const tm_config *config)
{
    if (!is(config, "training.dtype", "bfloat16")) return &tm_precision_f32;
    return is(config, "training.regime", "pure") ? &tm_precision_bf16_pure : &tm_precision_bf16;
}

/* none: only what costs nothing to compute again; full: every block; selective: every n-th block, or by op. */
static tm_status read_recompute(const tm_config *config, tm_recompute *out, tm_error *err)
{
    *out = (tm_recompute){ .cheap = tm_config_bool(config, "activation_checkpoint.cheap") };
    if (is(config, "activation_checkpoint.mode", "full")) out->every_n = 1;
    if (out->every_n == 1 && is(config, "recompute_method", "block") &&
        tm_config_text(config, "recompute_num_layers")) {
        out->layers = tm_config_i64(config, "recompute_num_layers");
        if (out->layers == 0) out->every_n = 0; /* the first 0 blocks */
    }
    if (!is(config, "activation_checkpoint.mode", "selective")) return TM_OK;
    const char key[] = "activation_checkpoint.selective_ac_option", *option = tm_config_text(config, key);
    if (option && strcmp(option, "op") == 0) {
        out->every_n = 1;
        return tm_save_list_read(config, out, err);
    }
    bool number = option && *option && strlen(option) <= 4 && strspn(option, "0123456789") == strlen(option);
    out->every_n = number ? strtoll(option, NULL, 10) : 0;
    if (out->every_n >= 1) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%s' (%s) must be a number n (every n-th layer) or op, found '%.100s'", key,
                   tm_config_place(config, key), option ? tm_config_shown(config, key) : "null");
}

static void read_offload(const tm_config *config, tm_offload *out)
{
    bool all = is(config, "training.offload", "all");
    *out = (tm_offload){ .optimizer = all || is(config, "training.offload", "optimizer"),
                         .activations = all || is(config, "training.offload", "activations"),
                         .space = TM_SPACE_DISK,
                         .folder = tm_config_text(config, "training.offload_path") };
}

static void read_schedule(const tm_config *config, tm_run_options *out)
{
    static const char *const forms[] = { "titan", "nemo", "megatron", "torchtune" };
    static const char *const shapes[] = { "linear", "sqrt", "cosine", "exponential", "inverse_sqrt" };
    tm_schedule             *s = &out->schedule;
    const char              *total = tm_config_text(config, "lr_scheduler.total_steps");
    *s = (tm_schedule){ .steps = total ? tm_config_i64(config, "lr_scheduler.total_steps") : out->steps,
                        .warmup_steps = tm_config_i64(config, "lr_scheduler.warmup_steps"),
                        .decay_ratio = -1,
                        .min_lr_factor = tm_config_f64(config, "lr_scheduler.min_lr_factor"),
                        .warmup_fraction = tm_config_f64(config, "lr_scheduler.warmup_fraction"),
                        .cycles = tm_config_f64(config, "lr_scheduler.cycles"),
                        .batch =
                            out->step.micro_batch * out->step.accumulation * tm_layout_data_ranks(&out->step.layout) };
    if (tm_config_f64(config, "lr_scheduler.warmup_lr") > 0)
        s->warmup_factor = tm_config_f64(config, "lr_scheduler.warmup_lr") / out->learning_rate;
    for (int i = 0; i < 4; i++)
        if (is(config, "lr_scheduler.form", forms[i])) s->kind = (tm_schedule_kind)i;
    for (int i = 0; i < 5; i++)
        if (is(config, "lr_scheduler.decay_type", shapes[i])) s->decay = (tm_decay_shape)i;
    if (tm_config_text(config, "lr_scheduler.decay_ratio"))
        s->decay_ratio = tm_config_f64(config, "lr_scheduler.decay_ratio");
    if (tm_config_text(config, "lr_scheduler.decay_steps"))
        s->last_steps = tm_config_i64(config, "lr_scheduler.decay_steps");
}

static tm_muon_scale scale_of(const tm_config *config)
{
    static const char *const names[TM_MUON_SCALE_COUNT] = {
#define X(id, name, factor) [TM_MUON_##id] = name,
        TM_MUON_SCALES(X)
#undef X
    };
    int i = 0;
    while (i < TM_MUON_SCALE_COUNT && !is(config, "optimizer.adjust_lr_fn", names[i])) i++;
    return i < TM_MUON_SCALE_COUNT ? (tm_muon_scale)i : TM_MUON_ORIGINAL;
}

static tm_hyper read_hyper(const tm_config *config)
{
    return (tm_hyper){ .weight_decay = tm_config_f64(config, "optimizer.weight_decay"),
                       .decay_matrices_only = is(config, "optimizer.decay", "matrices"),
                       .beta1 = tm_config_f64(config, "optimizer.beta1"),
                       .beta2 = tm_config_f64(config, "optimizer.beta2"),
                       .eps = tm_config_f64(config, "optimizer.eps"),
                       .momentum = tm_config_f64(config, "optimizer.momentum"),
                       .nesterov = tm_config_bool(config, "optimizer.nesterov"),
                       .beta2_decay = tm_config_f64(config, "optimizer.beta2_decay"),
                       .eps1 = tm_config_f64(config, "optimizer.eps1"),
                       .eps2 = tm_config_f64(config, "optimizer.eps2"),
                       .clip_threshold = tm_config_f64(config, "optimizer.clip_threshold"),
                       .stochastic = tm_config_bool(config, "optimizer.bf16_stochastic_round"),
                       .kahan = tm_config_bool(config, "optimizer.kahan_sum"),
                       .bf16_moments = is(config, "optimizer.implementation", "fused_opt_states_bf16"),
                       .definition = tm_definition_find(tm_config_text(config, "optimizer.definition")),
                       .scale = scale_of(config),
                       .ema_decay = tm_config_f64(config, "training.ema_decay") };
}

/* What goes wrong here is told with the rest. */
static void keep(tm_status *st, tm_error *err, tm_status its, tm_error *own)
{
    if (tm_also_of(err, its, own) != TM_OK) *st = its;
}

/* A pipeline works on smaller micro-batches, and more of them, where that is asked for. */
static tm_status read_pipeline(const tm_config *config, tm_step_options *step, tm_error *err)
{
    const char *const key = "parallelism.pipeline_parallel_microbatch_size";
    TM_TRY(tm_layout_read_pipeline(config, &step->shape, step->seq, &step->layout, err));
    if (tm_layout_size(&step->layout, 1U << TM_AXIS_PP) == 1 || !tm_config_text(config, key)) return TM_OK;
    int64_t each = tm_config_i64(config, key);
    if (step->micro_batch % each != 0)
        return tm_fail(err, TM_INVALID, "%s %lld (%s) does not divide training.local_batch_size %lld; %lld would do",
                       key, (long long)each, tm_config_place(config, key), (long long)step->micro_batch,
                       (long long)step->micro_batch);
    step->accumulation *= step->micro_batch / each;
    step->micro_batch = each;
    return TM_OK;
}

static tm_status check_rows(const char *batch_key, int64_t batch, const char *seq_key, int64_t seq, const char *also,
                            tm_error *err)
{
    int64_t rows, largest = (int64_t)1 << 31;
    if (!__builtin_mul_overflow(batch, seq, &rows) && rows <= largest) return TM_OK;
    return tm_fail(err, TM_INVALID, "%s %lld x %s %lld is more than %lld tokens; lower one of them%s", batch_key,
                   (long long)batch, seq_key, (long long)seq, (long long)largest, also);
}

/* The length of a sample: the model's own, where it has one. */
static tm_status read_length(const tm_config *config, tm_step_options *step, tm_error *err)
{
    int64_t own = tm_model_length(&step->shape);
    if (own > 0 && own != step->seq && tm_config_is_changed(config, "training.seq_len"))
        return tm_fail(
            err, TM_INVALID,
            "training.seq_len is %lld (%s), but a sample of the model has %lld tokens, text and image; leave it "
            "out, or change model.image_size or model.text_len",
            (long long)step->seq, tm_config_place(config, "training.seq_len"), (long long)own);
    if (own > 0) step->seq = own;
    return check_rows("training.local_batch_size", step->micro_batch, "training.seq_len", step->seq,
                      " and raise training.global_batch_size for the same step", err);
}

/* What needs the shape of the model. */
static tm_status read_shaped(const tm_config *config, tm_step_options *step, tm_error *err)
{
    tm_error  own = { 0 };
    tm_status st = TM_OK;
    keep(&st, err, train_quantize_read(config, step->shape.n_layers, &step->quantize, &own), &own);
    keep(&st, err, read_length(config, step, &own), &own);
    keep(&st, err, read_pipeline(config, step, &own), &own);
    return st;
}

tm_status tm_train_optimizer(const tm_config *config, const tm_optimizer **out, tm_error *err)
{
    const char *name = tm_config_text(config, "optimizer.name");
    *out = tm_optimizer_find(name);
    if (*out) return TM_OK;
    return tm_fail(err, TM_UNSUPPORTED,
                   "'optimizer.name' = '%s' (%s): this optimizer is not supported; set it to AdamW", name,
                   tm_config_place(config, "optimizer.name"));
}

static tm_status read_optimizer(const tm_config *config, tm_step_options *step, tm_error *err)
{
    step->hyper = read_hyper(config);
    step->early_updates = tm_config_bool(config, "optimizer.early_step_in_backward");
    TM_TRY(tm_train_optimizer(config, &step->optimizer, err));
    return tm_groups_read(config, step->optimizer, &step->hyper, step->groups, &step->n_groups, err);
}

/* *shaped: shall there be a model, then: is there one? */
static tm_status read_step(const tm_config *config, tm_step_options *step, bool *shaped, tm_error *err)
{
    tm_error  own = { 0 };
    tm_status st = *shaped ? tm_also_of(err, tm_model_shape_read(config, &step->shape, &own), &own) : TM_OK;
    *shaped = *shaped && st == TM_OK;
    keep(&st, err, read_recompute(config, &step->recompute, &own), &own);
    read_offload(config, &step->offload);
    step->precision = precision_of(config);
    step->tf32 = tm_config_bool(config, "training.tf32");
    step->micro_batch = tm_config_i64(config, "training.local_batch_size");
    step->seq = tm_config_i64(config, "training.seq_len");
    if (tm_config_text(config, "training.grad_accumulation")) /* else a rule has said why */
        step->accumulation = tm_config_i64(config, "training.grad_accumulation");
    keep(&st, err, tm_layout_read(config, &step->layout, &own), &own);
    step->loss_chunk = tm_config_i64(config, "loss.chunk_tokens");
    keep(&st, err, read_optimizer(config, step, &own), &own);
    keep(&st, err, tm_adapters_read(config, (uint64_t)tm_config_i64(config, "debug.seed"), &step->adapters, &own),
         &own);
    if (*shaped) keep(&st, err, read_shaped(config, step, &own), &own);
    return st;
}

/* Batches and lengths of held-out samples, where they are others than those of training. */
static tm_status read_validation(const tm_config *config, const tm_source_options *source, tm_step_options *step,
                                 tm_error *err)
{
    const char *const batch_key = "validation.local_batch_size", *const seq_key = "validation.seq_len";
    int64_t batch = step->micro_batch, seq = step->seq;
    int     n;
    if (!tm_config_bool(config, "validation.enable")) return TM_OK;
    if (tm_config_text(config, batch_key)) batch = tm_config_i64(config, batch_key);
    if (tm_config_text(config, seq_key)) seq = tm_config_i64(config, seq_key);
    if (batch == step->micro_batch && seq == step->seq) return TM_OK;
    if (seq != step->seq && tm_model_length(&step->shape) > 0)
        return tm_fail(err, TM_INVALID,
                       "%s is %lld (%s), but a sample of the model has %lld tokens, text and image; leave it out",
                       seq_key, (long long)seq, tm_config_place(config, seq_key), (long long)step->seq);
    TM_TRY(check_rows(batch_key, batch, seq_key, seq, "", err));
    tm_source_options own = *source;
    own.seq = seq;
    step->validation_batch = batch;
    step->validation_seq = seq;
    TM_TRY(tm_source_fields(&own, step->validation_fields, &n, err));
    TM_ASSERT(n == step->n_fields);
    return TM_OK;
}

/* 0: times stay as they are drawn. */
static double flow_shift_of(const tm_config *config, int64_t tokens)
{
    const char *text = tm_config_text(config, "data.flow_shift");
    if (!text) return 0;
    return strcmp(text, "auto") == 0 ? tm_euler_shift(&tm_euler_times_dev, tokens) : strtod(text, NULL);
}

static tm_flow_options flow_of(const tm_config *config, const tm_model_shape *shape)
{
    const tm_flux_shape *image = &shape->flux;
    return (tm_flow_options){ .rows = image->rows,
                              .tokens = image->rows * image->columns,
                              .channels = image->channels,
                              .text_len = image->text_len,
                              .text_dim = image->text_dim,
                              .vector_dim = image->vector_dim,
                              .protocol = is(config, "data.flow_protocol", "mlperf")          ? TM_FLOW_MLPERF
                                          : is(config, "data.flow_protocol", "fluxbenchmark") ? TM_FLOW_FLUXBENCHMARK
                                                                                              : TM_FLOW_TORCHTITAN,
                              .dropout = tm_config_text(config, "data.text_dropout")
                                             ? tm_config_f64(config, "data.text_dropout")
                                             : (double)NAN,
                              .spread = tm_config_f64(config, "data.spread"),
                              .times = is(config, "data.flow_times", "uniform")        ? TM_TIMES_UNIFORM
                                       : is(config, "data.flow_times", "logit_normal") ? TM_TIMES_LOGIT_NORMAL
                                                                                       : TM_TIMES_OF_PROTOCOL,
                              .logit_mean = tm_config_f64(config, "data.flow_logit_mean"),
                              .logit_std = tm_config_f64(config, "data.flow_logit_std"),
                              .shift = flow_shift_of(config, image->rows * image->columns) };
}

static tm_sft_options sft_of(const tm_config *config)
{
    tm_sft_format format = TM_SFT_AUTO;
    while (!is(config, "data.format", tm_sft_format_name(format))) format++; /* the key takes no other */
    return (tm_sft_options){ .format = format,
                             .column_map = tm_config_text(config, "data.column_map"),
                             .tokenizer = tm_config_text(config, "data.tokenizer"),
                             .chat_template = tm_config_text(config, "data.chat_template"),
                             .train_on_input = tm_config_bool(config, "data.train_on_input"),
                             .packed = tm_config_bool(config, "data.packed"),
                             .overlong = is(config, "data.overlong", "drop")    ? TM_OVERLONG_DROP
                                         : is(config, "data.overlong", "split") ? TM_OVERLONG_SPLIT
                                         : is(config, "data.overlong", "error") ? TM_OVERLONG_ERROR
                                                                                : TM_OVERLONG_TRUNCATE };
}

static tm_preference_attr preference_of(const tm_config *config, const tm_source_traits *traits)
{
    if (!traits->pairs) return (tm_preference_attr){ 0 };
    return (tm_preference_attr){ .kind = tm_preference_named(tm_config_text(config, "dpo.loss_type")),
                                 .beta = tm_config_f64(config, "dpo.beta"),
                                 .label_smoothing = tm_config_f64(config, "dpo.label_smoothing") };
}

static void read_source(const tm_config *config, tm_run_options *out)
{
    int64_t samples;
    int64_t batch = out->step.micro_batch * out->step.accumulation * tm_layout_data_ranks(&out->step.layout);
    if (__builtin_mul_overflow(batch, out->steps, &samples)) samples = INT64_MAX;
    out->source = (tm_source_options){ .name = tm_config_text(config, "data.source"),
                                       .path = tm_config_text(config, "data.path"),
                                       .validation_path = tm_config_text(config, "data.validation_path"),
                                       .vocab = out->step.shape.vocab_size,
                                       .seq = out->step.seq,
                                       .seed = out->seed,
                                       .validation_fraction = tm_config_f64(config, "data.validation_fraction"),
                                       .plain_text = true,
                                       .samples = samples,
                                       .mask = is(config, "data.loss_mask", "target") ? TM_MASK_TARGET : TM_MASK_INPUT,
                                       .separate = tm_config_bool(config, "data.separate_documents"),
                                       .plain_answers = strcmp(tm_config_text(config, "data.answers"), "plain") == 0,
                                       .pad_token = (int32_t)tm_config_i64(config, "data.pad_token"),
                                       .flow = flow_of(config, &out->step.shape),
                                       .sft = sft_of(config) };
}

/* A run ends at one of the two. */
static tm_status check_end(const tm_config *config, const tm_run_options *run, tm_error *err)
{
    if (!(run->target_half_width > 0) || !run->stop_at_target) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "metrics.target_half_width (%s) ends a run when its speed is known, training.stop_at_target (%s) "
                   "makes it train until the target; set training.stop_at_target: false or leave the other out",
                   tm_config_place(config, "metrics.target_half_width"),
                   tm_config_place(config, "training.stop_at_target"));
}

/* Pictures are drawn by models that every rank of a stage and of a sequence has whole. */
static tm_status check_pictures(const tm_config *config, const tm_run_options *run, tm_error *err)
{
    const unsigned axes = 1U << TM_AXIS_PP | 1U << TM_AXIS_CP;
    if (!run->step.sample || !tm_source_traits_of(run->source.name)->images) return TM_OK;
    if (tm_layout_size(&run->step.layout, axes) == 1) return TM_OK;
    return tm_fail(
        err, TM_UNSUPPORTED,
        "data.sample_pictures (%s) draws with models that neither pipelines nor context parallelism divide; set "
        "it to 0, or parallelism.pipeline_parallel_degree and parallelism.context_parallel_degree to 1",
        tm_config_place(config, "data.sample_pictures"));
}

static void read_evaluation(const tm_config *config, tm_run_options *out)
{
    const tm_source_traits *traits = tm_source_traits_of(out->source.name);
    TM_ASSERT(traits); /* the key takes no other */
    out->step.preference = preference_of(config, traits);
    out->reference_free = tm_config_bool(config, "dpo.reference_free");
    out->validate = tm_config_bool(config, "validation.enable");
    out->validation_freq = tm_config_i64(config, "validation.freq");
    out->validation_first = tm_config_i64(config, "validation.first");
    out->validation_steps = tm_config_i64(config, "validation.steps");
    out->average_sequences = is(config, "validation.average", "sequences");
    out->target_loss = tm_config_f64(config, "training.target_loss");
    out->target_gap = tm_config_f64(config, "training.target_loss_gap");
    out->stop_at_target = tm_config_bool(config, "training.stop_at_target") && traits->gate == TM_GATE_FLOOR;
    out->target_half_width = tm_config_f64(config, "metrics.target_half_width");
    out->sample_tokens = tm_config_i64(config, "data.sample_tokens");
    out->step.sample =
        traits->images ? tm_config_i64(config, "data.sample_pictures") > 0 : traits->decodes && out->sample_tokens > 0;
}

static void read_checkpoints(const tm_config *config, tm_run_options *out)
{
    out->checkpoint = tm_config_bool(config, "checkpoint.enable");
    out->checkpoint_interval = tm_config_i64(config, "checkpoint.interval");
    out->checkpoint_load_step = tm_config_i64(config, "checkpoint.load_step");
    out->checkpoint_keep = (int)tm_config_i64(config, "checkpoint.keep_latest_k");
    out->checkpoint_behind = !is(config, "checkpoint.async_mode", "disabled");
    out->checkpoint_not_last = tm_config_bool(config, "disable_last_saving");
    out->allow_changed_data = tm_config_bool(config, "checkpoint.allow_changed_data");
}

static void read_debugging(const tm_config *config, tm_run_options *out)
{
    out->reference_kernels = tm_config_bool(config, "debug.allow_reference_kernels");
    out->certify = tm_config_bool(config, "debug.certificate");
    out->certify_after = tm_config_bool(config, "debug.certificate_after");
    out->slowdown_pct = tm_config_f64(config, "debug.slowdown_pct");
    out->replay = tm_config_i64(config, "debug.replay");
    out->microscope = tm_config_i64(config, "debug.microscope");
    out->microscope_bound = tm_config_f64(config, "debug.microscope_bound");
    out->step.compared = out->microscope > 0 ? &tm_precision_f32 : NULL;
    out->quantize_freq = tm_config_i64(config, "quantize.log_freq");
}

/* The samples of a model that is there. */
static tm_status read_fields(const tm_config *config, tm_run_options *out, tm_error *err)
{
    tm_error  own = { 0 };
    tm_status st = tm_source_fields(&out->source, out->step.fields, &out->step.n_fields, err);
    if (st == TM_OK) keep(&st, err, read_validation(config, &out->source, &out->step, &own), &own);
    return st;
}

static tm_status read_options(const tm_config *config, tm_run_options *out, bool shaped, tm_error *err)
{
    tm_error own = { 0 };
    *out = (tm_run_options){ .model_name = tm_config_preset(config) };
    if (!out->model_name) out->model_name = tm_config_text(config, "model.name");
    if (!out->model_name) out->model_name = "custom";
    tm_status st = tm_also_of(err, read_step(config, &out->step, &shaped, &own), &own);
    out->steps = tm_config_i64(config, "training.steps");
    out->learning_rate = tm_config_f64(config, "optimizer.lr");
    out->max_norm = tm_config_f64(config, "training.max_norm");
    read_schedule(config, out);
    keep(&st, err, tm_schedule_check(&out->schedule, &own), &own);
    out->seed = (uint64_t)tm_config_i64(config, "debug.seed");
    out->threads = (int)tm_config_i64(config, "training.threads");
    out->prefetch = (int)tm_config_i64(config, "data.prefetch");
    out->config_hash = tm_config_hash(config);
    read_source(config, out);
    if (shaped) keep(&st, err, read_fields(config, out, &own), &own);
    read_evaluation(config, out);
    keep(&st, err, check_end(config, out, &own), &own);
    keep(&st, err, check_pictures(config, out, &own), &own);
    read_checkpoints(config, out);
    read_debugging(config, out);
    return st;
}

bool tm_run_options_take_fnuz(tm_run_options *options)
{
    return train_quantize_take_fnuz(&options->step.quantize);
}

tm_status tm_run_options_read(const tm_config *config, tm_run_options *out, tm_error *err)
{
    return read_options(config, out, true, err);
}

/* Where no model was chosen, who builds one says so. */
tm_status tm_train_check(tm_config *config, tm_error *err)
{
    tm_run_options out;
    return read_options(config, &out, tm_config_text(config, "model.dim") != NULL, err);
}
