/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/training.c - small trainings of every format: which, how, and what they leave behind. */
#include "apps/node/training.h"

#include "base/arena.h"
#include "base/random.h"
#include "train/trainer/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, SEQ = 32, BATCH = 2 };

/* --- which -------------------------------------------------------------------------------------------------------- */

typedef enum { LLAMA, EXPERTS, GPT, FLUX, MODELS } model_number;
/* Recipes are for linears and experts. */
enum { MODELS_OF_RECIPES = EXPERTS + 1 };

const char *tm_node_model_name(int model)
{
    static const char *const names[MODELS] = { "llama", "mixtral", "gpt", "flux" };
    return names[model];
}

bool tm_node_format_at(int i, tm_node_format *out)
{
    static const tm_precision *const plain[] = { &tm_precision_f32, &tm_precision_bf16 };
    if (i < 2) {
        *out = (tm_node_format){ .name = plain[i]->name, .precision = plain[i], .models = MODELS };
        return true;
    }
    const tm_quantize_recipe *recipe = tm_quantize_recipe_at(i - 2);
    if (recipe)
        *out = (tm_node_format){
            .name = recipe->name, .precision = &tm_precision_bf16, .recipe = recipe, .models = MODELS_OF_RECIPES
        };
    return recipe != NULL;
}

static void be_image_model(tm_step_options *o)
{
    static const tm_field fields[] = { { .name = "noisy", .dtype = TM_F32, .shape = { 2, { 16, 16 } } },
                                       { .name = "velocity", .dtype = TM_F32, .shape = { 2, { 16, 16 } } },
                                       { .name = "time", .dtype = TM_F32, .shape = { 2, { 1, 1 } } },
                                       { .name = "text", .dtype = TM_F32, .shape = { 2, { 8, 24 } } },
                                       { .name = "pooled", .dtype = TM_F32, .shape = { 2, { 1, 16 } } } };
    o->shape.vocab_size = 0;
    o->shape.flux = (tm_flux_shape){ .n_single = 1,
                                     .text_len = 8,
                                     .rows = 4,
                                     .columns = 4,
                                     .text_dim = 24,
                                     .vector_dim = 16,
                                     .channels = 16,
                                     .time_dim = 16,
                                     .axes = { 8, 12, 12 } };
    o->seq = 24;
    o->n_fields = 5;
    memcpy(o->fields, fields, sizeof fields);
}

static tm_step_options options_of(const tm_node_format *format, int model, uint64_t seed)
{
    tm_step_options o = { .precision = format->precision,
                          .micro_batch = BATCH,
                          .seq = SEQ,
                          .accumulation = 2,
                          .optimizer = &tm_optimizer_adamw,
                          .hyper = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 } };
    o.shape = (tm_model_shape){ .family = TM_FAMILY_LLAMA,
                                .vocab_size = 96,
                                .dim = 64,
                                .n_layers = 1,
                                .n_heads = 2,
                                .n_kv_heads = 1,
                                .head_dim = 32,
                                .ffn_dim = 96,
                                .max_seq_len = SEQ,
                                .norm_eps = 1e-5,
                                .rope_theta = 10000,
                                .init = TM_INIT_TORCHTITAN };
    if (model == LLAMA) o.shape.n_layers = 2;
    if (model == EXPERTS) {
        o.shape.family = TM_FAMILY_MIXTRAL;
        o.shape.moe =
            (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 64, .normalise = true, .scale = 1, .aux_loss = 0.01 };
    }
    if (model == GPT) {
        o.shape.family = TM_FAMILY_GPT;
        o.shape.n_kv_heads = 2, o.shape.tied = true, o.shape.bias = TM_BIAS_ALL, o.shape.init = TM_INIT_GPT2;
    }
    if (model == FLUX) {
        o.shape.family = TM_FAMILY_FLUX;
        o.shape.n_kv_heads = 2;
        be_image_model(&o);
    }
    if (format->recipe) {
        o.quantize = (tm_quantize){ .on = true, .switch_step = -1, .history = 4, .seed = seed };
        o.quantize.recipe[0] = *format->recipe;
        if (model == EXPERTS) o.quantize.experts = *format->recipe;
        if (model == LLAMA) o.quantize.head = *format->recipe;
    }
    return o;
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

static void fill_tokens(int32_t *to, int64_t n, int64_t vocabulary, uint64_t seed, uint64_t stream)
{
    for (int64_t i = 0; i < n; i++) to[i] = (int32_t)tm_random_below(seed, stream, (uint64_t)i, (uint64_t)vocabulary);
}

/* Times lie in (0, 1), all else is normal. */
static void fill_numbers(float *to, int64_t n, bool times, uint64_t seed, uint64_t stream)
{
    for (int64_t i = 0; i < n; i++)
        to[i] =
            (float)(times ? tm_random_uniform(seed, stream, (uint64_t)i) : tm_random_normal(seed, stream, (uint64_t)i));
}

/* Fields of all micro-batches of a step, drawn. The caller frees them. */
static void fill_batch(const tm_step_options *o, uint64_t seed, int step, const void *fields[TM_MAX_FIELDS])
{
    for (int f = 0; f < o->n_fields; f++) {
        const int64_t  n = o->micro_batch * o->accumulation * tm_shape_elements(o->fields[f].shape);
        const uint64_t stream = tm_random_stream(o->fields[f].name) + (uint64_t)step;
        void          *to = tm_alloc((size_t)n * tm_dtype_bytes(o->fields[f].dtype));
        fields[f] = to;
        if (o->fields[f].dtype == TM_I32)
            fill_tokens(to, n, o->shape.vocab_size, seed, stream);
        else
            fill_numbers(to, n, strcmp(o->fields[f].name, "time") == 0, seed, stream);
    }
}

/* --- what is left behind ------------------------------------------------------------------------------------------ */

static tm_status add_role(const tm_trainer *trainer, tm_role role, const char *suffix, int step, tm_node_trace *out,
                          tm_error *err)
{
    const tm_step *s = tm_trainer_step_of(trainer);
    for (size_t i = 0; i < s->graph->n_tensors; i++) {
        const tm_tensor *tensor = &s->graph->tensors[i];
        char             name[96];
        if (tensor->role != role || tensor->base != TM_NONE) continue;
        const size_t bytes = s->plan->places[i].bytes;
        void        *values = tm_alloc(bytes + 1);
        tm_status    st = tm_trainer_read(trainer, (tm_tensor_id)i, 0, values, bytes, err);
        snprintf(name, sizeof name, "%.80s%s", tensor->name, suffix);
        if (st == TM_OK) tm_node_trace_add(out, name, step, values, bytes);
        free(values);
        TM_TRY(st);
    }
    return TM_OK;
}

static tm_status add_step(const tm_trainer *trainer, const tm_step_result *result, int step, tm_node_trace *out,
                          tm_error *err)
{
    const double told[2] = { result->loss, result->grad_norm };
    TM_TRY(add_role(trainer, TM_ROLE_GRADIENT, "", step, out, err));
    TM_TRY(add_role(trainer, TM_ROLE_MOMENT, "", step, out, err));
    TM_TRY(add_role(trainer, TM_ROLE_PARAMETER, "", step, out, err));
    TM_TRY(add_role(trainer, TM_ROLE_STATE, "", step, out, err));
    tm_node_trace_add(out, "loss and norm", step, told, sizeof told);
    return TM_OK;
}

/* Parameters that begin as zeros are drawn, too: gates of images and biases would leave most products with zeros. */
static tm_status draw_zeros(tm_trainer *trainer, uint64_t seed, tm_error *err)
{
    const tm_step *s = tm_trainer_step_of(trainer);
    for (size_t i = 0; i < s->graph->n_tensors; i++) {
        const tm_tensor *tensor = &s->graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER || tensor->base != TM_NONE || tensor->dtype != TM_F32) continue;
        const int64_t  n = tm_shape_elements(tensor->shape);
        const uint64_t stream = tm_random_stream(tensor->name);
        float         *values = tm_alloc((size_t)n * sizeof *values);
        tm_status      st = tm_trainer_read(trainer, (tm_tensor_id)i, 0, values, (size_t)n * sizeof *values, err);
        for (int64_t k = 0; k < n; k++)
            if (values[k] == 0) values[k] = 0.05F * (float)tm_random_normal(seed, stream, (uint64_t)k);
        if (st == TM_OK) st = tm_trainer_write(trainer, (tm_tensor_id)i, 0, values, (size_t)n * sizeof *values, err);
        free(values);
        TM_TRY(st);
    }
    return TM_OK;
}

static tm_status train_steps(tm_trainer *trainer, uint64_t seed, tm_node_trace *out, tm_error *err)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    const int64_t          samples = o->micro_batch * o->accumulation;
    tm_status              st = TM_OK;
    for (int step = 1; step <= STEPS && st == TM_OK; step++) {
        tm_micro_batch batch = { .target_tokens = samples * (tm_model_images(&o->shape) ? 1 : o->seq) };
        tm_step_result result;
        fill_batch(o, seed, step, batch.field);
        /* The first one is not clipped: what is wrong in a gradient stays in its tensor. */
        st = tm_trainer_begin(trainer, step, 1e-2, step == 1 ? 0 : 1, batch.target_tokens, err);
        if (st == TM_OK) st = tm_trainer_step(trainer, &batch, &result, NULL, err);
        if (st == TM_OK) st = add_step(trainer, &result, step, out, err);
        for (int f = 0; f < o->n_fields; f++) free((void *)batch.field[f]);
    }
    out->flops = STEPS * tm_schedule_flops(&tm_trainer_step_of(trainer)->training);
    return st;
}

tm_status tm_node_train(tm_device *device, const tm_node_format *format, int model, uint64_t seed, tm_node_trace *out,
                        tm_error *err)
{
    const tm_step_options options = options_of(format, model, seed);
    tm_trainer           *trainer;
    TM_TRY(tm_trainer_open(device, &options, seed, &trainer, err));
    tm_status st = draw_zeros(trainer, seed, err);
    if (st == TM_OK) st = train_steps(trainer, seed, out, err);
    tm_trainer_close(trainer);
    return st;
}
