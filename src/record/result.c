/* SPDX-License-Identifier: Apache-2.0 */
/* record/result.c - result.json, the typed record of one run. Every derived figure in it can be worked out again from
 * the raw step times and the start figures, which are in it too. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/secret.h"
#include "record/look.h"
#include "record/record.h"
#include "record/sink.h"
#include "record/sink_kind.h"
#include "stats/stragglers.h"
#include "stats/sampling.h"
#include "train/run/verdict.h"
#include "train/trainer/locate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    tm_sink           head;
    tm_result_options options;
    run_record        run;
} result_sink;

static void print_start(tm_json *json, const tm_run_started *start)
{
    tm_json_string(json, "model", start->model);
    tm_json_string(json, "precision", start->precision);
    tm_json_string(json, "device", start->device);
    if (start->kernels) tm_json_string(json, "kernels", start->kernels);
    if (start->sums) tm_json_string(json, "sums", start->sums);
    if (start->judged_modules + start->compiled_modules > 0) {
        tm_json_open(json, "kernel_modules", '{');
        tm_json_i64(json, "judged", start->judged_modules);
        tm_json_i64(json, "compiled_here", start->compiled_modules);
        tm_json_close(json, '}');
    }
    tm_json_i64(json, "devices", start->devices);
    tm_json_i64(json, "threads", start->threads);
    tm_json_string(json, "data_source", start->data_source);
    if (start->encoders) tm_json_string(json, "encoders", start->encoders);
    if (start->seed <= INT64_MAX) {
        tm_json_i64(json, "seed", (int64_t)start->seed);
    } else { /* beyond what readers of JSON keep exactly */
        tm_text text = { 0 };
        tm_text_printf(&text, "%llu", (unsigned long long)start->seed);
        tm_json_string(json, "seed", text.data);
        tm_text_fini(&text);
    }
    tm_json_i64(json, "parameters", start->parameters);
    tm_json_i64(json, "batch_tokens", start->batch_tokens);
    if (start->predicted <= 0) return;
    tm_json_open(json, "predicted", '{');
    tm_json_f64(json, "tokens_per_second", start->predicted);
    tm_json_string(json, "hardware", start->predicted_by);
    tm_json_close(json, '}');
}

static void print_update(tm_json *json, const tm_update_certificate *u)
{
    tm_json_open(json, "update", '{');
    tm_json_open(json, "steps", '[');
    for (int i = 0; i < u->n_steps; i++) tm_json_i64(json, NULL, u->steps[i]);
    tm_json_close(json, ']');
    tm_json_i64(json, "elements", u->elements);
    tm_json_f64(json, "largest", u->n_steps > 0 ? u->largest : (double)NAN);
    tm_json_bool(json, "agrees", u->agrees);
    tm_json_string(json, "reason", u->reason[0] ? u->reason : NULL);
    tm_json_string(json, "partly", u->partly[0] ? u->partly : NULL);
    tm_json_f64(json, "seconds", u->seconds);
    tm_json_close(json, '}');
}

/* `update` NULL: nobody looks at updates there. */
static void print_certificate(tm_json *json, const char *name, const tm_certificate *c,
                              const tm_update_certificate *update)
{
    tm_json_open(json, name, '{');
    tm_json_bool(json, "done", c->done);
    tm_json_string(json, "reason", c->reason[0] ? c->reason : NULL);
    tm_json_i64(json, "groups", c->groups);
    tm_json_f64(json, "expected", c->done ? c->expected : (double)NAN);
    tm_json_f64(json, "measured", c->done ? c->measured : (double)NAN);
    tm_json_f64(json, "band", c->done ? c->band : (double)NAN);
    tm_json_string(json, "losses", c->losses);
    tm_json_string(json, "losses_reason", c->inexact[0] ? c->inexact : NULL);
    tm_json_f64(json, "step_loss", c->evaluated ? c->step_loss : (double)NAN);
    tm_json_f64(json, "evaluated_loss", c->evaluated ? c->evaluated_loss : (double)NAN);
    tm_json_f64(json, "loss_band", c->evaluated ? c->loss_band : (double)NAN);
    tm_json_bool(json, "loss_agrees", c->loss_agrees);
    tm_json_bool(json, "gradients", c->gradients);
    tm_json_bool(json, "looked_ahead", c->looked_ahead);
    tm_json_bool(json, "causal", c->causal);
    tm_json_bool(json, "context", c->context);
    tm_json_bool(json, "rows", c->rows);
    tm_json_f64(json, "seconds", c->seconds);
    if (update) print_update(json, update);
    tm_json_close(json, '}');
}

static void print_data_certificate(tm_json *json, const tm_data_certificate *c)
{
    tm_json_open(json, "certificate_data", '{');
    tm_json_bool(json, "done", c->done);
    tm_json_string(json, "reason", c->reason[0] ? c->reason : NULL);
    tm_json_i64(json, "batches", c->batches);
    tm_json_i64(json, "held_out", c->held_out);
    tm_json_i64(json, "compared", c->compared);
    tm_json_bool(json, "fed", c->fed);
    tm_json_bool(json, "once", c->once);
    tm_json_bool(json, "apart", c->apart);
    tm_json_bool(json, "stored", c->stored);
    tm_json_f64(json, "seconds", c->seconds);
    tm_json_close(json, '}');
}

/* The interval is of this start of the program: what another start would show, one alone does not know. */
static void print_interval(tm_json *json, double lo, double hi)
{
    tm_json_f64(json, "lo", lo);
    tm_json_f64(json, "hi", hi);
    tm_json_string(json, "interval_of", "this start");
}

static void print_rate(tm_json *json, const tm_sample_summary *rate, int64_t image_tokens)
{
    double image = (double)image_tokens;
    if (image > 0) {
        tm_json_open(json, "images_per_second_per_device", '{');
        tm_json_f64(json, "median", rate->median_rate / image);
        print_interval(json, rate->median_rate_lo / image, rate->median_rate_hi / image);
        tm_json_i64(json, "n", rate->n);
        tm_json_close(json, '}');
    }
    tm_json_open(json, "tokens_per_second_per_device", '{');
    tm_json_f64(json, "median", rate->median_rate);
    print_interval(json, rate->median_rate_lo, rate->median_rate_hi);
    tm_json_i64(json, "n", rate->n);
    tm_json_close(json, '}');
    tm_json_open(json, "tokens_per_second_per_device_overall", '{');
    tm_json_f64(json, "value", rate->rate);
    print_interval(json, rate->rate_lo, rate->rate_hi);
    tm_json_i64(json, "n", rate->n);
    tm_json_f64(json, "effective_n", rate->effective_n);
    tm_json_f64(json, "half_width_percent", 100 * rate->half_width);
    tm_json_close(json, '}');
}

static void print_step_time(tm_json *json, const tm_run_started *start, const tm_sample_summary *rate)
{
    const tm_steady *steady = &rate->steady;
    tm_json_open(json, "step_time", '{');
    tm_json_f64(json, "median", rate->median);
    tm_json_f64(json, "p5", rate->p5);
    tm_json_f64(json, "p95", rate->p95);
    tm_json_f64(json, "variation_percent", 100 * rate->variation);
    tm_json_i64(json, "outliers", rate->outliers);
    tm_json_close(json, '}');
    tm_json_open(json, "steady_state", '{');
    tm_json_bool(json, "reached", steady->reached);
    tm_json_f64(json, "drift_percent", steady->drift);
    tm_json_f64(json, "drift_lo", steady->drift_lo);
    tm_json_f64(json, "drift_hi", steady->drift_hi);
    tm_json_f64(json, "shift_percent", isnan(steady->drift) ? (double)NAN : steady->shift);
    tm_json_f64(json, "shift_step", steady->shift_at ? (double)(start->first_step + steady->shift_at) : (double)NAN);
    tm_json_close(json, '}');
}

static void print_machine(tm_json *json, const tm_machine_watch *machine)
{
    tm_json_open(json, "machine", '{');
    tm_json_string(json, "verdict", machine->reason ? tm_verdict_name(machine->verdict) : NULL);
    tm_json_string(json, "reason", machine->reason);
    tm_json_f64(json, "seconds", machine->seconds);
    tm_json_i64(json, "samples", machine->samples);
    tm_json_f64(json, "processors", machine->processors > 0 ? machine->processors : (double)NAN);
    for (size_t i = 0; i < machine->n_facts; i++) tm_json_f64(json, machine->facts[i].name, machine->facts[i].value);
    tm_json_close(json, '}');
}

/* MHz, the mean of the samples; NAN: none was read. */
static double gpu_clock(const tm_machine_watch *machine)
{
    for (size_t i = 0; i < machine->n_facts; i++)
        if (strcmp(machine->facts[i].name, "gpu_clock_mhz") == 0) return machine->facts[i].value;
    return (double)NAN;
}

static void print_flops(tm_json *json, const run_record *run, const tm_run_ended *end)
{
    double peak = run->start.peak_flops > 0 ? run->start.peak_flops : (double)NAN, clock = gpu_clock(&end->machine);
    tm_json_f64(json, "peak_flops_per_second", peak);
    tm_json_open(json, "flops", '[');
    for (size_t i = 0; i < run->start.n_flops_per_token; i++) {
        const tm_named_f64 *flops = &run->start.flops_per_token[i];
        double              per_second = flops->value * end->speed->median_rate;
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "convention", flops->name);
        tm_json_f64(json, "per_token", flops->value);
        tm_json_f64(json, "per_second_per_device", per_second);
        tm_json_f64(json, "mfu_percent", 100 * per_second / peak);
        if (run->start.peak_mhz > 0)
            tm_json_f64(json, "mfu_at_clock_percent", 100 * per_second / (peak * clock / run->start.peak_mhz));
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

static void print_loss(tm_json *json, const tm_run_ended *end)
{
    tm_json_open(json, "loss", '{');
    tm_json_f64(json, "first", end->loss_first);
    tm_json_f64(json, "last", end->loss_last);
    tm_json_f64(json, "validation", end->loss_validation);
    tm_json_f64(json, "floor", end->loss_floor);
    tm_json_close(json, '}');
    tm_json_f64(json, "bits_per_byte", end->bits_per_byte);
    if (end->n_measures == 0) return;
    tm_json_open(json, "preference", '{');
    for (size_t i = 0; i < end->n_measures; i++) tm_json_f64(json, end->measures[i].name, end->measures[i].value);
    tm_json_close(json, '}');
}

/* What the verdict is by, as far as it is not in other members or metrics.jsonl. */
static void print_judged(tm_json *json, const tm_evidence *e)
{
    if (!e) return;
    tm_json_open(json, "judged", '{');
    tm_json_f64(json, "floor", e->floor);
    tm_json_f64(json, "validation_floor", e->validation_floor);
    tm_json_f64(json, "validation_error", e->validation_error);
    tm_json_f64(json, "unigram_entropy", e->unigram_entropy);
    tm_json_f64(json, "compressed", e->compressed);
    tm_json_f64(json, "target_gap", e->target_gap);
    tm_json_bool(json, "must_reach_target", e->must_reach_target);
    tm_json_f64(json, "start", e->start);
    tm_json_f64(json, "slowdown_percent", e->slowdown_pct);
    tm_json_open(json, "before", '{');
    tm_json_f64(json, "mean", e->head.mean);
    tm_json_f64(json, "deviation", e->head.deviation);
    tm_json_i64(json, "steps", e->head.n);
    tm_json_close(json, '}');
    tm_json_string(json, "impossible", e->impossible);
    tm_json_string(json, "unreal", e->not_training);
    tm_json_string(json, "unrepeatable", e->unrepeatable);
    tm_json_bool(json, "unproven", e->unproven);
    tm_json_close(json, '}');
}

/* What the microscope saw: where something diverged first, and the last look. */
static void print_looks(tm_json *json, const run_looks *looks)
{
    if (looks->looks == 0) {
        tm_json_string(json, "microscope", NULL);
        return;
    }
    tm_json_open(json, "microscope", '{');
    tm_json_i64(json, "looks", looks->looks);
    tm_json_f64(json, "first_divergent_step", looks->first_step > 0 ? (double)looks->first_step : (double)NAN);
    tm_json_string(json, "first_divergent_tensor", looks->first_name);
    tm_json_open(json, "last", '{');
    tm_json_i64(json, "step", looks->last.step);
    json->indent = false;
    tm_look_print_json(&looks->last, false, json);
    json->indent = true;
    tm_json_close(json, '}');
    tm_json_close(json, '}');
}

static void print_mismatch(tm_json *json, const tm_replay_mismatch *m)
{
    tm_json_open(json, NULL, '{');
    tm_json_i64(json, "step", m->step);
    tm_json_i64(json, "rank", m->rank);
    tm_json_i64(json, "ranks", m->ranks);
    tm_json_string(json, "host", m->host);
    tm_json_string(json, "device", m->device);
    tm_json_string(json, "tensor", m->tensor);
    tm_json_string(json, "op", m->op);
    tm_json_f64(json, "layer", m->layer >= 0 ? m->layer : (double)NAN);
    tm_json_i64(json, "first", m->first);
    tm_json_i64(json, "end", m->end);
    tm_json_i64(json, "bits", m->bits);
    tm_json_i64(json, "tensors", m->tensors);
    tm_json_i64(json, "parts", m->parts);
    tm_json_bool(json, "sure", m->sure);
    tm_json_string(json, "wrong", m->wrong);
    tm_json_close(json, '}');
}

/* Steps that were computed twice. */
static void print_replay(tm_json *json, const tm_replay_told *told)
{
    int64_t n = told->n_mismatches < TM_REPLAY_MISMATCHES ? told->n_mismatches : TM_REPLAY_MISMATCHES;
    tm_json_open(json, "replay", '{');
    tm_json_i64(json, "every", told->every);
    tm_json_i64(json, "steps", told->steps);
    tm_json_i64(json, "bytes", told->bytes);
    tm_json_i64(json, "products", told->products);
    tm_json_i64(json, "wrong_products", told->wrong_products);
    tm_json_f64(json, "seconds", told->seconds);
    tm_json_f64(json, "cost_percent", told->cost_percent);
    tm_json_f64(json, "device_seconds", told->device_seconds);
    tm_json_f64(json, "confidence", TM_REPLAY_CONFIDENCE);
    tm_json_f64(json, "excluded_per_hour", told->excluded_per_hour);
    tm_json_i64(json, "differences", told->n_mismatches);
    tm_json_open(json, "mismatches", '[');
    for (int64_t i = 0; i < n; i++) print_mismatch(json, &told->mismatches[i]);
    tm_json_close(json, ']');
    tm_json_close(json, '}');
}

/* Text: readers of JSON do not keep 64 bits of a number. */
static void print_hash(tm_json *json, const char *key, uint64_t hash)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    tm_json_string(json, key, text);
}

static void print_memory(tm_json *json, const run_record *run, const tm_run_ended *end)
{
    tm_json_open(json, "memory", '{');
    tm_json_i64(json, "planned_bytes", end->planned_bytes);
    tm_json_i64(json, "used_bytes", end->used_bytes);
    tm_json_i64(json, "outside_arena_bytes", end->outside_arena_bytes);
    tm_json_i64(json, "disk_bytes", end->disk_bytes);
    if (end->pinned_bytes > 0) tm_json_i64(json, "pinned_bytes", end->pinned_bytes);
    if (end->pinned_bytes > 0 && end->device_other_bytes >= 0)
        tm_json_i64(json, "device_other_bytes", end->device_other_bytes);
    tm_json_i64(json, "limit_bytes", run->start.memory_limit_bytes);
    tm_json_f64(json, "resident_bytes", run->stepped ? (double)run->last.resident_bytes : (double)NAN);
    tm_json_open(json, "planned_by_class", '{');
    for (size_t i = 0; i < run->start.n_memory; i++)
        tm_json_i64(json, run->start.memory[i].name, run->start.memory[i].value);
    tm_json_close(json, '}');
    tm_json_close(json, '}');
}

/* What the step computes and takes, by its plan. */
static void print_outline(tm_json *json, const tm_run_started *start)
{
    tm_json_open(json, "work", '[');
    for (size_t i = 0; i < start->n_work; i++) {
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "line", start->work[i].name);
        tm_json_f64(json, "flops", start->work[i].flops);
        tm_json_f64(json, "bytes", start->work[i].bytes);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
    tm_json_open(json, "memory_along_step", '{');
    for (size_t c = 0; c < start->n_memory_along; c++) {
        tm_json_open(json, start->memory_along[c].name, '[');
        json->indent = false; /* all on one line */
        for (size_t i = 0; i < start->n_points; i++) tm_json_i64(json, NULL, start->memory_along[c].bytes[i]);
        tm_json_close(json, ']');
        json->indent = true;
    }
    tm_json_close(json, '}');
}

static void print_ledger(tm_json *json, const run_ledger *ledger)
{
    tm_json_open(json, "phases", '{');
    tm_json_i64(json, "steps", ledger->steps);
    tm_json_open(json, "mean_seconds", '{');
    for (int i = 0; i < ledger->count; i++)
        tm_json_f64(json, ledger->names[i], ledger->seconds[i] / (double)ledger->steps);
    tm_json_f64(json, "unaccounted", run_ledger_unaccounted(ledger));
    tm_json_close(json, '}');
    tm_json_f64(json, "step_seconds", ledger->step_seconds / (double)ledger->steps);
    tm_json_close(json, '}');
}

/* A run of several ranks: how each fared. */
static void print_ranks(tm_json *json, const tm_run_ended *end)
{
    if (end->n_ranks == 0) return;
    tm_json_open(json, "ranks", '[');
    for (size_t i = 0; i < end->n_ranks; i++) {
        const tm_rank_told *rank = &end->ranks[i];
        tm_json_open(json, NULL, '{');
        tm_json_i64(json, "rank", rank->rank);
        tm_json_i64(json, "data_rank", rank->data_rank);
        tm_json_string(json, "host", rank->host);
        tm_json_f64(json, "step_seconds", rank->step_seconds);
        tm_json_f64(json, "busy_seconds", rank->busy_seconds);
        tm_json_f64(json, "wait_seconds", rank->wait_seconds);
        tm_json_f64(json, "behind_percent", 100 * rank->behind);
        tm_json_i64(json, "target_tokens", rank->target_tokens);
        tm_json_i64(json, "used_bytes", rank->used_bytes);
        if (rank->gpu[0]) {
            tm_json_string(json, "gpu", rank->gpu);
            tm_json_f64(json, "numa_node", rank->numa_node < 0 ? (double)NAN : rank->numa_node);
            tm_json_string(json, "nic", rank->nic[0] ? rank->nic : NULL);
        }
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

/* The same members as a record of metrics.jsonl has, and the first of them in words. */
static void print_stragglers(tm_json *json, const tm_run_ended *end)
{
    char text[TM_STRAGGLER_TEXT];
    if (end->n_ranks == 0) return;
    tm_json_open(json, "stragglers", '[');
    for (size_t i = 0; i < end->n_stragglers; i++) {
        tm_json_open(json, NULL, '{');
        tm_json_i64(json, "step", end->stragglers[i].step);
        record_print_straggler(json, &end->stragglers[i]);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
    tm_json_string(json, "waited_for", end->n_stragglers ? tm_straggler_text(end->stragglers, text) : NULL);
}

static void print_steps(tm_json *json, const run_record *run, const tm_run_ended *end)
{
    tm_json_open(json, "steps", '{');
    tm_json_i64(json, "planned", run->start.steps);
    tm_json_i64(json, "first", run->start.first_step);
    tm_json_i64(json, "done", end->steps);
    tm_json_i64(json, "warmup", end->speed->warmup);
    tm_json_string(json, "stopped", end->stopped);
    tm_json_bool(json, "interrupted", end->interrupted);
    tm_json_close(json, '}');
}

/* What was run, by key; secrets masked, also those that only look like it. */
static void print_configuration(tm_json *json, const tm_config *config)
{
    if (!config) {
        tm_json_string(json, "configuration", NULL);
        return;
    }
    tm_text *out = json->out, tail = { 0 };
    size_t   begin = out->length;
    tm_json_open(json, "configuration", '{');
    tm_config_print_json(config, json);
    tm_json_close(json, '}');
    tm_text_add_n(&tail, out->data + begin, out->length - begin);
    tm_secret_mask(&tail);
    out->length = begin;
    tm_text_add(out, tail.data);
    tm_text_fini(&tail);
}

/* The records of the steps are in their file when this is written (sinks.def has metrics before result). */
static void print_metrics_digest(tm_json *json, const char *path)
{
    char       part[65536];
    FILE      *file = path ? fopen(path, "re") : NULL;
    tm_hasher *hasher = tm_hasher_create();
    for (size_t n; file && (n = fread(part, 1, sizeof part, file)) > 0;) tm_hasher_add(hasher, part, n);
    if (file && !ferror(file))
        print_hash(json, "metrics_digest", tm_hasher_value(hasher));
    else
        tm_json_string(json, "metrics_digest", NULL);
    if (file) fclose(file);
    tm_hasher_destroy(hasher);
}

static void print_result(tm_text *out, const result_sink *self, const tm_run_ended *end)
{
    char                  now[32];
    tm_json               json = { .out = out, .indent = true };
    const tm_run_started *start = &self->run.start;
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "format", "trainmark.result/1");
    tm_json_string(&json, "finished", tm_wall_text(now));
    tm_json_string(&json, "verdict", tm_verdict_name(end->verdict));
    tm_json_string(&json, "reason", end->reason);
    tm_json_string(&json, "configuration_hash", self->options.configuration_hash);
    print_start(&json, start);
    tm_json_f64(&json, "target_tokens_per_step",
                self->run.steps > 0 ? (double)self->run.targets / (double)self->run.steps : (double)NAN);
    print_steps(&json, &self->run, end);
    print_rate(&json, end->speed, end->image_tokens);
    print_step_time(&json, start, end->speed);
    print_machine(&json, &end->machine);
    print_loss(&json, end);
    print_judged(&json, end->evidence);
    print_certificate(&json, "certificate", &end->certificate, &end->update);
    print_certificate(&json, "certificate_after", &end->certificate_after, NULL);
    print_data_certificate(&json, &end->data);
    tm_json_open(&json, "curve", '{');
    tm_json_i64(&json, "steps", end->curve.steps);
    tm_json_bool(&json, "equal", end->curve.equal);
    tm_json_close(&json, '}');
    tm_nonfinite_json(end->nonfinite, "nonfinite", &json);

    print_replay(&json, &end->replay);
    print_looks(&json, &self->run.looks);
    print_hash(&json, "weights_hash", end->weights_hash);
    print_flops(&json, &self->run, end);
    print_memory(&json, &self->run, end);
    print_outline(&json, start);
    print_ledger(&json, &self->run.ledger);
    print_ranks(&json, end);
    print_stragglers(&json, end);
    tm_json_f64(&json, "first_step_seconds", end->first_step_seconds);
    tm_json_f64(&json, "seconds", end->seconds);
    tm_json_open(&json, "step_seconds", '[');
    json.indent = false; /* all on one line */
    for (int64_t i = 0; i < end->steps; i++) tm_json_f64(&json, NULL, end->step_seconds[i]);
    tm_json_close(&json, ']');
    json.indent = true;
    tm_json_string(&json, "sample", end->sample);
    if (self->options.checks)
        tm_checks_print_summary(self->options.checks, &json, "checks");
    else
        tm_json_string(&json, "checks", NULL);
    if (self->options.environment)
        tm_environment_print_json(self->options.environment, &json, "environment");
    else
        tm_json_string(&json, "environment", NULL);
    print_configuration(&json, self->options.config);
    print_metrics_digest(&json, self->options.metrics);
    print_hash(&json, "digest", tm_hash(out->data, out->length)); /* of all before it; the last member */
    tm_json_close(&json, '}');
    tm_text_add_n(out, "\n", 1);
}

/* The result of an earlier run, and the signature of it. */
static void remove_old(result_sink *self)
{
    static const char *const suffixes[] = { "", ".sig" };
    tm_text                  path = { 0 };
    for (int i = 0; i < 2; i++) {
        path.length = 0;
        tm_text_printf(&path, "%s%s", self->options.path, suffixes[i]);
        if (unlink(path.data) != 0 && errno != ENOENT)
            (void)tm_fail(&self->head.error, TM_IO, "cannot remove the old '%s': %s", path.data, strerror(errno));
    }
    tm_text_fini(&path);
}

static void handle(tm_sink *sink, const tm_event *event)
{
    result_sink *self = (result_sink *)sink;
    run_record_add(&self->run, event);
    if (event->kind == TM_EVENT_RUN_STARTED) remove_old(self);
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    tm_text text = { 0 };
    print_result(&text, self, &event->run_ended);
    record_sink_write(&self->head, self->options.path, &text);
    tm_text_fini(&text);
}

static void finish(tm_sink *head)
{
    run_record_fini(&((result_sink *)head)->run);
}

tm_status tm_result_sink_open(const tm_result_options *options, tm_sink **out, tm_error *err)
{
    (void)err;
    result_sink *self = tm_alloc(sizeof *self);
    *self = (result_sink){ .head = { .handle = handle, .close = finish }, .options = *options };
    run_record_init(&self->run);
    *out = &self->head;
    return TM_OK;
}

static tm_status open_result(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                             tm_error *err)
{
    tm_result_options options = { .path = path,
                                  .configuration_hash =
                                      tm_arena_format(arena, "%016llx", (unsigned long long)o->run->config_hash),
                                  .environment = o->environment,
                                  .checks = o->checks,
                                  .config = o->config,
                                  .metrics = record_path(o, arena, "metrics.jsonl") };
    return tm_result_sink_open(&options, out, err);
}

const record_sink_kind record_result_kind = { .file = "result.json", .open = open_result };
