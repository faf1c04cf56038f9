#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model goes out into a Hugging Face folder and comes back: run, export, numerics, generate.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"

number_of() { sed -n "s/.*\"$1\": \([-0-9.e]*\)[,}].*/\1/p" "$2" | head -n 1; }
small="--training.seq_len 32 --training.local_batch_size 2 --training.threads 1 --validation.enable false
       --training.stop_at_target false"

trainmark run $tiny --training.steps 4 --validation.enable false --checkpoint.enable true --checkpoint.interval 2 --out first
check "a model is trained" [ "$code" -eq 0 ]
trainmark export first -o folder --dtype float32
check "and exported" has "$out" "LlamaForCausalLM, 12 tensors"
check "with a config.json" has folder/config.json '"model_type": "llama"'
check "that says its format" has folder/config.json '"torch_dtype": "float32"'
trainmark export first -o folder
check "a folder that holds a model is not written over" [ "$code" -eq 4 ]
trainmark export first -o earlier --step 2 --dtype float32
check "an earlier step is another model" [ "$code $(cmp -s folder/model.safetensors earlier/model.safetensors; echo $?)" = "0 1" ]
trainmark export first -o never --step 3
check "a step without checkpoint is refused" has "$err" "no checkpoint of step 3"
trainmark export folder -o shards --dtype float32 --max_shard_size 0.00001
check "a folder is exported into shards" [ "$code $(find shards -name 'model-*-of-*.safetensors' | wc -l)" = "0 7" ]
trainmark export folder -o same
check "the format is that of the model" cmp -s folder/model.safetensors same/model.safetensors
trainmark export folder -o narrow --dtype bfloat16
check "a narrower one is told" has "$out" "parameters in bfloat16 .rounded: the model was wider"
trainmark export narrow -o narrow_again
check "a narrow model stays so" cmp -s narrow/model.safetensors narrow_again/model.safetensors
check_not "and is not rounded" has "$out" rounded
check "with an index" has shards/model.safetensors.index.json '"total_size": '

echo "[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]" >ids.json
trainmark numerics folder --tokens ids.json --json
check "numerics" [ "$code" -eq 0 ]
loss=$(number_of loss "$out")
check "names every tensor" has "$out" '"model.layers.0.self_attn.q_proj.weight": '
trainmark numerics shards --tokens ids.json --json
check "shards hold the same model" [ "$code $(number_of loss "$out")" = "0 $loss" ]
trainmark numerics folder --tokens ids.json
check "people get lines" has "$out" "^loss  *[0-9]"
echo "[1, 64]" >beyond.json
trainmark numerics folder --tokens beyond.json
check "a token that the model lacks is refused" has "$err" "token 1 is 64, the model has the ids 0 to 63"
echo "[1, 2.5]" >real.json
trainmark numerics folder --tokens real.json
check "so is one that is no id" has "$err" "element 1 is not a whole number"
trainmark numerics folder --tokens ids.json --dtype float64
check "float64 is the reference's" [ "$code" -eq 2 ]
trainmark numerics first --tokens ids.json
check "a run is no folder" has "$err" "not a Hugging Face directory"

trainmark run $small --model.hf_assets_path folder --training.steps 2 --out second --checkpoint.enable true
check "a folder is trained on" has "$err" "loaded 12 tensors"
check "under its name" has second/result.json '"model": "folder"'
trainmark run $small --model.hf_assets_path folder --training.steps 3 --out second --checkpoint.enable true
check "a checkpoint has later weights than the folder" sh -c "! grep -q 'loaded 12' '$err' && grep -q 'resumed from step 2' '$err'"
trainmark run $small --model.hf_assets_path folder --model.n_layers 2 --training.steps 1 --out never
check "another depth lacks tensors, by name" has "$err" "9 missing .model.layers.1."
trainmark run $small --model.hf_assets_path nowhere --training.steps 1 --out never
check "a folder that is not there is refused" [ "$code" -eq 4 ]
sed 's/"attention_dropout": 0[.0]*/"attention_dropout": 0.1/' folder/config.json >config.new && mv config.new folder/config.json
trainmark run $small --model.hf_assets_path folder --training.steps 1 --out never
check "dropout is refused" has "$err" "attention_dropout 0.1, which is not supported; give --model.dropout 0"
trainmark run $small --model.hf_assets_path folder --model.dropout 0 --training.steps 1 --out third
check "unless it is to be left out" [ "$code" -eq 0 ]

echo "[3, 1, 4]" >prompt.json
trainmark generate folder --prompt-ids prompt.json --max_tokens 5 --json
check "generate" has "$out" '"prompt": \[3, 1, 4\], "tokens": \[[0-9]+(, [0-9]+){4}\]'
cut -d] -f2 "$out" >greedy
trainmark generate first --prompt-ids prompt.json --max_tokens 5 --json
check "a run and its export say the same" [ "$(cut -d] -f2 "$out")" = "$(cat greedy)" ]
trainmark export first -o first.gguf --gguf f32
check "a run becomes a GGUF file" has "$out" "first.gguf: LlamaForCausalLM, 12 tensors, .* parameters in f32"
check_not "whose weights are not rounded" has "$out" rounded
trainmark generate first.gguf --prompt-ids prompt.json --max_tokens 5 --json
check "which says the same" [ "$(cut -d] -f2 "$out")" = "$(cat greedy)" ]
trainmark export first.gguf -o second_folder
check "a file becomes a folder with the same weights" cmp -s second_folder/model.safetensors same/model.safetensors
trainmark export first -o first.gguf --gguf bf16
check "a file is not written over" [ "$code" -eq 4 ]
trainmark export folder -o first-q8_0.gguf --gguf q8_0
check "blocks of 8 bits are smaller" [ "$(wc -c <first-q8_0.gguf)" -lt "$(($(wc -c <first.gguf) / 2))" ]
trainmark run $small --model.hf_assets_path first-q8_0.gguf --training.steps 1 --out fourth
check "and are trained on" has "$err" "loaded 12 tensors .* of 'first-q8_0.gguf'"
trainmark generate folder --prompt-ids prompt.json --max_tokens 5 --json --temperature 5 --seed 1
check "another temperature does not" [ "$(cut -d] -f2 "$out")" != "$(cat greedy)" ]
trainmark generate folder --prompt-ids prompt.json --max_tokens 5 --json --temperature 5 --seed 1 --top_k 1
check "but of one token there is no choice" [ "$(cut -d] -f2 "$out")" = "$(cat greedy)" ]
trainmark generate folder --prompt "text"
check "a text needs a tokenizer" [ "$code" -eq 4 ]
trainmark generate folder
check "a prompt is needed" [ "$code" -eq 2 ]

# With a tokenizer: text in, text out. Exports of a folder take it along.
cp "$root/tests/token/fixtures/llama2.json" tokenizer.json
trainmark run $tiny --training.steps 1 --validation.enable false --checkpoint.enable true --model.vocab_size 560 --out spoken
trainmark export spoken -o talks --dtype float32
cp tokenizer.json talks/tokenizer.json
trainmark generate talks --prompt "Hello world" --max_tokens 5 --json
check "a prompt of text" [ "$code" -eq 0 ]
prompt=$(sed 's/.*"prompt": \(\[[0-9, ]*\]\).*/\1/' "$out")
check "and the text of what follows" has "$out" '"text": "'
printf 'Hello world' >hello
trainmark tokenizer encode --special --tokenizer tokenizer.json hello
check "the prompt's ids are the tokenizer's, with what stands in front of a text" [ "$prompt" = "$(cat "$out")" ]
trainmark generate talks --prompt "Hello world" --max_tokens 5
check "people read the prompt" has "$out" '^prompt  *Hello world$'
trainmark export talks -o again --dtype float32
check "an exported folder has its tokenizer" cmp -s again/tokenizer.json tokenizer.json
trainmark export talks -o talks.gguf --gguf f32
trainmark tokenizer encode --special --tokenizer talks.gguf hello
check "a GGUF file has it, too" [ "$prompt" = "$(cat "$out")" ]
trainmark export talks.gguf -o from_file
trainmark tokenizer encode --special --tokenizer from_file hello
check "and gives it to a folder" [ "$prompt" = "$(cat "$out")" ]
trainmark generate folder --tokenizer tokenizer.json --prompt "Hello world"
check "a tokenizer of another model is refused" has "$err" "the model has 64; give the model's own"

# --- bytes are a tokenizer ---------------------------------------------------------------------------------------------------

for i in $(seq 1 300); do printf 'line %d of a text\n' "$i"; done >text.txt
trainmark run $tiny --training.steps 20 --data.path text.txt --checkpoint.enable true --validation.enable false --out bytes
trainmark generate bytes --prompt "line 1" --max_tokens 5 --json
check "a run on text goes on with a text" has "$out" '"prompt": \[108, 105, 110, 101, 32, 49\], "tokens": '
cp "$out" said
trainmark export bytes -o bytes_hf --dtype float32
check "its export has a tokenizer" [ -s bytes_hf/tokenizer.json -a -s bytes_hf/tokenizer_config.json ]
trainmark generate bytes_hf --prompt "line 1" --max_tokens 5 --json
check "with it the text is continued in the same way" [ "$(sed 's/, "prompt_tokens.*//' "$out")" = "$(sed 's/, "prompt_tokens.*//' said)" ]
printf 'line 1' >line
trainmark tokenizer encode --tokenizer bytes_hf line
check "its ids are the bytes" [ "$(cat "$out")" = "[108, 105, 110, 101, 32, 49]" ]
check "a text ends with its token" has bytes_hf/config.json '"eos_token_id": 256'
trainmark run --model.hf_assets_path bytes_hf --data.path text.txt --training.steps 2 --training.threads 1 --training.seq_len 32 \
    --training.local_batch_size 2 --out continued
check "the training goes on from the export" has "$out" '^step: +2 '
trainmark generate first --prompt "text"
failed_with 4 "tokens that are no text" "trained on data.source synthetic, whose tokens stand for no text; give --prompt-ids"
trainmark run $tiny --training.steps 1 --validation.enable false --out unsaved
trainmark generate unsaved --prompt-ids prompt.json
failed_with 4 "a run without a checkpoint" "saved no checkpoint .*train with --checkpoint.enable true"

finish
