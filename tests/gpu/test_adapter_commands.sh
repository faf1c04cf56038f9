#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Adapters with --device cuda and hip on the command line, over stand-ins that execute the kernels' machine code: two runs
# save the same adapter, bit for bit; a CPU goes on where a GPU stopped, with the same losses; what does not run is named.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/standins.sh"

within() { awk -v a="$1" -v b="$2" -v bound="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d <= bound && -d <= bound) }'; }

tiny="--model.dim 32 --model.n_layers 1 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 48 --model.vocab_size 64"
tiny="$tiny --training.seq_len 16 --training.local_batch_size 2 --training.steps 2 --optimizer.lr 0.05"
tiny="$tiny --checkpoint.enable true --checkpoint.interval 1 --checkpoint.keep_latest_k 0 --validation.enable false"

# device, name, options, bound of losses
try() {
    on "$1"
    for out in once twice; do trainmark run tiny-llama $tiny $3 --device "$1" --out "$2-$out" && cp "$err" "$2-$out.err"; done
    ! has_no_compiler "$2" || return
    check "$2 on $1" [ "$code" -eq 0 ]
    for out in once twice; do trainmark export "$2-$out" -o "$2-$out-adapter"; done
    check "saves the adapter" [ "$code" -eq 0 -a -s "$2-once-adapter/adapter_model.safetensors" ]
    check "two runs the same one" cmp -s "$2-once-adapter/adapter_model.safetensors" "$2-twice-adapter/adapter_model.safetensors"
    rm -rf "$2-twice/checkpoint/step-00000002"
    trainmark run tiny-llama $tiny $3 --device cpu --out "$2-twice" --checkpoint.load_step 1
    check "a CPU goes on where the GPU stopped" [ "$code" -eq 0 ]
    check "with its loss" within "$(loss_of "$2-twice" 2)" "$(loss_of "$2-once" 2)" "$4"
}

try hip lora "--lora.rank 2 --lora.alpha 3 --lora.dropout 0.1" 1e-4
try cuda dora "--lora.rank 2 --lora.alpha 4 --lora.dora true --lora.base_format float8_e4m3 --training.dtype bfloat16" 1e-2
if [ -n "${TM_TEST_FULL:-}" ]; then
    TRAINMARK_CUBLASLT=none
    try cuda lora_own "--lora.rank 2 --lora.alpha 3 --lora.dropout 0.1" 1e-4
    TRAINMARK_CUBLASLT="$standins/cublaslt.so"
    try hip qlora "--lora.rank 4 --lora.base_format nf4 --lora.dropout 0.2 --training.dtype bfloat16" 1e-2
    pairs="--lora.rank 2 --model.vocab_size 257 --data.source preference --data.path $root/tests/data/sft/pairs.jsonl"
    pairs="$pairs --training.seq_len 128 --training.local_batch_size 3"
    try cuda dpo "$pairs --dpo.beta 0.3" 1e-4
    try hip apo "$pairs --dpo.beta 0.5 --dpo.loss_type apo_down --training.dtype bfloat16" 1e-2
    # Ranks that have parts of sequences gather what the loss reads.
    export TRAINMARK_NCCL="$standins/nccl.so" STANDIN_GPUS=2
    trainmark run tiny-llama $tiny $pairs --device hip --out dpo-one
    trainmark run tiny-llama $tiny $pairs --device hip --ranks 2 --parallelism.context_parallel_degree 2 --out dpo-two
    check "two GPUs with parts of sequences" [ "$code" -eq 0 ]
    check "have the loss of one" within "$(loss_of dpo-one 2)" "$(loss_of dpo-two 2)" 1e-4
    check "which a step has changed" [ "$(loss_of dpo-one 1)" != "$(loss_of dpo-one 2)" ]
fi

trainmark explain tiny-llama --device cuda --lora.rank 8 --lora.base_format nf4 --training.dtype bfloat16
check "frozen weights in 4 bits are decoded by a cast" has "$out" "^ *[0-9]* cast .*  blocks$"
check "for products of the library" has "$out" "^ *[0-9]* low_rank_wgrad .*  library$"
TRAINMARK_CUBLASLT=none trainmark explain tiny-llama --device cuda --lora.rank 8 --lora.alpha 16 --training.dtype bfloat16
check "or of matrix units" has "$out" "^ *[0-9]* low_rank_dgrad .*  matrix$"
TRAINMARK_CUBLASLT=none trainmark explain tiny-llama --device cuda --lora.rank 8 --lora.alpha 12 --training.dtype bfloat16
check "which take powers of two" has "$out" "refused: low_rank/matrix: takes scales that are powers of two"

finish
