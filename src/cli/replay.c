/* SPDX-License-Identifier: Apache-2.0 */
/* cli/replay.c - `trainmark replay`: one step of a run again, compared with what the run recorded. */
#include "train/run/replay_step.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "cli/run_job.h"
#include "results/result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t     step, ranks;
    const char *batch, *device, *isa, *mpi;
    double      deadline_s;
    bool        twice, json;
} replay_options;

/* What the run recorded of the step. */
typedef struct {
    const tm_result_step *step;    /* NULL: nothing */
    const char           *weights; /* hash of them behind the step: it was the last one. NULL: not known */
    bool                  same;    /* all of this has the bits of the replay */
} recorded;

typedef struct {
    const replay_options *given;
    const char           *path; /* the run's directory */
    tm_cli_options        cli;
    run_job               job;
    tm_result            *result; /* NULL: the run has written none */
    tm_step_replayed      replayed;
    recorded              recorded;
} replay_job;

/* --- the run ------------------------------------------------------------------------------------------------------ */

static tm_status read_configuration(replay_job *r, tm_error *err)
{
    tm_text    path = { 0 };
    tm_status  st = TM_OK;
    tm_config *config = r->job.config = tm_cli_config();
    tm_text_printf(&path, "%s/config.yaml", r->path);
    if (!tm_file_exists(path.data))
        st = tm_fail(err, TM_INVALID,
                     "'%.300s' is no directory of a run: it has no config.yaml; give what `trainmark run -o` was given",
                     r->path);
    if (st == TM_OK) st = tm_config_load_file(config, path.data, err);
    tm_config_keep_notes(config);
    if (st == TM_OK) st = tm_config_finish(config, err);
    tm_text_fini(&path);
    return st;
}

/* Also of a run that was killed: it has records and no result. */
static void read_result(replay_job *r)
{
    tm_error unread = { 0 };
    if (tm_result_load(r->path, NULL, &r->result, &unread) != TM_OK) r->result = NULL;
}

/* The device of the run, unless another is asked for. */
static void choose_device(replay_job *r)
{
    const char *device = r->result ? tm_result_string(r->result, "device") : NULL;
    r->cli = (tm_cli_options){ .out = r->path, .device = r->given->device, .isa = r->given->isa, .evaluate = true };
    if (!r->cli.device) r->cli.device = device ? device : "cpu";
    r->job.cli = &r->cli;
}

static tm_status check_sums(const replay_job *r, tm_error *err)
{
    const char *was = r->result ? tm_result_string(r->result, "sums") : NULL;
    const char *kernels = r->result ? tm_result_string(r->result, "kernels") : NULL;
    const char *is = tm_device_describe(r->job.device)->sums[r->job.options.step.precision->compute == TM_BF16];
    const char *device = r->result ? tm_result_string(r->result, "device") : NULL;
    bool        on_cpu = !device || strcmp(device, "cpu") == 0;
    if (!was || !is || strcmp(was, is) == 0) return TM_OK;
    return tm_fail(
        err, TM_INVALID,
        "the run's products were summed in the order '%s' (%s kernels), these kernels sum in the order '%s': "
        "no bit would be comparable; give --%s %s, on a machine that has it",
        was, kernels ? kernels : "other", is, on_cpu ? "isa" : "device",
        !on_cpu   ? device
        : kernels ? kernels
                  : "NAME");
}

/* With the batch and the checkpoint of the step before, no data is needed. */
static tm_status find_beginning(replay_job *r, tm_error *err)
{
    const char *name = tm_config_text(r->job.config, "checkpoint.folder");
    tm_text     folder = { 0 };
    int64_t     from;
    if (!r->given->batch) return TM_OK;
    tm_text_printf(&folder, "%s%s%s", name[0] == '/' ? "" : r->path, name[0] == '/' ? "" : "/", name);
    tm_status st = tm_step_replay_from(folder.data, r->given->step, &from, err);
    r->job.without_data = st == TM_OK && from == r->given->step - 1;
    tm_text_fini(&folder);
    return st;
}

static tm_status open_world(replay_job *r, const tm_cli_line *line, bool *started, tm_error *err)
{
    const int64_t ranks = tm_config_i64(r->job.config, "parallelism.ranks");
    *started = false;
    if (r->given->ranks > 0 && r->given->ranks != ranks)
        return tm_fail(err, TM_INVALID, "--ranks is %lld, and the run in '%.300s' had %lld; leave it out",
                       (long long)r->given->ranks, r->path, (long long)ranks);
    if (ranks == 1 && tm_comm_launched().ranks == 1) return TM_OK;
    tm_cli_start start = { .ranks = ranks, .mpi = r->given->mpi };
    TM_TRY(tm_cli_start_ranks(&start, line, started, err));
    if (*started) return TM_OK;
    TM_TRY(tm_cli_open_ranks(ranks, r->given->deadline_s, &r->job.world, err));
    if (tm_comm_rank(r->job.world) > 0) tm_log_set_level(TM_LOG_ERROR);
    return TM_OK;
}

/* --- what was recorded -------------------------------------------------------------------------------------------- */

/* JSON has null for all that is not finite. */
static bool same_number(double written, double found)
{
    return memcmp(&written, &found, sizeof found) == 0 || (!isfinite(written) && !isfinite(found));
}

static void compare_with_record(replay_job *r)
{
    size_t                n = 0;
    const tm_result_step *steps = r->result ? tm_result_steps(r->result, &n) : NULL;
    char                  weights[24];
    for (size_t i = 0; i < n; i++)
        if (steps[i].step == r->given->step) r->recorded.step = &steps[i];
    if (!r->recorded.step) return;
    if (r->recorded.step == &steps[n - 1]) r->recorded.weights = tm_result_string(r->result, "weights_hash");
    snprintf(weights, sizeof weights, "%016llx", (unsigned long long)r->replayed.weights);
    r->recorded.same = same_number(r->recorded.step->loss, r->replayed.loss) &&
                       same_number(r->recorded.step->grad_norm, r->replayed.grad_norm) &&
                       (!r->recorded.weights || strcmp(r->recorded.weights, weights) == 0);
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

static void print_record(const replay_job *r, tm_text *out)
{
    const tm_result_step *was = r->recorded.step;
    char                  a[40], b[40];
    if (!was)
        tm_text_add(out, "the run        has no record of this step\n");
    else if (r->recorded.same)
        tm_text_add(out, "the run        same bits as the run\n");
    else
        tm_text_printf(out, "the run        not the same: it recorded loss %s, gradient norm %s%s%s\n",
                       tm_format_double(a, was->loss), tm_format_double(b, was->grad_norm),
                       r->recorded.weights ? ", weights " : "", r->recorded.weights ? r->recorded.weights : "");
}

/* One NaN for all: signs mean nothing. */
static double plain(double value)
{
    return isnan(value) ? fabs((double)NAN) : value;
}

/* Of the tensors of each layer, -1 first. */
static void print_layers(const tm_step_replayed *p, tm_text *out)
{
    int last = -1;
    for (size_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].layer > last) last = p->tensors[i].layer;
    tm_text_add(out, "layer     gradient norm  its largest  weight norm  its largest\n");
    for (int layer = -1; layer <= last; layer++) {
        double squares[2] = { 0 }, largest[2] = { 0 };
        size_t n = 0;
        for (size_t i = 0; i < p->n_tensors; i++) {
            const tm_step_replayed_tensor *t = &p->tensors[i];
            if (t->layer != layer) continue;
            squares[0] += t->gradient_norm * t->gradient_norm, squares[1] += t->weight_norm * t->weight_norm;
            if (!(t->gradient_largest <= largest[0])) largest[0] = t->gradient_largest;
            if (!(t->weight_largest <= largest[1])) largest[1] = t->weight_largest;
            n++;
        }
        char name[24] = "outside";
        if (layer >= 0) snprintf(name, sizeof name, "%d", layer);
        if (n > 0)
            tm_text_printf(out, "%-8s  %13.6g  %11.6g  %11.6g  %11.6g\n", name, plain(sqrt(squares[0])),
                           plain(largest[0]), plain(sqrt(squares[1])), plain(largest[1]));
    }
}

static void print_for_people(const replay_job *r, bool verbose, tm_text *out)
{
    const tm_step_replayed *p = &r->replayed;
    char                    a[40], b[40];
    tm_text_printf(out, "step           %lld, from %s", (long long)p->step,
                   p->from ? "the checkpoint of step " : "the first weights");
    if (p->from) tm_text_printf(out, "%lld", (long long)p->from);
    tm_text_printf(out, "\nloss           %s\ngradient norm  %s\n", tm_format_double(a, p->loss),
                   tm_format_double(b, p->grad_norm));
    print_record(r, out);
    if (p->twice)
        tm_text_printf(out, "twice          %s%s\n", p->same ? "the same bits both times" : "not the same: first in ",
                       p->differs);
    tm_text_add(out, "not finite     ");
    if (p->any)
        tm_nonfinite_print(&p->found, out);
    else
        tm_text_add(out, "nothing: every value of the step is finite");
    tm_text_printf(out, "\nweights        %016llx before, %016llx after the step\n\n",
                   (unsigned long long)p->weights_before, (unsigned long long)p->weights);
    print_layers(p, out);
    if (!verbose) return;
    tm_text_add(out, "\ngradient          weight            tensor\n");
    for (size_t i = 0; i < p->n_tensors; i++)
        tm_text_printf(out, "%016llx  %016llx  %s\n", (unsigned long long)p->tensors[i].gradient,
                       (unsigned long long)p->tensors[i].weight, p->tensors[i].name);
}

static void json_hash(tm_json *json, const char *key, uint64_t hash)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    tm_json_string(json, key, text);
}

static void json_tensors(const tm_step_replayed *p, tm_json *json)
{
    tm_json_open(json, "tensors", '[');
    for (size_t i = 0; i < p->n_tensors; i++) {
        const tm_step_replayed_tensor *t = &p->tensors[i];
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "name", t->name);
        tm_json_i64(json, "layer", t->layer);
        json_hash(json, "gradient_hash", t->gradient);
        tm_json_f64(json, "gradient_norm", t->gradient_norm);
        tm_json_f64(json, "gradient_largest", t->gradient_largest);
        json_hash(json, "weight_hash", t->weight);
        tm_json_f64(json, "weight_norm", t->weight_norm);
        tm_json_f64(json, "weight_largest", t->weight_largest);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

static void print_json(const replay_job *r, tm_text *out)
{
    const tm_step_replayed *p = &r->replayed;
    const tm_result_step   *was = r->recorded.step;
    tm_json                 json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_i64(&json, "step", p->step);
    tm_json_i64(&json, "from", p->from);
    tm_json_f64(&json, "loss", p->loss);
    tm_json_f64(&json, "grad_norm", p->grad_norm);
    tm_json_f64(&json, "learning_rate", p->learning_rate);
    tm_json_bool(&json, "recorded", was != NULL);
    tm_json_f64(&json, "recorded_loss", was ? was->loss : (double)NAN);
    tm_json_f64(&json, "recorded_grad_norm", was ? was->grad_norm : (double)NAN);
    tm_json_bool(&json, "same_as_run", r->recorded.same);
    tm_json_bool(&json, "twice", p->twice);
    tm_json_bool(&json, "same_twice", p->twice && p->same);
    tm_json_string(&json, "differs", p->differs[0] ? p->differs : NULL);
    tm_nonfinite_json(p->any ? &p->found : NULL, "nonfinite", &json);
    json_hash(&json, "weights_hash_before", p->weights_before);
    json_hash(&json, "weights_hash", p->weights);
    json_tensors(p, &json);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static tm_status judge(const replay_job *r, tm_error *err)
{
    const tm_step_replayed *p = &r->replayed;
    if (r->recorded.step && !r->recorded.same)
        return tm_fail(err, TM_NEGATIVE, "step %lld does not have the bits that the run recorded", (long long)p->step);
    if (p->twice && !p->same)
        return tm_fail(err, TM_NEGATIVE, "step %lld had other bits the second time: first in %s", (long long)p->step,
                       p->differs);
    if (p->any || !isfinite(p->loss) || !isfinite(p->grad_norm))
        return tm_fail(err, TM_NEGATIVE, "step %lld has values that are not finite", (long long)p->step);
    return TM_OK;
}

static tm_status replay(replay_job *r, const tm_cli_line *line, tm_error *err)
{
    const tm_step_replay wanted = { .step = r->given->step, .batch = r->given->batch, .twice = r->given->twice };
    tm_text              out = { 0 };
    TM_TRY(find_beginning(r, err));
    TM_TRY(run_prepare(&r->job, err));
    TM_TRY(check_sums(r, err));
    run_name_checkpoints(&r->job);
    if (!r->job.options.step.offload.folder) r->job.options.step.offload.folder = r->job.folder.data;
    tm_cli_heed_stop();
    TM_TRY(tm_run_replay(&r->job.options, r->job.device, r->job.source, &wanted, &tm_cli_stop, &r->replayed, err));
    compare_with_record(r);
    if (r->given->json)
        print_json(r, &out);
    else
        print_for_people(r, line->verbose, &out);
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st == TM_OK ? judge(r, err) : st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    replay_job r = { .given = line->options, .path = line->words[0] };
    bool       started = false;
    tm_status  st = read_configuration(&r, err);
    if (st == TM_OK) read_result(&r);
    choose_device(&r);
    if (st == TM_OK) st = open_world(&r, line, &started, err);
    if (st == TM_OK && !started) st = replay(&r, line, err);
    if (tm_cli_ranks_failed(st)) tm_cli_close_ranks(r.job.world, st, err); /* before this rank waits for others */
    tm_comm *world = r.job.world;
    if (r.replayed.arena) tm_step_replayed_fini(&r.replayed);
    tm_result_destroy(r.result);
    run_release(&r.job);
    tm_cli_close_ranks(world, st, err);
    return st;
}

static const tm_option rows[] = {
    { "step", 0, TM_OPTION_I64, offsetof(replay_options, step), .value = "N", .required = true, .lo = 1, .hi = 1e15,
      .help = "the step, from 1" },
    { "batch", 0, TM_OPTION_TEXT, offsetof(replay_options, batch), .value = "DIR",
      .help = "the saved batch of this step (RUN/batches), not the data source" },
    { "twice", 0, TM_OPTION_FLAG, offsetof(replay_options, twice),
      .help = "compute the step twice, from the same state, and compare all bits" },
    { "device", 0, TM_OPTION_TEXT, offsetof(replay_options, device), .value = "NAME",
      .help = "cpu, cuda, hip or reference; default: that of the run" },
    { "isa", 0, TM_OPTION_TEXT, offsetof(replay_options, isa), .value = "NAME",
      .help = "instruction set of the kernels: avx2, avx512, ...; default: the best here" },
    TM_OPTION_RANKS(replay_options),
    TM_OPTION_JSON(replay_options),
};

const tm_cli_command tm_command_replay = {
    .name = "replay",
    .summary = "compute one step of a run again and find values that are not finite",
    .words = "RUN",
    .least = 1,
    .most = 1,
    .about =
        "Takes the last checkpoint before the step, or the first weights, does the steps up to it in silence and the "
        "step itself with a look at every instruction. Prints loss and gradient norm, whether they have the bits that "
        "the run recorded, norms and hashes, and the first value that is not finite: which op wrote it, into which "
        "tensor. Exit code 0: the step repeats and is finite; 5: it does not, or is not. The key debug.replay is "
        "another thing: it repeats steps inside a run.",
    TM_CLI_OPTIONS(rows, replay_options),
    .run = run,
};
