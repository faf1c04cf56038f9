#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What commands print, word for word: every line and every number that does not depend on the machine, against
# tests/cli/expected/ (see `expected` in lib.sh).
# shellcheck disable=SC1091,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# --- plans on the reference device, whose kernels are the same everywhere -------------------------------------------------

plan="--model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 --training.seq_len 32
      --training.local_batch_size 2 --training.threads 1 --device reference"
one="--model.n_layers 1 $plan"
head='/"programs"/,$d'
trainmark explain $one
expected explain.txt
trainmark explain $one --training.global_batch_size 6 --schedule
expected explain_schedule.txt
adapters="--lora.rank 2 --lora.alpha 6 --lora.target_modules q_proj,v_proj --lora.use_dora true"
trainmark explain $one $adapters --schedule
expected explain_adapters.txt
trainmark explain $one --lora.rank 2 --lora.target_modules output,v_proj --schedule
expected explain_output_adapters.txt
groups='--optimizer.groups=params=*norm* weight_decay=0,params=output* lr_scale=0.5 weight_decay=0.25,params=*wo* trained=false'
trainmark explain $one "$groups" --schedule
expected explain_groups.txt
filter=$head
trainmark explain $one "$groups" --json
expected explain_groups.json
piped="--model.n_layers 4 $plan --training.global_batch_size 8 --parallelism.pipeline_parallel_degree 2"
trainmark explain $piped --json
expected explain_pipeline.json
trainmark explain $piped --parallelism.ranks 4 --parallelism.pipeline_parallel_schedule Interleaved1F1B --json
expected explain_interleaved.json
shared="qwen3_30B-A3B --training.seq_len 128 --training.local_batch_size 4 --training.threads 1 --device reference
        --parallelism.ranks 8 --parallelism.expert_parallel_degree 4"
trainmark explain $shared --json
expected explain_experts.json
filter=
trainmark explain $shared --schedule
expected explain_experts.txt
filter='/^[^#]/d'
trainmark run $piped --dry-run --parallelism.ranks 4 --memory 1GiB
expected fit_ranks.txt
trainmark run --model.n_layers 2 $plan --dry-run --parallelism.ranks 3 --optimizer.name Muon --memory 1GiB
expected fit_muon.txt
filter='/"configuration": {/,/^  }/d'
trainmark run $piped --dry-run --parallelism.ranks 4 --memory 1GiB --json
expected fit_ranks.json
filter=

# --- models that go out ---------------------------------------------------------------------------------------------------

quiet="--training.threads 1 --training.seq_len 32 --training.local_batch_size 2 --training.stop_at_target false
       --validation.enable false --checkpoint.enable true --training.steps 2"
trainmark run --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 $quiet --out first
check "a model" [ "$code" -eq 0 ]
trainmark export first -o folder --dtype float32 --json
expected export.json
trainmark run --model.hf_assets_path folder --lora.rank 2 --lora.target_modules q_proj,v_proj $quiet --out adapted
check "an adapter" [ "$code" -eq 0 ]
trainmark export adapted -o adapter --json
expected export_adapter.json
trainmark export adapted -o another
expected export_adapter.txt
trainmark merge folder adapter -o merged --json
expected merge.json
check "in the format of the model" has merged/config.json '"torch_dtype": "float32"'
check_not "with the adapter in it" cmp -s folder/model.safetensors merged/model.safetensors
trainmark merge folder adapter -o narrow --dtype bfloat16
expected merge_bfloat16.txt
check "in another format" has narrow/config.json '"torch_dtype": "bfloat16"'
trainmark merge narrow adapter -o narrow_again --json
expected merge_narrow.json
trainmark merge narrow adapter -o wide --dtype float32 --max-shard-size 0.00002
expected merge_wide.txt
check "in files of that size" [ "$(find wide -name '*.safetensors' | wc -l) $(find merged -name '*.safetensors' | wc -l)" = "4 1" ]
check "the same but for rounding" cmp -s narrow_again/config.json narrow/config.json
trainmark merge folder adapter -o merged
failed_with 4 "a model is not written over" "'merged' already holds a model .'config.json'.; give a directory that does not"
trainmark merge folder folder -o never
failed_with 4 "a model is no adapter" "'folder/adapter_config.json' is not the configuration of an adapter"
trainmark merge nowhere adapter -o never
failed_with 4 "no model" "'nowhere'"
trainmark merge folder adapter -o never --dtype float16
failed_with 2 "a format that is none" "'--dtype' must be one of bfloat16, float32; found 'float16'; did you mean 'bfloat16'.$"
trainmark merge folder -o never
failed_with 2 "one argument of two" "1 of 2 arguments .BASE ADAPTER.; .trainmark merge --help. shows the usage"
check_not "nothing is written" [ -e never ]

filter='s/4\.639[0-9]*/4.639N/; s/tokens_per_second": [1-9][0-9.e+]*/tokens_per_second": N/; s/  [0-9,]* tokens.s/  N tokens\/s/'
trainmark watch first --json
expected watch.json
trainmark watch first
expected watch.txt
mkdir made
printf '%s\n' '{"step": 6, "loss": 2.5, "tokens": 300, "seconds": 0.125}' '{"event": "evaluation", "step": 6, "loss": 2.25}' \
    '{"event": "other", "step": 99, "loss": 7}' '{"step": 7, "loss": 1.75, "tokens": 640, "seconds": 0.25}' >made/metrics.jsonl
filter=
trainmark watch made --once --json
expected watch_made.json
trainmark watch made --once
expected watch_made.txt
printf '{"step": 8, "loss": null, "tokens": 1, "seconds": 0}\n{"step": 9, "loss"' >made/metrics.jsonl
trainmark watch made --once
expected watch_broken.txt
: >made/metrics.jsonl
trainmark watch made --once --json
check "no step yet, as JSON" [ "$(cat "$out")" = "{}" ]
trainmark watch made --once
check "no step yet" [ "$(cat "$out")" = "no step yet" ]
trainmark watch nowhere --once
failed_with 4 "no run to watch" "there is no directory 'nowhere'; name a run directory"

# --- texts and tokens -----------------------------------------------------------------------------------------------------

fixtures=$root/tests/token/fixtures
for name in gpt2.json llama2.model o200k.json t5.json; do
    trainmark tokenizer info --tokenizer "$fixtures/$name"
    cat "$out" >>infos
    trainmark tokenizer info --json --tokenizer "$fixtures/$name"
    cat "$out" >>infos
done
cp infos "$out"
expected tokenizer_info.txt
echo '[1, 2, 3]' >ids
trainmark tokenizer decode --json --tokenizer "$fixtures/gpt2.json" ids
check "decoded, as JSON" [ "$(cat "$out")" = '{"text": "\"#$"}' ]
echo '[0, 2147483647]' >ids
trainmark tokenizer decode --tokenizer "$fixtures/gpt2.json" ids
check "the largest id is one, and none of this vocabulary" [ "$code" -eq 0 ]
echo '[0, 2147483648]' >ids
trainmark tokenizer decode --tokenizer "$fixtures/gpt2.json" ids
failed_with 4 "one more is none" "id 2147483648 at byte 4 is too large$"

# --- help -----------------------------------------------------------------------------------------------------------------

trainmark --help
expected help.txt
for command in "data tokenize" "mlperf reference" "check"; do
    trainmark $command --help
    expected "help_$(echo $command | tr ' ' _).txt"
done
trainmark help data
expected help_data.txt

finish
