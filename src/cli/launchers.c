/* SPDX-License-Identifier: Apache-2.0 */
/* cli/launchers.c - what other programs are started with, taken off a command line:
 *
 *     torchrun --nproc_per_node=8 ./train_fsdp.py model.json llama      ->  model.json llama --launch.gpus_per_node 8
 *     bash runner/primus-cli slurm srun -N 4 -- train pretrain --config exp.yaml
 *     madengine run --tags pyt_train_llama-3.1-8b --keep-model-dir
 *
 * An option of a launcher is a row of its table; one that has none is refused. */
#include "cli/habits.h"

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
    { "launcher.py", { "-t", "pretrain", "-m", "Flux", "-p", "BF16", NULL }, NULL },
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
        TM_TRY(take_submission(l, taken, err));
        if (*taken) return TM_OK;
        *taken = true;
        if (take_script(l) || strstr(next(l), "primus-cli") || strcmp(next(l), "madengine") == 0) return TM_OK;
        return tm_fail(err, TM_USAGE, "'%.100s' is no script that is known here, and none is executed", next(l));
    }
    if (strcmp(name, "torchrun") == 0) return take_torchrun(l, err);
    if (strcmp(name, "primus-cli") == 0) return take_primus_cli(l, err);
    if (strcmp(name, "primus") == 0) return l->at++, take_primus_command(l, err);
    if (strcmp(name, "tune") == 0) return take_tune(l, err);
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
