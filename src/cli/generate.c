/* SPDX-License-Identifier: Apache-2.0 */
/* cli/generate.c - `trainmark generate`: a model goes on with a prompt. */
#include "base/clock.h"
#include "base/json.h"
#include "cli/speak.h"
#include "data/token_list.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    speak_options speak;
    const char   *prompt_ids, *prompt;
    bool          json;
} generate_options;

typedef struct {
    const generate_options *o;
    speaker                 speaker;
    int64_t                 most; /* tokens that are added */
    int32_t                *ids;  /* prompt and continuation */
    int64_t                 n_prompt, n;
    double                  prompt_seconds, seconds;
} job;

/* The text's ids, with what stands in front of a text and without what stands behind it. */
static tm_status encode(job *j, int32_t **ids, int64_t *n, tm_error *err)
{
    tm_ids out;
    TM_TRY(speak_open_tokenizer(&j->speaker, err));
    TM_TRY(speak_encode(&j->speaker, j->o->prompt, strlen(j->o->prompt), &out, err));
    *ids = out.data;
    *n = (int64_t)out.count;
    return TM_OK;
}

static tm_status read_prompt(job *j, tm_error *err)
{
    const tm_model_shape *s = &j->speaker.source.shape;
    int32_t              *prompt = NULL;
    const char           *what = j->o->prompt ? "--prompt" : j->o->prompt_ids;
    TM_TRY(j->o->prompt ? encode(j, &prompt, &j->n_prompt, err)
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
        tm_text_printf(out, "%s\ncontinues   ", j->o->prompt);
        tm_tokenizer_decode(j->speaker.tokenizer, j->ids + j->n_prompt, (size_t)added, false, out);
    }
    tm_text_printf(out, "\n%lld tokens read at %.1f tokens/s, ", (long long)j->n_prompt, prompt_rate);
    if (added > 1)
        tm_text_printf(out, "%lld written at %.1f tokens/s\n", (long long)added, rate);
    else
        tm_text_printf(out, "%lld written\n", (long long)added);
}

static tm_status generate(job *j, const char *path, tm_text *out, tm_error *err)
{
    TM_TRY(speak_open(&j->speaker, path, &j->o->speak, err));
    TM_TRY(read_prompt(j, err));
    TM_TRY(speak_load(&j->speaker, j->n_prompt + j->most, j->n_prompt, err));
    TM_TRY(go_on(j, err));
    print(j, out);
    return TM_OK;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    generate_options *o = line->options;
    const char       *path = line->words[0];
    job               j = { .o = o };
    tm_text           out = { 0 };
    TM_TRY(tm_cli_find_model(line, &path, &o->speak.adapter, err));
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &o->speak.tokenizer, err));
    if (!o->prompt == !o->prompt_ids)
        return tm_fail(err, TM_USAGE, "give --prompt TEXT or --prompt-ids FILE (a JSON array of token ids, or a .npy)");
    tm_status st = generate(&j, path, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    speak_close(&j.speaker);
    free(j.ids);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "prompt", 0, TM_OPTION_TEXT, offsetof(generate_options, prompt), .value = "TEXT", .may_be_empty = true,
      .help = "text to continue, encoded by the tokenizer of DIR or RUN" },
    { "prompt-ids", 0, TM_OPTION_TEXT, offsetof(generate_options, prompt_ids), .value = "FILE",
      .help = "token ids: a JSON array or a .npy" },
    SPEAK_ROWS(generate_options, "64", "0"),
    TM_OPTION_DEVICE(speak_options),
    TM_OPTION_JSON(generate_options),
};

const tm_cli_command tm_command_generate = {
    .name = "generate",
    .summary = "continue a prompt with a Hugging Face directory or a trained model",
    .words = "DIR|RUN",
    .least = 1,
    .most = 1,
    .about = "Continues a prompt with a Hugging Face directory or the newest checkpoint of a run; keys and values of "
             "earlier "
             "tokens are cached.",
    TM_CLI_OPTIONS(rows, generate_options),
    .run = run,
};
