/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of tests/config/foreign.txt, files.txt and refused.txt: what lines in a file become, or how they are
 * refused. */
#include "support/foreign.h"
#include "support/refusal.h"

#include "base/file.h"
#include "base/text.h"
#include "model/shape.h"

#include <ctype.h>

#include "support/test.h"

#define HEAD "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n"
#define EXPERIMENT(module, framework, trainer)                                                                         \
    "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  " module ":\n    framework: " framework     \
    "\n    config: " trainer ".yaml\n    model: %s.yaml\n    overrides:\n"
enum { MOST = 32 };

/* Files around the lines of a case: `text` has its model in the place of %s. */
static const struct {
    const char *program, *model, *file, *text, *margin;
    bool        mock; /* by the command line */
} programs[] = {
    { "megatron", "llama2_7B", "x.yaml", EXPERIMENT("pre_trainer", "megatron", "pre_trainer") "      mock_data: true\n",
      "      ", false },
    { "titan", "llama3_8B", "x.yaml", EXPERIMENT("pre_trainer", "torchtitan", "pre_trainer"), "      ", true },
    { "bridge", "qwen3_8b", "x.yaml",
      EXPERIMENT(
          "post_trainer", "megatron_bridge",
          "sft_trainer") "      dataset: {_target_: "
                         "megatron.bridge.data.datasets.mock_dataset.MockDatasetConfig, vocab_size: 9, seed: 1}\n",
      "      ", false },
    { "post", "qwen3_8b", "x.yaml",
      EXPERIMENT("post_trainer", "megatron_bridge",
                 "post_trainer") "      dataset: {_target_: "
                                 "megatron.bridge.data.datasets.mock_dataset.MockDatasetConfig, vocab_size: 9, seed: "
                                 "1}\n",
      "      ", false },
    { "rows", "qwen3_8b", "x.yaml", EXPERIMENT("post_trainer", "megatron_bridge", "sft_trainer"), "      ", false },
    { "sft", "llama2_7B", "x.yaml", EXPERIMENT("post_trainer", "megatron", "sft_trainer"), "      ", false },
    { "data", "llama2_7B", "x.yaml", EXPERIMENT("pre_trainer", "megatron", "pre_trainer"), "      ", false },
    { "job", "", "j.toml", "%s", "", false },
    { "toml", "", "j.toml", "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"%s\n", "", true },
    { "tune", "llama2.lora_llama2_7b", "r.yaml",
      "model:\n  _component_: torchtune.models.%s\n  lora_attn_modules: ['q_proj', 'v_proj']\n  lora_rank: 8\n"
      "  lora_alpha: 16\n"
      "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: /nowhere\n"
      "dataset:\n  _component_: torchtune.datasets.alpaca_dataset\nbatch_size: 2\n"
      "optimizer:\n  _component_: torch.optim.AdamW\n  lr: 3e-4\n",
      "", false },
    { "recipe", "llama3_1.llama3_1_8b", "r.yaml",
      "output_dir: /tmp/x\nmodel:\n  _component_: torchtune.models.%s\nseed: null\nbatch_size: 2\n"
      "batch_size_val: ${batch_size}\nmetric_logger:\n  log_dir: ${output_dir}/logs\nepochs: 1\n"
      "max_steps_per_epoch: 20\ngradient_accumulation_steps: 4\nenable_activation_checkpointing: True\ndtype: bf16\n"
      "device: cuda\noptimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n",
      "", false },
    { "json", "", "m.json",
      "{\n  \"num_layers\": 2, \"num_heads\": 4, \"num_kv_heads\": 2, \"embedding_dim\": 64,\n"
      "  \"max_seq_len\": 32, \"vocab_size\": 128, \"eps\": 1e-05, \"hidden_dim\": 96\n}\n%s",
      NULL, false },
    { "hydra", "", "config/bad.yaml", "%s", "", false },
    { "flux", "", "config/one.yaml",
      "defaults:\n  - launcher: defaults\n  - accelerate_config: fsdp_config\n  - train_args: flux-dev\n  - _self_\n%s",
      NULL, true },
    { "yaml", "", "x.yaml", "%s", "", false },
    { "head", "", "x.yaml", HEAD "    framework: torchtitan\n%s", "", false },
    { "keys", "", "x.yaml",
      "model: {n_layers: 2, dim: 32, n_heads: 4, ffn_dim: 64, vocab_size: 64}\ndata.source: mock\n%s", NULL, false },
    { "line", "", "x.yaml", "debug.seed: 42\n%s", NULL, false },
};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

/* A case as it is loaded. */
typedef struct {
    const char *path, *words[MOST];
    int         n;
} loaded;

/* The next of "a; b; c", which is cut there; a list or map is one. NULL: there is none. */
static char *next_item(char **rest)
{
    char *at = *rest, *from = at;
    int   depth = 0;
    if (!*at) return NULL;
    for (; *at && !(*at == ';' && depth == 0); at++) depth += (*at == '{') - (*at == '}');
    *rest = at + (*at == ';') + (*at == ';' && at[1] == ' '); /* further blanks are the line's */
    *at = '\0';
    return from;
}

/* Writes the file of "PROGRAM MODEL" with these lines. */
static loaded write_case(test_foreign *f, char *head, char *lines, tm_text *text)
{
    loaded      l = { .n = 0 };
    char       *model = strchr(head, ' ');
    const char *before;
    size_t      k = 0;
    if (model) *model++ = '\0';
    while (k < PROGRAMS && strcmp(programs[k].program, head) != 0) k++;
    if (k == PROGRAMS) fail_msg("no program '%s'", head);
    text->length = 0;
    before = strstr(programs[k].text, "%s");
    tm_text_add_n(text, programs[k].text, (size_t)(before - programs[k].text));
    tm_text_printf(text, "%s%s", model ? model : programs[k].model, before + 2);
    if (programs[k].mock) l.words[l.n++] = "--training.mock_data", l.words[l.n++] = "true";
    for (char *item; (item = next_item(&lines));) {
        assert_true(l.n + 2 < MOST);
        if (*item == '@') { /* a file beside it: "@NAME LINE | LINE" */
            char *content = strchr(item, ' ');
            *content++ = '\0';
            for (char *bar = content; (bar = strstr(bar, " | "));)
                memmove(bar + 1, bar + 3, strlen(bar + 3) + 1), *bar = '\n';
            char more[1000];
            snprintf(more, sizeof more, "%s\n", content);
            test_foreign_put(f, item + 1, more);
            continue;
        }
        if (programs[k].margin && *item != '~' && (strncmp(item, "--", 2) != 0 || item[2] == '-')) {
            tm_text_printf(text, "%s%s\n", programs[k].margin, item);
            continue;
        }
        char *value = strchr(item, ' ');
        l.words[l.n++] = item;
        if (value) *value++ = '\0', l.words[l.n++] = value;
    }
    l.path = test_foreign_put(f, programs[k].file, text->data);
    return l;
}

/* A key's value, or PRESET, PARAMETERS of the model, NOTED: `wanted` if it is told. */
static const char *value_of(test_foreign *f, const char *key, const char *wanted)
{
    static char    number[32];
    tm_model_shape shape;
    if (strcmp(key, "PRESET") == 0) return tm_config_preset(f->config);
    if (strcmp(key, "NOTED") == 0)
        return strstr(tm_config_notes(f->config), wanted) || strstr(tm_config_accepted(f->config), wanted) ||
                       strstr(tm_config_unbuilt(f->config), wanted)
                   ? wanted
                   : "not told";
    if (strcmp(key, "PARAMETERS") != 0) return tm_config_text(f->config, key);
    if (tm_model_shape_read(f->config, &shape, &f->err) != TM_OK) fail_msg("%s", f->err.text);
    snprintf(number, sizeof number, "%lld", (long long)tm_model_parameters(&shape));
    return number;
}

/* "key=value key=value": all are; "-" is null. Counts those that are not. */
static int has_all(test_foreign *f, char *wanted, const char *line)
{
    int wrong = 0;
    for (char *pair = strtok(wanted, " "); pair; pair = strtok(NULL, " ")) {
        char *value = strchr(pair, '=');
        if (!value) fail_msg("no value: %s", pair);
        *value++ = '\0';
        const char *is = value_of(f, pair, value);
        if (strcmp(is ? is : "-", value) == 0) continue;
        print_error("%s\n  %s is %s, wanted %s\n", line, pair, is ? is : "null", value);
        wrong++;
    }
    return wrong;
}

/* The words of "a .. b", one behind the other. */
static bool has_words(const char *text, const char *words)
{
    tm_text part = { 0 };
    bool    found = true;
    for (const char *at = words; found && *at;) {
        const char *end = strstr(at, " .. ");
        size_t      n = end ? (size_t)(end - at) : strlen(at);
        part.length = 0;
        tm_text_add_n(&part, at, n);
        text = strstr(text, part.data);
        found = text != NULL;
        at += n + (end ? 4 : 0);
    }
    tm_text_fini(&part);
    return found;
}

/* The words of "a && b", or "a &&": so many problems are told, one has the words of each. */
static bool has_problems(const tm_error *err, const char *words)
{
    tm_text line = { 0 }, part = { 0 };
    int     n = 0, alone = strstr(words, " &&") == NULL;
    bool    found = true;
    if (alone) return has_words(err->text, words);
    for (const char *at = words; found && *at; n++) {
        const char *end = strstr(at, " &&");
        size_t      length;
        part.length = 0;
        tm_text_add_n(&part, at, end ? (size_t)(end - at) : strlen(at));
        found = false;
        for (const char *l = NULL; !found && (l = tm_error_next(err, l, &length));) {
            line.length = 0;
            tm_text_add_n(&line, l, length);
            found = has_words(line.data, part.data);
        }
        at = end && end[3] ? end + 4 : "";
    }
    tm_text_fini(&line);
    tm_text_fini(&part);
    return found && err->n == n;
}

/* What comes of a line of the table. Returns how much of it is wrong. */
static int try_line(test_foreign *f, const char *line)
{
    char    copy[4000], *wants = NULL;
    tm_text text = { 0 };
    for (const char *at = line; *at;) { /* FOLDER: that of the case's files */
        size_t k = strstr(at, "FOLDER") ? (size_t)(strstr(at, "FOLDER") - at) : strlen(at);
        tm_text_add_n(&text, at, k);
        if (*(at += k)) tm_text_add(&text, f->folder), at += strlen("FOLDER");
    }
    snprintf(copy, sizeof copy, "%s ", text.data); /* behind "->" there may be nothing */
    char *lines = strstr(copy, ": ");
    if (!lines) fail_msg("no lines: %s", line);
    static const char *const marks[] = { " -> ", " ~> ", " ! ", " !~ ", " !! " };
    int                      mark = 0;
    for (int k = 0; k < 5; k++) {
        char *at = strstr(lines, marks[k]);
        if (at && (!wants || at < wants)) wants = at, mark = k;
    }

    if (!wants) fail_msg("nothing comes of: %s", line);
    *lines = *wants = '\0';
    wants += strlen(marks[mark]);
    wants[strlen(wants) - (*wants != '\0')] = '\0';
    loaded    l = write_case(f, copy, lines + 2, &text);
    bool      refused = mark > 1, goes_on = mark == 3;
    tm_status st = test_foreign_load(f, l.path, mark == 1, l.n, l.words);
    int       wrong = 0;
    size_t    n = strlen(f->folder) + 1;
    for (char *at; (at = strstr(f->err.text, f->folder));) memmove(at, at + n, strlen(at + n) + 1);
    if (refused ? tm_status_exit_code(st) != (mark == 4 ? 2 : 4) || !has_problems(&f->err, wants) : st != TM_OK) {
        print_error("%s\n  status %d: %s\n", line, (int)st, f->err.text);
        wrong++;
    } else if (!refused) {
        wrong += has_all(f, wants, line);
    } else {
        refusal_is_sound(&f->err);
        st = test_foreign_load(f, l.path, true, l.n, l.words);
        bool told = st != TM_OK || *tm_config_unbuilt(f->config);
        if ((st == TM_OK) != goes_on || !told) {
            print_error("%s\n  a plan: status %d: %s\n", line, (int)st, f->err.text);
            wrong++;
        }
    }
    tm_text_fini(&text);
    return wrong;
}

/* All lines of the table, of which there are `least` at least. */
static void try_table(test_foreign *f, const char *path, int least)
{
    tm_text table = { 0 }, line = { 0 };
    int     wrong = 0, cases = 0;
    if (tm_file_read(path, 1 << 20, &table, &f->err) != TM_OK) fail_msg("%s", f->err.text);
    for (char *at = table.data, *end; *at; at = end + 1) {
        size_t margin = *at == ' ' ? 2 : 0; /* it goes on with the line before */
        end = strchr(at, '\n');
        if (*at != '#' && end > at)
            tm_text_printf(&line, "%s%.*s", margin ? " " : "", (int)(end - at - (int)margin), at + margin);
        if (!line.length || end[1] == ' ') continue;
        wrong += try_line(f, line.data);
        cases++;
        line.length = 0;
    }
    tm_text_fini(&table);
    tm_text_fini(&line);
    assert_true(cases >= least);
    if (wrong) fail_msg("%d of %d are not as they have to be", wrong, cases);
}

TEST(lines_of_other_programs)
{
    try_table(*test_state, "tests/config/foreign.txt", 240);
}

TEST(whole_files)
{
    try_table(*test_state, "tests/config/files.txt", 110);
}

TEST(wrong_lines)
{
    try_table(*test_state, "tests/config/refused.txt", 145);
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
