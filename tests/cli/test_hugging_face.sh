#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model goes out into a Hugging Face folder and comes back: run, export, numerics, generate.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"

number_of() { sed -n "s/.*\"$1\": \([-0-9.e]*\)[,}].*/\1/p" "$2" | head -n 1; }
small="--training.seq_len 32 --training.local_batch_size 2 --training.threads 1 --validation.enable false
       --training.stop_at_target false"

says 0 '' run $tiny --training.steps 4 --validation.enable false --checkpoint.enable true --checkpoint.interval 2 --out first
says 0 "LlamaForCausalLM, 12 tensors" export first -o folder --dtype float32
trainmark export first -o earlier --step 2 --dtype float32
check "an earlier step is another model" [ "$code $(cmp -s folder/model.safetensors earlier/model.safetensors; echo $?)" = "0 1" ]
trainmark export folder -o shards --dtype float32 --max_shard_size 0.00001
check "a folder is exported into shards" [ "$code $(find shards -name 'model-*-of-*.safetensors' | wc -l)" = "0 7" ]
trainmark export folder -o same

echo "[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]" >ids.json
says 0 '' numerics folder --tokens ids.json --json
loss=$(number_of loss "$out")
check "names every tensor" has "$out" '"model.layers.0.self_attn.q_proj.weight": '
trainmark numerics shards --tokens ids.json --json
check "shards hold the same model" [ "$code $(number_of loss "$out")" = "0 $loss" ]

says 0 "loaded 12 tensors" run $small --model.hf_assets_path folder --training.steps 2 --out second --checkpoint.enable true
check "under its name" has second/result.json '"model": "folder"'
trainmark run $small --model.hf_assets_path folder --training.steps 3 --out second --checkpoint.enable true
check "a checkpoint has later weights than the folder" sh -c "! grep -q 'loaded 12' '$err' && grep -q 'resumed from step 2' '$err'"

says 0 "first.gguf: LlamaForCausalLM, 12 tensors, .* parameters in f32" export first -o first.gguf --gguf f32
trainmark export first.gguf -o second_folder
check "a file becomes a folder with the same weights" cmp -s second_folder/model.safetensors same/model.safetensors
trainmark export folder -o first-q8_0.gguf --gguf q8_0
check "blocks of 8 bits are smaller" [ "$(wc -c <first-q8_0.gguf)" -lt "$(($(wc -c <first.gguf) / 2))" ]
says 0 "loaded 12 tensors .* of 'first-q8_0.gguf'" run $small --model.hf_assets_path first-q8_0.gguf --training.steps 1 --out fourth

# With a tokenizer: text in, text out. Exports of a folder take it along.
cp "$root/tests/token/fixtures/llama2.json" tokenizer.json
trainmark run $tiny --training.steps 1 --validation.enable false --checkpoint.enable true --model.vocab_size 560 --out spoken
trainmark export spoken -o talks --dtype float32
cp tokenizer.json talks/tokenizer.json
says 0 '' generate talks --prompt "Hello world" --max_tokens 5 --json
prompt=$(sed 's/.*"prompt": \(\[[0-9, ]*\]\).*/\1/' "$out")
check "and the text of what follows" has "$out" '"text": "'
printf 'Hello world' >hello
trainmark tokenizer encode --special --tokenizer tokenizer.json hello
check "the prompt's ids are the tokenizer's, with what stands in front of a text" [ "$prompt" = "$(cat "$out")" ]
trainmark export talks -o again --dtype float32
check "an exported folder has its tokenizer" cmp -s again/tokenizer.json tokenizer.json

# --- bytes are a tokenizer ---------------------------------------------------------------------------------------------------

for i in $(seq 1 300); do printf 'line %d of a text\n' "$i"; done >text.txt
trainmark run $tiny --training.steps 20 --data.path text.txt --checkpoint.enable true --validation.enable false --out bytes
says 0 '"prompt": \[108, 105, 110, 101, 32, 49\], "tokens": ' generate bytes --prompt "line 1" --max_tokens 5 --json
cp "$out" said
trainmark export bytes -o bytes_hf --dtype float32
check "its export has a tokenizer" [ -s bytes_hf/tokenizer.json -a -s bytes_hf/tokenizer_config.json ]
trainmark generate bytes_hf --prompt "line 1" --max_tokens 5 --json
check "with it the text is continued in the same way" [ "$(sed 's/, "prompt_tokens.*//' "$out")" = "$(sed 's/, "prompt_tokens.*//' said)" ]
check "a text ends with its token" has bytes_hf/config.json '"eos_token_id": 256'
says 4 "trained on data.source synthetic, whose tokens stand for no text; give --prompt-ids" generate first --prompt "text"

finish
