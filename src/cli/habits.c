/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/habits.h"

#include "base/text.h"
#include "gpu/platform.h"
#include "model/presets.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Letters, digits and dots, in lower case. */
static void squeeze(const char *name, char out[96])
{
    size_t n = 0;
    for (; *name && n + 1 < 96; name++)
        if (isalnum((unsigned char)*name) || *name == '.') out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
}

/* Names of entries that are not those of a preset of ours. */
static const struct {
    const char *squeezed, *preset;
} other_names[] = { { "deepseekv2lite16b", "deepseek_v2_lite" }, { "flux", "flux.1_dev" }, { "gpt2", "gpt2-124M" } };

const char *tm_habit_model(const tm_config *config, const char *name)
{
    char             wanted[96], have[96];
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    const char      *exact = tm_config_find_preset(config, name);
    if (exact) return exact;
    squeeze(name, wanted);
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++)
        if (strcmp(other_names[i].squeezed, wanted) == 0) return other_names[i].preset;
    for (size_t i = 0; i < n; i++) {
        squeeze(presets[i].name, have);
        if (strcmp(have, wanted) == 0) return presets[i].name;
    }
    return NULL;
}

const char *tm_habit_tag(tm_arena *arena, const char *preset)
{
    tm_text text = { 0 };
    tm_text_add(&text, "pyt_train_");
    for (const char *p = preset; *p; p++) {
        char lower = (char)(*p == '_' ? '-' : tolower((unsigned char)*p));
        bool first_digit =
            p > preset && isdigit((unsigned char)*p) && isalpha((unsigned char)p[-1]) && !strchr(preset, '-');
        if (first_digit && strcspn(preset, "0123456789") == (size_t)(p - preset)) tm_text_add(&text, "-");
        tm_text_add_n(&text, &lower, 1);
    }
    const char *tag = tm_arena_text(arena, text.data);
    tm_text_fini(&text);
    return tag;
}

/* Is `name` nearer to `wanted` than *best? Then *best is how near. */
static bool is_nearer(const char *wanted, const char *name, int *best)
{
    int  distance = tm_edit_distance(wanted, name);
    bool nearer = distance < *best;
    if (nearer) *best = distance;
    return nearer;
}

/* One more than what may be wrong in a name of which another is told. */
static int farthest(const char *name)
{
    size_t third = strlen(name) / 3;
    return third < 3 ? (int)third + 1 : 4;
}

/* The preset whose name is like that of the model, or NULL. */
static const char *near_model(const char *name)
{
    char             wanted[96], have[96];
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    const char      *near = NULL;
    squeeze(name, wanted);
    int best = farthest(wanted);
    for (size_t i = 0; i < n; i++) {
        squeeze(presets[i].name, have);
        if (is_nearer(wanted, have, &best)) near = presets[i].name;
    }
    return near;
}

/* Takes `suffix` off. */
static bool cut(char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    if (n < s || strcmp(name + n - s, suffix) != 0) return false;
    name[n - s] = '\0';
    return true;
}

static const char *const schemes[] = {
    "pyt_train_",         "primus_pyt_train_", "pyt_megatron_lm_train_", "primus_pyt_megatron_lm_train_",
    "jax_maxtext_train_", "pyt_huggingface_"
};
enum { MAD, PRIMUS, MEGATRON, PRIMUS_MEGATRON, SCHEMES_WITH_RECIPES }; /* the first ones */

const char *tm_habit_preset(const tm_config *config, const char *tag)
{
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t n = strlen(schemes[i]);
        if (strncmp(tag, schemes[i], n) != 0) continue;
        char model[96];
        snprintf(model, sizeof model, "%s", tag + n);
        cut(model, "_overlay");
        cut(model, "_fp8");
        if (i == PRIMUS && strcmp(model, "deepseek-v2") == 0) return "deepseek_v3_16B"; /* so it is called there */
        return tm_habit_model(config, model);
    }
    return NULL;
}

/* The entry of the catalogue whose name is like the tag, in `arena`, or NULL. */
static const char *near_tag(tm_arena *arena, const char *tag)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    const char      *near = NULL;
    int              best = farthest(tag);
    for (size_t i = 0; i < n; i++) {
        const char *model = tm_habit_tag(arena, presets[i].name) + strlen(schemes[MAD]);
        for (size_t k = 0; k < sizeof schemes / sizeof schemes[0]; k++) {
            const char *entry = tm_arena_format(arena, "%s%s", schemes[k], model);
            if (is_nearer(tag, entry, &best)) near = entry;
        }
    }
    return near;
}

bool tm_habit_selects(const tm_config *config, const char *tag, const char *preset)
{
    static const char *const all[] = { "pyt", "jax", "primus", "training", "pretrain" };
    char                     wanted[96], have[96];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(tag, all[i]) == 0) return true;
    const char *named = tm_habit_preset(config, tag);
    if (named) return strcmp(named, preset) == 0;
    squeeze(tag, wanted);
    squeeze(preset, have);
    return *wanted && strncmp(have, wanted, strlen(wanted)) == 0;
}

/* Words on their way into a new command line. */
typedef struct {
    tm_config  *config;
    tm_arena   *arena;
    char      **made, **rest; /* in front, behind */
    int         n_made, n_rest;
    const char *model, *task;
    const char *entry;     /* of the catalogue: --tags; NULL: none */
    const char *precision; /* -p */
    int         sequence;  /* -s: where its value is in made; 0: not given */
    bool        benchmark; /* words of a benchmark script were there */
    bool        bfloat16;  /* -p BF16 */
} rewriting;

static void make(rewriting *r, const char *word, const char *value)
{
    r->made[r->n_made++] = tm_arena_text(r->arena, word);
    r->made[r->n_made++] = tm_arena_text(r->arena, value);
}

/* Tasks of the scripts and what they train by; as in training, weights and data are made up: they measure speed. */
static const struct {
    const char *task, *words[12]; /* keys and values, NULL behind the last */
} tasks[] = {
    { "pretrain", { NULL } },
    { "HF_pretrain", { NULL } },
    { "posttrain", { NULL } },
    { "finetune_fw", { "--optimizer.lr", "2e-5", "--activation_checkpoint.mode", "full", NULL } },
    { "finetune_lora",
      { "--lora.rank", "16", "--lora.alpha", "32", "--lora.targets", "q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
        "--optimizer.lr", "3e-4", "--activation_checkpoint.mode", "full", NULL } },
    { "finetune_qlora",
      { "--lora.rank", "16", "--lora.alpha", "32", "--lora.targets", "q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
        "--lora.base_format", "nf4", "--activation_checkpoint.mode", "full", NULL } },
    { "HF_finetune_lora",
      { "--lora.rank", "8", "--lora.alpha", "16", "--lora.dropout", "0.1", "--optimizer.lr", "1e-4",
        "--activation_checkpoint.mode", "full", NULL } },
};

static tm_status take_task(rewriting *r, const char *value, tm_error *err)
{
    tm_text names = { 0 };
    r->task = value;
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        tm_text_printf(&names, "%s%s", i ? ", " : "", tasks[i].task);
        if (strcmp(value, tasks[i].task) != 0) continue;
        tm_text_fini(&names);
        for (int k = 0; tasks[i].words[k]; k += 2) make(r, tasks[i].words[k], tasks[i].words[k + 1]);
        return TM_OK;
    }
    tm_status st =
        tm_fail(err, TM_UNSUPPORTED, "-t %.60s: this task is not supported; wanted one of %s", value, names.data);
    tm_text_fini(&names);
    return st;
}

static tm_status take_model(rewriting *r, const char *value, tm_error *err)
{
    r->model = tm_habit_model(r->config, value);
    if (r->model) return TM_OK;
    const char *near = near_model(value);
    return tm_fail(err, TM_UNSUPPORTED,
                   "-m %.100s: this model is not supported; %s%s%s`trainmark models` lists those that are", value,
                   near ? "the nearest name is '" : "", near ? near : "", near ? "'; " : "");
}

static tm_status take_precision(rewriting *r, const char *value, tm_error *err)
{
    r->precision = value;
    if (tm_names_equal(value, "BF16"))
        make(r, "--training.dtype", "bfloat16"), r->bfloat16 = true;
    else if (tm_names_equal(value, "FP32"))
        make(r, "--training.dtype", "float32");
    else if (tm_names_equal(value, "FP8")) /* of the products; all else is bfloat16 */
        make(r, "--training.dtype", "bfloat16"), make(r, "--fp8", "hybrid");
    else
        return tm_fail(err, TM_UNSUPPORTED, "-p %.60s: wanted BF16, FP8 or FP32", value);
    return TM_OK;
}

static tm_status take_strategy(rewriting *r, const char *value, tm_error *err)
{
    (void)r;
    static const char *const yes[] = { "fsdp", "True", "1" };
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        if (tm_names_equal(value, yes[i])) return TM_OK; /* ranks share the model anyway */
    return tm_fail(err, TM_UNSUPPORTED,
                   "-f accepts fsdp or True, found %.60s; for copies of the model give "
                   "--parallelism.data_parallel_replicate_degree -1 --parallelism.data_parallel_shard_degree 1",
                   value);
}

static tm_status take_flag(rewriting *r, char flag, const char *value, tm_error *err)
{
    r->benchmark = true;
    switch (flag) {
    case 't':
        return take_task(r, value, err);
    case 'm':
        return take_model(r, value, err);
    case 'p':
        return take_precision(r, value, err);
    case 'f':
        return take_strategy(r, value, err);
    case 's':
        r->sequence = r->n_made + 1;
        make(r, "--training.seq_len", value);
        return TM_OK;
    case 'n':
        make(r, "--launch.gpus_per_node", value);
        return TM_OK;
    case 'b':
        make(r, "--training.local_batch_size", value);
        return TM_OK;
    default:
        make(r, "--model.n_layers", value);
        return TM_OK;
    }
}

/* "pyt_train_llama-3.1-8b:batch_size=4": an entry of the catalogue and its parameters. */
static tm_status take_tag(rewriting *r, const char *tag, tm_error *err)
{
    char *name = tm_arena_text(r->arena, tag), *parameters = strchr(name, ':');
    if (parameters) *parameters++ = '\0';
    /* Megatron-LM's entry of the 70B for one node: 40 of its 80 layers, in FP8 only (ROCm/MAD, pytorch_megatron_lm) */
    bool        proxy = cut(name, "_llama-3.1-70b-proxy") && strcat(name, "_llama-3.1-70b");
    const char *preset = tm_habit_preset(r->config, name);
    const char *near = preset ? NULL : near_tag(r->arena, name);
    if (!preset)
        return tm_fail(err, TM_UNSUPPORTED, "--tags: no entry '%.120s'; %s%s%s`trainmark discover` lists them", name,
                       near ? "the nearest name is '" : "", near ? near : "", near ? "'; " : "");
    if (r->model && strcmp(r->model, preset) != 0)
        return tm_fail(err, TM_UNSUPPORTED,
                       "--tags: %.60s and %.60s are two models; a run is one: call it once for each", r->model, preset);
    r->model = preset;
    r->benchmark = true;
    (void)cut(name, "_overlay");
    if (cut(name, "_fp8") || proxy) TM_TRY(take_precision(r, "FP8", err));
    if (proxy) make(r, "--model.n_layers", "40");
    if (proxy)
        tm_config_note(r->config, "%.120s: 40 of the 80 layers, a proxy of the model that one node has room for", tag);
    r->entry = name;
    for (char *next; parameters; parameters = next) {
        next = strchr(parameters, ':');
        if (next) *next++ = '\0';
        char *equals = strchr(parameters, '=');
        if (!equals)
            return tm_fail(err, TM_USAGE, "--tags: '%.100s' is not a parameter; wanted NAME:key=value", parameters);
        *equals = '\0';
        make(r, tm_arena_format(r->arena, "--%s", parameters), equals + 1);
    }
    return TM_OK;
}

static tm_status take_tags(rewriting *r, int argc, char **argv, int *i, tm_error *err)
{
    int before = *i;
    while (*i + 1 < argc && argv[*i + 1][0] != '-') {
        char *list = tm_arena_text(r->arena, argv[++*i]);
        for (char *tag = strtok(list, ","); tag; tag = strtok(NULL, ",")) TM_TRY(take_tag(r, tag, err));
    }
    return *i > before ? TM_OK : tm_fail(err, TM_USAGE, "option '--tags' needs a value: --tags NAME");
}

/* What the catalogue's runner does with its output, containers and folders; there are none, and output comes at once.
 */
static const char *const habits[] = { "--live-output", "--keep-model-dir", "--keep-alive", "--clean-docker-cache" };

static bool is_habit(const char *word)
{
    for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++)
        if (tm_names_equal(word, habits[i])) return true;
    return false;
}

/* An option that is written nearly like one of these; no key is. */
static tm_status check_habit(const char *word, tm_error *err)
{
    for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++)
        if (tm_edit_distance(word, habits[i]) < 3)
            return tm_fail(err, TM_USAGE, "unknown option '%.100s'; did you mean '%s'?", word, habits[i]);
    return TM_OK;
}

/* The GPU of --platform, for a plan; NULL: none is said. */
static const char *gpu_of(int argc, char **argv)
{
    static const char name[] = "--platform";
    const size_t      n = sizeof name - 1;
    tm_platform       platform;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], name, n) != 0 || (argv[i][n] && argv[i][n] != '=')) continue;
        const char *value = argv[i][n] ? argv[i] + n + 1 : i + 1 < argc ? argv[i + 1] : "";
        if (tm_platform_read(value, &platform, NULL) == TM_OK) return platform.gpu->name;
    }
    return NULL;
}

/* Who trains so: the catalogue's own scripts, Primus, or Megatron-LM; NULL: somebody whose recipes are not here. */
static const char *whose(const rewriting *r)
{
    static const char *const who[] = { "mad", "primus", "megatron", "megatron" };
    if (!r->entry) return who[MAD];
    for (size_t i = 0; i < SCHEMES_WITH_RECIPES; i++)
        if (strncmp(r->entry, schemes[i], strlen(schemes[i])) == 0) return who[i];
    return NULL;
}

/* How the catalogue trains this model; a task that was not given is that of its entry. Said in a note, also that
 * nothing is known. */
static tm_status take_recipe(rewriting *r, const char *gpu, tm_habit_recipe *out, tm_error *err)
{
    const char *by = whose(r), *task = r->task ? r->task : r->entry ? NULL : "pretrain";
    *out = (tm_habit_recipe){ .n = 0 };
    if (!r->benchmark || !r->model) return TM_OK;
    if (by) *out = tm_habit_recipe_find(r->arena, by, task, r->model, r->precision ? r->precision : "BF16", gpu);
    if (!out->text && r->task && strcmp(r->task, "posttrain") == 0)
        return tm_fail(err, TM_UNSUPPORTED,
                       "-t posttrain -m %.60s: this task is not supported; wanted one of pretrain, finetune_fw, "
                       "finetune_lora, finetune_qlora; posttrain is of Flux only",
                       r->model);
    if (!out->text) {
        bool usual = by && !r->precision;
        tm_config_note(r->config, "%s of %s: no recipe found; using %strainmark's defaults",
                       r->task ? r->task : "pretrain", r->model, usual ? "BF16 and " : "");
        return usual ? take_precision(r, "BF16", err) : TM_OK;
    }
    if (!r->task) TM_TRY(take_task(r, out->task, err));
    if (!r->precision) TM_TRY(take_precision(r, "BF16", err));
    tm_config_note(r->config, "%s of %s. Using the published script's settings: %s%s%s%s", r->task, r->model, out->text,
                   out->gpu ? ", the batch of " : "", out->gpu ? out->gpu : "",
                   r->entry ? "; other tasks and formats of this entry are runs of their own (-t, -p)" : "");
    return TM_OK;
}

/* The scripts take -s for every model; a sample of images is as long as its images and texts. */
static void drop_sequence(rewriting *r)
{
    if (!r->sequence || !r->model || strncmp(r->model, "flux", 4) != 0) return;
    tm_config_note(r->config, "-s %.20s: has no effect on %s, as in the script", r->made[r->sequence], r->model);
    r->n_made -= 2;
    for (int i = r->sequence - 1; i < r->n_made; i++) r->made[i] = r->made[i + 2];
}

static tm_status read_word(rewriting *r, int argc, char **argv, int *i, tm_error *err)
{
    const char *word = argv[*i], *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (word[0] == '-' && word[1] && !word[2] && strchr("tmpsnfbl", word[1])) {
        if (!next || next[0] == '-') return tm_fail(err, TM_USAGE, "option '%s' needs a value: %s VALUE", word, word);
        ++*i;
        return take_flag(r, word[1], next, err);
    }
    if (is_habit(word)) return TM_OK;
    if (strcmp(word, "--tags") == 0) return take_tags(r, argc, argv, i, err);
    TM_TRY(check_habit(word, err));
    r->rest[r->n_rest++] = argv[*i];
    return TM_OK;
}

tm_status tm_habits_translate(tm_config *config, tm_arena *arena, int *argc, char ***argv, tm_error *err)
{
    TM_TRY(tm_launcher_translate(arena, argc, argv, err));
    size_t room = 40, n = (size_t)*argc;
    for (int i = 1; i < *argc; i++) room += 4 + 2 * strlen((*argv)[i]); /* a tag may hold many parameters */
    rewriting r = { .config = config, .arena = arena };
    r.made = tm_arena_take(arena, (room + n) * sizeof *r.made);
    r.rest = tm_arena_take(arena, (n + 1) * sizeof *r.rest);
    for (int i = 1; i < *argc; i++) TM_TRY(read_word(&r, *argc, *argv, &i, err));
    if (r.benchmark && r.task && !r.model)
        return tm_fail(err, TM_USAGE, "-t %.60s names no model; give -m NAME", r.task);
    drop_sequence(&r);
    tm_habit_recipe recipe;
    TM_TRY(take_recipe(&r, gpu_of(*argc, *argv), &recipe, err));
    /* what the scripts fine-tune with has all weights in bfloat16 then, those that are not trained included */
    if (r.bfloat16 && r.task && strstr(r.task, "finetune")) make(&r, "--training.regime", "pure");
    if (r.n_rest == *argc - 1) return TM_OK;
    char **words = tm_arena_take(arena, ((size_t)(r.n_made + r.n_rest + recipe.n) + 12) * sizeof *words);
    int    k = 0;
    words[k++] = (*argv)[0];
    if (r.model) words[k++] = tm_arena_text(arena, r.model);
    if (r.benchmark) { /* as the scripts run it */
        static const char *const usual[] = { "--training.steps",     "50",  "--metrics.log_freq", "1",
                                             "--training.mock_data", "true" };
        for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) words[k++] = tm_arena_text(arena, usual[i]);
    }
    for (int i = 0; i < recipe.n; i++) words[k++] = recipe.words[i];
    memcpy(words + k, r.made, (size_t)r.n_made * sizeof *words);
    memcpy(words + k + r.n_made, r.rest, (size_t)r.n_rest * sizeof *words);
    *argc = k + r.n_made + r.n_rest;
    *argv = words;
    return TM_OK;
}
