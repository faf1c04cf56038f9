#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files and command lines of other programs: they load, run as they say, or fail aloud; a dry run says whether it fits.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# --- a model of pytorch-training-benchmark ---------------------------------------------------------------------------------

cat >model.json <<'END'
{
  "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "embedding_dim": 32,
  "max_seq_len": 32, "vocab_size": 64, "eps": 1e-05, "hidden_dim": 64
}
END
says 0 '' run model.json llama --batch_size 3 --num_iteration 4 --grad_accumlate_pre_steps=2 --out json
check "it makes two steps of two passes" has json/metrics.jsonl '"step": 2,'

# --- experiments and job files --------------------------------------------------------------------------------------------

mkdir -p tree/primus/configs/models/megatron elsewhere
printf 'num_layers: 1\nhidden_size: 32\nffn_hidden_size: 64\nnum_attention_heads: 2\nvocab_size: 64\nnormalization: RMSNorm\n' \
    >tree/primus/configs/models/megatron/mine.yaml
cat >elsewhere/exp.yaml <<'END'
work_group: ${TEAM:g}
user_name: u
exp_name: e
workspace: ${PRIMUS_WORKSPACE:./output}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: mine.yaml
    overrides:
      train_iters: 2
      lr_warmup_iters: 1
      micro_batch_size: 1
      global_batch_size: 2
      seq_length: 32
      mock_data: true
      make_vocab_size_divisible_by: 64
      use_turbo_attention: true
      wandb_project: x
END
trainmark run elsewhere/exp.yaml --out exp
failed_with 4 "a preset that is not found" "unknown model 'mine'" "in --config-path would be used"
says 0 '' run elsewhere/exp.yaml --config-path tree --out exp --verbose
check "it runs as many steps as the file says" has exp/config.yaml '^  steps: 2  # file elsewhere/exp.yaml:11 \(train_iters\)$'
check "what tunes speed only is counted" has "$err" "ignored 2 settings of megatron: 1 affect speed only, 1 do not apply"
printf '[model]\nname = "llama3"\nflavor = "debugmodel"\n[training]\nsteps = 2\nlocal_batch_size = 1\nseq_len = 32\ndataset = "c4_test"\n' >job.toml
trainmark run job.toml --out toml
failed_with 4 "a data set that is not there" "the data set 'c4_test' is not downloaded" "data.path" "mock_data: true" "data.source: synthetic"

says 0 '' run --live-output --tags pyt_train_tiny-llama --training.steps 2 $tiny --out tags --timeout 600

# --- post-training --------------------------------------------------------------------------------------------------------

# sft NAME MODULE KEY...: an experiment of Megatron's stage sft, scaled down; further keys of its overrides.
sft()
{
    sft_name=$1 sft_module=$2
    shift 2
    {
        printf 'work_group: g\nuser_name: u\nexp_name: %s\nworkspace: ./output\nmodules:\n  %s:\n    framework: megatron\n' "$sft_name" "$sft_module"
        printf '    config: sft_trainer.yaml\n    model: llama2_7B.yaml\n    overrides:\n      num_layers: 2\n      hidden_size: 64\n'
        printf '      ffn_hidden_size: 128\n      num_attention_heads: 2\n      group_query_attention: true\n      num_query_groups: 2\n      vocab_size: 512\n'
        printf '      train_iters: 3\n      micro_batch_size: 1\n      global_batch_size: 2\n      lr: 1.0e-3\n      lr_warmup_iters: 1\n'
        printf '      eval_iters: 0\n      log_interval: 1\n      mock_data: true\n'
        for sft_key; do printf '      %s\n' "$sft_key"; done
    } >"$sft_name.yaml"
}

sft alpaca post_trainer "sft_dataset_name: $root/tests/data/sft/alpaca.jsonl" "seq_length: 512" \
    "lora: {enabled: true, dim: 8, alpha: 16, dropout: 0.0, lora_A_init_method: xavier, target_modules: [linear_qkv, linear_proj, linear_fc1, linear_fc2]}"
says 0 '' run alpaca.yaml --checkpoint.enable true --out alpaca
check "three steps" has alpaca/metrics.jsonl '"step": 3,'
check "adapters only" has alpaca/config.yaml "^  rank: 8 "

# --- FluxBenchmark: a run, a sweep ------------------------------------------------------------------------------------------

mkdir -p flux/config
: >flux/launcher.py
printf 'defaults: [{accelerate_config: fsdp_config}, {train_args: flux-dev}, _self_]\ntrain_args: {num_iterations: 7, resolution: 32}\n' \
    >flux/config/single_run.yaml
printf 'defaults: [{accelerate_config: fsdp_config}, {train_args: flux-dev}, _self_]\ntrain_args: {num_iterations: 7, resolution: 32, train_batch_size: [1, 3]}\n' \
    >flux/config/sweep.yaml
little="--model.n_layers 1 --model.n_single_layers 1 --model.dim 64 --model.n_heads 2 --model.head_dim 32 --model.rope_axes 8,12,12
    --model.text_dim 32 --model.vector_dim 16 --model.text_len 4 --training.mock_data true train_args.model_path=null
    accelerate_config.num_processes=1 --training.threads 1"
says 0 "^step: +7 +loss: " run python flux/launcher.py $little --out flux_run
says 0 '' run python flux/launcher.py --config-name=sweep $little --output_dir flux_sweep
check "by its own key" grep -q '^run_id,run_name,timestamp,train_args.train_batch_size,' flux_sweep/runs_summary.csv

finish
