#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models that go out: export, merge, watch, generate, numerics. Figures follow from the model, as text and as JSON.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# --- models that go out ---------------------------------------------------------------------------------------------------

quiet="--training.threads 1 --training.seq_len 32 --training.local_batch_size 2 --training.stop_at_target false
       --validation.enable false --checkpoint.enable true --training.steps 2"
says 0 '' run --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 $quiet --out first
# exported NAME TENSORS PARAMETERS FORMAT BYTES: of each parameter as many bytes as its format has.
exported()
{
    check "$1: tensors, parameters, bytes" [ "$(members tensors) $(members parameters) $(members dtype) $(members bytes)" = "$2 $3 \"$4\" $5" ]
}
trainmark export first -o folder --dtype float32 --json
exported folder 12 13408 float32 $((4 * 13408))
check "the architecture of its config.json" [ "$(members folder) $(members architecture) $(members adapter)" = '"folder" "LlamaForCausalLM" false' ]
check "in the file" has folder/config.json '"LlamaForCausalLM"'
# A file of safetensors is the length of its header (8 bytes), the header, the tensors.
header=$(od -An -tu8 -N8 folder/model.safetensors)
check "the file is so long" [ "$(wc -c <folder/model.safetensors)" -eq $((8 + header + 4 * 13408)) ]
says 0 '' run --model.hf_assets_path folder --lora.rank 2 --lora.target_modules q_proj,v_proj $quiet --out adapted
trainmark export adapted -o adapter --json
exported adapter 4 $((2 * (32 + 32) + 2 * (32 + 16))) float32 896
check "is one" [ "$(members architecture) $(members adapter)" = '"LlamaForCausalLM" true' ]
prints "whole: LlamaForCausalLM, 12 tensors, 13,408 parameters in bfloat16 (rounded: the model was wider), 26.19 KiB" \
    export first -o whole --dtype bfloat16
trainmark merge folder adapter -o merged --json
exported merged 12 13408 float32 53632
check_not "with the adapter in it" cmp -s folder/model.safetensors merged/model.safetensors
prints "narrow: merged with 'adapter', 12 tensors, 13,408 parameters in bfloat16 (rounded: the model was wider), 26.19 KiB" \
    merge folder adapter -o narrow --dtype bfloat16

# --- what a model says ----------------------------------------------------------------------------------------------------

echo '[3, 1, 4]' >prompt.json
# What is written follows from the prompt, the seed and what may be drawn; as text and as JSON it is the same.
# tokens WORD...: what `generate` writes behind the prompt.
tokens()
{
    trainmark generate folder --prompt-ids prompt.json --device reference --json "$@"
    sed -n 's/^{"prompt": \[3, 1, 4\], "tokens": \[\([0-9, ]*\)\], "prompt_tokens_per_second": [1-9][0-9.e+]*, "tokens_per_second": [1-9][0-9.e+]*}$/\1/p' "$out"
}
greedy=$(tokens --max_tokens 5)
check "so many are written" [ "$(echo "$greedy" | wc -w)" -eq 5 ]
trainmark generate folder --prompt-ids prompt.json --device reference --max_tokens 5
check "in words: the same" [ "$(sed 's/ *$//; s/at [0-9.]* tokens/at N tokens/g' "$out")" = "prompt      3 1 4
continues   $(echo "$greedy" | tr -d ,)
3 tokens read at N tokens/s, 5 written at N tokens/s" ]
drawn=$(tokens --max_tokens 6 --temperature 3 --seed 4)
check "a seed gives the same again" [ "$drawn" = "$(tokens --max_tokens 6 --temperature 3 --seed 4)" ]
check "another seed others" [ "$drawn" != "$(tokens --max_tokens 6 --temperature 3 --seed 5)" ]
for words in "--top_k 1" "--top_p 1e-9"; do
    check "where one may be drawn it is the likeliest: $words" [ "$(tokens --max_tokens 5 --temperature 3 --seed 5 $words)" = "$greedy" ]
done
trainmark generate merged --prompt-ids prompt.json --device reference --max_tokens 3
sed -n '/^continues/p' "$out" >with
trainmark generate folder --prompt-ids prompt.json --device reference --max_tokens 3 --adapter adapter
check "an adapter counts as if it were merged" [ "$(sed -n '/^continues/p' "$out")" = "$(cat with)" ]

# The norm of all gradients is that of each; the text has the JSON's figures. Values: tests/hf/test_parity.c.
echo '[5, 9, 2, 7]' >four.json
# numbers WORD...: "NAME VALUE" lines of the JSON, without the logits.
numbers()
{
    trainmark numerics --tokens four.json --device reference --json "$@"
    tr ',{' '\n' <"$out" | sed -n 's/^ *"\([a-z_A-Z0-9.]*\)": \([-0-9][0-9.e+-]*\)}*$/\1 \2/p'
}
for words in "folder" "folder --adapter adapter"; do
    numbers $words >json
    says 0 '^target tokens  +3$' numerics $words --tokens four.json --device reference
    sed 's/^gradient norm/gradient_norm/; s/^target tokens/tokens/; /^logits/d; s/  */ /g' "$out" >text
    check "numerics of $words: as text and as JSON" awk '
        NR == FNR { found[$1] = $2; next }
        { n++; d = found[$1] - $2; if (!($1 in found) || d * d > 1e-8 * $2 * $2 + 1e-16) { print $0, found[$1]; bad = 1 } }
        END { exit bad || n != length(found) || n < 8 }' json text
    check "numerics of $words: the norm" awk '/\.weight / { sum += $2 * $2 } /^gradient_norm / { norm = $2 } END { d = sqrt(sum) / norm - 1; exit !(d * d < 1e-20) }' json
done
numbers folder >json
check "parameters of the model" [ "$(sed -n 's/^\(parameters\|tokens\) //p' json | tr '\n' ' ')" = "13408 3 " ]
check "a gradient for each tensor of the folder" [ "$(sed -n 's/^\(.*\.weight\) .*/\1/p' json | sort)" = \
    "$(grep -ao '"[a-z_.0-9]*\.weight"' folder/model.safetensors | tr -d '"' | sort)" ]
says 0 '^ *float32 beside bfloat16: loss [0-9.]+ and [0-9.]+, [0-9]+ tensors$' numerics folder --tokens four.json --compare-dtype bfloat16
check "each tensor has a line" [ "$(grep -cE ' (forward|backward|gradient) ' "$out")" -eq "$(sed -n 's/^ *float32 beside.*, \([0-9]*\) tensors$/\1/p' "$out")" ]
check "none is beyond the bound" has "$out" '^ *no tensor exceeds the error bound of [0-9.]+$'
says 2 "--compare-dtype compares float32 and bfloat16, --device reference computes in float64" \
    numerics folder --tokens four.json --device reference --compare-dtype float32

# --- averages of weights: training.ema_decay, export --ema, generate --ema -------------------------------------------------------

run="$tiny --training.steps 3 --checkpoint.enable true"
says 0 'memory .*as planned' run $run --training.ema_decay 0.5 --out r
says 0 '' export r -o averages --ema
trainmark export r -o weights
check "they are not its weights" sh -c '! cmp -s averages/model.safetensors weights/model.safetensors'
echo '[1, 2, 3]' >ids.json
trainmark generate averages --prompt-ids ids.json --max-tokens 8 --json
cp "$out" wanted
trainmark generate r --ema --prompt-ids ids.json --max-tokens 8 --json
check "the run goes on with its averages as their directory does" \
    [ "$code $(sed 's/"prompt_tokens.*//' "$out")" = "0 $(sed 's/"prompt_tokens.*//' wanted)" ]

trainmark run $run --out plain
says 4 "plain.*keeps no averages.*training.ema_decay 0.9999.*leave --ema out" export plain -o none --ema
says 4 "plain.*keeps no averages" generate plain --ema --prompt-ids ids.json

finish
