/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "base/json.h"
#include "model/hf.h"
#include "model/presets.h"
#include "model/shape.h"

#include <string.h>

static void row_text(const tm_preset *preset, const tm_model_shape *s, int64_t seq, tm_text *out)
{
    char parameters[40];
    tm_text_printf(out, "%-16s %-7s %18s %10.2f %7lld %6lld %6lld %4lld/%-4lld %6lld %7lld\n", preset->name,
                   tm_model_family_name(s), tm_format_grouped(parameters, tm_model_parameters(s)),
                   tm_model_flops_per_token(s, TM_FLOPS_TITAN, seq) * 1e-9, (long long)seq, (long long)s->n_layers,
                   (long long)s->dim, (long long)s->n_heads, (long long)s->n_kv_heads, (long long)s->ffn_dim,
                   (long long)s->vocab_size);
}

static void row_json(const tm_preset *preset, const tm_model_shape *s, int64_t seq, tm_json *json)
{
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "name", preset->name);
    if (preset->alias) tm_json_string(json, "alias", preset->alias);
    tm_json_string(json, "family", tm_model_family_name(s));
    tm_json_i64(json, "parameters", tm_model_parameters(s));
    tm_json_i64(json, "parameters_active", tm_model_parameters_active(s));
    tm_json_i64(json, "parameters_embedding", tm_model_parameters_embedding(s));
    tm_json_i64(json, "seq_len", seq);
    tm_json_open(json, "gflop_per_token", '{');
    for (int i = 0; i < TM_FLOPS_COUNT; i++)
        tm_json_f64(json, tm_flops_convention_name((tm_flops_convention)i),
                    tm_model_flops_per_token(s, (tm_flops_convention)i, seq) * 1e-9);
    tm_json_close(json, '}');
    tm_json_i64(json, "n_layers", s->n_layers);
    tm_json_i64(json, "dim", s->dim);
    tm_json_i64(json, "n_heads", s->n_heads);
    tm_json_i64(json, "n_kv_heads", s->n_kv_heads);
    tm_json_i64(json, "head_dim", s->head_dim);
    tm_json_i64(json, "ffn_dim", s->ffn_dim);
    tm_json_i64(json, "vocab_size", s->vocab_size);
    if (s->window > 0) tm_json_i64(json, "sliding_window", s->window);
    tm_json_close(json, '}');
}

static tm_status list(bool as_json, tm_text *out, tm_error *err)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    tm_json          json = { .out = out, .indent = true };
    if (as_json)
        tm_json_open(&json, NULL, '[');
    else
        tm_text_printf(out, "%-16s %-7s %18s %10s %7s %6s %6s %9s %6s %7s\n", "model", "family", "parameters",
                       "GFLOP/tok", "seq", "layers", "width", "heads/kv", "ffn", "vocab");
    for (size_t i = 0; i < n; i++) {
        tm_config     *config = tm_cli_config();
        tm_model_shape shape = { 0 };
        tm_status      st = tm_config_apply_preset(config, presets[i].name, err);
        if (st == TM_OK) st = tm_config_finish(config, err);
        if (st == TM_OK) st = tm_model_shape_read(config, &shape, err);
        int64_t seq = st == TM_OK ? tm_config_i64(config, "training.seq_len") : 0;
        if (st == TM_OK && tm_model_length(&shape) > 0) seq = tm_model_length(&shape);
        tm_config_destroy(config);
        TM_TRY(st);
        if (as_json)
            row_json(&presets[i], &shape, seq, &json);
        else
            row_text(&presets[i], &shape, seq, out);
    }
    if (as_json)
        tm_json_close(&json, ']');
    else
        tm_text_add(out, "\nGFLOP per token: forward and backward by the convention \"titan\", 6 (N - N_embedding) + "
                         "12 L H D T at the seq shown.\n"
                         "Any dimension is a key: trainmark run gpt-small --model.n_layers 4\n");
    if (as_json) tm_text_add(out, "\n");
    return TM_OK;
}

static const char *yes(bool is)
{
    return is ? "yes" : "";
}

/* The table of docs/models.md: what is built in, and which Hugging Face architecture each family reads and writes. */
static tm_status add_markdown(tm_text *out, tm_error *err)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    tm_text_add(out, "| model | also | family | parameters | active | seq_len | layers | width | tied |\n"
                     "|---|---|---|---:|---:|---:|---:|---:|---|\n");
    for (size_t i = 0; i < n; i++) {
        tm_config     *config = tm_cli_config();
        tm_model_shape shape = { 0 };
        char           all[40], active[40];
        tm_status      st = tm_config_apply_preset(config, presets[i].name, err);
        if (st == TM_OK) st = tm_config_finish(config, err);
        if (st == TM_OK) st = tm_model_shape_read(config, &shape, err);
        int64_t seq = st == TM_OK ? tm_config_i64(config, "training.seq_len") : 0;
        if (st == TM_OK && tm_model_length(&shape) > 0) seq = tm_model_length(&shape);
        tm_config_destroy(config);
        TM_TRY(st);
        tm_text_printf(out, "| `%s` | %s | %s | %s | %s | %lld | %lld | %lld | %s |\n", presets[i].name,
                       presets[i].alias ? presets[i].alias : "", tm_model_family_name(&shape),
                       tm_format_grouped(all, tm_model_parameters(&shape)),
                       tm_format_grouped(active, tm_model_parameters_active(&shape)), (long long)seq,
                       (long long)shape.n_layers, (long long)shape.dim, yes(shape.tied));
    }
    return TM_OK;
}

/* The forms that are read and written: of models, of data, of other programs' files. */
static void add_formats(tm_text *out)
{
    size_t                   n;
    const tm_hf_form *const *forms = tm_hf_forms(&n);
    const char              *name, *what;
    tm_text_add(out, "\n| Hugging Face architecture | `model_type` | kind of directory |\n|---|---|---|\n");
    for (size_t i = 0; i < n; i++)
        tm_text_printf(out, "| %s | `%s` | %s |\n", forms[i]->architecture, forms[i]->model_type,
                       forms[i]->diffusers ? "diffusers" : "transformers");
    tm_config    *config = tm_cli_config();
    const tm_key *source = tm_cli_key(config, "data.source", strlen("data.source"));
    tm_text_add(out, "\n| `data.source` | what it reads |\n|---|---|\n");
    for (const char *p = source->help; *p;) { /* "name: what; name: what" */
        size_t length = strcspn(p, ";"), colon = strcspn(p, ":");
        tm_text_printf(out, "| `%.*s` | %.*s |\n", (int)colon, p, (int)(length - colon - 2), p + colon + 2);
        p += length + strspn(p + length, "; ");
    }
    tm_config_destroy(config);
    tm_text_add(out, "\n| files of other programs | which |\n|---|---|\n");
    for (size_t i = 0; (name = tm_config_framework_at(i, &what)); i++)
        tm_text_printf(out, "| `%s` | %s |\n", name, what);
}

typedef struct {
    bool json, markdown;
} models_options;

static tm_status models(tm_cli_line *line, tm_error *err)
{
    const models_options *o = line->options;
    tm_text               out = { 0 };
    tm_status             st = o->markdown ? add_markdown(&out, err) : list(o->json, &out, err);
    if (st == TM_OK && o->markdown) add_formats(&out);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    TM_OPTION_JSON(models_options),
    { "markdown", 0, TM_OPTION_FLAG, offsetof(models_options, markdown),
      .help = "print the tables of docs/models.md: models and formats" },
};

const tm_cli_command tm_command_models = {
    .name = "models",
    .summary = "list the built-in models",
    .about = "Lists the built-in models: parameters, GFLOP per token, sequence length, layers, widths.",
    TM_CLI_OPTIONS(rows, models_options),
    .run = models,
};
