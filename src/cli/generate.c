/* SPDX-License-Identifier: Apache-2.0 */
/* cli/generate.c - `trainmark generate`: a model goes on with a prompt. */
#include "base/clock.h"
#include "base/json.h"
#include "base/file.h"
#include "cli/generate_picture.h"
#include "data/token_list.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    speak_options   speak;
    const char     *prompt_ids;
    picture_options picture; /* its prompt counts for texts, too */
    bool            json;
} generate_options;

typedef struct {
    generate_options *o;
    speaker           speaker;
    int64_t           most; /* tokens that are added */
    int32_t          *ids;  /* prompt and continuation */
    int64_t           n_prompt, n;
    double            prompt_seconds, seconds;
} job;

/* The text's ids, with what stands in front of a text and without what stands behind it. */
static tm_status encode(job *j, int32_t **ids, int64_t *n, tm_error *err)
{
    tm_ids out;
    TM_TRY(speak_open_tokenizer(&j->speaker, err));
    TM_TRY(speak_encode(&j->speaker, j->o->picture.prompt, strlen(j->o->picture.prompt), &out, err));
    *ids = out.data;
    *n = (int64_t)out.count;
    return TM_OK;
}

static tm_status read_prompt(job *j, tm_error *err)
{
    const tm_model_shape *s = &j->speaker.source.shape;
    int32_t              *prompt = NULL;
    const char           *what = j->o->picture.prompt ? "--prompt" : j->o->prompt_ids;
    TM_TRY(j->o->picture.prompt ? encode(j, &prompt, &j->n_prompt, err)
                                : tm_token_list_read(j->o->prompt_ids, s->vocab_size, &prompt, &j->n_prompt, err));
    j->most = j->o->speak.max_tokens;
    int64_t room = tm_model_max_length(s) - j->n_prompt;
    if (j->most > room) j->most = room;
    if (j->n_prompt < 1 || j->most < 1) {
        free(prompt);
        char most[80] = "";
        if (tm_model_max_length(s) < INT64_MAX)
            snprintf(most, sizeof most, ", and fewer than the model's %lld positions",
                     (long long)tm_model_max_length(s));
        return tm_fail(err, TM_INVALID, "'%s' has %lld tokens; a prompt has one at least%s", what,
                       (long long)j->n_prompt, most);
    }
    j->ids = tm_realloc(prompt, (size_t)(j->n_prompt + j->most) * sizeof *prompt);
    j->n = j->n_prompt;
    return TM_OK;
}

static tm_status go_on(job *j, tm_error *err)
{
    int64_t begin = tm_now_ns();
    tm_cli_heed_stop();
    tm_status st = speak_read(&j->speaker, j->ids, j->n_prompt, err);
    j->prompt_seconds = (double)(tm_now_ns() - begin) * 1e-9;
    begin = tm_now_ns();
    while (st == TM_OK && !tm_cli_stop) {
        int32_t next = speak_next(&j->speaker);
        j->ids[j->n++] = next;
        if (j->n == j->n_prompt + j->most || speak_ends(&j->speaker, next)) break;
        st = speak_read(&j->speaker, &next, 1, err);
    }
    j->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}

static void json_ids(tm_json *json, const char *key, const int32_t *ids, int64_t n)
{
    tm_json_open(json, key, '[');
    for (int64_t i = 0; i < n; i++) tm_json_i64(json, NULL, ids[i]);
    tm_json_close(json, ']');
}

static void print(const job *j, tm_text *out)
{
    int64_t added = j->n - j->n_prompt;
    double  prompt_rate = (double)j->n_prompt / j->prompt_seconds; /* the first token needs no call of its own */
    double  rate = added > 1 ? (double)(added - 1) / j->seconds : (double)NAN;
    if (j->o->json) {
        tm_json json = { .out = out };
        tm_json_open(&json, NULL, '{');
        json_ids(&json, "prompt", j->ids, j->n_prompt);
        json_ids(&json, "tokens", j->ids + j->n_prompt, added);
        if (j->speaker.tokenizer) {
            tm_text text = { 0 };
            tm_tokenizer_decode(j->speaker.tokenizer, j->ids + j->n_prompt, (size_t)added, false, &text);
            tm_text_add(&text, "");
            tm_json_string(&json, "text", text.data);
            tm_text_fini(&text);
        }
        tm_json_f64(&json, "prompt_tokens_per_second", prompt_rate);
        tm_json_f64(&json, "tokens_per_second", rate);
        tm_json_close(&json, '}');
        tm_text_add(out, "\n");
        return;
    }
    tm_text_add(out, "prompt      ");
    for (int64_t i = 0; i < j->n && !j->speaker.tokenizer; i++)
        tm_text_printf(out, "%s%d", i == j->n_prompt ? "\ncontinues   " : i ? " " : "", (int)j->ids[i]);
    if (j->speaker.tokenizer) {
        tm_text_printf(out, "%s\ncontinues   ", j->o->picture.prompt);
        tm_tokenizer_decode(j->speaker.tokenizer, j->ids + j->n_prompt, (size_t)added, false, out);
    }
    tm_text_printf(out, "\n%lld tokens read at %.1f tokens/s, ", (long long)j->n_prompt, prompt_rate);
    if (added > 1)
        tm_text_printf(out, "%lld written at %.1f tokens/s\n", (long long)added, rate);
    else
        tm_text_printf(out, "%lld written\n", (long long)added);
}

/* Options of the other kind of model. */
static tm_status check_options(const tm_cli_line *line, bool images, tm_error *err)
{
    static const char *const of_texts[] = { "prompt-ids", "tokenizer", "max-tokens", "temperature",
                                            "top-k",      "top-p",     NULL };
    static const char *const of_images[] = { "out",      "encoders",        "steps",   "guidance",
                                             "true-cfg", "negative-prompt", "latents", "size",
                                             "count",    "text-tokens",     NULL };
    for (const char *const *name = images ? of_texts : of_images; *name; name++)
        if (tm_cli_given(line, *name))
            return tm_fail(err, TM_USAGE, "--%s is for models of %s, '%.200s' is one of %s; leave it out", *name,
                           images ? "texts" : "images", line->words[0], images ? "images" : "texts");
    return TM_OK;
}

static tm_status generate(job *j, const tm_cli_line *line, const char *path, tm_text *out, tm_error *err)
{
    TM_TRY(speak_open(&j->speaker, path, &j->o->speak, err));
    const bool images = tm_model_images(&j->speaker.source.shape);
    TM_TRY(check_options(line, images, err));
    if (!tm_cli_given(line, "guidance")) j->o->picture.guidance = (double)NAN;
    if (images) return generate_pictures(&j->speaker, &j->o->picture, j->o->json, out, err);
    TM_TRY(read_prompt(j, err));
    TM_TRY(speak_load(&j->speaker, j->n_prompt + j->most, j->n_prompt, err));
    TM_TRY(go_on(j, err));
    print(j, out);
    return TM_OK;
}

/* Of a directory of diffusers with several models, the one that is trained. */
static const char *transformer_of(const char *path, tm_arena *arena)
{
    bool several = tm_file_exists(tm_arena_format(arena, "%s/model_index.json", path));
    return several ? tm_arena_format(arena, "%s/transformer", path) : path;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    generate_options *o = line->options;
    const char       *path = line->words[0];
    job               j = { .o = o };
    tm_text           out = { 0 };
    TM_TRY(tm_cli_find_model(line, &path, &o->speak.adapter, err));
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &o->speak.tokenizer, err));
    if (!o->picture.prompt == !o->prompt_ids)
        return tm_fail(err, TM_USAGE, "give --prompt TEXT or --prompt-ids FILE (a JSON array of token ids, or a .npy)");
    path = transformer_of(path, line->arena);
    tm_status st = generate(&j, line, path, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    speak_close(&j.speaker);
    free(j.ids);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "prompt", 0, TM_OPTION_TEXT, offsetof(generate_options, picture.prompt), .value = "TEXT", .may_be_empty = true,
      .help = "text to continue; of a model of images: what the picture shows" },
    { "prompt-ids", 0, TM_OPTION_TEXT, offsetof(generate_options, prompt_ids), .value = "FILE",
      .help = "token ids: a JSON array or a .npy" },
    SPEAK_ROWS(generate_options, "64", "0"),
    { "out", 'o', TM_OPTION_TEXT, offsetof(generate_options, picture.out), .value = "FILE",
      .help = "images: the PNG file to write" },
    { "encoders", 0, TM_OPTION_TEXT, offsetof(generate_options, picture.encoders), .value = "DIR",
      .help = "images: directory with vae, text_encoder, ...; default: DIR's or the run's" },
    { "size", 0, TM_OPTION_TEXT, offsetof(generate_options, picture.size), .value = "N|WxH",
      .help = "images: pixels; default: as trained" },
    { "text-tokens", 0, TM_OPTION_I64, offsetof(generate_options, picture.text_tokens), .value = "N", .fallback = "0",
      .lo = 0, .hi = 65536, .help = "images: tokens that T5 reads of a prompt; 0: as trained, of DIR 512" },
    { "steps", 0, TM_OPTION_I64, offsetof(generate_options, picture.steps), .value = "N", .fallback = "28", .lo = 1,
      .hi = 10000, .help = "images: Euler steps" },
    { "count", 0, TM_OPTION_I64, offsetof(generate_options, picture.count), .value = "N", .fallback = "1", .lo = 1,
      .hi = 1000, .help = "images: how many, of seeds S, S + 1, ...; files are numbered" },
    { "guidance", 0, TM_OPTION_F64, offsetof(generate_options, picture.guidance), .value = "G", .lo = 0, .hi = 100,
      .help = "images: what the embedder of guidance is told; default: as trained" },
    { "true-cfg", 0, TM_OPTION_F64, offsetof(generate_options, picture.true_cfg), .value = "S", .fallback = "1",
      .lo = 0, .hi = 100, .help = "images: classifier-free guidance against the negative prompt; 1: none" },
    { "negative-prompt", 0, TM_OPTION_TEXT, offsetof(generate_options, picture.negative), .value = "TEXT",
      .may_be_empty = true, .help = "images: what a picture does not show; default: the empty text" },
    { "latents", 0, TM_OPTION_TEXT, offsetof(generate_options, picture.latents), .value = "FILE",
      .help = "images: safetensors file with the noise 'latents' to begin with" },
    TM_OPTION_DEVICE(speak_options),
    TM_OPTION_JSON(generate_options),
};

const tm_cli_command tm_command_generate = {
    .name = "generate",
    .summary = "continue a prompt or draw a picture with a Hugging Face directory or a run",
    .words = "DIR|RUN",
    .least = 1,
    .most = 1,
    .about = "Continues a prompt with a Hugging Face directory or the newest checkpoint of a run; keys and values of "
             "earlier "
             "tokens are cached. A model of images (FLUX.1) draws what the prompt says, into the PNG file of -o. The "
             "same seed "
             "gives the same picture.",
    TM_CLI_OPTIONS(rows, generate_options),
    .run = run,
};
