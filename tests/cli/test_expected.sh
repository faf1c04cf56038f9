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
copies="--parallelism.data_parallel_shard_degree 1 --parallelism.data_parallel_replicate_degree 8"
trainmark explain $one $copies --ranks-per-host 4 --schedule
expected explain_hosts.txt
adapters="--lora.rank 2 --lora.alpha 6 --lora.target_modules q_proj,v_proj --lora.use_dora true"
trainmark explain $one $adapters --schedule
expected explain_adapters.txt
trainmark explain $one --lora.rank 1 --lora.target_modules v_proj --schedule
expected explain_adapters_one.txt
trainmark explain $one --lora.rank 2 --lora.target_modules output,v_proj --schedule
expected explain_output_adapters.txt
groups='--optimizer.groups=params=*norm* weight_decay=0,params=output* lr_scale=0.5 weight_decay=0.25,params=*wo* trained=false'
trainmark explain $one "$groups" --schedule
expected explain_groups.txt
filter=$head
trainmark explain $one "$groups" --json
expected explain_groups.json
trainmark explain $one --lora.rank 1 --lora.target_modules v_proj --json
expected explain_adapters_one.json
trainmark explain $one "--optimizer.groups=params=*norm* weight_decay=0" --json
expected explain_group_one.json
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
trainmark run --model.n_layers 112 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 16 $quiet \
    --debug.certificate false --out many
check "a model of 1,011 tensors" [ "$code" -eq 0 ]
refused 4 "invalid configuration or input: 1011 files would be written, a model has 1000 at most; allow more bytes for each" \
    export many -o never --max-shard-size 0.000001
trainmark merge folder adapter -o merged
failed_with 4 "a model is not written over" "'merged' already holds a model .'config.json'.; give a directory that does not"
trainmark merge folder folder -o never
failed_with 4 "a model is no adapter" "no configuration of an adapter: cannot open 'folder/adapter_config.json'"
trainmark merge nowhere adapter -o never
failed_with 4 "no model" "'nowhere'"
trainmark merge folder adapter -o never --dtype float16
failed_with 2 "a format that is none" "'--dtype' must be one of bfloat16, float32; found 'float16'; did you mean 'bfloat16'.$"
mkdir of_rank_3
cp adapter/adapter_model.safetensors of_rank_3/
sed 's/"r": *[0-9]*/"r": 3/' adapter/adapter_config.json >of_rank_3/adapter_config.json
trainmark merge folder of_rank_3 -o never
failed_with 4 "matrices of another rank" "must have A .3, [0-9]+. and B .[0-9]+, 3.; found A float32 .[0-9]+, [0-9]+., B float32 "
trainmark merge folder -o never
failed_with 2 "one argument of two" "'folder' is no adapter .it has no adapter_config.json.; give BASE and ADAPTER"
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

# --- what a model says ----------------------------------------------------------------------------------------------------

echo '[5]' >single.json
refused 4 "invalid configuration or input: 'single.json' has 1 tokens; two are the least: an input and a target" \
    numerics folder --tokens single.json
echo '[5, 9, 2]' >few.json
refused 2 "wrong usage: --device null computes nothing" numerics folder --tokens few.json --device null
refused 2 "wrong usage: 'folder' is a model of a language: give --tokens FILE" numerics folder --inputs single.json
refused 2 "wrong usage: --dtype float64 is not computed on --device cpu; --device reference computes in float64" \
    numerics folder --tokens few.json --dtype float64
echo '[]' >none.json
refused 4 "invalid configuration or input: 'none.json' has 0 tokens; a prompt has one at least" \
    generate folder --prompt-ids none.json
echo '[3, 1, 4]' >prompt.json
trainmark generate folder --prompt-ids prompt.json --max_tokens 1
filter='/^continues/s/[0-9][0-9]*/N/g; s/read at [0-9.]*/read at N/'
expected generate_one.txt
filter=

echo '[5, 9, 2, 7]' >four.json
filter='s/\([0-9]\.[0-9]\{2\}\)[0-9]*/\1/g; s/e-[0-9]*//g'
trainmark numerics folder --tokens four.json --device reference
expected numerics.txt
trainmark numerics folder --tokens four.json --device reference --json
expected numerics.json
trainmark numerics folder --tokens four.json --adapter adapter --device reference
expected numerics_adapter.txt
filter='s/-*[0-9]\.[0-9]*\(e[-+][0-9]*\)*/N/g; s/N%/N/g; s/  */ /g'
trainmark numerics folder --tokens four.json --compare-dtype bfloat16
expected numerics_compared.txt
refused 2 "wrong usage: --compare-dtype compares float32 and bfloat16, --device reference computes in float64" \
    numerics folder --tokens four.json --device reference --compare-dtype float32
filter='s/per_second": [0-9.e+]*/per_second": N/g; s/at [0-9.]* tokens/at N tokens/g'
for words in "--max_tokens 5" "--max_tokens 5 --json" "--max_tokens 6 --temperature 3 --seed 4 --json" "--max_tokens 6 --temperature 3 --seed 5 --top_k 3 --json" \
    "--max_tokens 6 --temperature 3 --seed 5 --top_p 0.05 --json" "--max_tokens 2 --adapter adapter"; do
    trainmark generate folder --prompt-ids prompt.json --device reference $words
    cat "$out"
done >generated
check "so many tokens a second" awk '
    { gsub(/[,:}]/, " ") }
    { for (i = 1; i <= NF; i++) if ($i ~ /tokens_per_second"$/) { n++; if (!($(i + 1) > 1.5)) bad = 1 } }
    END { exit bad || n != 8 }' generated
cp generated "$out"
expected generate.txt
filter=

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

# --- figures --------------------------------------------------------------------------------------------------------------

number=0
for words in "5000 tokens/s --model llama3.1_8B --tokens 15T --devices 8 --peak 1300" \
    "5000 tokens/s --model llama3.1_8B --json --all --devices 8 --peak 1300 --tokens 300B" \
    "400 --from titan --model llama3.1_8B --seq 4096 --window 512" "2s/step --model llama2_70B --batch 8 --devices 4" \
    "900 TFLOP/s --from lora --model llama2_70B --lora-parameters 45000000 --json" "0.5 samples/s --model flux_12b" \
    "--published --model llama3.1_70B --hardware MI300X" "--published --model qwen3_32B --json"; do
    number=$((number + 1))
    trainmark convert $words
    expected "convert_$number.txt"
done
model="--model llama3.1_8B"
refused 2 "wrong usage: 'x' is not a figure; wanted a number above 0 and its unit" convert x $model
refused 2 "wrong usage: '0' is not a figure; wanted a number above 0 and its unit" convert 0 tokens/s $model
refused 2 "wrong usage: '1e999' is not a figure; wanted a number above 0 and its unit" convert 1e999 tokens/s $model
refused 2 "wrong usage: two units, 'tokens/s' and 's/step'; leave one out" convert 5tokens/s s/step $model
refused 2 "wrong usage: 5 of what? tokens/s, samples/s, s/step, or TFLOP/s with --from" convert 5 $model
refused 2 "wrong usage: convert what? a VALUE and its UNIT, or --published; see \`trainmark convert --help\`" convert $model
refused 2 "wrong usage: convert what? a VALUE and its UNIT, or --published; see \`trainmark convert --help\`" \
    convert 5 tokens/s --published $model
refused 2 "wrong usage: --tokens '15X' is not a number of tokens; wanted 15T, 300B or 1e12" convert 5 tokens/s --tokens 15X $model
refused 4 "invalid configuration or input: no published speed of 'tiny-llama'; \`trainmark reference\` lists all figures" \
    convert --published --model tiny-llama

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
