/* SPDX-License-Identifier: Apache-2.0 */
/* results/verify_plan.c - what follows from a run's configuration: the model's size, FLOPs of a token, the batch, the
 * rate of every step, what is known of data that is generated, the losses of the main job. */
#include "base/json.h"
#include "data/source.h"
#include "graph/tensor.h"
#include "model/model.h"
#include "results/check.h"
#include "results/verify.h"
#include "train/run/curve.h"
#include "train/run/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A length of a run that its steps follow from, which are given, too. */
static const char epochs[] = "training.epochs";

/* Every key of this version, and no other, with nothing masked: then the hash is that of these values. */
static bool same_keys(const results_check *c)
{
    tm_text     text = { 0 };
    tm_json     json = { .out = &text };
    const char *key;
    json_t     *value, *written = results_member(results_tree(c->run), "configuration");
    tm_json_open(&json, NULL, '{');
    tm_config_print_json(c->config, &json);
    tm_json_close(&json, '}');
    json_t *own = json_loadb(text.data, text.length, 0, NULL);
    bool    same = own && json_object_size(own) == json_object_size(written);
    same = same && !json_is_number(json_object_get(written, epochs));
    json_object_foreach(written, key, value)
    {
        same = same && json_object_get(own, key) && !(json_is_string(value) && strstr(json_string_value(value), "***"));
    }
    json_decref(own);
    tm_text_fini(&text);
    return same;
}

static void check_hash(results_check *c)
{
    char again[24];
    if (!tm_result_string(c->run, "configuration_hash") || !same_keys(c)) return;
    snprintf(again, sizeof again, "%016llx", (unsigned long long)tm_config_hash(c->config));
    results_check_text(c, "configuration_hash", again);
}

static void check_size(results_check *c, const tm_run_options *o)
{
    const tm_step_options *step = &o->step;
    json_t                *one;
    size_t                 i;
    int64_t ranks = tm_config_i64(c->config, "parallelism.ranks"), data_ranks = tm_layout_data_ranks(&step->layout);
    results_check_number(c, "parameters", (double)tm_model_parameters(&step->shape));
    results_check_number(c, "devices", (double)ranks);
    results_check_number(c, "batch_tokens",
                         (double)(step->micro_batch * step->accumulation * data_ranks * step->seq / ranks));
    results_check_number(c, "steps/planned", (double)o->steps);
    json_array_foreach(results_member(results_tree(c->run), "flops"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "convention"));
        for (int k = 0; name && k < TM_FLOPS_COUNT; k++) {
            char   path[120], written[32], again[32];
            double per_token = tm_model_flops_per_token(&step->shape, (tm_flops_convention)k, step->seq);
            double was = json_number_value(json_object_get(one, "per_token"));
            if (strcmp(name, tm_flops_convention_name((tm_flops_convention)k)) != 0) continue;
            snprintf(path, sizeof path, "flops/%.60s/per_token", name);
            results_check_row(c, path, tm_format_double(written, was), tm_format_double(again, per_token),
                              results_agree(was, per_token));
        }
    }
}

/* A GPU may have multiplied codes, all or some of them; on CPUs they are emulated. */
static const char *precision_of(const results_check *c, const tm_run_options *o, tm_arena *arena)
{
    static const tm_codes codes[] = { { 0 }, { .products = 1, .emulated = 1 }, { .products = 1 } };
    const char           *device = tm_result_shown(c->run, "device"), *written = tm_result_shown(c->run, "precision");
    bool                  gpu = strcmp(device, "cuda") == 0 || strcmp(device, "hip") == 0;
    for (int i = 2; i > 0 && gpu; i--)
        if (strcmp(tm_run_precision(o, &codes[i], arena), written) == 0) return written;
    return tm_run_precision(o, &codes[0], arena);
}

static void check_words(results_check *c, const tm_run_options *o)
{
    tm_arena *arena = tm_arena_create();
    char      seed[32];
    results_check_text(c, "precision", precision_of(c, o, arena));
    results_check_text(c, "data_source", o->source.name);
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
    const char *written = tm_result_shown(c->run, "seed");
    results_check_row(c, "seed", written, seed, strcmp(written, seed) == 0);
    tm_arena_destroy(arena);
}

/* The first step whose rate is not that of the schedule is told. */
static void check_rates(results_check *c, const tm_run_options *o)
{
    char written[64], again[64];
    for (size_t i = 0; i < c->n; i++) {
        double rate = o->learning_rate * tm_schedule_factor(&o->schedule, c->own[i].step - 1);
        if (results_agree(rate, c->own[i].learning_rate)) continue;
        snprintf(written, sizeof written, "%.17g in step %lld", c->own[i].learning_rate, (long long)c->own[i].step);
        results_check_row(c, "learning_rate (metrics.jsonl)", written, tm_format_double(again, rate), false);
        return;
    }
    snprintf(written, sizeof written, "%zu steps", c->n);
    results_check_row(c, "learning_rate (metrics.jsonl)", written, written, true);
}

/* What is known of a source that reads no file; of held-out samples where they have a length of their own. */
static void check_facts(results_check *c, const tm_run_options *o)
{
    tm_source        *source = NULL, *own = NULL;
    tm_source_options held = o->source;
    tm_error          unread = { 0 };
    if (tm_source_traits_of(o->source.name)->needs_path) return;
    if (o->step.validation_batch > 0) held.seq = o->step.validation_seq;
    if (tm_source_open(&o->source, &source, &unread) == TM_OK && tm_source_open(&held, &own, &unread) == TM_OK) {
        results_check_number(c, "judged/floor", tm_source_describe(source)->floor);
        results_check_number(c, "judged/validation_floor", tm_source_describe(own)->validation_floor);
        results_check_number(c, "judged/unigram_entropy", tm_source_describe(own)->unigram_entropy);
    }
    tm_source_close(own);
    tm_source_close(source);
}

/* Is the key in the result? One that counts only with others is left out where these are not there. */
static bool says(const results_check *c, const char *key)
{
    return json_object_get(results_member(results_tree(c->run), "configuration"), key) != NULL;
}

static void check_goal(results_check *c, const tm_run_options *o)
{
    const char *stopped = tm_result_string(c->run, "steps/stopped");
    double      loss = tm_result_number(c->run, "loss/validation"), floor = tm_result_number(c->run, "loss/floor");
    bool        reached = loss <= o->target_loss || (o->stop_at_target && loss <= floor + o->target_gap);
    if (stopped && strcmp(stopped, "target loss reached") == 0)
        results_check_row(c, "steps/stopped", stopped, reached ? stopped : "the target loss was not reached", reached);
    if (!c->judged) return;
    if (says(c, "training.target_loss_gap")) results_check_number(c, "judged/target_gap", o->target_gap);
    if (says(c, "training.stop_at_target")) results_check_truth(c, "judged/must_reach_target", o->stop_at_target);
    results_check_number(c, "judged/slowdown_percent", o->slowdown_pct);
    check_facts(c, o);
}

/* The losses of the main job are known. A run that takes turns compares none: it has no certificate either. */
static void check_curve(results_check *c, const tm_run_options *o)
{
    bool looked = tm_result_true(c->run, "certificate/done") || tm_result_string(c->run, "certificate/reason");
    bool weights = tm_config_text(c->config, "model.hf_assets_path") || tm_config_text(c->config, "lora.adapter_path");
    tm_curve curve;
    char     why[TM_REASON_BYTES];
    if (!looked || weights || c->n == 0 || tm_result_number(c->run, "devices") > 1 || !tm_curve_is_main(o)) return;
    double *losses = tm_arena_take(results_arena(c->run), c->n * sizeof *losses);
    for (size_t i = 0; i < c->n; i++) losses[i] = c->own[i].loss;
    if (!isfinite(losses[c->n - 1])) return;
    tm_curve_compare(tm_result_string(c->run, "sums"), losses, c->own[0].step, (int64_t)c->n, &curve, why);
    results_check_number(c, "curve/steps", (double)curve.steps);
    results_check_truth(c, "curve/equal", curve.equal);
    const char *said = tm_result_string(c->run, "judged/unreal");
    if (c->judged && why[0]) results_check_row(c, "judged/unreal", said ? said : "null", why, said != NULL);
}

tm_status tm_results_configuration(const tm_result *run, tm_config *config, tm_error *err)
{
    const char *key;
    json_t     *value, *written = results_member(results_tree(run), "configuration");
    if (!json_is_object(written)) return tm_fail(err, TM_INVALID, "'%s' holds none", tm_result_name(run));
    json_object_foreach(written, key, value)
    {
        char        text[32];
        const char *given = json_string_value(value);
        if (strcmp(key, epochs) == 0) continue; /* the steps say how many they were */
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        if (json_is_integer(value)) given = text;
        if (json_is_real(value)) given = tm_format_double(text, json_real_value(value));
        if (json_is_boolean(value)) given = json_is_true(value) ? "true" : "false";
        TM_TRY(tm_config_give_resolved(config, key, given, tm_result_name(run), err));
    }
    return tm_config_finish(config, err);
}

void results_check_plan(results_check *c)
{
    tm_run_options options;
    tm_error       err = { 0 };
    if (!c->config) return;
    if (tm_run_options_read(c->config, &options, &err) != TM_OK) {
        c->why = tm_arena_text(results_arena(c->run), err.text);
        return;
    }
    const char *device = tm_result_string(c->run, "device");
    if (device && strcmp(device, "reference") == 0)
        options.step.precision = &tm_precision_f64; /* whatever is asked for */
    check_hash(c);
    check_size(c, &options);
    check_words(c, &options);
    check_goal(c, &options);
    if (!c->own || c->n == 0) return;
    check_rates(c, &options);
    check_curve(c, &options);
}
