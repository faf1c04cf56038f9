/* SPDX-License-Identifier: Apache-2.0 */
/* train/settings/rules.c - keys that say the same thing are settled, keys that contradict each other refused. */
#include "base/text.h"
#include "data/source.h"
#include "model/shape.h"
#include "op/preference.h"
#include "train/settings/keys.h"
#include "train/optimizer/optimizer.h"
#include "train/settings/quantize.h"

#include <stdio.h>
#include <string.h>

/* One problem among others: the rule goes on. */
#define WRONG(...) tm_config_report(config, tm_fail(err, TM_INVALID, __VA_ARGS__), err)

/* Rank of a key that has a value, 0 otherwise. */
static int rank_of(const tm_config *config, const char *key)
{
    return tm_config_text(config, key) ? tm_config_rank(config, key) : 0;
}

/* training.dtype, training.mixed_precision_param, bf16: the highest layer decides. */
static tm_status settle_dtype(tm_config *config, tm_error *err)
{
    int         dtype = rank_of(config, "training.dtype"), mixed = rank_of(config, "training.mixed_precision_param");
    int         flag = rank_of(config, "bf16");
    const char *param = tm_config_text(config, "training.mixed_precision_param");
    if (mixed > dtype && strcmp(param, "float16") == 0)
        return tm_fail(err, TM_UNSUPPORTED,
                       "training.mixed_precision_param = float16 (%s): float16 training is not supported "
                       "yet; set it to bfloat16 or float32",
                       tm_config_place(config, "training.mixed_precision_param"));
    if (dtype && dtype == mixed && strcmp(tm_config_text(config, "training.dtype"), param) != 0)
        return tm_fail(err, TM_INVALID,
                       "training.dtype is %s (%s), training.mixed_precision_param is %s (%s); give one",
                       tm_config_text(config, "training.dtype"), tm_config_place(config, "training.dtype"), param,
                       tm_config_place(config, "training.mixed_precision_param"));
    const char *flagged = tm_config_bool(config, "bf16") ? "bfloat16" : "float32";
    const char *rival = dtype >= mixed ? "training.dtype" : "training.mixed_precision_param";
    if (flag && flag == rank_of(config, rival) && strcmp(flagged, tm_config_text(config, rival)) != 0)
        return tm_fail(err, TM_INVALID, "bf16 (%s) means %s, %s is %s (%s); give one", tm_config_place(config, "bf16"),
                       flagged, rival, tm_config_text(config, rival), tm_config_place(config, rival));
    if (flag > mixed && flag > dtype) {
        tm_config_derive(config, "training.dtype", flagged, "bf16");
    } else if (mixed > dtype) {
        tm_config_derive(config, "training.dtype", param, "training.mixed_precision_param");
    } else if (!dtype) {
        tm_config_set(config, "training.dtype", "float32", "default (a CPU run)");
        if (tm_config_from_file(config))
            tm_config_note(config, "training.mixed_precision_param is not given: a CPU run is float32");
    }
    return TM_OK;
}

static tm_status settle_batch_of_ranks(tm_config *config, int64_t ranks, tm_error *err)
{
    int64_t local = tm_config_i64(config, "training.local_batch_size"), each;
    int64_t global = tm_config_i64(config, "training.global_batch_size");
    int64_t passes =
        tm_config_text(config, "training.grad_accumulation") ? tm_config_i64(config, "training.grad_accumulation") : 0;
    char text[64];
    if (__builtin_mul_overflow(local, ranks, &each) || each > (int64_t)1 << 40)
        return tm_fail(err, TM_INVALID, "training.local_batch_size %lld on %lld ranks is too many", (long long)local,
                       (long long)ranks);
    if (global == 0 || (global > 0 && global % each != 0))
        return tm_fail(
            err, TM_INVALID,
            "training.global_batch_size %lld (%s) is not a multiple of training.local_batch_size %lld (%s) x "
            "%lld ranks with samples of their own; %lld and %lld are",
            (long long)global, tm_config_place(config, "training.global_batch_size"), (long long)local,
            tm_config_place(config, "training.local_batch_size"), (long long)ranks,
            (long long)(global / each > 0 ? global / each * each : each),
            (long long)((global / each > 0 ? global / each : 1) * each + each));
    if (global > 0 && passes > 0 && global != each * passes)
        return tm_fail(err, TM_INVALID,
                       "training.grad_accumulation %lld (%s) x training.local_batch_size %lld x %lld ranks is not "
                       "training.global_batch_size %lld (%s); give one of the two",
                       (long long)passes, tm_config_place(config, "training.grad_accumulation"), (long long)local,
                       (long long)ranks, (long long)global, tm_config_place(config, "training.global_batch_size"));
    if (passes == 0) {
        snprintf(text, sizeof text, "%lld", (long long)(global > 0 ? global / each : 1));
        tm_config_set(config, "training.grad_accumulation", text,
                      "default (global_batch_size / (local_batch_size x ranks))");
    }
    if (global < 0) {
        snprintf(text, sizeof text, "%lld", (long long)(each * (passes ? passes : 1)));
        tm_config_derive(config, "training.global_batch_size", text, "parallelism.ranks");
    }
    return TM_OK;
}

/* While a batch is searched for, the one that there is counts as 1; it is a micro-batch of the pipeline at least. */
static tm_status settle_searched_batch(tm_config *config, tm_error *err)
{
    const char *const global_key = "training.global_batch_size", *const key = "training.local_batch_size";
    const char *const     part_key = "parallelism.pipeline_parallel_microbatch_size";
    size_t                n;
    const tm_config_axis *axes = tm_config_axes(config, &n);
    bool                  searched = false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(axes[i].row, key) == 0) searched = axes[i].n == 1 && strcmp(axes[i].values[0], "auto") == 0;
    if (!searched || tm_config_i64(config, "parallelism.pipeline_parallel_degree") <= 1 ||
        !tm_config_text(config, part_key))
        return TM_OK;
    int64_t part = tm_config_i64(config, part_key), global = tm_config_i64(config, global_key);
    char    text[32];
    if (global > 0 && global % part != 0)
        return tm_fail(err, TM_INVALID,
                       "%s auto (%s) is a multiple of %s %lld (%s), of which %s %lld (%s) is none; change one of them",
                       key, tm_config_place(config, key), part_key, (long long)part, tm_config_place(config, part_key),
                       global_key, (long long)global, tm_config_place(config, global_key));
    snprintf(text, sizeof text, "%lld", (long long)part);
    tm_config_derive(config, key, text, part_key);
    return TM_OK;
}

/* local x accumulation x data ranks = global. */
static tm_status settle_batch(tm_config *config, tm_error *err)
{
    tm_mesh mesh;
    TM_TRY(settle_searched_batch(config, err));
    TM_TRY(tm_train_mesh(config, &mesh, err));
    int64_t ranks = tm_mesh_group_size(&mesh, TM_AXES_BATCH);
    if (ranks > 1) return settle_batch_of_ranks(config, ranks, err);
    int64_t local = tm_config_i64(config, "training.local_batch_size");
    int64_t global = tm_config_i64(config, "training.global_batch_size");
    int64_t passes =
        tm_config_text(config, "training.grad_accumulation") ? tm_config_i64(config, "training.grad_accumulation") : 0;
    char text[32];
    if (global == 0)
        return tm_fail(err, TM_INVALID,
                       "training.global_batch_size (%s) is 0; wanted -1 or a multiple of "
                       "training.local_batch_size",
                       tm_config_place(config, "training.global_batch_size"));
    if (global > 0 && global % local)
        return tm_fail(err, TM_INVALID,
                       "training.global_batch_size %lld (%s) is not a multiple of training.local_batch_size %lld (%s)",
                       (long long)global, tm_config_place(config, "training.global_batch_size"), (long long)local,
                       tm_config_place(config, "training.local_batch_size"));
    if (global > 0 && passes > 0 && global != local * passes)
        return tm_fail(err, TM_INVALID,
                       "training.grad_accumulation %lld (%s) x training.local_batch_size %lld is not "
                       "training.global_batch_size %lld (%s); give one of the two",
                       (long long)passes, tm_config_place(config, "training.grad_accumulation"), (long long)local,
                       (long long)global, tm_config_place(config, "training.global_batch_size"));
    if (passes == 0) {
        snprintf(text, sizeof text, "%lld", (long long)(global > 0 ? global / local : 1));
        tm_config_set(config, "training.grad_accumulation", text, "default (global_batch_size / local_batch_size)");
    }
    if (global < 0) {
        snprintf(text, sizeof text, "%lld", (long long)(passes ? local * passes : local));
        tm_config_derive(config, "training.global_batch_size", text,
                         passes ? "training.grad_accumulation" : "training.local_batch_size");
    }
    return TM_OK;
}

/* Only what the optimizer reads may be given, and it has a weight decay of its own. */
static tm_status settle_optimizer(tm_config *config, tm_error *err)
{
    const tm_optimizer *optimizer;
    TM_TRY(tm_train_optimizer(config, &optimizer, err));
    tm_config_set(config, "optimizer.weight_decay", optimizer->weight_decay, "default");
    for (int i = 0; tm_optimizer_at(i); i++) {
        for (const char *p = tm_optimizer_at(i)->keys; *p;) {
            size_t n = strcspn(p, ",");
            char   member[32], key[64];
            snprintf(member, sizeof member, "%.*s", (int)n, p);
            snprintf(key, sizeof key, "optimizer.%s", member);
            p += n + (p[n] == ',');
            if (!tm_config_is_changed(config, key) || tm_optimizer_reads(optimizer, member)) continue;
            bool told = false;
            for (int k = 0; k < i; k++) told |= tm_optimizer_reads(tm_optimizer_at(k), member);
            if (!told)
                WRONG("'%s' (%s) is of optimizer.name %s, this run has %s; leave one of the two out", key,
                      tm_config_place(config, key), tm_optimizer_at(i)->name, optimizer->name);
        }
    }
    return TM_OK;
}

/* Updates within the backward pass: neither the norm of all gradients nor gradients to compute again are there. */
static tm_status settle_early(tm_config *config, tm_error *err)
{
    const char *key = "optimizer.early_step_in_backward";
    if (!tm_config_bool(config, key)) return TM_OK;
    if (tm_config_f64(config, "training.max_norm") > 0)
        WRONG("%s (%s) updates weights before the norm of all gradients is known, and training.max_norm is %g; set "
              "training.max_norm to 0, or the key to false",
              key, tm_config_place(config, key), tm_config_f64(config, "training.max_norm"));
    if (tm_config_is_changed(config, "debug.replay") && tm_config_i64(config, "debug.replay") > 0)
        WRONG("%s (%s) keeps no gradients that could be computed again; set debug.replay to 0, or the key to false",
              key, tm_config_place(config, key));
    tm_config_derive(config, "debug.replay", "0", key);
    return TM_OK;
}

/* What is said of the formats of weights and moments must be of some use, and of whose rule one that there is. */
static tm_status settle_formats(tm_config *config, tm_error *err)
{
    const char         *name = tm_config_text(config, "optimizer.name");
    const tm_optimizer *optimizer = tm_optimizer_find(name);
    const char         *regime = tm_config_text(config, "training.regime");
    bool pure = strcmp(regime, "pure") == 0 && strcmp(tm_config_text(config, "training.dtype"), "bfloat16") == 0;
    bool moments = strcmp(tm_config_text(config, "optimizer.implementation"), "fused_opt_states_bf16") == 0;
    bool chance = tm_config_bool(config, "optimizer.bf16_stochastic_round"),
         kahan = tm_config_bool(config, "optimizer.kahan_sum");
    if (moments && optimizer != &tm_optimizer_adamw)
        WRONG("optimizer.implementation fused_opt_states_bf16 (%s) is of optimizer.name AdamW, this run has "
              "%s; leave one of the two out",
              tm_config_place(config, "optimizer.implementation"), name);
    if (chance && !pure && !moments)
        WRONG("optimizer.bf16_stochastic_round (%s) rounds tensors stored in bfloat16, and there are none; set "
              "training.dtype: bfloat16 and training.regime: pure, or leave it out",
              tm_config_place(config, "optimizer.bf16_stochastic_round"));
    if (kahan && !pure)
        WRONG("optimizer.kahan_sum (%s) keeps the rounding errors of bfloat16 weights, but weights are float32; set "
              "training.dtype: bfloat16 and training.regime: pure, or leave it out",
              tm_config_place(config, "optimizer.kahan_sum"));
    if (kahan && chance)
        WRONG("optimizer.kahan_sum (%s) keeps rounding errors, optimizer.bf16_stochastic_round (%s) "
              "averages them out; leave one of the two out",
              tm_config_place(config, "optimizer.kahan_sum"),
              tm_config_place(config, "optimizer.bf16_stochastic_round"));
    const tm_hyper     hyper = { .momentum = tm_config_f64(config, "optimizer.momentum") };
    tm_optimizer_state states[TM_MAX_STATES];
    if (strcmp(tm_config_text(config, "training.offload"), "optimizer") == 0 &&
        !(tm_config_f64(config, "training.ema_decay") > 0) && optimizer->states(&hyper, tm_shape_2(2, 2), states) == 0)
        WRONG("training.offload optimizer (%s) keeps moments in a file, but %s without optimizer.momentum has none; "
              "leave it out",
              tm_config_place(config, "training.offload"), name);
    const char *whose = tm_config_text(config, "optimizer.definition");
    if (whose && optimizer->definitions && !tm_optimizer_defines(optimizer, whose))
        return tm_fail(err, TM_INVALID, "optimizer.definition is %s (%s), optimizer.name %s has %s; take one of these",
                       whose, tm_config_place(config, "optimizer.definition"), name, optimizer->definitions);
    if (!whose && optimizer->definitions) {
        char first[32];
        snprintf(first, sizeof first, "%.*s", (int)strcspn(optimizer->definitions, "|"), optimizer->definitions);
        tm_config_set(config, "optimizer.definition", first, "default");
    }
    if (optimizer == &tm_optimizer_muon) {
        bool megatron = strcmp(tm_config_text(config, "optimizer.definition"), "megatron") == 0;
        tm_config_set(config, "optimizer.momentum", megatron ? "0.9" : "0.95", "default");
        tm_config_set(config, "optimizer.nesterov", megatron ? "false" : "true", "default");
        tm_config_set(config, "optimizer.adjust_lr_fn", megatron ? "spectral" : "original", "default");
    }
    return TM_OK;
}

static double part_of_rate(tm_config *config, const char *key, tm_error *err)
{
    double rate = tm_config_f64(config, "optimizer.lr"), value = tm_config_f64(config, key);
    if (value == 0) return 0;
    if (value > 0 && value <= rate) return value / rate;
    WRONG("%s %g (%s) must be from 0 to optimizer.lr %g (%s)", key, value, tm_config_place(config, key), rate,
          tm_config_place(config, "optimizer.lr"));
    return -1;
}

/* A key that this form of the schedule does not have. */
static void refuse_of_form(tm_config *config, const char *key, const char *why, tm_error *err)
{
    WRONG("lr_scheduler.form %s (%s) %s, but %s is %s (%s); leave one out", tm_config_text(config, "lr_scheduler.form"),
          tm_config_place(config, "lr_scheduler.form"), why, key, tm_config_text(config, key),
          tm_config_place(config, key));
}

/* titan: a warm-up that is longer than everything is cut, as TorchTitan does with a warning. */
static void tell_cut_warmup(tm_config *config)
{
    const char *all =
        tm_config_text(config, "lr_scheduler.total_steps") ? "lr_scheduler.total_steps" : "training.steps";
    int64_t warmup = tm_config_i64(config, "lr_scheduler.warmup_steps"), steps = tm_config_i64(config, all);
    if (warmup <= steps || !tm_config_is_set(config, "lr_scheduler.warmup_steps")) return;
    tm_config_note(config,
                   "lr_scheduler.warmup_steps is %lld (%s), but %s is %lld (%s): the warm-up is cut to %lld steps",
                   (long long)warmup, tm_config_place(config, "lr_scheduler.warmup_steps"), all, (long long)steps,
                   tm_config_place(config, all), (long long)steps);
}

/* titan: behind the end of its schedule TorchTitan goes on with the formula, below 0 or up again; here the rate stays.
 * The step behind the last one is at the lowest rate in both. */
static void tell_end_of_schedule(tm_config *config)
{
    static const char all[] = "lr_scheduler.total_steps", steps[] = "training.steps";
    if (!tm_config_text(config, all) || tm_config_i64(config, all) + 1 >= tm_config_i64(config, steps)) return;
    tm_config_note(config,
                   "%s is %s (%s), but %s is %s (%s): behind the end of the schedule the rate stays at its lowest "
                   "(TorchTitan goes on with its formula, below 0 or up again)",
                   all, tm_config_text(config, all), tm_config_place(config, all), steps, tm_config_text(config, steps),
                   tm_config_place(config, steps));
}

/* nemo and torchtune: a cosine over all steps; that of torchtune ends at 0. */
static void settle_cosine(tm_config *config, tm_error *err)
{
    static const char *const parts[] = { "lr_scheduler.decay_ratio", "lr_scheduler.decay_steps" };
    const char              *type = tm_config_text(config, "lr_scheduler.decay_type");
    bool                     torchtune = strcmp(tm_config_text(config, "lr_scheduler.form"), "torchtune") == 0;
    for (int i = 0; i < 2; i++)
        if (tm_config_text(config, parts[i])) refuse_of_form(config, parts[i], "decays over all steps", err);
    if (tm_config_is_set(config, "lr_scheduler.decay_type") && strcmp(type, "cosine") != 0)
        refuse_of_form(config, "lr_scheduler.decay_type", "is a cosine", err);
    if (torchtune && tm_config_f64(config, "lr_scheduler.min_lr_factor") > 0)
        refuse_of_form(config, "lr_scheduler.min_lr_factor", "ends at 0", err);
    tm_config_derive(config, "lr_scheduler.decay_type", "cosine", "lr_scheduler.form");
}

static tm_status settle_schedule(tm_config *config, tm_error *err)
{
    static const char *const megatron[] = { "lr_scheduler.warmup_fraction", "lr_scheduler.warmup_lr" };
    const char              *form = tm_config_text(config, "lr_scheduler.form");
    int                      least = rank_of(config, "min_lr");
    if (least && least >= rank_of(config, "lr_scheduler.min_lr_factor")) {
        double factor = part_of_rate(config, "min_lr", err);
        char   text[32];
        if (factor >= 0)
            tm_config_derive(config, "lr_scheduler.min_lr_factor", tm_format_double(text, factor), "min_lr");
    }
    if (strcmp(form, "nemo") == 0 || strcmp(form, "torchtune") == 0) settle_cosine(config, err);
    if (strcmp(form, "megatron") == 0) {
        (void)part_of_rate(config, "lr_scheduler.warmup_lr", err);
        if (tm_config_f64(config, "lr_scheduler.warmup_fraction") > 0 &&
            tm_config_i64(config, "lr_scheduler.warmup_steps") > 0)
            WRONG("lr_scheduler.warmup_fraction (%s) and lr_scheduler.warmup_steps (%s) both say how long the warm-up "
                  "is; leave one out",
                  tm_config_place(config, "lr_scheduler.warmup_fraction"),
                  tm_config_place(config, "lr_scheduler.warmup_steps"));
        return TM_OK;
    }
    if (strcmp(form, "titan") == 0 && !tm_config_text(config, "training.epochs")) {
        tell_cut_warmup(config);
        tell_end_of_schedule(config);
    }
    for (int i = 0; i < 2; i++)
        if (tm_config_f64(config, megatron[i]) > 0)
            refuse_of_form(config, megatron[i], "has no such warm-up (megatron has)", err);
    if (strcmp(tm_config_text(config, "lr_scheduler.decay_type"), "inverse_sqrt") == 0)
        refuse_of_form(config, "lr_scheduler.decay_type", "has no such decay (megatron has)", err);
    return TM_OK;
}

static tm_status settle_recompute(tm_config *config, tm_error *err)
{
    const char *granularity = tm_config_text(config, "recompute_granularity");
    const char *mode = tm_config_text(config, "activation_checkpoint.mode");
    int         own = rank_of(config, "activation_checkpoint.mode"), theirs = rank_of(config, "recompute_granularity");
    if (theirs && theirs == own && strcmp(mode, granularity) != 0)
        return tm_fail(err, TM_INVALID,
                       "recompute_granularity is %s (%s), activation_checkpoint.mode is %s (%s); give one of the two",
                       granularity, tm_config_place(config, "recompute_granularity"), mode,
                       tm_config_place(config, "activation_checkpoint.mode"));
    if (theirs > own) tm_config_derive(config, "activation_checkpoint.mode", granularity, "recompute_granularity");
    if (theirs > own && strcmp(granularity, "selective") == 0) { /* the core of attention: products are kept */
        tm_config_derive(config, "activation_checkpoint.selective_ac_option", "op", "recompute_granularity");
        tm_config_derive(config, "activation_checkpoint.save_ops", "linear", "recompute_granularity");
    }
    return TM_OK;
}

/* A learned table of positions ends; rotary positions only leave what the model was made for. */
static tm_status check_length(tm_config *config, tm_error *err)
{
    tm_model_shape shape;
    tm_error       own = { 0 };
    if (!tm_config_text(config, "model.dim")) return TM_OK;               /* no model was chosen */
    if (tm_model_shape_read(config, &shape, &own) != TM_OK) return TM_OK; /* tm_train_check says so */
    const char *const lengths[] = { "training.seq_len", "validation.seq_len" };
    for (size_t i = 0; i < 2; i++) {
        if (!tm_config_text(config, lengths[i]) || tm_config_i64(config, lengths[i]) <= shape.max_seq_len) continue;
        if (tm_model_max_length(&shape) < INT64_MAX)
            return tm_fail(err, TM_INVALID,
                           "%s %s (%s) exceeds model.max_seq_len %lld (%s), the model's table of positions; "
                           "change one",
                           lengths[i], tm_config_text(config, lengths[i]), tm_config_place(config, lengths[i]),
                           (long long)shape.max_seq_len, tm_config_place(config, "model.max_seq_len"));
        tm_config_note(config, "%s %s exceeds model.max_seq_len %lld: rotary positions extend beyond it", lengths[i],
                       tm_config_text(config, lengths[i]), (long long)shape.max_seq_len);
    }
    return TM_OK;
}

/* Megatron's word for one of the strategies. */
static void settle_sharing(tm_config *config)
{
    if (tm_config_bool(config, "use_distributed_optimizer") &&
        rank_of(config, "use_distributed_optimizer") > rank_of(config, "parallelism.data_parallel_shard_strategy"))
        tm_config_derive(config, "parallelism.data_parallel_shard_strategy", "optim", "use_distributed_optimizer");
}

/* One of them says how long a run is. */
static tm_status check_epochs(tm_config *config, tm_error *err)
{
    int epochs = rank_of(config, "training.epochs");
    if (epochs > 0 && epochs == rank_of(config, "training.steps") && tm_config_text(config, "training.epochs"))
        WRONG("training.epochs is %s (%s), training.steps is %s (%s); give one of the two",
              tm_config_text(config, "training.epochs"), tm_config_place(config, "training.epochs"),
              tm_config_text(config, "training.steps"), tm_config_place(config, "training.steps"));
    return TM_OK;
}

/* The loss of pairs, and evaluations. */
static tm_status check_evaluation(tm_config *config, tm_error *err)
{
    const tm_source_traits *traits = tm_source_traits_of(tm_config_text(config, "data.source"));
    if (traits && traits->pairs && tm_config_f64(config, "dpo.label_smoothing") > 0 &&
        !tm_preference_smooths(tm_preference_named(tm_config_text(config, "dpo.loss_type"))))
        WRONG("dpo.label_smoothing (%s) is for dpo.loss_type sigmoid, robust and exo_pair, found %s; set it to 0",
              tm_config_place(config, "dpo.label_smoothing"), tm_config_text(config, "dpo.loss_type"));
    if (traits && traits->pairs && strcmp(tm_config_text(config, "dpo.loss_type"), "exo_pair") == 0 &&
        !(tm_config_f64(config, "dpo.label_smoothing") > 0))
        WRONG(
            "dpo.loss_type exo_pair (%s) needs dpo.label_smoothing above 0, the share of the rejected answer; 0.001 is "
            "usual",
            tm_config_place(config, "dpo.loss_type"));
    const char *batch = tm_config_text(config, "validation.local_batch_size");
    int64_t     at_a_time = tm_config_i64(config, batch ? "validation.local_batch_size" : "training.local_batch_size");
    if (strcmp(tm_config_text(config, "validation.average"), "sequences") == 0 && at_a_time != 1)
        WRONG("validation.average sequences (%s) is built for one sequence at a time, found %lld; set "
              "validation.local_batch_size to 1",
              tm_config_place(config, "validation.average"), (long long)at_a_time);
    return TM_OK;
}

tm_status tm_train_rules(tm_config *config, tm_error *err)
{
    static tm_status (*const rules[])(
        tm_config *, tm_error *) = { settle_batch,          settle_schedule, settle_recompute, check_evaluation,
                                     train_quantize_settle, check_length,    check_epochs };
    settle_sharing(config);
    tm_config_report(config, tm_train_settle_ranks(config, err), err);
    bool wrong = tm_config_report(config, settle_dtype(config, err), err);
    wrong |= tm_config_report(config, settle_optimizer(config, err), err);
    if (!wrong) tm_config_report(config, settle_formats(config, err), err);
    if (!wrong) tm_config_report(config, settle_early(config, err), err);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) tm_config_report(config, rules[i](config, err), err);
    return TM_OK;
}
