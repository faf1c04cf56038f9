/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark plan`: the memory, the speed and the best layout of a training on hardware that need not be here. */
#include "cli/plan_one.h"
#include "cli/plan_rows.h"
#include "results/convert.h"

#include <math.h>
#include <string.h>

/* Of rows no training is planned, of a training no rows are read. */
static tm_status check_words(const tm_cli_options *o, tm_error *err)
{
    if ((o->leave_out || o->fit) && !o->rows)
        return tm_fail(err, TM_USAGE, "--%s is of published rows; add --rows FILE.csv", o->fit ? "fit" : "leave-out");
    if (o->rows && (o->as || o->search || o->trace))
        return tm_fail(err, TM_USAGE, "--rows predicts the rows of a file; leave out --%s",
                       o->as       ? "as"
                       : o->search ? "search"
                                   : "trace");
    if (o->as && (o->search || o->trace))
        return tm_fail(err, TM_USAGE, "--as describes another program's step; --%s is of this one's",
                       o->search ? "search" : "trace");
    if (!o->rows && !o->constants && !o->accuracy && !o->platform)
        return tm_fail(err, TM_USAGE,
                       "a prediction needs hardware: add --platform [NODESx]GPUSxNAME (8xMI300X), or a "
                       "hardware file");
    if (o->tokens && !(tm_token_count(o->tokens) > 0))
        return tm_fail(err, TM_USAGE, "--tokens '%.40s' is not a number of tokens; wanted 15T, 300B or 1e12",
                       o->tokens);
    return TM_OK;
}

static tm_status predict(plan_one *p, char *const *words, int argc, tm_text *out, tm_error *err)
{
    if (p->cli.as) return plan_as(p, out, err);
    if (p->cli.search) return plan_search(words, argc, p, out, err);
    TM_TRY(plan_one_compute(p, p->cli.trace != NULL, err));
    if (p->cli.trace) TM_TRY(plan_trace_write(p, err));
    TM_TRY(plan_one_ranks(p, err));
    return plan_print(p, out, err);
}

static tm_status of_training(const tm_cli_line *line, plan_one *p, tm_error *err)
{
    tm_text   out = { 0 };
    tm_status st = predict(p, line->argv, line->argc, &out, err);
    if (out.length) { /* a plan that does not fit is printed, too */
        tm_error  own = { 0 };
        tm_status printed = tm_cli_print(&out, &own);
        if (st == TM_OK && printed != TM_OK) st = tm_fail(err, printed, "%s", own.text);
    }
    tm_text_fini(&out);
    return st;
}

/* A search needs a batch, and no layout that is valid: where the one that is given is not, one rank stands for all. */
static tm_status open_one(const tm_cli_line *line, plan_one *p, tm_error *err)
{
    static const char *const alone[] = { "--launch.nnodes=1",
                                         "--launch.gpus_per_node=1",
                                         "--parallelism.tensor_parallel_degree=1",
                                         "--parallelism.pipeline_parallel_degree=1",
                                         "--parallelism.context_parallel_degree=1",
                                         "--parallelism.expert_parallel_degree=1",
                                         "--parallelism.data_parallel_replicate_degree=1",
                                         "--parallelism.data_parallel_shard_degree=-1" };
    enum { WORDS = sizeof alone / sizeof alone[0] };
    tm_error  first = { 0 }, second = { 0 };
    char     *more[WORDS];
    tm_status st = plan_one_open(line->argv, line->argc, NULL, 0, p, &first);
    if (st != TM_OK && p->cli.search && tm_config_is_set(p->config, "training.global_batch_size")) {
        plan_one_fini(p);
        for (int i = 0; i < WORDS; i++) more[i] = (char *)alone[i];
        if (plan_one_open(line->argv, line->argc, more, WORDS, p, &second) == TM_OK) return TM_OK;
    }
    return st == TM_OK ? st : tm_fail(err, st, "%s", first.text);
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    plan_one  p;
    tm_status st = open_one(line, &p, err);
    if (st == TM_OK) st = check_words(&p.cli, err);
    const tm_cli_options *o = &p.cli;
    bool                  verbose = p.line->verbose;
    if (st == TM_OK && o->constants)
        st = tm_cli_plan_constants(o->json, verbose, err);
    else if (st == TM_OK && o->accuracy)
        st = tm_cli_plan_accuracy(o->store, o->json, verbose, err);
    else if (st == TM_OK && o->rows)
        st = tm_cli_plan_rows(
            &(tm_plan_rows_options){
                .file = o->rows, .leave_out = o->leave_out, .fit = o->fit, .json = o->json, .verbose = verbose },
            err);
    else if (st == TM_OK)
        st = of_training(line, &p, err);
    plan_one_fini(&p);
    return st;
}

static const tm_option rows[] = {
    TM_OPTION_PLATFORM(tm_cli_options, "(or its file) "),
    { "search", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, search),
      .help = "find the fastest layout that fits, and say why the others lose" },
    { "as", 0, TM_OPTION_TEXT, offsetof(tm_cli_options, as), .value = "TRAINER",
      .help = "predict another program: torchtitan, megatron, torchtune, ptb, ..." },
    { "price", 0, TM_OPTION_F64, offsetof(tm_cli_options, price), .value = "USD", .lo = 0, .hi = 1e6,
      .help = "of a device for an hour: print what tokens cost" },
    { "watts", 0, TM_OPTION_F64, offsetof(tm_cli_options, watts), .value = "W", .lo = 0, .hi = 1e6,
      .help = "of a device; default: the hardware file's power" },
    { "tokens", 0, TM_OPTION_TEXT, offsetof(tm_cli_options, tokens), .value = "N",
      .help = "print time, cost and energy of so many tokens: 15T, 300B" },
    { "failures", 0, TM_OPTION_F64, offsetof(tm_cli_options, failures), .value = "N", .lo = 0, .hi = 1e6,
      .help = "failures in 1,000 days of a node: print what they leave of the time" },
    { "save-seconds", 0, TM_OPTION_F64, offsetof(tm_cli_options, save_s), .value = "S", .fallback = "30", .lo = 0.001,
      .hi = 1e6, .help = "for which a checkpoint stops the training, with --failures" },
    { "restart-seconds", 0, TM_OPTION_F64, offsetof(tm_cli_options, restart_s), .value = "S", .fallback = "300",
      .lo = 0, .hi = 1e7, .help = "from a failure until steps run again, with --failures" },
    { "expert-imbalance", 0, TM_OPTION_F64, offsetof(tm_cli_options, imbalance), .value = "X", .fallback = "1", .lo = 1,
      .hi = 1000, .help = "rows of the fullest rank's experts, of even ones" },
    { "loader-rate", 0, TM_OPTION_F64, offsetof(tm_cli_options, loader), .value = "N", .lo = 0, .hi = 1e12,
      .help = "tokens/s that a rank's data loader reads; default: no step waits for it" },
    { "trace", 0, TM_OPTION_TEXT, offsetof(tm_cli_options, trace), .value = "FILE",
      .help = "write the simulated step for Perfetto, or as a picture: FILE.svg" },
    { "rows", 0, TM_OPTION_TEXT, offsetof(tm_cli_options, rows), .value = "FILE",
      .help = "predict the published figures of a CSV file, print both" },
    { "leave-out", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, leave_out),
      .help = "with --rows: predict each row by constants fitted without its source" },
    { "fit", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, fit),
      .help = "with --rows: print constants fitted to the rows" },
    { "explain", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, constants),
      .help = "print all constants with their sources" },
    { "accuracy", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, accuracy),
      .help = "list stored runs with prediction.hardware: predicted, measured, error" },
    { "store", 0, TM_OPTION_TEXT, offsetof(tm_cli_options, store), .value = "FILE",
      .help = "the results of --accuracy; default: TRAINMARK_STORE, else that of the user" },
    { "memory", 0, TM_OPTION_BYTES, offsetof(tm_cli_options, memory_bytes), .value = "SIZE",
      .help = "memory that a rank may take; default: all of the hardware's but 3 GiB" },
    TM_OPTION_JSON(tm_cli_options),
    TM_CLI_CONFIGURATION_ROWS,
};

const tm_cli_command tm_command_plan = {
    .name = "plan",
    .summary = "predict memory, speed and the best layout of a training on any hardware",
    .words = "[MODEL | FILE]",
    .most = 1,
    .about =
        "Plans the program that would run, then simulates its step on the hardware that --platform names: memory of "
        "each kind of rank, tokens/s with an interval, where the time goes. Nothing is allocated or computed. Times "
        "are predicted, not measured. docs/plan.md says how.",
    TM_CLI_OPTIONS(rows, tm_cli_options),
    .keys = tm_cli_keys,
    .first_keys =
        "training.local_batch_size,training.global_batch_size,training.seq_len,training.dtype,parallelism.tensor_"
        "parallel_degree,parallelism.pipeline_parallel_degree,activation_checkpoint.mode",
    .keys_help = "`trainmark keys` lists all keys.",
    .reads = true,
    .run = run,
};
