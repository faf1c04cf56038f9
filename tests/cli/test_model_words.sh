#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What commands say of the folder of a model: of what it holds, lacks, is not, and of adapters that do not fit.
# shellcheck disable=SC1091,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

quiet="--training.threads 1 --training.seq_len 32 --training.local_batch_size 2 --training.stop_at_target false --validation.enable false"
small="--model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64"
trainmark run $small $quiet --training.steps 1 --checkpoint.enable true --out first
trainmark export first -o folder --dtype float32
check "a model" [ "$code" -eq 0 ]
lora="--lora.rank 2 --lora.alpha 4"
trainmark run --model.hf_assets_path folder $lora $quiet --training.steps 1 --checkpoint.enable true --out adapted
trainmark export adapted -o adapter
check "an adapter" [ "$code" -eq 0 ]
mkdir bare tokenizer empty
cp folder/config.json bare
cp -r folder dropping
sed 's/"attention_dropout": [0-9.]*/"attention_dropout": 0.125/' folder/config.json >dropping/config.json

# lines WORD...: the exit code and what is said; of a plan the model and what it lacks.
lines()
{
    trainmark "$@"
    {
        echo "> $*"
        grep -E '^# (model|planned)|^without|^model ' "$out"
        cat "$err"
        echo "-> $code"
    } | sed "s,$work,WORK,g; s,$root,ROOT,g; s/ in [0-9.]* s\$/ in N s/; s/ in [0-9.]* s;/ in N s;/; s/this machine runs: .*/this machine runs: ISA/" >>said
}
plan="$quiet --dry-run --memory 1GiB"
run="run $quiet --training.steps 1 --store.path none"

lines $run --model.hf_assets_path folder --out a
lines $run --model.hf_assets_path folder $lora --lora.adapter_path adapter --out b
lines $run --model.hf_assets_path bare --out c
lines run --model.hf_assets_path ./folder/// $plan
lines run --model.hf_assets_path "$work/folder" --model.n_layers 2 $plan
lines run --model.hf_assets_path tokenizer $plan
lines run tiny-llama --model.hf_assets_path nowhere $plan
lines run tiny-llama --model.hf_assets_path nowhere --training.steps 1
lines explain tiny-llama --model.hf_assets_path no/where --training.threads 1
lines run --model.hf_assets_path /no/where --training.steps 1
for path in org/name ./org/name /no/where bare tokenizer; do
    printf 'model: {hf_assets_path: %s, vocab_size: 64, n_layers: 1, dim: 32, n_heads: 2, n_kv_heads: 1, ffn_dim: 64}\n' $path >file.yaml
    lines run file.yaml $plan
done
lines run --model.hf_assets_path dropping $plan
lines run --model.hf_assets_path dropping --model.dropout 0 $plan
lines run --model.hf_assets_path folder --lora.adapter_path adapter $plan
lines run $small $lora --lora.adapter_path adapter $plan
lines run --model.hf_assets_path bare $lora --lora.adapter_path adapter $plan
for words in "--lora.rank 3 --lora.alpha 4" "--lora.rank 2 --lora.alpha 5" "--lora.rank 4 --lora.alpha 8" "$lora --lora.use_dora true" "$lora"; do
    lines run --model.hf_assets_path folder $words --lora.adapter_path adapter $plan
done
lines run --model.hf_assets_path folder $lora --lora.adapter_path nowhere $plan
paths=$(for _ in 1 2 3 4 5 6 7 8 9; do printf ' --config-path %s' "$work"; done)
lines run $plan $paths
lines run $plan ${paths% --config-path *}
lines run $plan --config-path nowhere
lines run '--debug.seed=[1,2]' $plan
for words in "--debug.seed=[1,2]" "--scaling 1,2" "--evaluate"; do
    RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 lines run $small $words
done
as model_words.txt

# --- what goes on with it -----------------------------------------------------------------------------------------------------

echo '[1, 2, 3]' >three.json
gpt2="$root/tests/token/fixtures/gpt2.json"
lines numerics bare --tokens three.json
lines numerics folder --tokens three.json --isa nonsense
lines numerics folder
lines numerics folder --tokens three.json --inputs three.json
lines numerics folder --tokens nowhere.json
lines numerics nowhere --tokens three.json
lines numerics folder --tokens three.json --adapter nowhere
lines generate folder --prompt-ids three.json --isa nonsense
lines generate folder --prompt-ids three.json --dtype float64
lines generate folder --prompt-ids three.json --dtype bfloat16 --device reference
lines generate folder --prompt-ids three.json --device null
lines generate folder
lines generate folder --prompt a --prompt-ids three.json
lines generate folder --prompt '' --tokenizer "$gpt2"
lines generate folder --prompt 'Some words' --tokenizer "$gpt2"
lines generate folder --prompt a
lines generate folder --prompt-ids three.json --adapter nowhere
lines generate bare --prompt-ids three.json
lines generate first --step 7 --prompt-ids three.json
for tokens in 0 1 10000000 10000001; do lines generate nowhere --prompt-ids three.json --max_tokens $tokens; done
as model_uses.txt

# --- a run that is followed -----------------------------------------------------------------------------------------------------

mkdir going
printf '{"step": 1, "loss": 3, "tokens": 64, "seconds": 0.5}\n' >going/metrics.jsonl
: >"$out" # what stood there is not its output
"$TRAINMARK" watch going --interval 0.05 >"$out" 2>"$err" </dev/null &
watching=$!
# seen N: the follower has printed N lines.
seen() { until [ "$(wc -l <"$out")" -ge "$1" ]; do kill -0 $watching || break; sleep 0.05; done; }
seen 1
printf '{"step": 2, "loss": 2.5, "tok' >>going/metrics.jsonl
sleep 0.15
printf 'ens": 640, "seconds": 0.5}\n{"event": "evaluation", "step": 2, "loss": 2.25}\n' >>going/metrics.jsonl
seen 2
printf '{"step": 3, "loss": 2, "tokens": 640, "seconds": 0.25}\n' >>going/metrics.jsonl
seen 3
printf '{"step": 1, "loss": 4, "tokens": 1, "seconds": 1}\n' >going/metrics.jsonl
seen 4
printf '{"format": "trainmark.result/1", "verdict": "valid", "reason": "it has learned"}\n' >result
mv result going/result.json
wait $watching
code=$?
expected watch_followed.txt

finish
