/* SPDX-License-Identifier: Apache-2.0 */
#include "support/programs.h"

#include "support/test.h"

#define EXPERIMENT(framework, module, trainer, model)                                                                  \
    "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  " module ":\n    framework: " framework     \
    "\n    config: " trainer ".yaml\n" model "    overrides:\n      trainable: true\n"

const test_foreign_program test_foreign_programs[TEST_PROGRAMS] = {
    { "megatron", "megatron", "x.yaml",
      EXPERIMENT("megatron", "pre_trainer", "pre_trainer", "    model: tiny.yaml\n") },
    { "torchtitan", "torchtitan", "x.yaml",
      EXPERIMENT("torchtitan", "pre_trainer", "pre_trainer", "    model: llama3.1_8B.yaml\n") },
    { "megatron_bridge", "megatron_bridge", "x.yaml",
      EXPERIMENT("megatron_bridge", "post_trainer", "sft_trainer", "    model: qwen3_8b.yaml\n") },
    { "torchtune", "torchtune", "r.yaml",
      "model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\nbatch_size: 2\nepochs: 1\n" },
    { "pytorch-training-benchmark", "ptb", "m.json",
      "{\"num_layers\": 2, \"num_heads\": 4, \"num_kv_heads\": 2, \"embedding_dim\": 64, \"hidden_dim\": 128, "
      "\"max_seq_len\": 64, \"vocab_size\": 128, \"eps\": 1e-5}\n" },
    { "mlperf-llama2_70b_lora", "mlperf_lora", "l.sh", "export MAX_STEPS=1024\n" },
    { "mlperf-llama31_8b", "mlperf_8b", "p.sh", "export MAX_LR=8e-4 && export GBS=32; export EVAL_EVERY=12288\n" },
};

/* A model of Megatron-LM's that says its shape, and what its program would not train without. */
static const char tiny[] =
    "num_layers: 4\nhidden_size: 64\nffn_hidden_size: 128\nnum_attention_heads: 4\nvocab_size: 128\n"
    "max_position_embeddings: 1024\nhidden_dropout: 0.0\nattention_dropout: 0.0\nposition_embedding_type: rope\n"
    "normalization: RMSNorm\n";

void test_words_read(test_words *out, const char *lines)
{
    out->n = 0;
    size_t used = 0;
    while (*lines && out->n + 2 <= TEST_MAX_WORDS) {
        const char *end = strstr(lines, "; "), *colon = strstr(lines, ": ");
        size_t      n = end ? (size_t)(end - lines) : strlen(lines);
        if (!colon || colon > lines + n || used + n + 4 > sizeof out->text) fail_msg("not lines: %s", lines);
        out->words[out->n++] = out->text + used;
        used += (size_t)sprintf(out->text + used, "--%.*s", (int)(colon - lines), lines) + 1;
        out->words[out->n++] = out->text + used;
        used += (size_t)sprintf(out->text + used, "%.*s", (int)(lines + n - colon - 2), colon + 2) + 1;
        lines += n + (end ? 2 : 0);
    }
}

const char *test_foreign_program_put(test_foreign *f, const test_foreign_program *program, const char *line)
{
    char        text[1000];
    bool        json = strstr(program->name, ".json") != NULL;
    const char *margin = strstr(program->text, "modules:") ? "      " : "";
    if (json && *line)
        snprintf(text, sizeof text, "{\"%.*s\": %s, %s", (int)strcspn(line, ":"), line, strchr(line, ':') + 2,
                 program->text + 1);
    else if (strstr(program->name, ".sh") && *line)
        snprintf(text, sizeof text, "%sexport %.*s='%s'\n", program->text, (int)strcspn(line, ":"), line,
                 strchr(line, ':') + 2);
    else
        snprintf(text, sizeof text, "%s%s%s\n", program->text, *line ? margin : "", line);
    (void)test_foreign_put(f, "tiny.yaml", tiny);
    return test_foreign_put(f, program->name, text);
}
