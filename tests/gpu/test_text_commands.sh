#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# generate, chat and numerics with --device cuda and hip, over stand-ins that execute the kernels' machine code: the most
# likely tokens are a CPU's, with its tables of keys and values; losses, logits and gradients of a folder are, too.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/standins.sh"

tokens_of() { sed -n 's/.*"tokens": \[\([0-9, ]*\)\].*/\1/p' "$out"; }

few="--training.seq_len 32 --training.local_batch_size 2 --training.steps 4 --training.dtype float32 --optimizer.lr 0.01"
few="$few --lr_scheduler.warmup_steps 0 --validation.enable false --checkpoint.enable true --model.vocab_size 64 --model.max_seq_len 128"
tiny="--model.dim 32 --model.n_layers 2 --model.n_heads 2 --model.ffn_dim 48"
moe="--model.n_experts 4 --model.n_experts_per_token 2"
latent="--model.n_dense_layers 1 --model.kv_lora_rank 24 --model.qk_nope_head_dim 12 --model.qk_rope_head_dim 4 --model.v_head_dim 20"
# Forty tokens: a part of 32 at once, then one by one.
seq -s, 1 39 | sed 's/^/[/; s/$/, 5]/' >ids.json

# Numbers of two outputs of numerics: every one of the first within a part of 2e-3 of it, or 1e-5, of the second's.
alike() { paste "$1" "$2" | awk '
    function near(a, b) { d = a - b; if (d < 0) d = -d; if (b < 0) b = -b; return d <= 2e-3 * b + 1e-5 }
    { half = NF / 2
      for (i = 1; i <= half; i++) if ($i != $(half + i) && ($i + 0 == 0 || !near($i, $(half + i)))) { print; bad = 1 } }
    END { exit bad || NR < 8 }'; }

# name, device, preset, keys
try()
{
    on "$2"
    [ -e "$1" ] || trainmark run "$3" $few $4 --out "$1"
    trainmark generate "$1" --prompt-ids ids.json --max-tokens 12 --json
    tokens_of >wanted
    trainmark generate "$1" --prompt-ids ids.json --max-tokens 12 --json --device "$2"
    ! has_no_compiler "$1" || return
    check "$1 goes on on $2" [ "$code" -eq 0 ]
    check "with a CPU's tokens" [ -n "$(cat wanted)" -a "$(tokens_of)" = "$(cat wanted)" ]
    [ -e "$1.hf" ] || trainmark export "$1" -o "$1.hf"
    trainmark numerics "$1.hf" --tokens ids.json && cp "$out" "$1.cpu"
    trainmark numerics "$1.hf" --tokens ids.json --device "$2"
    check "a folder is computed as on a CPU" alike "$out" "$1.cpu"
}

try gpt cuda gpt2-124M "$tiny"
try mixtral hip mixtral_8x7B "$tiny $moe --model.n_kv_heads 1"
if [ -n "${TM_TEST_FULL:-}" ]; then
    for device in cuda hip; do
        try llama $device llama3_debugmodel "$tiny --model.n_kv_heads 1"
        try mistral $device mistral_7B "$tiny --model.n_kv_heads 1 --model.sliding_window 9"
        try qwen2 $device qwen2.5_0.5B "$tiny --model.n_kv_heads 1"
        try qwen3 $device qwen3_debugmodel "$tiny --model.n_kv_heads 1 --model.head_dim 24"
        try qwen3_moe $device qwen3_30B-A3B "$tiny $moe --model.n_kv_heads 1 --model.head_dim 24"
        try deepseek $device deepseek_v2_lite "$tiny $latent $moe --model.n_shared_experts 1"
        try gpt_oss $device gpt_oss_20B "$tiny $moe --model.n_kv_heads 1 --model.head_dim 16 --model.sliding_window 9"
    done
fi

on cuda
trainmark numerics gpt.hf --tokens ids.json --device cuda --compare-dtype bfloat16
check "another format is compared on the GPU" [ "$code" -eq 0 -a "$(grep -c bfloat16 "$out")" -gt 0 ]
trainmark generate gpt --prompt-ids ids.json --max-tokens 5 --device cuda --dtype bfloat16 --json
check "and generates" [ "$(tokens_of | tr -cd , | wc -c)" -eq 4 ]
trainmark generate gpt --prompt-ids ids.json --device cuda --dtype float64
failed_with 2 "a format that GPUs do not compute in" "--dtype float64 is not computed on --device cuda; wanted float32 or bfloat16, or"
trainmark generate gpt --prompt-ids ids.json --device cuda --isa avx2
failed_with 4 "instruction sets are a CPU's" "--isa avx2 is for device cpu, found device cuda"
printf 'ab\n' >lines
for device in cpu cuda; do
    "$TRAINMARK" chat gpt --tokenizer byte --max-tokens 6 --temperature 0 --device $device <lines >said.$device 2>"$err"
    echo $? >>said.$device
done
check "a chat says what it says on a CPU" cmp said.cpu said.cuda
finish
