/* SPDX-License-Identifier: Apache-2.0 */
/* cli/launchers.c - what other programs are started with, taken off a command line:
 *
 *     torchrun --nproc_per_node=8 ./train_fsdp.py model.json llama      ->  model.json llama --launch.gpus_per_node 8
 *     bash runner/primus-cli slurm srun -N 4 -- train pretrain --config exp.yaml
 *     madengine run --tags pyt_train_llama-3.1-8b --keep-model-dir
 *
 * An option of a launcher is a row of its table; one that has none is refused. */
#include "cli/habits.h"

#include "base/file.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* What becomes of an option of a launcher. */
typedef enum {
    DROPPED,  /* says where it runs, not what is computed; takes a value */
    FLAG,     /* the same without a value */
    KEY,      /* its value is that of `to` ("--launch.nnodes") */
    SET,      /* no value; `to` gets "1" */
    OPTION,   /* no value; `to` is a flag of ours */
    VARIABLE, /* NAME=VALUE for the environment */
    REFUSED,  /* `to` says why, and the way out */
} fate;

typedef struct {
    const char *name;
    fate        fate;
    const char *to;
} launcher_option;

#define NOT_RUN "scripts are not executed here; leave it out"

static const launcher_option of_torchrun[] = {
    { "--nproc_per_node", KEY, "--launch.gpus_per_node" },
    { "--nnodes", KEY, "--launch.nnodes" },
    { "--node_rank", KEY, "--launch.node_rank" },
    { "--master_addr", KEY, "--launch.master_addr" },
    { "--master_port", KEY, "--launch.master_port" },
    { "--standalone", FLAG, NULL },
    { "--rdzv_backend", DROPPED, NULL },
    { "--rdzv_endpoint", DROPPED, NULL },
    { "--rdzv_id", DROPPED, NULL },
    { "--rdzv_conf", DROPPED, NULL },
    { "--local_ranks_filter", DROPPED, NULL },
    { "--local_addr", DROPPED, NULL },
    { "--role", DROPPED, NULL },
    { "--tee", DROPPED, NULL },
    { "--redirects", DROPPED, NULL },
    { "--log_dir", DROPPED, NULL },
    { "--max_restarts", REFUSED, "use --max-restarts of `trainmark run`, which goes on from a checkpoint" },
    { NULL, DROPPED, NULL },
};
static const launcher_option of_primus[] = {
    { "--config", DROPPED, NULL }, /* in front of --: of the launcher itself */
    { "--debug", FLAG, NULL },
    { "--silent", FLAG, NULL },
    { "--dry-run", OPTION, "--dry-run" },
    { "--single", SET, "--launch.gpus_per_node" },
    { "--script", DROPPED, NULL },
    { "--env", VARIABLE, NULL },
    { "--patch", REFUSED, NOT_RUN },
    { "--log_file", KEY, "--log.file" },
    { "--numa", FLAG, NULL },
    { "--no-numa", FLAG, NULL },
    /* containers */
    { "--image", DROPPED, NULL },
    { "--volume", DROPPED, NULL },
    { "--mount", DROPPED, NULL },
    { "--device", DROPPED, NULL },
    { "--name", DROPPED, NULL },
    { "--user", DROPPED, NULL },
    { "--network", DROPPED, NULL },
    { "--ipc", DROPPED, NULL },
    { "--cpus", DROPPED, NULL },
    { "--memory", DROPPED, NULL },
    { "--shm-size", DROPPED, NULL },
    { "--clean", FLAG, NULL },
    { "--gpus", KEY, "--launch.gpus_per_node" },
    /* srun and sbatch */
    { "-N", KEY, "--launch.nnodes" },
    { "--nodes", KEY, "--launch.nnodes" },
    { "--gpus-per-node", KEY, "--launch.gpus_per_node" },
    { "--ntasks-per-node", DROPPED, NULL }, /* a launcher on each node */
    { "-p", DROPPED, NULL },
    { "--partition", DROPPED, NULL },
    { "-t", DROPPED, NULL },
    { "--time", DROPPED, NULL },
    { "-o", DROPPED, NULL },
    { "--output", DROPPED, NULL },
    { "-c", DROPPED, NULL },
    { "--cpus-per-task", DROPPED, NULL },
    { "-J", DROPPED, NULL },
    { "--job-name", DROPPED, NULL },
    { "-A", DROPPED, NULL },
    { "--account", DROPPED, NULL },
    { "--nodelist", DROPPED, NULL },
    { "-w", DROPPED, NULL },
    { "--exclude", DROPPED, NULL },
    { "-x", DROPPED, NULL },
    { "--exclusive", FLAG, NULL },
    { NULL, DROPPED, NULL },
};

/* Of FluxBenchmark's launcher: with Hydra, and of its earlier releases. */
static const launcher_option of_flux[] = {
    { "--multirun", REFUSED, "give lists of values, train_args.train_batch_size=[1,10]: that is a sweep" },
    { "-m", REFUSED, "give lists of values, train_args.train_batch_size=[1,10]: that is a sweep" },
    { "--config-dir", REFUSED, "name the file: trainmark run FILE.yaml" },
    { "-cd", REFUSED, "name the file: trainmark run FILE.yaml" },
    { "--cfg", REFUSED, "use --print-config" },
    { "-c", REFUSED, "use --print-config" },
    { "--show_config", OPTION, "--print-config" },
    { "--dry_run", OPTION, "--dry-run" },
    { "--output_dir", KEY, "--out" },
    { "--warmup_steps", REFUSED, "the summary of a sweep leaves out the first 5 steps" },
    { "--no_resume", REFUSED, "name another directory with --out" },
    { "--no_skip_larger_bs", REFUSED, "a sweep does not try what is larger than what did not fit" },
    { "--accelerate_config_template", REFUSED, "give its values as accelerate_config.KEY=VALUE" },
    { NULL, DROPPED, NULL },
};

typedef struct {
    tm_arena   *arena;
    int         argc, at; /* the next word */
    char      **argv;
    char      **out;
    int         n;
    bool        nodes;   /* a launcher starts several */
    bool        devices; /* it says how many each has */
    const char *trains;  /* the script that was taken, if it trains a model of its own; else NULL */
} line;

static const char *next(const line *l)
{
    return l->at < l->argc ? l->argv[l->at] : "";
}

static void put(line *l, const char *word)
{
    l->out[l->n++] = tm_arena_text(l->arena, word);
}

/* The last part of a path. */
static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_one_of(const char *word, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(word, *names) == 0) return true;
    return false;
}

static bool ends(const char *word, const char *suffix)
{
    size_t n = strlen(word), s = strlen(suffix);
    return n > s && strcmp(word + n - s, suffix) == 0;
}

static const launcher_option *find(const launcher_option *rows, const char *word, size_t n)
{
    char name[64];
    if (n >= sizeof name) return NULL;
    for (size_t i = 0; i <= n; i++) name[i] = i < n ? word[i] : '\0';
    for (; rows->name; rows++)
        if (rows->name[1] == '-' ? tm_names_equal(rows->name, name) : strcmp(rows->name, name) == 0) return rows;
    return NULL;
}

/* GPUS_PER_NODE=4: for this run, and above what the environment had. */
static tm_status set_variable(const char *pair, tm_error *err)
{
    char        name[64];
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair || (size_t)(equals - pair) >= sizeof name)
        return tm_fail(err, TM_USAGE, "--env '%.100s': wanted NAME=VALUE; files of variables are not read", pair);
    for (int i = 0; i <= equals - pair; i++) name[i] = pair + i < equals ? pair[i] : '\0';
    if (setenv(name, equals + 1, 1) != 0) return tm_fail(err, TM_USAGE, "--env '%.100s' is no variable", pair);
    return TM_OK;
}

/* An option of the launcher `whose`, and its value. */
static tm_status take_option(line *l, const launcher_option *rows, const char *whose, tm_error *err)
{
    const char            *word = l->argv[l->at++], *equals = strchr(word, '='), *value = equals ? equals + 1 : NULL;
    size_t                 n = equals ? (size_t)(equals - word) : strlen(word);
    const launcher_option *row = find(rows, word, n);
    if (!row)
        return tm_fail(err, TM_USAGE,
                       "'%.100s' of %s is not known here; leave it out, or give what it sets as --key VALUE", word,
                       whose);
    if (row->fate == REFUSED) return tm_fail(err, TM_UNSUPPORTED, "'%.100s' of %s: %s", word, whose, row->to);
    bool takes = row->fate == DROPPED || row->fate == KEY || row->fate == VARIABLE;
    if (takes && !value && l->at >= l->argc)
        return tm_fail(err, TM_USAGE, "option '%s' of %s needs a value: %s VALUE", row->name, whose, row->name);
    if (takes && !value) value = l->argv[l->at++];
    if (row->fate == OPTION || row->fate == SET) put(l, row->to);
    if (row->fate == SET) put(l, "1");
    if (row->fate == VARIABLE) return set_variable(value, err);
    if (row->fate != KEY) return TM_OK;
    bool all = strcmp(value, "gpu") == 0 || strcmp(value, "auto") == 0; /* as many as there are */
    if (all) return TM_OK;
    if (strcmp(row->to, "--launch.nnodes") == 0) l->nodes = strcmp(value, "1") != 0;
    l->devices |= strcmp(row->to, "--launch.gpus_per_node") == 0;
    put(l, row->to);
    put(l, value);
    return TM_OK;
}

/* torchrun OPTIONS script.py, torchrun OPTIONS -m module. */
static tm_status take_torchrun(line *l, tm_error *err)
{
    for (l->at++; next(l)[0] == '-';) {
        if (strcmp(next(l), "-m") == 0) {
            l->at += 2;
            return TM_OK;
        }
        TM_TRY(take_option(l, of_torchrun, "torchrun", err));
    }
    if (ends(next(l), ".py")) return TM_OK; /* a script is taken next */
    return tm_fail(err, TM_USAGE, "torchrun starts no script that is known here: found '%.100s'", next(l));
}

/* What `primus` and `primus-cli ... --` are asked for. */
static tm_status take_primus_command(line *l, tm_error *err)
{
    static const char *const trains[] = { "train", "pretrain", "posttrain", NULL };
    static const struct {
        const char *word, *instead;
    } others[] = {
        { "benchmark", "`trainmark bench`" },
        { "preflight", "`trainmark check`" },
        { "node_smoke", "`trainmark check`" },
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(next(l), others[i].word) == 0)
            return tm_fail(err, TM_USAGE, "'%s' of Primus is no training; use %s", others[i].word, others[i].instead);
    if (strcmp(next(l), "projection") == 0) {
        l->at++;
        if (strcmp(next(l), "memory") != 0)
            return tm_fail(err, TM_UNSUPPORTED, "projection %.40s: only memory is planned; take `projection memory`",
                           next(l));
        l->at++;
        put(l, "--dry-run");
    } else if (strcmp(next(l), "train") != 0) {
        return tm_fail(err, TM_USAGE, "Primus is asked for '%.100s'; wanted train pretrain or train posttrain",
                       next(l));
    }
    while (is_one_of(next(l), trains)) l->at++;
    return TM_OK;
}

static bool plans_platform(const line *l)
{
    for (int i = l->at; i < l->argc; i++)
        if (strncmp(l->argv[i], "--platform", 10) == 0) return true;
    return false;
}

/* primus-cli [OPTIONS] MODE [OPTIONS] [-- [MODE OPTIONS --]] COMMAND */
static tm_status take_primus_cli(line *l, tm_error *err)
{
    static const char *const modes[] = { "direct", "container", "slurm", "srun", "sbatch", "--", NULL };
    for (l->at++; l->at < l->argc;) {
        if (is_one_of(next(l), modes))
            l->at++;
        else if (next(l)[0] == '-')
            TM_TRY(take_option(l, of_primus, "primus-cli", err));
        else
            break;
    }
    if (l->nodes && !l->devices && !getenv("GPUS_PER_NODE") && !plans_platform(l)) { /* its default */
        put(l, "--launch.gpus_per_node");
        put(l, "8");
    }
    return take_primus_command(l, err);
}

/* Programs and scripts by their names; what is behind them is for this program. `words`: what they mean without any. */
static const struct {
    const char *name, *words[10];
    const char *file; /* the variable that names the file */
} scripts[] = {
    { "train_fsdp.py", { NULL }, NULL },
    { "run_pretrain.sh", { NULL }, NULL }, /* EXP */
    { "run_slurm_pretrain.sh", { NULL }, NULL },
    { "run_local_pretrain.sh", { NULL }, NULL },
    { "run_train.sh", { NULL }, "CONFIG_FILE" },
    { "run_llama_train.sh", { "-t", "pretrain", "-m", "Llama-3.1-70B", "-p", "BF16", NULL }, "CONFIG_FILE" },
    { "pytorch_benchmark_report.sh", { NULL }, NULL },
    { "primus_pytorch_benchmark_report.sh", { NULL }, NULL },
    { "report.sh", { NULL }, NULL },
    { "run_models.py", { NULL }, NULL },
};

/* run_with_docker.sh reads config_$DGXSYSTEM.sh beside itself, which also says what DGXSYSTEM is. */
static tm_status take_submission(line *l, bool *taken, tm_error *err)
{
    static const char name[] = "run_with_docker.sh";
    const char       *script = next(l), *system = getenv("DGXSYSTEM");
    *taken = strcmp(base_of(script), name) == 0;
    if (!*taken) return TM_OK;
    if (!system || !*system)
        return tm_fail(err, TM_USAGE,
                       "%s trains config_$DGXSYSTEM.sh, and DGXSYSTEM is not set; name that file instead", name);
    l->at++;
    l->out[l->n++] = tm_arena_format(l->arena, "%.*sconfig_%s.sh", (int)(base_of(script) - script), script, system);
    return TM_OK;
}

/* Takes the script at the next word; false: it is none that is known. */
static bool take_script(line *l)
{
    const char *name = base_of(next(l));
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        if (strcmp(scripts[i].name, name) != 0) continue;
        const char *file = scripts[i].file ? getenv(scripts[i].file) : NULL;
        l->at++;
        if (file && *file) put(l, file);
        bool own = !(file && *file) && scripts[i].words[0];
        if (own) l->trains = scripts[i].name;
        for (int k = 0; own && scripts[i].words[k]; k++) put(l, scripts[i].words[k]);
        return true;
    }
    return false;
}

/* The value of the option at word i, whose names are `names`: in the word, or the next one, which *i then is. */
static const char *value_at(const line *l, int *i, const char *const *names)
{
    for (; *names; names++) {
        size_t n = strlen(*names);
        if (strncmp(l->argv[*i], *names, n) != 0) continue;
        if (l->argv[*i][n] == '=') return l->argv[*i] + n + 1;
        if (!l->argv[*i][n]) return *i + 1 < l->argc ? l->argv[++*i] : "";
    }
    return NULL;
}

/* The file that the launcher reads where none is named: of its releases, the newest first; NULL: none is there. */
static const char *flux_default(const line *l, const char *folder)
{
    static const char *const names[] = { "single_run", "flux_mini_benchmark", "minimal_benchmark_config" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = tm_arena_format(l->arena, "%s/%s.yaml", folder, names[i]);
        if (tm_file_exists(path)) return path;
    }
    return NULL;
}

/* Its own files, whose values are known where it is not here (config/hydra.c). */
static bool built_in_flux(const char *name)
{
    static const char *const names[] = { "single_run", "single_run.yaml", "flux_benchmark", "flux_benchmark.yaml",
                                         NULL };
    return is_one_of(name, names);
}

/* Does the line change a key of its files? */
static bool has_flux_keys(const line *l)
{
    static const char *const groups[] = { "train_args", "accelerate_config", "launcher" };
    for (int i = l->at; i < l->argc; i++) {
        const char *key = l->argv[i] + strspn(l->argv[i], "+");
        for (size_t k = 0; k < sizeof groups / sizeof groups[0]; k++) {
            size_t n = strlen(groups[k]);
            if (strncmp(key, groups[k], n) == 0 && (key[n] == '.' || key[n] == '=')) return true;
        }
    }
    return false;
}

/* python launcher.py --config-name=NAME [+]KEY=VALUE ...: reads config/NAME.yaml beside itself. Where it is not here:
 * its own values with random weights and images, to measure; without a change, what its entry of the catalogue trains.
 */
static tm_status take_flux(line *l, tm_error *err)
{
    static const char *const        name_of[] = { "--config-name", "-cn", NULL },
                             *const folder_of[] = { "--config-path", "-cp", NULL },
                             *const file_of[] = { "--config_file", "--param_config_file", NULL };
    static const char *const        measures[] = { "--training.mock_data", "true", "train_args.model_path=null" };
    static const char *const        own[] = { "-t", "pretrain", "-m", "Flux", "-p", "BF16" };
    const char                     *script = l->argv[l->at++], *name = NULL, *file = NULL, *value;
    const char                     *beside = tm_arena_format(l->arena, "%.*s", (int)(base_of(script) - script), script);
    const char                     *folder = tm_arena_format(l->arena, "%sconfig", beside);
    char **kept = tm_arena_take(l->arena, ((size_t)l->argc + 1) * sizeof *kept); /* argv stays as it is */
    int    n = 0;
    bool   elsewhere = false;
    for (int i = l->at; i < l->argc; i++) {
        const char *word = l->argv[i];
        if ((value = value_at(l, &i, name_of))) {
            name = value;
        } else if ((value = value_at(l, &i, folder_of))) {
            folder = value[0] == '/' ? value : tm_arena_format(l->arena, "%s%s", beside, value);
            elsewhere = true;
        } else if ((value = value_at(l, &i, file_of))) {
            file = value;
        } else if (word[0] == '-' && find(of_flux, word, strcspn(word, "="))) {
            l->at = i;
            TM_TRY(take_option(l, of_flux, base_of(script), err));
            i = l->at - 1;
        } else {
            kept[n++] = l->argv[i];
        }
    }
    l->argv = kept;
    l->argc = n;
    l->at = 0;
    if (name && !*name)
        return tm_fail(err, TM_USAGE, "option '--config-name' of launcher.py needs a value: --config-name NAME");
    if (name) file = tm_arena_format(l->arena, "%s/%s%s", folder, name, ends(name, ".yaml") ? "" : ".yaml");
    if (!file) file = flux_default(l, folder);
    l->trains = file ? NULL : "launcher.py";
    bool absent = name && !elsewhere && !tm_file_exists(file) && built_in_flux(name), changed = has_flux_keys(l);
    if (absent || (!file && changed)) {
        put(l, tm_arena_format(l->arena, "fluxbenchmark:%.*s.yaml", name ? (int)strcspn(name, ".") : 10,
                               name ? name : "single_run"));
        for (size_t i = 0; i < sizeof measures / sizeof measures[0]; i++) put(l, measures[i]);
    } else if (file) {
        put(l, file);
    } else {
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) put(l, own[i]);
    }
    return TM_OK;
}

/* Targets of FluxBenchmark's Makefile: they load what is not needed here, or keep containers. */
static tm_status check_make(const line *l, tm_error *err)
{
    static const char *const targets[] = { "build_docker", "launch_docker", "build_and_launch_docker",
                                           "exec_docker",  "stop_docker",   NULL };
    const char              *target = l->at + 1 < l->argc ? l->argv[l->at + 1] : "";
    if (strcmp(target, "download_assets") == 0)
        return tm_fail(err, TM_INVALID,
                       "make download_assets: nothing is downloaded here: weights are read from the Hugging Face cache "
                       "or train_args.model_path=DIR, and --training.mock_data true needs no images; leave this line "
                       "out");
    if (is_one_of(target, targets))
        return tm_fail(err, TM_INVALID, "make %s: there is no container to build or enter; leave this line out",
                       target);
    return tm_fail(err, TM_USAGE, "'make %.60s' is no training that is known here, and nothing is made", target);
}

/* Programs below those that are known, which a published line does not begin with. */
static tm_status check_below(const char *name, tm_error *err)
{
    if (strcmp(name, "accelerate") == 0)
        return tm_fail(
            err, TM_UNSUPPORTED,
            "accelerate launch: its scripts are not read; of FluxBenchmark name the launcher's file, and each "
            "flag of train.py as train_args.FLAG=VALUE: trainmark run config/single_run.yaml "
            "train_args.train_batch_size=4");
    if (strcmp(name, "run_flux_mlperf.sh") == 0)
        return tm_fail(err, TM_UNSUPPORTED,
                       "run_flux_mlperf.sh: the diffusion framework of Primus is not read; the same benchmark is "
                       "trainmark mlperf run configs/experiments/mlperf/flux1-MI355X.yaml");
    return TM_OK;
}

/* A script of the pages that only installs and downloads. */
static tm_status check_setup(const char *script, tm_error *err)
{
    static const char *const setups[] = { "pytorch_benchmark_setup.sh", NULL };
    if (!is_one_of(base_of(script), setups)) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "%.100s: nothing to set up: trainmark needs no packages or downloads; leave this line out", script);
}

/* tune run OPTIONS RECIPE: the file is behind --config. */
static tm_status take_tune(line *l, tm_error *err)
{
    l->at++;
    if (strcmp(next(l), "run") != 0)
        return tm_fail(err, TM_USAGE, "'tune %.60s' is no training; wanted tune run", next(l));
    for (l->at++; next(l)[0] == '-' && strcmp(next(l), "--config") != 0;)
        TM_TRY(take_option(l, of_torchrun, "tune run", err));
    if (next(l)[0] && next(l)[0] != '-' && !strchr(next(l), '=')) l->at++;
    return TM_OK;
}

static tm_status take_launcher(line *l, bool *taken, tm_error *err)
{
    static const char *const shells[] = { "bash", "sh", "python", "python3", NULL };
    const char              *name = base_of(next(l)), *behind = l->at + 1 < l->argc ? l->argv[l->at + 1] : "";
    *taken = true;
    if (is_one_of(name, shells) &&
        (strchr(behind, '.') || strstr(behind, "primus-cli") || strcmp(behind, "madengine") == 0)) {
        l->at++;
        TM_TRY(check_setup(next(l), err));
        TM_TRY(check_below(base_of(next(l)), err));
        TM_TRY(take_submission(l, taken, err));
        if (*taken) return TM_OK;
        *taken = true;
        if (strcmp(base_of(next(l)), "launcher.py") == 0) return take_flux(l, err);
        if (take_script(l) || strstr(next(l), "primus-cli") || strcmp(next(l), "madengine") == 0) return TM_OK;
        return tm_fail(err, TM_USAGE, "'%.100s' is no script that is known here, and none is executed", next(l));
    }
    if (strcmp(name, "torchrun") == 0) return take_torchrun(l, err);
    if (strcmp(name, "primus-cli") == 0) return take_primus_cli(l, err);
    if (strcmp(name, "primus") == 0) return l->at++, take_primus_command(l, err);
    if (strcmp(name, "tune") == 0) return take_tune(l, err);
    if (strcmp(name, "launcher.py") == 0) return take_flux(l, err);
    if (strcmp(name, "make") == 0) return check_make(l, err);
    TM_TRY(check_below(name, err));
    if (strcmp(name, "madengine") == 0 && strcmp(behind, "run") == 0) return l->at += 2, TM_OK;
    TM_TRY(check_setup(next(l), err));
    TM_TRY(take_submission(l, taken, err));
    if (!*taken) *taken = take_script(l);
    return TM_OK;
}

tm_status tm_launcher_translate(tm_arena *arena, int *argc, char ***argv, tm_error *err)
{
    line l = { .arena = arena, .argc = *argc, .at = 1, .argv = *argv };
    bool taken = true, any = false, file = false;
    l.out = tm_arena_take(arena, ((size_t)*argc + 24) * 2 * sizeof *l.out);
    l.out[l.n++] = (*argv)[0];
    while (l.at < l.argc && taken) {
        TM_TRY(take_launcher(&l, &taken, err));
        any |= taken;
    }
    if (!any) return TM_OK;
    for (; l.at < l.argc; l.at++) { /* --config FILE is the file */
        const char *word = l.argv[l.at];
        bool        apart = strcmp(word, "--config") == 0 || strcmp(word, "--job.config_file") == 0;
        if (!file && (apart || strncmp(word, "--config=", 9) == 0)) {
            file = true;
            if (l.trains)
                return tm_fail(err, TM_USAGE,
                               "unknown option '%s' of %s: it trains a model of its own; name the file without the "
                               "script: trainmark run FILE",
                               apart ? word : "--config", l.trains);
            if (apart && l.at + 1 >= l.argc)
                return tm_fail(err, TM_USAGE, "option '%s' needs a value: %s FILE", word, word);
            put(&l, apart ? l.argv[++l.at] : word + 9);
            continue;
        }
        l.out[l.n++] = l.argv[l.at];
    }
    *argc = l.n;
    *argv = l.out;
    l.out[l.n] = NULL;
    return TM_OK;
}
