/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong configurations: each has its status, and a message that holds what is wrong and the way out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "support/test.h"

#include "support/whole.h"
#include "../support/folder.h"
#include "../support/full_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD                                                                                                           \
    "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n    framework: torchtitan\n"
#define DEEP8 "{a: {a: {a: {a: {a: {a: {a: {a: "
#define END8 "}}}}}}}}"

/* A file, or words of the command line, or variables; `says` are parts of the message. */
typedef struct {
    const char *name;
    const char *file;
    const char *words[4];
    const char *variables[4];
    tm_status   status;
    const char *says[3];
} wrong;

static const wrong cases[] = {
    { .name = "unknown key",
      .file = "training:\n  steps: 1\n  stepz: 2\n",
      .status = TM_INVALID,
      .says = { "unknown key 'training.stepz' (x.yaml:3); did you mean 'training.steps'?" } },
    { .name = "unknown key in an experiment",
      .status = TM_INVALID,
      .file = HEAD "    model: llama3.1_8B.yaml\n    overrides:\n      training: {mock_data: true, stepz: 5}\n",
      .says = { "unknown key 'training.stepz' (x.yaml:10); did you mean 'training.steps'?" } },
    { .name = "nothing near",
      .file = "zzzzzzzzzz.qqqqqqqqqqqqq: 1\n",
      .status = TM_INVALID,
      .says = { "unknown key 'zzzzzzzzzz.qqqqqqqqqqqqq' (x.yaml:1)", "--allow-unknown-keys" } },
    { .name = "wrong section",
      .file = "optimizer.warmup_steps: 1\n",
      .status = TM_INVALID,
      .says = { "did you mean 'lr_scheduler.warmup_steps'?" } },
    { .name = "too much fetched ahead",
      .file = "data.prefetch: 65\n",
      .status = TM_INVALID,
      .says = { "'data.prefetch' (x.yaml:1)", "0 to 64" } },
    { .name = "text for an integer",
      .file = "training.steps: many\n",
      .status = TM_INVALID,
      .says = { "'training.steps' (x.yaml:1) must be an integer, found 'many'" } },
    { .name = "fraction for an integer",
      .file = "training.steps: 1.5\n",
      .status = TM_INVALID,
      .says = { "an integer" } },
    { .name = "huge integer",
      .file = "training.steps: 99999999999999999999\n",
      .status = TM_INVALID,
      .says = { "is out of range: found '99999999999999999999'" } },
    { .name = "text for a number",
      .file = "optimizer.lr: fast\n",
      .status = TM_INVALID,
      .says = { "a number, found 'fast'" } },
    { .name = "nan", .file = "optimizer.lr: nan\n", .status = TM_INVALID, .says = { "a number, found 'nan'" } },
    { .name = "infinite", .file = "optimizer.lr: 1e999\n", .status = TM_INVALID, .says = { "a number" } },
    { .name = "hexadecimal", .file = "optimizer.lr: 0x10\n", .status = TM_INVALID, .says = { "a number" } },
    { .name = "text for a boolean",
      .file = "training.mock_data: maybe\n",
      .status = TM_INVALID,
      .says = { "true or false" } },
    { .name = "choice",
      .file = "lr_scheduler.decay_type: cosin\n",
      .status = TM_INVALID,
      .says = { "one of linear, cosine, sqrt, exponential, inverse_sqrt; found 'cosin'; did you mean 'cosine'?" } },
    { .name = "null",
      .file = "training.steps: null\n",
      .status = TM_INVALID,
      .says = { "found null; the default is 10000" } },
    { .name = "list for a scalar",
      .file = "training.steps: [1, 2]\n",
      .status = TM_INVALID,
      .says = { "a single value, found a list" } },
    { .name = "map for a scalar",
      .file = "training.steps: {a: 1}\n",
      .status = TM_INVALID,
      .says = { "unknown key 'training.steps.a'" } },
    { .name = "map in a list",
      .file = "quantize.linear.float8.filter_fqns: [{a: 1}]\n",
      .status = TM_INVALID,
      .says = { "list of plain values" } },
    { .name = "out of range",
      .file = "training.steps: 0\n",
      .status = TM_INVALID,
      .says = { "out of range: found 0, wanted 1 to" } },
    { .name = "negative rate",
      .file = "optimizer.lr: -1\n",
      .status = TM_INVALID,
      .says = { "'optimizer.lr' (x.yaml:1) is out of range" } },
    { .name = "no local data",
      .file = "training.mock_data: false\n",
      .status = TM_INVALID,
      .says = { "training.mock_data is false (x.yaml:1)", "data.path (training.dataset_path)",
                "training.mock_data: true" } },
    { .name = "text without a path",
      .file = "data.source: text\n",
      .status = TM_INVALID,
      .says = { "data.path", "--data.path" } },
    { .name = "batch",
      .file = "training: {local_batch_size: 4, global_batch_size: 6}\n",
      .status = TM_INVALID,
      .says = { "6 (x.yaml:1) is not a multiple of training.local_batch_size 4" } },
    { .name = "global batch of zero",
      .file = "global_batch_size: 0\n",
      .status = TM_INVALID,
      .says = { "is 0; wanted -1 or a multiple" } },
    { .name = "accumulation",
      .file = "training: {local_batch_size: 2, global_batch_size: 6, grad_accumulation: 2}\n",
      .status = TM_INVALID,
      .says = { "give one of the two" } },
    { .name = "two dtypes",
      .file = "training: {dtype: float32, mixed_precision_param: bfloat16}\n",
      .status = TM_INVALID,
      .says = { "give one" } },
    { .name = "bf16 and float32",
      .file = "bf16: true\ntraining.mixed_precision_param: float32\n",
      .status = TM_INVALID,
      .says = { "bf16 (x.yaml:1) means bfloat16, training.mixed_precision_param is float32 (x.yaml:2); give one" } },
    { .name = "two words on what is computed again",
      .file = "recompute_granularity: full\nactivation_checkpoint.mode: none\n",
      .status = TM_INVALID,
      .says = { "recompute_granularity is full (x.yaml:1), activation_checkpoint.mode is none (x.yaml:2); give one" } },
    { .name = "pure float32",
      .file = "training: {dtype: float32, regime: pure}\n",
      .status = TM_INVALID,
      .says = { "'training.regime' = 'pure' (x.yaml:1) has no effect: it applies only with training.dtype bfloat16" } },
    { .name = "not YAML",
      .file = "training: {steps: 1\n",
      .status = TM_FORMAT,
      .says = { "x.yaml:2:1: not valid YAML" } },
    { .name = "tab",
      .file = "training:\n\tsteps: 1\n",
      .status = TM_FORMAT,
      .says = { "x.yaml:2:1", "spaces, not with tabs" } },
    { .name = "bare variable in a flow map",
      .file = "training: {steps: ${A:1}}\n",
      .status = TM_FORMAT,
      .says = { "in quotes" } },
    { .name = "binary",
      .file = "\177ELF\001\002\001",
      .status = TM_FORMAT,
      .says = { "not a YAML text file", "UTF-8" } },
    { .name = "not UTF-8",
      .file = "exp_name: \xff\xfe\xfd\n",
      .status = TM_FORMAT,
      .says = { "not a YAML text file", "UTF-8" } },
    { .name = "escaped NUL", .file = "exp_name: \"a\\0b\"\n", .status = TM_FORMAT, .says = { "NUL" } },
    { .name = "a list",
      .file = "- a\n- b\n",
      .status = TM_FORMAT,
      .says = { "must be a map of keys (key: value), found a list" } },
    { .name = "a word", .file = "hello\n", .status = TM_FORMAT, .says = { "found a single value" } },
    { .name = "two documents",
      .file = "exp_name: a\n---\nexp_name: b\n",
      .status = TM_FORMAT,
      .says = { "second document" } },
    { .name = "duplicate key",
      .file = "training:\n  steps: 1\n  steps: 2\n",
      .status = TM_FORMAT,
      .says = { "x.yaml:3: duplicate key 'steps', first given in line 2; remove one" } },
    { .name = "duplicate, dotted and nested",
      .file = "training: {steps: 1}\ntraining.steps: 2\n",
      .status = TM_INVALID,
      .says = { "given twice", "x.yaml:1; remove one" } },
    { .name = "duplicate, by synonym",
      .file = "seq_length: 1\nseq_len: 2\n",
      .status = TM_INVALID,
      .says = { "'training.seq_len' (x.yaml:2) is given twice" } },
    { .name = "merge key", .file = "a: &a {b: 1}\nc: {<<: *a}\n", .status = TM_FORMAT, .says = { "use extends" } },
    { .name = "alias bomb",
      .status = TM_FORMAT,
      .says = { "aliases (*name) expand to more than 10000 values" },
      .file =
          "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
          "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n" },
    { .name = "alias in itself", .file = "a: &a [*a]\n", .status = TM_FORMAT, .says = { "inside its own anchor" } },
    { .name = "alias without anchor", .file = "a: *b\n", .status = TM_FORMAT, .says = { "no anchor '&b'" } },
    { .name = "too deep",
      .file = DEEP8 DEEP8 DEEP8 DEEP8 "1" END8 END8 END8 END8,
      .status = TM_FORMAT,
      .says = { "nested deeper than 32 levels; flatten" } },
    { .name = "unset variable",
      .file = "training.steps: ${UNSET}\n",
      .status = TM_INVALID,
      .says = { "environment variable 'UNSET' (x.yaml:1) is not set", "${UNSET:default}" } },
    { .name = "open variable", .file = "exp_name: ${UNSET\n", .status = TM_INVALID, .says = { "no closing brace" } },
    { .name = "no variable",
      .file = "exp_name: ${a-b}\n",
      .status = TM_INVALID,
      .says = { "wanted ${NAME} or ${NAME:default}" } },
    { .name = "extends itself", .file = "extends: x.yaml\n", .status = TM_INVALID, .says = { "extends is circular" } },
    { .name = "extends nothing",
      .file = "extends: [gone.yaml]\n",
      .status = TM_INVALID,
      .says = { "cannot open configuration", "gone.yaml", "x.yaml" } },
    { .name = "extends a map", .file = "extends: {a: b}\n", .status = TM_INVALID, .says = { "a file name or a list" } },
    { .name = "unknown model",
      .file = HEAD "    model: llama3.1_8.yaml\n",
      .status = TM_INVALID,
      .says = { "unknown model 'llama3.1_8'; did you mean 'llama3.1_8B'?", "(x.yaml:8)" } },
    { .name = "unknown flavor",
      .file = "model: {name: llama3, flavor: 9B}\n",
      .status = TM_INVALID,
      .says = { "model.flavor '9B' (x.yaml:1)", "trainmark models" } },
    { .name = "unknown trainer",
      .file = HEAD "    config: other.yaml\n",
      .status = TM_INVALID,
      .says = { "trainer preset 'other.yaml'", "pre_trainer.yaml" } },
    { .name = "framework",
      .file = "modules: {pre_trainer: {framework: maxtext}}\n",
      .status = TM_UNSUPPORTED,
      .says = { "framework 'maxtext'", "torchtitan or megatron" } },
    { .name = "post-training",
      .file = "modules: {post_trainer: {framework: torchtitan}}\n",
      .status = TM_UNSUPPORTED,
      .says = { "post-training is not built yet" } },
    { .name = "unknown module",
      .file = "modules: {pretrainer: {framework: torchtitan}}\n",
      .status = TM_INVALID,
      .says = { "modules.pre_trainer.framework" } },
    { .name = "unknown part of a module",
      .file = "modules: {pre_trainer: {modle: gpt-small}}\n",
      .status = TM_INVALID,
      .says = { "did you mean 'modules.pre_trainer.model'?" } },
    { .name = "override in the wrong place",
      .file = "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\n"
              "modules: {pre_trainer: {model: tiny-llama, training.steps: 5}}\n",
      .status = TM_INVALID,
      .says = { "keys of the training go under modules.pre_trainer.overrides" } },
    { .name = "no exp_name",
      .file = "work_group: a\nuser_name: b\nworkspace: c\nmodules: {pre_trainer: {model: gpt-small}}\n",
      .status = TM_INVALID,
      .says = { "lacks 'exp_name'; add a line" } },
    { .name = "heads",
      .file = "model: {dim: 100, n_heads: 3, n_layers: 1, vocab_size: 9}\n",
      .status = TM_INVALID,
      .says = { "model.dim 100", "not a multiple of model.n_heads 3" } },
    { .name = "odd heads",
      .file = "model: {dim: 6, n_heads: 2, n_layers: 1, vocab_size: 9}\n",
      .status = TM_INVALID,
      .says = { "is odd", "make it even" } },
    { .name = "kv heads",
      .file = "model: {dim: 64, n_heads: 4, n_kv_heads: 3, n_layers: 1, vocab_size: 9}\n",
      .status = TM_INVALID,
      .says = { "model.n_kv_heads 3" } },
    { .name = "no layers",
      .file = "model: {dim: 64, n_heads: 4, vocab_size: 9}\n",
      .status = TM_INVALID,
      .says = { "'model.n_layers' is not given" } },
    { .name = "positions",
      .file = "model: gpt-small\ntraining.seq_len: 513\n",
      .status = TM_INVALID,
      .says = { "training.seq_len 513 (x.yaml:2) exceeds model.max_seq_len 512" } },
    { .name = "llama biases",
      .file = "model: {family: llama, dim: 64, n_heads: 4, n_layers: 1, vocab_size: 9, bias: mi350x_table}\n",
      .status = TM_UNSUPPORTED,
      .says = { "set it to all, qkv or none" } },
    { .name = "float8",
      .file = "model.converters: [quantize.dense.float8]\n",
      .status = TM_UNSUPPORTED,
      .says = { "'model.converters'", "quantize.dense.float8", "is not built yet" } },
    { .name = "float8 of no experts",
      .file = "model.converters: [quantize.grouped_mm.float8]\n",
      .status = TM_INVALID,
      .says = { "'model.converters'", "quantize.grouped_mm.float8.fqns names", "give [experts]" } },
    { .name = "experts without a converter",
      .file = "quantize.grouped_mm.mx.fqns: [experts]\n",
      .status = TM_INVALID,
      .says = { "fqns (x.yaml:1) has an effect only with model.converters: [quantize.grouped_mm.mx]" } },
    { .name = "two converters of experts",
      .file = "model.converters: [quantize.grouped_mm.float8, quantize.grouped_mm.mx]\n",
      .status = TM_INVALID,
      .says = { "'model.converters'", "has two converters of experts" } },
    { .name = "two recipes of experts",
      .file = "model.converters: [quantize.grouped_mm.mx]\nquantize.grouped_mm.mx.fqns: [experts]\n"
              "quantize.experts_recipe: mxfp4\n",
      .status = TM_INVALID,
      .says = { "quantize.experts_recipe is mxfp4 (x.yaml:3), model.converters (x.yaml:1) means mxfp8; give one" } },
    { .name = "two recipes",
      .file = "model: gpt-small\nfp8: hybrid\nquantize.recipe: mxfp8\n",
      .status = TM_INVALID,
      .says = { "quantize.recipe is mxfp8 (x.yaml:3), fp8 (x.yaml:2) means fp8_delayed; give one" } },
    { .name = "a switch to nothing",
      .file = "model: gpt-small\nquantize.recipe: mxfp4\nquantize.switch_step: 340\n",
      .status = TM_INVALID,
      .says = { "quantize.switch_step (x.yaml:3) has an effect only with quantize.switch_recipe" } },
    { .name = "float8 recipe",
      .file = "quantize.linear.float8.recipe_name: rowwise\n",
      .status = TM_INVALID,
      .says = { "recipe_name (x.yaml:1) has an effect only with model.converters" } },
    { .name = "mx",
      .file = "quantize: {linear: {mx: {recipe_name: mxfp6}}}\n",
      .status = TM_UNSUPPORTED,
      .says = { "'quantize.linear.mx.recipe_name'", "this recipe of MX training is not built yet" } },
    { .name = "float16",
      .file = "training.mixed_precision_param: float16\n",
      .status = TM_UNSUPPORTED,
      .says = { "float16 training is not built yet" } },
    { .name = "whole logits of several ranks",
      .file = "parallelism.disable_loss_parallel: true\n",
      .status = TM_UNSUPPORTED,
      .says = { "whole logits in tensor parallelism is not built yet" } },
    { .name = "shards",
      .file = "parallelism.data_parallel_shard_degree: 8\n",
      .status = TM_INVALID,
      .says = { "dp_shard 8 multiply to 8, and there are 1 ranks", "start 8 ranks (--ranks)" } },
    { .name = "batch of ranks",
      .file = "parallelism.ranks: 4\ntraining: {local_batch_size: 2, global_batch_size: 12}\n",
      .status = TM_INVALID,
      .says = { "training.global_batch_size 12 (x.yaml:2)", "x 4 ranks", "8 and 16 are" } },
    { .name = "recompute of no op",
      .file = "activation_checkpoint: {mode: selective, selective_ac_option: op, save_ops: 'attention, liner:2'}\n",
      .status = TM_INVALID,
      .says = { "activation_checkpoint.save_ops", "'liner:2'", "linear_cross_entropy" } },
    { .name = "recompute of every 0th",
      .file = "activation_checkpoint: {mode: selective, selective_ac_option: op, save_ops: 'linear:0'}\n",
      .status = TM_INVALID,
      .says = { "'linear:0'", "n of 1 to 255" } },
    { .name = "recompute option",
      .file = "activation_checkpoint: {mode: selective, selective_ac_option: x}\n",
      .status = TM_INVALID,
      .says = { "every n-th" } },
    { .name = "schedule of no steps",
      .file = "lr_decay_iters: 0\n",
      .status = TM_INVALID,
      .says = { "'lr_scheduler.total_steps' (x.yaml:1)", "found 0, wanted 1" } },
    { .name = "a section given as a value",
      .file = "training: 5\n",
      .status = TM_INVALID,
      .says = { "'training' (x.yaml:1) is a section of keys", "training.NAME" } },
    { .name = "an empty file", .file = "# nothing\n", .status = TM_FORMAT, .says = { "x.yaml' is empty" } },
    { .name = "a data set that is not there",
      .file = "training.dataset: c4\n",
      .status = TM_INVALID,
      .says = { "data set 'c4' is not downloaded", "data.path", "mock_data: true (random tokens) or data.source" } },
    { .name = "everything that is wrong at once",
      .file = "training: {stepz: 1, steps: many, seq_len: 0}\nfp16: true\n",
      .status = TM_INVALID,
      .says = { "4 problems\n  unknown key 'training.stepz' (x.yaml:1); did you mean 'training.steps'?\n",
                "found 'many'\n", "float16 training is not built yet" } },
    { .name = "combinations, too",
      .file = "optimizer: {name: SGD, kahan_sum: true, beta1: 0.5, eps: 1}\nfp16: true\nmin_lr: 1\n"
              "training: {global_batch_size: 3, local_batch_size: 2}\nlr_scheduler: {form: nemo, decay_ratio: 0.5}\n",
      .status = TM_UNSUPPORTED,
      .says = { "8 problems\n  'fp16' = 'true' (x.yaml:2): float16 training is not built yet",
                "\n  'optimizer.eps' (x.yaml:1) is of optimizer.name AdamW, this run has SGD; leave one of the two "
                "out\n",
                "\n  optimizer.kahan_sum (x.yaml:1)" } },
    { .name = "combinations, too: batch and schedule",
      .file = "optimizer: {name: SGD, kahan_sum: true, beta1: 0.5, eps: 1}\nfp16: true\nmin_lr: 1\n"
              "training: {global_batch_size: 3, local_batch_size: 2}\nlr_scheduler: {form: nemo, decay_ratio: 0.5}\n",
      .status = TM_UNSUPPORTED,
      .says = { "\n  training.global_batch_size 3 (x.yaml:4) is not a multiple", "\n  min_lr 1 (x.yaml:3)",
                "\n  lr_scheduler.form nemo (x.yaml:5)" } },
    { .name = "nor in values that are out of range",
      .file = "training: {global_batch_size: 3, local_batch_size: 0}\n",
      .status = TM_INVALID,
      .says = { "'training.local_batch_size' (x.yaml:1) is out of range: found 0, wanted 1" } },
    { .name = "nothing more is found in values that are not there",
      .file = "training: {global_batch_size: 3, local_batch_size: many}\n",
      .status = TM_INVALID,
      .says = { "'training.local_batch_size' (x.yaml:1) must be an integer, found 'many'" } },
    { .name = "keys that change a model are never skipped",
      .words = { "--allow-unknown-keys", "--mamba_state_dim", "8" },
      .status = TM_UNSUPPORTED,
      .says = { "'mamba_state_dim' = '8' (command line): not built yet: state-space layers" } },
    { .name = "the hint is not another section's key",
      .file = "sonk_level: 1\n",
      .status = TM_INVALID,
      .says = { "unknown key 'sonk_level' (x.yaml:1); docs/configuration.md" } },
    { .name = "min_lr", .file = "min_lr: 1\n", .status = TM_INVALID, .says = { "from 0 to optimizer.lr" } },
    { .name = "no option",
      .words = { "hello" },
      .status = TM_USAGE,
      .says = { "wanted --key VALUE, --key=VALUE or key=VALUE" } },
    { .name = "unknown option",
      .words = { "--stepz", "5" },
      .status = TM_USAGE,
      .says = { "unknown option '--stepz'", "did you mean 'training.steps'?" } },
    { .name = "no value",
      .words = { "--training.steps" },
      .status = TM_USAGE,
      .says = { "'--training.steps' needs a value" } },
    { .name = "option for a value",
      .words = { "--training.steps", "--seed" },
      .status = TM_USAGE,
      .says = { "needs a value" } },
    { .name = "only an equals sign", .words = { "=5" }, .status = TM_USAGE, .says = { "'=5'" } },
    { .name = "unknown key as an option",
      .words = { "--training.stepz=5" },
      .status = TM_INVALID,
      .says = { "(command line); did you mean 'training.steps'?" } },
    { .name = "bad value of an option",
      .words = { "training.steps=x" },
      .status = TM_INVALID,
      .says = { "'training.steps' (command line) must be an integer, found 'x'" } },
    { .name = "broken list", .words = { "--model.converters=[a" }, .status = TM_FORMAT, .says = { "command line:" } },
    { .name = "comma in an item",
      .words = { "--model.converters=['a,b']" },
      .status = TM_INVALID,
      .says = { "comma" } },
    { .name = "unknown model option",
      .words = { "--model=gpt-smal" },
      .status = TM_INVALID,
      .says = { "did you mean 'gpt-small'?" } },
    { .name = "ranks",
      .variables = { "WORLD_SIZE=8" },
      .status = TM_UNSUPPORTED,
      .says = { "environment WORLD_SIZE", "ranks are started with --ranks, torchrun", "unset the variable" } },
    { .name = "nodes",
      .variables = { "NNODES=2" },
      .status = TM_UNSUPPORTED,
      .says = { "environment NNODES", "ranks" } },
    { .name = "devices",
      .variables = { "GPUS_PER_NODE=8" },
      .status = TM_UNSUPPORTED,
      .says = { "environment GPUS_PER_NODE", "unset the variable" } },
    { .name = "octal or decimal",
      .file = "training:\n  steps: 010\n",
      .status = TM_INVALID,
      .says = { "'training.steps' (x.yaml:2) is '010'", "octal to some programs", "without the leading 0" } },
    { .name = "octal or decimal of a rate",
      .file = "optimizer.lr: 010\n",
      .status = TM_INVALID,
      .says = { "is '010'", "without the leading 0" } },
    { .name = "octal or decimal on the line",
      .words = { "--training.seed", "-007" },
      .status = TM_INVALID,
      .says = { "is '-007'", "without the leading 0" } },
    { .name = "bad variable",
      .variables = { "PRIMUS_SEQ_LENGTH=long" },
      .status = TM_INVALID,
      .says = { "'training.seq_len' (environment PRIMUS_SEQ_LENGTH) must be an integer" } },
    { .name = "tensor parallel variable",
      .variables = { "PRIMUS_TP=4" },
      .status = TM_INVALID,
      .says = { "tp 4", "start 4 ranks" } },
    { .name = "experiment of the environment",
      .variables = { "EXP=/gone/x.yaml" },
      .status = TM_INVALID,
      .says = { "/gone/x.yaml" } },
};

static void remove_all(char *text, const char *part)
{
    for (char *p; (p = strstr(text, part));) memmove(p, p + strlen(part), strlen(p + strlen(part)) + 1);
}

static tm_status try_case(const wrong *w, const char *folder, tm_error *err)
{
    char       *none[] = { NULL };
    tm_config  *config = test_full_config();
    const char *path = w->file ? test_file_write(folder, "x.yaml", w->file) : NULL;
    int         argc = 0;
    while (argc < 4 && w->words[argc]) argc++;
    tm_status st = path ? tm_config_load_file(config, path, err) : TM_OK;
    if (st == TM_OK)
        st = tm_config_apply_environment(config, w->variables[0] ? (char *const *)w->variables : none, err);
    if (st == TM_OK) st = tm_config_apply_arguments(config, argc, (char **)w->words, err);
    if (st == TM_OK) st = tm_config_finish(config, err);
    tm_config_destroy(config);
    return st;
}

static void each_wrong_configuration_says_so(void **state)
{
    char prefix[520];
    int  bad = 0;
    (void)state;
    char *folder = test_tree_make();
    snprintf(prefix, sizeof prefix, "%s/", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const wrong *w = &cases[i];
        tm_error     err = { 0 };
        tm_status    st = try_case(w, folder, &err);
        remove_all(err.text, prefix);
        bool ok = st == w->status && err.status == st && w->says[0];
        whole_refusal(&err);
        for (int s = 0; s < 3 && w->says[s]; s++) ok = ok && strstr(err.text, w->says[s]);
        if (ok) continue;
        print_message("%s: status %d, wanted %d: %s\n", w->name, (int)st, (int)w->status, err.text);
        bad++;
    }
    test_tree_remove(folder);
    assert_int_equal(bad, 0);
    assert_int_equal(tm_status_exit_code(TM_INVALID), 4);
    assert_int_equal(tm_status_exit_code(TM_FORMAT), 4);
    assert_int_equal(tm_status_exit_code(TM_UNSUPPORTED), 4);
    assert_int_equal(tm_status_exit_code(TM_USAGE), 2);
}

static void assert_refused(const char *path, const char *says)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    assert_int_equal(tm_config_load_file(config, path, &err), TM_INVALID);
    whole_refusal(&err);
    if (!strstr(err.text, says)) fail_msg("wanted '%s' in: %s", says, err.text);
    tm_config_destroy(config);
}

static void what_is_no_file_is_refused(void **state)
{
    char path[600];
    (void)state;
    char *folder = test_tree_make();
    assert_refused(folder, "is a directory; name a YAML file in it");
    snprintf(path, sizeof path, "%s/none.yaml", folder);
    assert_refused(path, "check the path");
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "not a regular file");
    snprintf(path, sizeof path, "%s/loop", folder);
    assert_int_equal(symlink("loop", path), 0);
    assert_refused(path, "cannot open configuration");
    test_tree_remove(folder);
}

static void large_files_are_refused(void **state)
{
    tm_text text = { 0 };
    (void)state;
    char *folder = test_tree_make();
    while (text.length <= 1 << 20) tm_text_add(&text, "# a comment that goes on and on and on and on\n");
    assert_refused(test_file_write(folder, "x.yaml", text.data), "more than the limit");
    tm_text_fini(&text);
    test_tree_remove(folder);
}

static void long_circles_and_towers_of_extends_are_refused(void **state)
{
    char name[32], text[128];
    (void)state;
    char *folder = test_tree_make();
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "t%d.yaml", i);
        snprintf(text, sizeof text, "extends: t%d.yaml\n", i + 1);
        test_file_write(folder, name, text);
        snprintf(name, sizeof name, "d%d.yaml", i);
        snprintf(text, sizeof text, "extends: [d%d.yaml, d%d.yaml]\n", i + 1, i + 1);
        test_file_write(folder, name, i < 8 ? text : "training.steps: 1\n");
    }
    snprintf(name, sizeof name, "%s", "c.yaml");
    test_file_write(folder, "c2.yaml", "extends: ./c.yaml\n");
    assert_refused(test_file_write(folder, "c.yaml", "extends: [c2.yaml]\n"), "extends is circular");
    assert_refused(test_file_write(folder, "x.yaml", "extends: t0.yaml\n"), "nested deeper than 16 files");
    assert_refused(test_file_write(folder, "x.yaml", "extends: d0.yaml\n"), "more than 64 files");
    test_tree_remove(folder);
}

/* A name or synonym that two rows claim would go to one of them at random. */
static void no_two_rows_share_a_name(void **state)
{
    (void)state;
    tm_config *config = test_full_config();
    tm_text    table = { 0 };
    tm_config_print_reference(config, &table);
    int  names = 0;
    char seen[800][100];
    for (char *line = strtok(table.data, "\n"); line; line = strtok(NULL, "\n")) {
        char *cell = strrchr(line, '|');
        if (strncmp(line, "| `", 3) != 0) continue;
        *cell = '\0';
        char *synonyms = strrchr(line, '|');
        char *stop = strchr(line + 3, '`');
        *stop = '\0';
        snprintf(seen[names++], sizeof seen[0], "%s", line + 3);
        for (char *p = synonyms; (p = strchr(p, '`')); p++) {
            char *end = strchr(p + 1, '`');
            snprintf(seen[names++], sizeof seen[0], "%.*s", (int)(end - p - 1), p + 1);
            p = end;
        }
        assert_true(names < 790);
    }
    assert_true(names > 200);
    for (int i = 0; i < names; i++)
        for (int j = 0; j < i; j++)
            if (tm_names_equal(seen[i], seen[j])) fail_msg("two rows share '%s'", seen[i]);
    tm_text_fini(&table);
    tm_config_destroy(config);
}

static void every_message_is_whole(void **state)
{
    (void)state;
    whole_refusals_are("tests/config/whole-errors-messages.txt");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_wrong_configuration_says_so),
    cmocka_unit_test(what_is_no_file_is_refused),
    cmocka_unit_test(large_files_are_refused),
    cmocka_unit_test(long_circles_and_towers_of_extends_are_refused),
    cmocka_unit_test(no_two_rows_share_a_name),
    cmocka_unit_test(every_message_is_whole),
};

TM_TESTS_IN_ORDER(tests, NULL, NULL)
