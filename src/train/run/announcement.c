/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/announcement.c - what a run is going to do. */
#include "train/run/outline.h"
#include "train/run/run_state.h"

#include "base/cpu.h"
#include "base/log.h"

#include <math.h>
#include <string.h>

/* MLPerf's name of a number format. */
static const char *format_name(tm_dtype dtype)
{
    return dtype == TM_F64 ? "fp64" : dtype == TM_BF16 ? "bfloat16" : "fp32";
}

/* The lowest format of the factors of linears. */
static const char *linear_format(const tm_step_options *o)
{
    static const char *const lowest[][2] = {
        { "nvfp4", "nvfp4" }, { "mxfp4", "mxfp4" }, { "mxfp6", "mxfp6" }, { "mxfp8", "fp8" }, { "fp8", "fp8" }
    };
    for (size_t i = 0; i < sizeof lowest / sizeof *lowest; i++)
        for (int k = 0; k < 2 * TM_QUANTIZE_KINDS && o->quantize.on; k++) {
            const tm_quantize_recipe *of =
                tm_quantize_recipe_of(&o->quantize, (tm_quantize_kind)(k / 2), k % 2 && o->quantize.switch_step >= 0);
            if (of && strncmp(of->name, lowest[i][0], strlen(lowest[i][0])) == 0) return lowest[i][1];
        }
    TM_ASSERT(!o->quantize.on); /* a recipe with a row here */
    return format_name(o->precision->compute);
}

static tm_recipe recipe_of(const run *r)
{
    const tm_run_options *o = r->options;
    int64_t               held_out = tm_source_describe(r->held_out)->validation_samples;
    int64_t               evaluated = o->validate ? run_validation_batches(r) * run_validation_rows(o) : 0;
    return (tm_recipe){
        .optimizer = o->step.optimizer->log_name,
        .schedule = tm_schedule_words(&o->schedule),
        .global_batch = run_global_batch(o),
        .accumulation = o->step.accumulation,
        .sequence_length = o->step.seq,
        .eval_samples = evaluated < held_out ? evaluated : held_out, /* the last batch may be filled up */
        .warmup_steps = o->schedule.warmup_steps,
        .decay_steps = tm_schedule_decay_steps(&o->schedule),
        .learning_rate = o->learning_rate,
        .end_learning_rate = o->learning_rate * o->schedule.min_lr_factor,
        .beta1 = o->step.hyper.beta1,
        .beta2 = o->step.hyper.beta2,
        .eps = o->step.hyper.eps,
        .weight_decay = o->step.hyper.weight_decay,
        .max_norm = o->max_norm > 0 ? o->max_norm : (double)INFINITY,
        .lora_rank = o->step.adapters.rank,
        .lora_alpha = o->step.adapters.alpha,
        .micro_batch = o->step.micro_batch,
        .eval_interval = o->validate ? o->validation_freq * run_global_batch(o) : 0,
        .precision_linear = linear_format(&o->step),
        .precision_attention = format_name(o->step.precision->compute),
        .precision_communication = format_name(o->step.precision->gradient), /* as ranks add them up */
        .tensor_ranks = tm_layout_size(&o->step.layout, 1U << TM_AXIS_TP),
        .pipeline_ranks = tm_layout_size(&o->step.layout, 1U << TM_AXIS_PP),
        .context_ranks = tm_layout_size(&o->step.layout, 1U << TM_AXIS_CP),
        .expert_ranks = tm_layout_size(&o->step.layout, 1U << TM_AXIS_EP),
    };
}

/* FLOP/s; of a GPU what its maker publishes of the format of products. 0: unknown, as of TF32. */
static double peak_of(const tm_device_info *info, const tm_step_options *step)
{
    const tm_dtype compute = step->precision->compute;
    if (step->tf32) return 0;
    if (!info->sheet) return info->peak_flops;
    return 1e12 * (compute == TM_BF16 ? info->sheet->tflops_bf16 : info->sheet->tflops_f32);
}

const char *tm_run_precision(const tm_run_options *options, const tm_codes *codes, tm_arena *arena)
{
    const tm_quantize *quantize = &options->step.quantize;
    const char        *precision = options->step.precision->name;
    if (options->step.tf32) return tm_arena_format(arena, "%s+tf32", precision);
    if (!quantize->on) return precision;
    return tm_arena_format(arena, "%s+%s%s%s%s", precision, tm_quantize_words(quantize, false, arena),
                           quantize->switch_step < 0 ? "" : "+", /* the second from a step on */
                           quantize->switch_step < 0 ? "" : tm_quantize_words(quantize, true, arena),
                           codes->products == 0  ? " (emulated)"
                           : codes->emulated > 0 ? " (partly emulated)"
                                                 : "");
}

void run_announce(run *r)
{
    const tm_run_options *o = r->options;
    const tm_plan        *plan = tm_trainer_step_of(r->trainer)->plan;
    const tm_device_info *info = tm_device_describe(r->device);
    tm_named_f64          flops[TM_FLOPS_COUNT];
    for (int i = 0; i < TM_FLOPS_COUNT; i++)
        flops[i] = (tm_named_f64){ tm_flops_convention_name((tm_flops_convention)i),
                                   tm_model_flops_per_token(&o->step.shape, (tm_flops_convention)i, o->step.seq) };
    tm_arena    *arena = tm_arena_create();
    step_outline outline;
    step_outline_make(tm_trainer_step_of(r->trainer), arena, &outline);
    tm_event event = { .kind = TM_EVENT_RUN_STARTED };
    event.run_started = (tm_run_started){
        .model = o->model_name,
        .precision = tm_run_precision(o, &tm_trainer_step_of(r->trainer)->codes, arena),
        .device = info->name,
        .kernels = info->kernels,
        .sums = info->sums[o->step.precision->compute == TM_BF16],
        .judged_modules = info->judged_modules,
        .compiled_modules = info->compiled_modules,
        .data_source = o->source.name,
        .encoders = tm_source_traits_of(o->source.name)->encoders,
        .parameters = tm_model_parameters(&o->step.shape),
        .steps = o->steps,
        .first_step = r->progress.first_step,
        .first_sample = r->progress.first_sample,
        .batch_tokens = run_global_batch(o) * o->step.seq / run_ranks(o),
        .predicted = o->predicted,
        .predicted_by = o->predicted_by,
        .devices = run_ranks(o),
        .gpus = info->kind == TM_DEVICE_GPU ? run_ranks(o) : 0,
        .threads = info->threads,
        .seed = o->seed,
        .loss_floor = tm_source_describe(r->held_out)->validation_floor,
        .loss_target = o->target_loss > 0 ? o->target_loss : 0,
        .peak_flops = peak_of(info, &o->step),
        .peak_mhz = info->sheet && o->step.precision->compute == TM_BF16 ? info->sheet->mhz : 0,
        .flops_per_token = flops,
        .n_flops_per_token = TM_FLOPS_COUNT,
        .memory = plan->by_class,
        .n_memory = plan->n_classes,
        .planned_bytes = (int64_t)plan->arena_bytes,
        .memory_limit_bytes = tm_memory_total_bytes(""),
        .work = outline.work,
        .n_work = outline.n_work,
        .memory_along = outline.classes,
        .n_memory_along = outline.n_classes,
        .n_points = outline.n_points,
        .recipe = recipe_of(r),
    };
    const char *products = tm_step_products(tm_trainer_step_of(r->trainer));
    tm_text     codes = { 0 };
    tm_step_codes(tm_trainer_step_of(r->trainer), &codes);
    if (info->kind == TM_DEVICE_GPU)
        tm_note("device %s%s%s%s%s", info->text, products ? "; quantized factors are multiplied in " : "",
                products ? products : "", codes.data ? "; " : "", codes.data ? codes.data : "");
    tm_text_fini(&codes);
    if (info->sheet)
        tm_note("MFU by the dense peak that is published: %.4g TFLOP/s (%s)", event.run_started.peak_flops * 1e-12,
                info->sheet->source);
    tm_event_emit(r->bus, &event);
    tm_arena_destroy(arena);
}
