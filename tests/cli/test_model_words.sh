#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What commands say of the folder of a model: of what it holds, lacks, is not, and of adapters that do not fit.
# shellcheck disable=SC1091,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

quiet="--training.threads 1 --training.seq_len 32 --training.local_batch_size 2 --training.stop_at_target false --validation.enable false"
small="--model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64"
trainmark run $small $quiet --training.steps 1 --checkpoint.enable true --out first
says 0 '' export first -o folder --dtype float32
lora="--lora.rank 2 --lora.alpha 4"
trainmark run --model.hf_assets_path folder $lora $quiet --training.steps 1 --checkpoint.enable true --out adapted
says 0 '' export adapted -o adapter
mkdir bare tokenizer empty
cp folder/config.json bare
cp -r folder dropping
sed 's/"attention_dropout": [0-9.]*/"attention_dropout": 0.125/' folder/config.json >dropping/config.json

# What trains says what it has loaded; what is planned, what would be missing.
plan="$quiet --dry-run --memory 1GiB"
run="run $quiet --training.steps 1 --store.path none"
for path in org/name ./org/name /no/where bare tokenizer; do
    printf 'model: {hf_assets_path: %s, vocab_size: 64, n_layers: 1, dim: 32, n_heads: 2, n_kv_heads: 1, ffn_dim: 64}\n' $path >"of_$(echo $path | tr -d ./).yaml"
done
mv of_orgname.yaml of_dot.yaml
printf 'model: {hf_assets_path: org/name, vocab_size: 64, n_layers: 1, dim: 32, n_heads: 2, n_kv_heads: 1, ffn_dim: 64}\n' >of_hub.yaml
table <<'END'
0 | $run --model.hf_assets_path folder --out a | note: loaded 12 tensors (52.38 KiB, F32) of 'folder' in | results in a; -v prints every table
0 | $run --model.hf_assets_path folder $lora --lora.adapter_path adapter --out b | note: loaded 14 tensors of the adapter 'adapter' | note: loaded 12 tensors (52.38 KiB, F32) of 'folder' in
0 | $run --model.hf_assets_path bare --out c | note: 'bare' holds no weights: the initial ones follow from debug.seed
0 | run --model.hf_assets_path ./folder/// $plan | folder: 13,408 parameters
0 | run --model.hf_assets_path "$work/folder" --model.n_layers 2 $plan | folder: 22,688 parameters
0 | run --model.hf_assets_path tokenizer $plan | note: model.hf_assets_path: no config.json in 'tokenizer': only a tokenizer is looked for there
4 | run --model.hf_assets_path /no/where --training.steps 1 | there is no directory '/no/where'
0 | run of_hub.yaml $plan | note: model.hf_assets_path (of_hub.yaml:1): no directory 'org/name' here, nor in the Hugging Face cache: the model is that of the file, with new weights | note: training.mixed_precision_param is not given: a CPU run is float32
4 | run of_dot.yaml $plan | there is no directory './org/name'
4 | run --model.hf_assets_path dropping $plan | 'dropping/config.json' trains with attention_dropout 0.125, which is not supported; give --model.dropout 0 to train without it
0 | run --model.hf_assets_path dropping --model.dropout 0 $plan | dropping: 13,408 parameters
4 | run --model.hf_assets_path folder --lora.adapter_path adapter $plan | lora.adapter_path (command line) needs lora.rank; 'adapter' has --lora.rank 2 --lora.alpha 4
0 | run $small $lora --lora.adapter_path adapter $plan | note: the model of the adapter 'adapter' is 'folder'
4 | run --model.hf_assets_path bare $lora --lora.adapter_path adapter $plan | lora.adapter_path (command line) needs a model with weights: model.hf_assets_path
4 | run --model.hf_assets_path folder --lora.rank 4 --lora.alpha 8 --lora.adapter_path adapter $plan | lora.rank is 4 and lora.alpha 8; give the same
4 | run --model.hf_assets_path folder $lora --lora.use_dora true --lora.adapter_path adapter $plan | 'adapter' is no DoRA adapter, and lora.dora is true; set lora.dora to false
END
# Commands that start ranks themselves, under a launcher.
for row in "--scaling 1,2:--scaling starts the ranks of each run itself: do without torchrun or its like" \
    "--evaluate:--evaluate takes one rank; leave --ranks out"; do
    RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 says 4 "${row#*:}" run $small ${row%%:*}
done

# --- what goes on with it -----------------------------------------------------------------------------------------------------

echo '[1, 2, 3]' >three.json
table <<'END'
4 | numerics bare --tokens three.json | 'bare' holds no weights (model.safetensors)
2 | numerics folder | give --tokens FILE (a JSON array of ids, or a .npy) or, of an image model, --inputs FILE (safetensors)
4 | numerics nowhere --tokens three.json | 'nowhere' is not a Hugging Face directory: it has no config.json
4 | generate folder --prompt a | no tokenizer in 'folder': looked for tokenizer.json, tokenizer.model, tekken.json, vocab.json with merges.txt, spiece.model; give the file itself
4 | generate folder --prompt-ids three.json --adapter nowhere | cannot open 'nowhere/adapter_config.json'
4 | generate nowhere --prompt-ids three.json --max_tokens 1 | 'nowhere' is neither a Hugging Face directory (config.json) nor the directory of a run (config.yaml)
END

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
check "each step once, with the newest validation; then the end" [ "$code $(cat "$out")" = "0 step 1  loss 3.00000  128 tokens/s (last step)
step 2  loss 2.50000  validation 2.25000  1,280 tokens/s (last step)
step 3  loss 2.00000  validation 2.25000  2,560 tokens/s (last step)
step 1  loss 4.00000  validation 2.25000  1 tokens/s (last step)
ended: valid: it has learned" ]

mkdir looked
says 0 '^no step yet$' watch looked --once
printf '{"step": 1, "loss": 3.5, "tokens": 64, "seconds": 0.5}\n{"event": "evaluation", "step": 1, "loss": 2.5}\n{"loss": 9}\n' >looked/metrics.jsonl
prints "step 1  loss 3.50000  validation 2.50000  128 tokens/s (last step)" watch looked --once
cp going/result.json looked
prints '{"step": 1, "loss": 3.5, "validation": 2.5, "tokens_per_second": 128}' watch looked --json

finish
