/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that is wrong with a file is told in one go, and nothing that only follows from it. Each case lists all
 * lines of the message. */
#include "support/test.h"

#include "support/refusal.h"
#include "../support/folder.h"
#include "../support/full_config.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 8 };
#define LLAMA "model: {family: llama, dim: 64, n_layers: 2, n_heads: 4, vocab_size: 128}\n"

/* A file, and words of the command line; `says`: what the lines of the message have, one for each. */
typedef struct {
    const char *name, *file;
    const char *words[4];
    const char *says[MOST];
} wrong;

static const wrong cases[] = {
    { .name = "five kinds: unknown, no number, out of range, not built, combination",
      .file = "training: {stepz: 1, max_norm: much, seq_len: 0, global_batch_size: 3, local_batch_size: 2}\n"
              "fp16: true\n",
      .says = { "unknown key 'training.stepz'", "'training.max_norm' (x.yaml:1) must be a number, found 'much'",
                "'training.seq_len' (x.yaml:1)", "float16 training is not supported", "is not a multiple of" } },
    { .name = "a shape has several",
      .file = "model: {family: llama, dim: 60, n_layers: 2, n_heads: 8, n_kv_heads: 3, vocab_size: 128,\n"
              "        n_experts: 8, n_experts_per_token: 9, n_dense_layers: 3, bias: mi350x_table}\n",
      .says = { "model.dim 60 (x.yaml:1) is not a multiple of model.n_heads 8", "model.n_kv_heads 3 (x.yaml:1)",
                "model.n_experts_per_token (x.yaml:2)", "model.n_dense_layers (x.yaml:2)",
                "model.bias (x.yaml:2): mi350x_table" } },
    { .name = "a model that is not described",
      .file = "model: {family: llama, dim: 64}\ntraining.steps: many\n",
      .says = { "'model.n_layers' is not given", "'model.n_heads' is not given", "'model.vocab_size' is not given",
                "'training.steps'" } },
    { .name = "deepseek's",
      .file = "model: {family: deepseek, dim: 64, n_layers: 2, n_heads: 4, n_kv_heads: 2, vocab_size: 128,\n"
              "        kv_lora_rank: 16, qk_rope_head_dim: 7, sliding_window: 8}\n",
      .says = { "model.qk_rope_head_dim 7 (x.yaml:2) is odd", "model.sliding_window (x.yaml:2)",
                "model.n_kv_heads (x.yaml:1) is not supported for the deepseek family" } },
    { .name = "gpt's",
      .file = "model: {family: gpt, dim: 64, n_layers: 2, n_heads: 4, vocab_size: 128, sinks: true, bias: qkv,\n"
              "        sliding_window: 8}\n",
      .says = { "model.sliding_window (x.yaml:2)", "model.sinks (x.yaml:1)", "model.bias qkv (x.yaml:1)" } },
    { .name = "flux's",
      .file = "model: {family: flux, dim: 64, n_layers: 1, n_heads: 4, image_size: 100, time_dim: 3, bias: all,\n"
              "        rope_axes: \"3,5,8\"}\n",
      .says = { "model.image_size 100", "model.time_dim 3", "model.rope_axes '3,5,8'", "model.bias (x.yaml:1)" } },
    { .name = "what a run reads: shape, recomputation, groups, batch, source",
      .file = "model: {family: llama, dim: 64, n_layers: 2, n_heads: 4, n_kv_heads: 3, vocab_size: 128}\n"
              "activation_checkpoint: {mode: selective, selective_ac_option: x}\n"
              "optimizer.groups: [{params: \"*.bias\", weigth_decay: 0}]\n"
              "training: {global_batch_size: 3, local_batch_size: 2}\n",
      .says = { "model.n_kv_heads 3", "'activation_checkpoint.selective_ac_option' (x.yaml:2)",
                "'weigth_decay' in optimizer.groups (x.yaml:3)", "training.global_batch_size 3 (x.yaml:4)" } },
    { .name = "what needs a shape that is there",
      .file = LLAMA "first_last_layers_bf16: true\nquantize.recipe: mxfp8\nnum_layers_at_start_in_bf16: 2\n"
                    "data: {source: mock, separate_documents: true}\n"
                    "training: {local_batch_size: 65536, seq_len: 65536}\n"
                    "activation_checkpoint: {mode: selective, selective_ac_option: op, save_ops: frob}\n",
      .says = { "num_layers_at_start_in_bf16", "data.separate_documents", "is more than", "save_ops" } },
    { .name = "file and command line",
      .file = LLAMA "training.stepz: 1\n",
      .words = { "--training.max_norm", "much", "--optimizer.name=Adamm", "--training.global_batch_size=0" },
      .says = { "unknown key 'training.stepz'", "'training.max_norm' (command line)", "'optimizer.name' (command line)",
                "training.global_batch_size (command line) is 0" } },
    { .name = "a misspelt key is not missing, too",
      .file = "model: {family: llama, dim: 64, n_layers: 2, n_headz: 4, vocab_size: 128}\ntraining.steps: many\n",
      .says = { "unknown key 'model.n_headz'", "'training.steps'" } },
    { .name = "a key whose name begins like that of another",
      .file = "optimizer: {eps: x, eps1: 1e-20}\n",
      .says = { "'optimizer.eps' (x.yaml:1) must be a number", "'optimizer.eps1' (x.yaml:1)" } },
    { .name = "a width that is odd because the heads do not divide it",
      .file = "model: {family: llama, dim: 60, n_layers: 2, n_heads: 8, vocab_size: 128}\n",
      .says = { "model.dim 60" } },
    { .name = "no quotient of a batch that is out of range",
      .file = "training: {local_batch_size: 0, global_batch_size: 4, grad_accumulation: 9}\n",
      .says = { "'training.local_batch_size' (x.yaml:1)" } },
    { .name = "no consequences of an unknown optimizer",
      .file = LLAMA "optimizer: {name: Adagradd, kahan_sum: true, groups: [{params: \"*\", beta9: 0}]}\n",
      .says = { "'optimizer.name' (x.yaml:2)", "optimizer.kahan_sum (x.yaml:2) keeps" } },
    { .name = "no consequences of an unknown converter",
      .file = LLAMA "model.converters: [quantize.linear.float8, quantize.frob]\nquantize.recipe: mxfp8\n",
      .says = { "'quantize.frob' is not supported" } },
    { .name = "no consequences of a recipe without its converter",
      .file = LLAMA "quantize.linear.float8.recipe_name: rowwise\nquantize.recipe: mxfp8\nfp8: hybrid\n",
      .says = { "quantize.linear.float8.recipe_name (x.yaml:2) has an effect only with" } },
    { .name = "no consequences of a converter of no experts",
      .file =
          "model: mixtral_8x7B\nmodel.converters: [quantize.grouped_mm.float8]\nquantize.recipe: mxfp8\nfp8: hybrid\n",
      .says = { "quantizes the experts that quantize.grouped_mm.float8.fqns names" } },
    { .name = "no consequences of half a switch",
      .file = LLAMA "quantize.switch_step: 3\nquantize.recipe: mxfp8\nfp8: hybrid\n",
      .says = { "quantize.switch_step (x.yaml:2) has an effect only with quantize.switch_recipe" } },
    { .name = "what follows from two keys",
      .file = LLAMA "quantize.recipe: mxfp8\nfp8: hybrid\n",
      .says = { "quantize.recipe is mxfp8 (x.yaml:2), fp8 (x.yaml:3) means fp8_delayed" } },
    { .name = "without effect, beside another",
      .file = LLAMA "validation: {enable: false, steps: 7}\ntraining.stepz: 4\nlr_scheduler.form: nemo\n"
                    "lr_scheduler.decay_ratio: 0.5\n",
      .says = { "unknown key 'training.stepz'", "lr_scheduler.form nemo" } },
};

static tm_status try_case(const wrong *w, const char *folder, tm_error *err)
{
    tm_config  *config = test_full_config();
    const char *path = test_file_write(folder, "x.yaml", w->file);
    int         argc = 0;
    while (argc < 4 && w->words[argc]) argc++;
    tm_status st = tm_config_load_file(config, path, err);
    if (st == TM_OK) st = tm_config_apply_arguments(config, argc, (char **)w->words, err);
    if (st == TM_OK) st = tm_config_finish(config, err);
    tm_config_destroy(config);
    return st;
}

static bool has(const char *line, size_t n, const char *what)
{
    const char *at = strstr(line, what);
    return at && at + strlen(what) <= line + n;
}

/* Every line is one that is wanted, and every one that is wanted is there. */
static bool says_just(const wrong *w, const tm_error *err)
{
    size_t n;
    int    wanted = 0;
    while (wanted < MOST && w->says[wanted]) wanted++;
    for (int i = 0; i < wanted; i++) {
        bool found = false;
        for (const char *line = NULL; (line = tm_error_next(err, line, &n));) found |= has(line, n, w->says[i]);
        if (!found) return false;
    }
    return err->n == wanted;
}

static void remove_all(char *text, const char *part)
{
    size_t n = strlen(part);
    for (char *p; (p = strstr(text, part));) memmove(p, p + n, strlen(p + n) + 1);
}

TEST(all_of_it_and_no_more)
{
    char  prefix[520];
    int   bad = 0;
    char *folder = test_tree_make();
    snprintf(prefix, sizeof prefix, "%s/", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_error  err = { 0 };
        tm_status st = try_case(&cases[i], folder, &err);
        remove_all(err.text, prefix);
        refusal_is_sound(&err);
        if (tm_status_exit_code(st) == 4 && says_just(&cases[i], &err)) continue;
        print_message("%s: status %d: %s\n", cases[i].name, (int)st, err.text);
        bad++;
    }
    test_tree_remove(folder);
    assert_int_equal(bad, 0);
}

/* A thousand wrong keys make a message of one page that says how many there are. */
TEST(the_message_is_bounded)
{
    char     text[1 << 15];
    size_t   used = 0;
    tm_error err = { 0 };
    wrong    w = { .file = text };
    for (int i = 0; i < 1000; i++) used += (size_t)snprintf(text + used, sizeof text - used, "zzzz.qqqqqqq%d: 1\n", i);
    snprintf(text + used, sizeof text - used, "training.steps: 1\n");
    char *folder = test_tree_make();
    assert_int_equal(try_case(&w, folder, &err), TM_INVALID);
    test_tree_remove(folder);
    assert_int_equal(strncmp(err.text, "1000 problems\n", 14), 0);
    assert_non_null(strstr(err.text, "\n  ... and 9"));
    assert_true(strlen(err.text) < 4096);
}

TESTS_IN_ORDER
