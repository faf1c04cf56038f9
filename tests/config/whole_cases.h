/* SPDX-License-Identifier: Apache-2.0 */
/* tests/config/whole_cases.h - configurations whose whole outcome is recorded by test_whole.c. */
#ifndef TM_TESTS_CONFIG_WHOLE_CASES_H
#define TM_TESTS_CONFIG_WHOLE_CASES_H

#include <stdbool.h>

/* A file of the given name, others beside it ("name\ntext"), words of the command line, variables. plan: what is not
 * built may be left out; axes: lists may be axes; unknown: unknown keys are skipped. */
typedef struct {
    const char *name, *file, *text;
    const char *beside[4];
    const char *words[12], *variables[8];
    /* late: the file is named by EXP, and read behind the words; early: the variables are, in front of the file */
    bool plan, axes, unknown, late, early;
} whole_case;

#define EXPERIMENT(framework)                                                                                          \
    "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n    framework: " framework    \
    "\n    config: pre_trainer.yaml\n"
#define LLAMA "model: {family: llama, dim: 64, n_layers: 2, n_heads: 4, vocab_size: 128}\n"

static const whole_case whole_cases[] = {
    { .name = "kinds of values",
      .file = "x.yaml",
      .text = LLAMA "training: {steps: 1e3, seq_len: +64, max_norm: 1, mock_data: Yes}\n"
                    "optimizer: {lr: 1e-08, weight_decay: 0.10, name: adamw}\nmodel.tied: 'off'\n"
                    "exp_name: \"a \\\"b\\\" ${A:c}d $${e}\"\njob.description: yes\nlora.rank: 2\nlora.targets: [wq, "
                    "'w o', \"null\"]\n"
                    "optimizer.groups: [{params: ['*.bias', head], weight_decay: 0}, {params: x, lr_scale: 0.5}]\n",
      .words = { "--log.file=~", "--debug.seed", "7", "training.dtype=BF16" } },
    { .name = "layers",
      .file = "x.yaml",
      .text = LLAMA "training: {seq_len: 64, steps: 5}\nlog_level: ERROR\n",
      .words = { "--training.steps", "9", "--training.mock_data" },
      .variables = { "PRIMUS_SEQ_LENGTH=32", "SEED=3", "MAD_MODEL_BATCH_SIZE=2",
                     "PRIMUS_GLOBAL_BATCH_SIZE=", "PRIMUS_NUM_LAYERS=3", "PRIMUS_EXP_NAME=n" } },
    { .name = "later variables",
      .file = "x.yaml",
      .text = LLAMA,
      .plan = true,
      .variables = { "SLURM_NNODES=2", "NNODES=3", "SLURM_PROCID=1", "WORLD_SIZE=6", "LOCAL_WORLD_SIZE=2",
                     "PRIMUS_TP=2", "RANK=" } },
    { .name = "variables that are wrong",
      .file = "x.yaml",
      .text = LLAMA,
      .variables = { "NNODES=2", "SEED=x", "PRIMUS_SEQ_LENGTH=0" } },
    { .name = "secrets",
      .file = "x.yaml",
      .text = LLAMA "job.description: ${API_TOKEN}\nexp_name: pre-${API_TOKEN}\ntraining.steps: ${API_TOKEN}\n",
      .variables = { "API_TOKEN=sesame99" } },
    { .name = "a secret that is taken",
      .file = "x.yaml",
      .text = LLAMA
      "job.description: ${API_TOKEN}\nexp_name: pre-${API_TOKEN}\nlora.rank: 2\nlora.targets: [\"${API_TOKEN}\"]\n",
      .variables = { "API_TOKEN=sesame99" } },
    { .name = "variables in variables",
      .file = "x.yaml",
      .text = LLAMA "exp_name: \"${A:${B:${C:x{y}z}}}${D}${E:}\"\ntraining.steps: ${N:null}1\n",
      .variables = { "D=${A}", "E=" } },
    { .name = "eight variables in each other",
      .file = "x.yaml",
      .text = "exp_name: \"${A:${A:${A:${A:${A:${A:${A:${A:x}}}}}}}}\"\n" },
    { .name = "nine variables in each other",
      .file = "x.yaml",
      .text = "exp_name: \"${A:${A:${A:${A:${A:${A:${A:${A:${A:x}}}}}}}}}\"\n" },
    { .name = "variables that are none", .file = "x.yaml", .text = "exp_name: \"${9a}\"\n" },
    { .name = "variables without a brace", .file = "x.yaml", .text = "exp_name: \"a${b\"\n" },
    { .name = "extends",
      .file = "x.yaml",
      .text = "extends: [base.yaml, more.yaml]\ntraining.steps: 3\n",
      .beside = { "base.yaml\n" LLAMA "training: {steps: 1, seq_len: 8}\n",
                  "more.yaml\nextends: deep.yaml\ntraining.seq_len: 16\n",
                  "deep.yaml\ntraining.local_batch_size: 4\n" } },
    { .name = "extends by its old names",
      .file = "x.yaml",
      .text = "bases: base.yaml\ntraining.steps: 3\n",
      .beside = { "base.yaml\nincludes: other.yaml\ntraining.seq_len: 8\n", "other.yaml\n" LLAMA } },
    { .name = "extends a preset", .file = "x.yaml", .text = "extends: gpt-small\ntraining.seq_len: 8\n" },
    { .name = "extends in a circle",
      .file = "x.yaml",
      .text = "extends: base.yaml\n",
      .beside = { "base.yaml\nextends: x.yaml\n" } },
    { .name = "extends what is gone", .file = "x.yaml", .text = "extends: base.yaml\n" },
    { .name = "extends a secret", .file = "x.yaml", .text = "extends: ${MY_TOKEN}\n", .variables = { "MY_TOKEN=abc" } },
    { .name = "wrong lists",
      .file = "x.yaml",
      .text = "training: {steps: [1, 2], seq_len: {a: 1}}\nlora.targets: [[a], 'b,c']\n"
              "optimizer.groups: [{params: 'a b'}]\nmodel.dim: [{a: 1}]\nmodules: [1]\n" },
    { .name = "wrong items",
      .file = "x.yaml",
      .text = "lora.targets: [a, 'b,c']\noptimizer.groups: [{params: 'a b'}]\ntraining.steps: [{a: 1}]\n" },
    { .name = "a map in a list of words", .file = "x.yaml", .text = "lora.targets: [{a: 1}]\n" },
    { .name = "unknown keys",
      .file = "x.yaml",
      .text =
          LLAMA "training: {stepz: 1, step: 2}\nstepz: 3\noptimiser.lr: 1\nseqlen: 1\nmodel.n_head: 3\nfoo: {bar: 1}\n"
                "training.seq_len2: 5\nlr: 1\nlr_scheduler.lr: 1\nparallelism: 5\nlog.fil: x\n" },
    { .name = "unknown keys are skipped",
      .file = "x.yaml",
      .text = LLAMA "training: {stepz: 1}\nfoo: {bar: 1, baz: [2, 3]}\n",
      .unknown = true },
    { .name = "nothing that is known", .file = "x.yaml", .text = "a: 1\nb: 2\nc: {d: 3, e: 4}\n" },
    { .name = "two keys that are unknown", .file = "x.yaml", .text = "a: 1\nb: 2\n" },
    { .name = "given twice",
      .file = "x.yaml",
      .text = "training: {steps: 1}\ntraining.steps: 2\nseq_len: 1\nseq_length: 2\n" },
    { .name = "no effect",
      .file = "x.yaml",
      .text = LLAMA
      "optimizer: {name: SGD, beta1: 0.5, eps: 1e-3}\nvalidation: {enable: false, steps: 3}\n"
      "lora.rank: 0\nlora.alpha: 3\nmodel.sinks: false\nactivation_checkpoint: {mode: none, save_ops: linear}\n" },
    { .name = "no effect by a word",
      .file = "x.yaml",
      .text = LLAMA "validation: {enable: true, steps: 3}\n",
      .words = { "--validation.enable=false" } },
    { .name = "ranges",
      .file = "x.yaml",
      .text = "training: {steps: 0, seq_len: -1, local_batch_size: 99999999999, max_norm: 1e31}\noptimizer: {lr: -1, "
              "beta1: "
              "1.5}\n"
              "debug.seed: 1.5\ndata.prefetch: 65\nlog.level: loud\nmodel.init: nomral\n" },
    { .name = "not supported",
      .file = "x.yaml",
      .text = LLAMA "launch: {nnodes: 4, gpus_per_node: 8}\nfp16: true\nmaster_addr: host\nplatform: {a: {b: 1}}\n" },
    { .name = "not built, planned",
      .file = "x.yaml",
      .text = LLAMA
      "launch: {nnodes: 4, gpus_per_node: 8}\nmaster_addr: host\nplatform: {a: {b: 1}}\ncomm.init_timeout_seconds: 3\n",
      .plan = true },
    { .name = "axes",
      .file = "x.yaml",
      .text = LLAMA
      "training: {steps: [1, 2.0, x], seq_len: [8, 16]}\noptimizer.lr: [1e-3]\nlora.rank: 2\nlora.targets: [a, b]\n",
      .words = { "--training.seq_len", "[32, 64]", "--debug.seed=[1,2]", "--optimizer.lr=2" },
      .axes = true },
    { .name = "more axes than there is room for at first",
      .file = "x.yaml",
      .text = LLAMA "training: {steps: [1, 2], seq_len: [8, 16], local_batch_size: [1, 2], threads: [1, 2]}\n"
                    "optimizer: {lr: [1, 2], beta1: [0.5, 0.6], beta2: [0.5, 0.6], eps: [1, 2], weight_decay: [0, 1]}\n"
                    "lr_scheduler: {warmup_steps: [1, 2]}\n",
      .axes = true },
    { .name = "axes above and below",
      .file = "x.yaml",
      .text = LLAMA "training: {seq_len: [8, 16], local_batch_size: auto}\n",
      .words = { "--training.steps=[3,4]" },
      .variables = { "PRIMUS_SEQ_LENGTH=4", "PRIMUS_GLOBAL_BATCH_SIZE=8" },
      .axes = true },
    { .name = "axes above a file that comes late",
      .file = "x.yaml",
      .text = LLAMA "training: {steps: [1, 2], seq_len: [8, 16], local_batch_size: [1, 2]}\n"
                    "optimizer.lr: [1, 2]\n",
      .words = { "--training.steps=[3,4]", "--training.seq_len", "32" },
      .variables = { "EXP=x.yaml" },
      .axes = true,
      .late = true },
    { .name = "foreign axes above a file that comes late",
      .file = "x.yaml",
      .text = EXPERIMENT(
          "megatron") "    model: llama2_7B.yaml\n    overrides:\n      mock_data: true\n      lr_warmup_iters: 0\n"
                      "      train_iters: [1, 2]\n      lr: [1, 2]\n",
      .words = { "--train_iters=[3,4]" },
      .variables = { "EXP=x.yaml" },
      .axes = true,
      .late = true },
    { .name = "foreign values above a file that comes late",
      .file = "x.yaml",
      .text = EXPERIMENT(
          "megatron") "    model: llama2_7B.yaml\n    overrides:\n      mock_data: true\n      lr_warmup_iters: 0\n"
                      "      train_iters: [1, 2]\n      lr: [1, 2]\n",
      .words = { "--train_iters=5" },
      .variables = { "EXP=x.yaml" },
      .axes = true,
      .late = true },
    { .name = "axes below variables that came first",
      .file = "x.yaml",
      .text = LLAMA "training: {steps: [1, 2], seq_len: [64, 128]}\ndebug.seed: [5, 6]\n",
      .axes = true,
      .early = true,
      .variables = { "PRIMUS_SEQ_LENGTH=32", "SEED=3" } },
    { .name = "words",
      .words = { "--model", "gpt-small", "--training.mock_data", "--training.steps=3", "training.seq_len=8",
                 "--lora.targets=[a,b]", "--optimizer.groups=[{params: x, lr_scale: 2}]", "--exp_name", "'null'",
                 "--job.description=Null", "--log.file=null" } },
    { .name = "words that are wrong",
      .words = { "hello", "--stepz", "3", "=5", "--training.steps", "--training.stepz", "4", "--",
                 "--training.seq_len=[1" } },
    { .name = "a word without its value", .words = { "--training.steps" } },
    { .name = "a model by its name",
      .file = "x.yaml",
      .text = "model: {name: llama3, flavor: 8B}\ntraining.mock_data: true\n" },
    { .name = "a model by its flavor", .file = "x.yaml", .text = "model.flavor: 70B\ntraining.mock_data: true\n" },
    { .name = "a flavor that it does not have", .file = "x.yaml", .text = "model: {name: llama3, flavor: 9B}\n" },
    { .name = "a family that is not supported", .file = "x.yaml", .text = "model: {name: mamba2, flavor: 1B}\n" },
    { .name = "a name of its own",
      .file = "x.yaml",
      .text = "model: {name: mine, family: llama, dim: 64, n_layers: 2, n_heads: 4, vocab_size: 128}\n" },
    { .name = "a preset that there is not", .file = "x.yaml", .text = "model: gpt-smal\n" },
    { .name = "a preset with other digits", .file = "x.yaml", .text = "model: llama3.1_9B\n" },
    { .name = "a null as model",
      .file = "x.yaml",
      .text = "model: null\ntraining.steps: 3\n",
      .words = { "--model", "gpt-small.yaml" } },
    { .name = "an experiment",
      .file = "x.yaml",
      .text = EXPERIMENT(
          "torchtitan") "    model: llama3.1_8B.yaml\n    overrides:\n      training: {mock_data: true, steps: 5}\n"
                        "      optimizer.lr: 1e-3\n      metrics.enable_wandb: true\n      comm.trace_buf_size: 3\n" },
    { .name = "an experiment with presets beside it",
      .file = "x.yaml",
      .text = EXPERIMENT("torchtitan") "    model: own.yaml\n",
      .beside = { "own.yaml\nmodel: {family: llama, dim: 64, n_layers: 2, n_heads: 4, vocab_size: 128}\n",
                  "pre_trainer.yaml\ntraining: {steps: 7, mock_data: true}\noptimizer.lr: 3\n" } },
    { .name = "an experiment with float8",
      .file = "x.yaml",
      .text = EXPERIMENT("torchtitan") "    model: llama3.1_8B-fp8\n",
      .plan = true },
    { .name = "an experiment of megatron with float8",
      .file = "x.yaml",
      .text = EXPERIMENT("megatron") "    model: llama3.1_8B_FP8.yaml\n",
      .plan = true },
    { .name = "an experiment with what is wrong",
      .file = "x.yaml",
      .text =
          EXPERIMENT("torchtitan") "    model: llama3.1_7B\n    overides: {a: 1}\n    overrides: {training.stepz: 1}\n"
                                   "training.steps: 3\nexp_nam: x\nfoo: 1\n" },
    { .name = "an experiment without its names",
      .file = "x.yaml",
      .text = "exp_name: a\nmodules: {pre_trainer: {model: gpt-small, framework: torchtitan}}\n" },
    { .name = "an experiment of another trainer",
      .file = "x.yaml",
      .text =
          "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\nmodules: {pre_trainer: {model: gpt-small, config: "
          "odd.yaml}}\n" },
    { .name = "post-training",
      .file = "x.yaml",
      .text = "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\nmodules: {post_trainer: {framework: megatron, "
              "model: "
              "llama2_7B,\n"
              "  overrides: {sft_dataset_name: x.jsonl, tokenizer_model: /t, tokenizer_type: HuggingFaceTokenizer}}}\n",
      .plan = true },
    { .name = "post-training of another program",
      .file = "x.yaml",
      .text = "modules: {sft_trainer: {framework: torchtitan, model: llama2_7B}}\n" },
    { .name = "a program that is not known",
      .file = "x.yaml",
      .text = "modules: {pre_trainer: {framework: \"${X:nemo}\", model: llama2_7B}}\n" },
    { .name = "programs that are not read, before variables are looked up",
      .file = "x.yaml",
      .text = "modules: {a: 1, pre_trainer: {framework: nemo, model: \"${UNSET}\"}}\n" },
    { .name = "a program that is read for post-training only",
      .file = "x.yaml",
      .text = "modules: {pre_trainer: {framework: megatron_bridge, model: \"${UNSET}\"}}\n" },
    { .name = "programs that are read, and variables that are not set",
      .file = "x.yaml",
      .text =
          "modules: {sft_trainer: {framework: megatron_bridge, model: \"${UNSET}\"}, pre_trainer: {framework: ~}}\n" },
    { .name = "an experiment without a framework",
      .file = "x.yaml",
      .text = "modules: {pre_trainer: {model: ['a']}}\nenv: {A: 1}\nwork_group: x\n" },
    { .name = "megatron",
      .file = "x.yaml",
      .text = EXPERIMENT(
          "megatron") "    model: llama2_7B.yaml\n    overrides:\n      mock_data: true\n      train_iters: "
                      "10\n      lr: 1e-4\n"
                      "      micro_batch_size: 2\n      global_batch_size: 4\n      seq_length: 128\n      "
                      "log_interval: 1\n"
                      "      overlap_grad_reduce: true\n      bf16: true\n      stderr_sink_level: DEBUG\n" },
    { .name = "megatron, refused",
      .file = "x.yaml",
      .text = EXPERIMENT(
          "megatron") "    model: llama2_7B.yaml\n    overrides:\n      mamba_state_dim: 8\n      fp16: true\n"
                      "      add_qkv_bias: maybe\n      window_size: 'x'\n      moe_layer_freq: 7\n      "
                      "train_iter: 3\n" },
    { .name = "megatron, planned",
      .file = "x.yaml",
      .text =
          EXPERIMENT("megatron") "    model: llama2_7B.yaml\n    overrides:\n      fp16: true\n      data_path: /a/b\n"
                                 "      decoupled_lr: 1e-3\n      rampup_batch_size: [1, 2, 3]\n",
      .plan = true },
    { .name = "keys that say the same",
      .file = "x.yaml",
      .text = EXPERIMENT(
          "megatron") "    model: llama2_7B.yaml\n    overrides:\n      mock_data: 1\n      training.mock_data: true\n"
                      "      seq_length: 128\n      max_position_embeddings: 128\n      lr: 1e-4\n      optimizer.lr: "
                      "1e-5\n" },
    { .name = "keys that say the same, the second wrong by itself",
      .file = "x.yaml",
      .text = EXPERIMENT("megatron") "    model: llama2_7B.yaml\n    overrides:\n      mock_data: true\n      lr: -1\n "
                                     "     optimizer.lr: "
                                     "1e-5\n" },
    { .name = "another model than its keys say",
      .file = "x.toml",
      .text = "[model]\nname = \"llama3\"\nflavor = \"8B\"\nmultiple_of = 256\nn_kv_heads = 3\n"
              "[training]\nseq_len = 64\nsteps = -1\n",
      .words = { "--training.mock_data=true" } },
    { .name = "a job file",
      .file = "x.toml",
      .text = "[job]\ndump_folder = \"./o\"\ndescription = \"d\"\n[model]\nname = \"llama3\"\nflavor = "
              "\"8B\"\n[optimizer]\nlr "
              "= 3e-4\n"
              "[training]\nlocal_batch_size = 1\nseq_len = 64\nsteps = 10\ndataset = "
              "\"c4\"\n[comm]\ntrain_timeout_seconds = "
              "5\n",
      .words = { "--training.mock_data=true" } },
    { .name = "a job file of an unknown model",
      .file = "x.toml",
      .text = "[model]\nname = \"llama4\"\nflavor = \"debugmodel\"\n" },
    { .name = "a Python file", .file = "x.py", .text = "a = 1\n" },
    { .name = "a model file",
      .file = "x.json",
      .text = "{\"arch_name\": \"llama\", \"num_layers\": 2, \"num_heads\": 4, \"num_kv_heads\": 2, \"embedding_dim\": "
              "64,\n"
              " \"hidden_dim\": 128, \"vocab_size\": 256, \"max_seq_len\": 32, \"eps\": 1e-5, \"rope_base\": 7}\n",
      .words = { "num_iteration=17", "grad_accumlate_pre_steps=8" } },
    { .name = "a model file, too few iterations",
      .file = "x.json",
      .text =
          "{\"arch_name\": \"llama\", \"num_layers\": 2, \"num_heads\": 4, \"embedding_dim\": 64, \"hidden_dim\": 128, "
          "\"vocab_size\": 256}\n",
      .words = { "num_iteration=7" } },
    { .name = "a recipe",
      .file = "x.yaml",
      .text = "model: {_component_: torchtune.models.llama3_1.qlora_llama3_1_8b, lora_rank: 4, lora_alpha: 8, "
              "lora_attn_modules: [q_proj],\n"
              "        apply_lora_to_mlp: True}\noptimizer: {_component_: torch.optim.AdamW, lr: 1e-4}\nbatch_size: "
              "2\nseed: "
              "1\n"
              "dataset: {_component_: torchtune.datasets.chat_dataset, source: json, data_files: a.jsonl, column_map: "
              "{input: "
              "q, output: a}}\n"
              "loss: {_component_: torchtune.rlhf.loss.DPOLoss}\ntokenizer: {max_seq_len: 128}\noutput_dir: "
              "/o\nmetric_logger: "
              "{log_dir: \"${output_dir}/l\"}\n",
      .plan = true },
};

#endif
