/* SPDX-License-Identifier: Apache-2.0 */
/* config/sources.c - environment variables and command-line overrides. */
#include "config/foreign.h"
#include "config/internal.h"

#include <string.h>

/* Variables that set a key. Where two set the same key, the later row wins. What else the outer world offers (EXP here;
 * TRAIN_LOG and the names of a run's host in cli and record) is no key. */
static const struct {
    const char *variable, *key;
} variables[] = {
    { "PRIMUS_TEAM", "work_group" },
    { "PRIMUS_USER", "user_name" },
    { "PRIMUS_EXP_NAME", "exp_name" },
    { "PRIMUS_WORKSPACE", "workspace" },
    { "MAD_MODEL_BATCH_SIZE", "training.local_batch_size" },
    { "PRIMUS_SEQ_LENGTH", "training.seq_len" },
    { "PRIMUS_GLOBAL_BATCH_SIZE", "training.global_batch_size" },
    { "PRIMUS_TP", "parallelism.tensor_parallel_degree" },
    { "PRIMUS_PP", "parallelism.pipeline_parallel_degree" },
    { "PRIMUS_EP", "parallelism.expert_parallel_degree" },
    { "PRIMUS_NUM_LAYERS", "model.n_layers" },
    { "PRIMUS_LOG_LEVEL", "log.level" },
    { "PRIMUS_LOG_COLOR", "log.color" },
    { "PRIMUS_DETERMINISTIC", "debug.deterministic" },
    { "TRAIN_LOG", "log.file" },
    { "SEED", "debug.seed" },
    { "SLURM_NNODES", "launch.nnodes" },
    { "SLURM_NODEID", "launch.node_rank" },
    { "SLURM_PROCID", "launch.rank" },
    { "SLURM_LOCALID", "launch.local_rank" },
    { "MAD_RUNTIME_NGPUS", "launch.gpus_per_node" },
    { "NNODES", "launch.nnodes" },
    { "NODE_RANK", "launch.node_rank" },
    { "GPUS_PER_NODE", "launch.gpus_per_node" },
    { "RANK", "launch.rank" },
    { "WORLD_SIZE", "launch.world_size" },
    { "LOCAL_RANK", "launch.local_rank" },
    { "LOCAL_WORLD_SIZE", "launch.local_world_size" },
};

tm_status tm_config_apply_environment(tm_config *config, char *const *environ_like, tm_error *err)
{
    const char *experiment = tm_environment_find(environ_like, "EXP");
    if (experiment && *experiment && !config->file_loaded && !config->preset)
        TM_TRY(tm_config_load_file(config, experiment, err));
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = tm_environment_find(environ_like, variables[i].variable);
        if (!value || !*value || !tm_entry_find(config, variables[i].key)) continue;
        tm_given given = { .text = value,
                           .origin = tm_arena_format(config->arena, "environment %s", variables[i].variable) };
        tm_error own = { 0 };
        tm_axes_drop(config, LAYER_ENVIRONMENT, variables[i].key);
        tm_config_report(config, tm_config_give_own(config, LAYER_ENVIRONMENT, variables[i].key, &given, &own), &own);
    }
    return TM_OK;
}

/* Is `value` one of the choices of the key ("null" may be one)? */
static bool is_choice(const tm_config *config, const char *key, const char *value)
{
    const tm_entry *entry = tm_entry_find(config, key);
    size_t          n = strlen(value);
    if (!entry || entry->key.kind != TM_KEY_CHOICE) return false;
    for (const char *p = entry->key.choices; *p; p += *p == '|') {
        size_t word = strcspn(p, "|");
        if (word == n && strncmp(p, value, n) == 0) return true;
        p += word;
    }
    return false;
}

/* The key that an override means: modules.pre_trainer.lr is lr of the experiment's module (as is .overrides.lr), and a
 * section of which a component is given (optimizer=torch.optim.SGD) is its component. */
static const char *meant(const tm_config *config, const char *key, const char *value)
{
    static const char prefix[] = "modules.", within[] = "overrides.";
    const char       *module = tm_config_module(config);
    size_t            n = sizeof prefix - 1, length = module ? strlen(module) : 0;
    if (module && strncmp(key, prefix, n) == 0 && strncmp(key + n, module, length) == 0 && key[n + length] == '.') {
        key += n + length + 1;
        return strncmp(key, within, sizeof within - 1) == 0 ? key + sizeof within - 1 : key;
    }
    if (*value == '{' || !tm_config_is_section(config, key)) return key;
    const char *component = tm_arena_format(config->arena, "%s._component_", key);
    for (size_t i = 0; config->framework && i < config->framework->n; i++)
        if (strcmp(config->framework->keys[i].name, component) == 0) return component;
    return key;
}

/* One override; `value` as typed. Flow lists, maps and quoted text are YAML, everything else is taken as it is. */
static tm_status give_argument(tm_config *config, const char *key, const char *value, tm_error *err)
{
    static const char *const nulls[] = { "null", "Null", "NULL", "~" };
    if (strchr("[{'\"", value[0]) && value[0])
        return tm_config_give_yaml(config, LAYER_COMMAND, key, value, "command line", err);
    tm_given given = { .text = value, .origin = "command line" };
    for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++)
        if (strcmp(value, nulls[i]) == 0 && !is_choice(config, key, value)) given.text = NULL;
    return tm_config_give(config, LAYER_COMMAND, key, &given, err);
}

static bool looks_boolean(const char *text)
{
    static const char *const words[] = { "true", "false", "yes", "no", "on", "off", "1", "0" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (tm_names_equal(text, words[i])) return true;
    return false;
}

/* A word without a value: for a boolean it means true. Returns NULL if the value is missing. */
static const char *value_of(const tm_config *config, const char *key, const char *next, bool *taken)
{
    const tm_entry *entry = tm_entry_find(config, key);
    bool            boolean = entry && entry->key.kind == TM_KEY_BOOL && !tm_entry_is_wildcard(entry);
    *taken = next && strncmp(next, "--", 2) != 0 && (!boolean || looks_boolean(next));
    if (*taken) return next;
    return boolean ? "true" : NULL;
}

/* A word with a dot, or a known name, is meant as a key; another one is wrong usage. */
static tm_status check_name(tm_config *config, const char *key, const char *word, tm_error *err)
{
    if (tm_config_knows(config, key) || strchr(key, '.') || tm_config_is_section(config, key) || config->allow_unknown)
        return TM_OK;
    tm_error inner = { 0 };
    if (tm_config_unknown(config, key, "command line", &inner) == TM_OK) return TM_OK;
    return tm_fail(err, TM_USAGE, "unknown option '%.200s': %.600s", word, inner.text);
}

/* "~key" of torchtune's command line: as if the recipe did not have the key, or the section. */
static tm_status remove_key(tm_config *config, const char *key, tm_error *err)
{
    bool torchtune = config->framework == &tm_framework_torchtune;
    if (torchtune && tm_foreign_remove(config, LAYER_FILE, key)) return TM_OK;
    return tm_fail(err, TM_USAGE,
                   torchtune
                       ? "'~%.200s' removes a key that the recipe does not have"
                       : "'~%.200s' removes a key of a recipe of torchtune, which this is not; give the key a value",
                   key);
}

static tm_status apply_word(tm_config *config, const char *word, const char *next, bool *taken, tm_error *err)
{
    const char *equals = strchr(word, '=');
    bool        dashed = strncmp(word, "--", 2) == 0 && word[2];
    const char *name = dashed ? word + 2 : equals ? word + strspn(word, "+") : word; /* +key=value: Hydra adds a key */
    *taken = false;
    if (*word == '~' && word[1] && !equals) return remove_key(config, word + 1, err);
    if ((!dashed && !equals) || name == equals)
        return tm_fail(err, TM_USAGE,
                       *word == '-' ? "unknown option '%.200s'; keys are --key VALUE, --key=VALUE or key=VALUE"
                                    : "cannot use argument '%.200s'; wanted --key VALUE, --key=VALUE or key=VALUE",
                       word);
    char *key =
        equals ? tm_arena_text_n(config->arena, name, (size_t)(equals - name)) : tm_arena_text(config->arena, name);
    TM_TRY(check_name(config, key, word, err));
    const char *value = equals ? equals + 1 : value_of(config, key, next, taken);
    if (!value) return tm_fail(err, TM_USAGE, "option '%.200s' needs a value: %.200s VALUE", word, word);
    tm_error own = { 0 };
    tm_config_report(config, give_argument(config, meant(config, key, value), value, &own), &own);
    return TM_OK;
}

/* Is the word behind one that is unknown its value, and no option or key itself? */
static bool may_be_its_value(const char *word, char **next, int n)
{
    return strncmp(word, "--", 2) == 0 && !strchr(word, '=') && n > 0 && strncmp(*next, "--", 2) != 0 &&
           !strchr(*next, '=');
}

tm_status tm_config_apply_arguments(tm_config *config, int argc, char **argv, tm_error *err)
{
    tm_status st = TM_OK;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--allow-unknown-keys") == 0) config->allow_unknown = true;
    for (int i = 0; i < argc; i++) {
        bool     taken = false;
        tm_error own = { 0 };
        if (strcmp(argv[i], "--allow-unknown-keys") == 0) continue;
        tm_status its = apply_word(config, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &taken, &own);
        if (tm_also_of(err, its, &own) != TM_OK) st = its;
        i += its == TM_OK ? taken : may_be_its_value(argv[i], argv + i + 1, argc - i - 1);
    }
    return st;
}

int tm_config_argument_words(const tm_config *config, const char *word, const char *next)
{
    const char *equals = strchr(word, '=');
    bool        dashed = strncmp(word, "--", 2) == 0 && word[2], taken = false;
    if (equals || !dashed) return (equals && equals != word) || (*word == '~' && word[1]);
    (void)value_of(config, word + 2, next, &taken);
    return 1 + taken;
}
