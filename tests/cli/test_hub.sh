#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models, tokenizers and rows by their names on the hub, in a cache that the package huggingface_hub wrote
# (tools/make_hub_fixture.py): every command that takes a directory computes the same as with the directory itself.
. "$(dirname "$0")/lib.sh"

cache=$root/tests/hf/hub
export HF_HUB_CACHE="$cache"
main=b28b7af69320201d1cf206ebf28373980add1451
snapshot=$cache/models--example--tiny-llama/snapshots/$main
rows=$cache/datasets--example--rows/snapshots/6c30d261539235005dac78552ab077de42661332/data
train="--training.steps 3 --training.seq_len 32 --training.local_batch_size 2 --training.threads 1 --store.path none
       --training.stop_at_target false --metrics.log_freq 1"
echo "[1, 2, 3, 4, 5, 6]" >ids.json

# same NAME A B: two commands print the same
same()
{
    # shellcheck disable=SC2086
    trainmark $2
    [ "$code" = 0 ] || fail "$1" "exit $code" || return
    cp "$out" "$work/first"
    # shellcheck disable=SC2086
    trainmark $3
    if [ "$code" = 0 ] && cmp -s "$work/first" "$out"; then pass "$1"; else fail "$1" "exit $code, or another output"; fi
}

same "numerics" "numerics example/tiny-llama --tokens ids.json --json" "numerics $snapshot --tokens ids.json --json"
same "tokenizer info" "tokenizer info --tokenizer example/tiny-llama" "tokenizer info --tokenizer $snapshot"

trainmark numerics example/tiny-llama --tokens ids.json
check "where it was found is told" grep -q "'example/tiny-llama', revision main, commit $main, in the Hugging Face cache '$cache'" "$err"

# A run: its result and its configuration say what was read, and a run of the directory itself has the same losses.
# shellcheck disable=SC2086
trainmark run --model.hf_assets_path example/tiny-llama --data.source sft --data.path "example/rows/data/train-*" $train \
    --data.validation_path "example/rows/data/test-*" --validation.steps 1 --out named
check "a run of names" test "$code" = 0
check "the note" grep -q "note: model.hf_assets_path: 'example/tiny-llama', revision main, commit $main" "$err"
check "the result has the commit" grep -q "\"model.hf_assets_path\": \"$snapshot\"" named/result.json
check "the configuration says what was given" grep -q "hf_assets_path: \"$snapshot\"  # command line as example/tiny-llama" named/config.yaml
# shellcheck disable=SC2086
trainmark run --model.hf_assets_path "$snapshot" --data.source sft --data.path "$rows/train-*" $train \
    --data.validation_path "$rows/test-*" --validation.steps 1 --out direct
losses() { sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
losses named >named.txt
losses direct >direct.txt
check "the losses are those of the directory" eval 'test -s named.txt && cmp -s named.txt direct.txt'

# Adapters: PEFT finds the base by its name and revision, on any machine.
# shellcheck disable=SC2086
trainmark run --model.hf_assets_path example/tiny-llama --lora.rank 2 --data.source sft --data.path "$rows/train-*" $train --validation.enable false \
    --checkpoint.enable true --out adapted
trainmark export adapted -o adapter
check "an adapter" test "$code" = 0
check "has the base's name" grep -q '"base_model_name_or_path": "example/tiny-llama"' adapter/adapter_config.json
check "and revision" grep -q "\"revision\": \"$main\"" adapter/adapter_config.json
same "generate with it" "numerics example/tiny-llama --adapter adapter --tokens ids.json" "numerics $snapshot --adapter adapter --tokens ids.json"
trainmark merge example/tiny-llama adapter -o merged
check "merge" test "$code" = 0

# The adapter alone: its model is found by the name and the revision in it.
same "numerics of it alone" "numerics adapter --tokens ids.json" "numerics example/tiny-llama --adapter adapter --tokens ids.json"
check "the model of the adapter is told" grep -q "'example/tiny-llama', revision main, commit $main" "$err"
trainmark merge adapter -o merged-alone
check "merge of it alone" cmp merged-alone/model.safetensors merged/model.safetensors

# What is not there.
says 4 "hf download meta-llama/Llama-3.1-8B" run --model.hf_assets_path meta-llama/Llama-3.1-8B
cp -R adapter elsewhere
sed -i 's|example/tiny-llama|example/none|' elsewhere/adapter_config.json
says 4 "the model of the adapter 'elsewhere': there is no directory 'example/none@$main', and the Hugging Face cache '$cache'" generate elsewhere --prompt a
check "and how to get it" grep -qF "hf download example/none --revision $main" "$err"
says 4 "lacks 2 files of weights" run --model.hf_assets_path example/half-llama --data.path "$rows"

finish
