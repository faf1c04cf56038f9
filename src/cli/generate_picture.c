/* SPDX-License-Identifier: Apache-2.0 */
/* cli/generate_picture.c - `trainmark generate` with a model of images: captions are encoded, latents drawn, pixels
 * decoded. One part is in memory at a time. */
#include "cli/generate_picture.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/file_list.h"
#include "base/json.h"
#include "base/log.h"
#include "encoder/pixels.h"
#include "encoder/texts.h"
#include "image/resize.h"
#include "train/generate/scheduler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    speaker               *s;
    const picture_options *o;
    tm_model_shape         shape;
    const char            *encoders;
    const tm_precision    *precision;
    tm_euler_prompt        prompt, negative;
    float                 *text[2], *pooled[2]; /* of the prompt, of the negative one */
    float                 *latents;             /* (count, tokens, channels) */
    double                *times;               /* (steps + 1) */
    double                 text_seconds, draw_seconds, decode_seconds;
    tm_arena              *arena;
} job;

static int64_t latent_elements(const job *j)
{
    const tm_flux_shape *x = &j->shape.flux;
    return x->rows * x->columns * x->channels;
}

static tm_status take_size(job *j, tm_error *err)
{
    int64_t width, height;
    if (!j->o->size) return TM_OK;
    TM_TRY(tm_cli_read_size(j->o->size, "--size", &width, &height, err));
    j->shape.flux.columns = width / 16;
    j->shape.flux.rows = height / 16;
    return TM_OK;
}

/* The directory with the encoders: as given, of the run's configuration, or the one that the transformer lies in. */
static tm_status find_encoders(job *j, tm_error *err)
{
    const char *of_run = tm_config_text(j->s->source.config, "data.encoders");
    const char *path = j->s->path, *slash = strrchr(path, '/');
    j->encoders = j->o->encoders ? j->o->encoders : of_run;
    if (j->encoders) return TM_OK;
    const char *above = slash ? tm_arena_format(j->arena, "%.*s", (int)(slash - path), path) : ".";
    if (tm_is_folder(tm_arena_format(j->arena, "%s/vae", above))) j->encoders = above;
    if (j->encoders) return TM_OK;
    return tm_fail(
        err, TM_INVALID,
        "'%.300s' has no encoders beside it; give --encoders DIR, a directory of FLUX.1 as diffusers ships it "
        "(vae, text_encoder, text_encoder_2, tokenizer, tokenizer_2)",
        path);
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

static tm_status encode(job *j, tm_texts *texts, int which, const char *caption, tm_error *err)
{
    const tm_flux_shape *x = &j->shape.flux;
    int64_t              cut;
    j->text[which] = tm_alloc((size_t)(x->text_len * x->text_dim) * sizeof(float));
    j->pooled[which] = tm_alloc((size_t)x->vector_dim * sizeof(float));
    TM_TRY(tm_texts_encode(texts, caption, j->text[which], j->pooled[which], &cut, err));
    if (cut > 0)
        tm_warn("the last %lld tokens of '%.60s' are not read: the model takes %lld", (long long)cut, caption,
                (long long)x->text_len);
    return TM_OK;
}

static tm_status encode_prompts(job *j, tm_device *device, tm_error *err)
{
    const tm_flux_shape *x = &j->shape.flux;
    tm_texts            *texts = NULL;
    int64_t              begin = tm_now_ns();
    TM_TRY(tm_texts_open(device, j->encoders, x->text_len, j->precision->compute, &texts, err));
    tm_status st = TM_OK;
    if (tm_texts_width(texts) != x->text_dim || tm_texts_pooled_width(texts) != x->vector_dim)
        st = tm_fail(
            err, TM_INVALID,
            "the text encoders in '%.200s' give %lld numbers of a token and %lld of a text, the model wants %lld "
            "and %lld; take those that it was trained with",
            j->encoders, (long long)tm_texts_width(texts), (long long)tm_texts_pooled_width(texts),
            (long long)x->text_dim, (long long)x->vector_dim);
    if (st == TM_OK) st = encode(j, texts, 0, j->o->prompt, err);
    if (st == TM_OK && j->o->true_cfg > 1) st = encode(j, texts, 1, j->o->negative ? j->o->negative : "", err);
    tm_texts_close(texts);
    j->prompt = (tm_euler_prompt){ j->text[0], j->pooled[0] };
    j->negative = (tm_euler_prompt){ j->text[1], j->pooled[1] };
    j->text_seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}

/* --- latents ------------------------------------------------------------------------------------------------------ */

static tm_status read_latents(job *j, tm_error *err)
{
    const tm_flux_shape *x = &j->shape.flux;
    tm_safetensors      *set;
    char                 shape[192];
    TM_TRY(tm_safetensors_open(j->o->latents, &set, err));
    const tm_stored_tensor *t = tm_safetensors_find(set, "latents");
    tm_status               st = TM_OK;
    bool                    fits = t && t->dtype == TM_F32 && t->rank >= 2 && t->n[t->rank - 1] == x->channels &&
                t->n[t->rank - 2] == x->rows * x->columns && (int64_t)t->bytes == 4 * latent_elements(j);
    if (!fits)
        st = tm_fail(err, TM_INVALID, "'%.300s' holds %s, wanted a float32 tensor 'latents' of [%lld, %lld]",
                     j->o->latents, t ? tm_stored_shape_text(shape, t) : "no tensor 'latents'",
                     (long long)(x->rows * x->columns), (long long)x->channels);
    else
        memcpy(j->latents, t->data, t->bytes);
    tm_safetensors_close(set);
    return st;
}

static tm_status take_noise(job *j, tm_error *err)
{
    const int64_t n = latent_elements(j);
    j->latents = tm_alloc((size_t)(n * j->o->count) * sizeof *j->latents);
    for (int64_t i = 0; i < j->o->count; i++) tm_euler_noise((uint64_t)(j->s->o->seed + i), n, j->latents + i * n);
    return j->o->latents ? read_latents(j, err) : TM_OK;
}

static tm_status take_times(job *j, tm_error *err)
{
    const char    *folder = tm_arena_format(j->arena, "%s/scheduler", j->encoders);
    tm_euler_times rule = tm_euler_times_dev;
    if (tm_is_folder(folder)) TM_TRY(tm_scheduler_read(folder, &rule, err));
    j->times = tm_alloc((size_t)(j->o->steps + 1) * sizeof *j->times);
    tm_euler_times_of(&rule, j->shape.flux.rows * j->shape.flux.columns, j->o->steps, j->times);
    return TM_OK;
}

static bool stopped(void)
{
    return tm_cli_stop != 0;
}

static tm_status draw(job *j, tm_device *device, tm_error *err)
{
    tm_euler    *euler = NULL;
    tm_hf_report report;
    int64_t      begin = tm_now_ns(), n = latent_elements(j);
    TM_TRY(tm_euler_open(device, &j->shape, j->precision, &euler, err));
    tm_hf_memory            memory = tm_hf_forward_memory(tm_euler_forward(euler), &j->shape, j->s->source.form);
    const tm_euler_velocity velocity = tm_euler_of(euler);
    const tm_euler_drawing  drawing = { .prompt = &j->prompt,
                                        .negative = j->o->true_cfg > 1 ? &j->negative : NULL,
                                        .scale = j->o->true_cfg,
                                        .times = j->times,
                                        .steps = j->o->steps,
                                        .stop = stopped };
    tm_status st = tm_hf_source_load(&j->s->source, &memory, tm_device_describe(device)->threads, &report, err);
    for (int64_t i = 0; i < j->o->count && st == TM_OK; i++)
        st = tm_euler_draw(&velocity, &drawing, j->latents + i * n, err);
    tm_euler_close(euler);
    j->draw_seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}

/* --- pixels ------------------------------------------------------------------------------------------------------- */

/* The i-th file: of several "NAME-0.png", "NAME-1.png". */
static const char *file_of(const job *j, int64_t i)
{
    const char *out = j->o->out, *dot = strrchr(out, '.');
    if (j->o->count == 1) return out;
    return tm_arena_format(j->arena, "%.*s-%lld%s", (int)(dot - out), out, (long long)i, dot);
}

static tm_status write_png(const float *values, int64_t height, int64_t width, const char *path, tm_error *err)
{
    tm_image image;
    tm_image_of_values(values, (tm_image_size){ (int)width, (int)height }, &image);
    tm_status st = tm_image_write_png(&image, path, err);
    tm_image_fini(&image);
    return st;
}

static tm_status decode(job *j, tm_device *device, tm_error *err)
{
    const tm_flux_shape *x = &j->shape.flux;
    const int64_t        height = 16 * x->rows, width = 16 * x->columns;
    tm_pixels           *pixels = NULL;
    int64_t              begin = tm_now_ns();
    TM_TRY(tm_pixels_open(device, j->encoders, x->rows, x->columns, x->channels, j->precision->compute, &pixels, err));
    float    *values = tm_alloc((size_t)(3 * height * width) * sizeof *values);
    tm_status st = TM_OK;
    for (int64_t i = 0; i < j->o->count && st == TM_OK; i++) {
        st = tm_pixels_decode(pixels, j->latents + i * latent_elements(j), values, err);
        if (st == TM_OK) st = write_png(values, height, width, file_of(j, i), err);
    }
    free(values);
    tm_pixels_close(pixels);
    j->decode_seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static void print(const job *j, bool json_wanted, tm_text *out)
{
    const tm_flux_shape *x = &j->shape.flux;
    if (json_wanted) {
        tm_json json = { .out = out, .indent = true };
        tm_json_open(&json, NULL, '{');
        tm_json_open(&json, "files", '[');
        for (int64_t i = 0; i < j->o->count; i++) tm_json_string(&json, NULL, file_of(j, i));
        tm_json_close(&json, ']');
        tm_json_i64(&json, "width", 16 * x->columns);
        tm_json_i64(&json, "height", 16 * x->rows);
        tm_json_i64(&json, "steps", j->o->steps);
        tm_json_i64(&json, "seed", j->s->o->seed);
        tm_json_f64(&json, "text_seconds", j->text_seconds);
        tm_json_f64(&json, "draw_seconds", j->draw_seconds);
        tm_json_f64(&json, "decode_seconds", j->decode_seconds);
        tm_json_close(&json, '}');
        tm_text_add(out, "\n");
        return;
    }
    for (int64_t i = 0; i < j->o->count; i++)
        tm_text_printf(out, "%s: %lld x %lld, %lld steps, seed %lld\n", file_of(j, i), (long long)(16 * x->columns),
                       (long long)(16 * x->rows), (long long)j->o->steps, (long long)(j->s->o->seed + i));
    tm_text_printf(out, "text %.2f s, drawing %.2f s, decoding %.2f s, weights read within\n", j->text_seconds,
                   j->draw_seconds, j->decode_seconds);
}

static tm_status check(job *j, tm_error *err)
{
    const picture_options *o = j->o;
    const char            *dot = o->out ? strrchr(o->out, '.') : NULL;
    if (!o->prompt)
        return tm_fail(err, TM_USAGE, "'%.200s' is a model of images; give --prompt TEXT and -o FILE.png", j->s->path);
    if (!dot || strcmp(dot, ".png") != 0)
        return tm_fail(err, TM_USAGE, "pictures are written as PNG: give -o FILE.png");
    if (o->negative && !(o->true_cfg > 1))
        return tm_fail(err, TM_USAGE, "--negative-prompt counts with --true-cfg above 1 only; give both");
    if (o->latents && o->count > 1)
        return tm_fail(err, TM_USAGE, "--latents holds the noise of one picture; leave --count out");
    if (!isnan(o->guidance) && !j->shape.flux.guidance)
        return tm_fail(err, TM_USAGE,
                       "the model has no embedder of the guidance; leave --guidance out, or use --true-cfg");
    if (!isnan(o->guidance)) j->shape.flux.guidance_scale = o->guidance;
    return tm_file_check_writable(file_of(j, 0), "-o", err);
}

static tm_status work(job *j, tm_error *err)
{
    if (j->o->text_tokens > 0) j->shape.flux.text_len = j->o->text_tokens;
    TM_TRY(take_size(j, err));
    TM_TRY(check(j, err));
    TM_TRY(find_encoders(j, err));
    TM_TRY(take_noise(j, err));
    TM_TRY(take_times(j, err));
    tm_cli_heed_stop();
    TM_TRY(speak_open_device(j->s, &j->precision, err));
    TM_TRY(encode_prompts(j, j->s->device, err));
    TM_TRY(draw(j, j->s->device, err));
    return decode(j, j->s->device, err);
}

tm_status generate_pictures(speaker *s, const picture_options *o, bool json, tm_text *out, tm_error *err)
{
    job       j = { .s = s, .o = o, .shape = s->source.shape, .arena = tm_arena_create() };
    tm_status st = work(&j, err);
    if (st == TM_OK) print(&j, json, out);
    for (int i = 0; i < 2; i++) {
        free(j.text[i]);
        free(j.pooled[i]);
    }
    free(j.latents);
    free(j.times);
    tm_arena_destroy(j.arena);
    return st;
}
