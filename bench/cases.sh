# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this folder: the shapes they measure. case_shape NAME sets arch, dim, layers, heads,
# kv_heads, ffn, vocab, batch and seq; the same word in capitals in the environment wins, for a quick try with a smaller
# shape. case_arguments sets TRAINMARK_MODEL (words for `trainmark run`), PEER, the script that runs the other side, and
# PEER_MODEL (its words).
# shellcheck shell=sh disable=SC2034

case_names="gpt-small gpt-medium llama-8b-block"
family_names="qwen3-0.6b deepseek-v2-lite mixtral-8x7b qwen3-30b-a3b gpt-oss-20b flux-535m" # slices of full width, beside the Hugging Face implementation

case_shape()
{
    preset=$1
    # arch dim layers heads kv_heads ffn vocab batch seq
    case $1 in
    gpt-small)      set -- gpt    384  6  6  6  1536 50304 8  512 ;;
    gpt-medium)     set -- gpt    768 12 12 12  3072 50304 4  512 ;;
    llama-8b-block) set -- llama 4096  1 32  8 14336 32000 1 1024 ;;
    qwen3-0.6b)       set -- qwen3_0.6B 1024 2 16 8  3072  151936 2 512 ;;
    deepseek-v2-lite) set -- deepseek_v2_lite 2048 2 16 16 10944 32000  2 512 ;; # a block with a plain FFN, one with 64 experts
    mixtral-8x7b)     set -- mixtral_8x7B 4096 1 32 8  14336  32000  2 512 ;;
    qwen3-30b-a3b)    set -- qwen3_30B-A3B 2048 1 32 4  6144   151936 2 512 ;;
    gpt-oss-20b)      set -- gpt_oss_20B 2880 2 64 8  2880   201088 2 512 ;; # a layer with a window, one without
    flux-535m)        set -- flux_535m 3072 1 24 24 12288 0      2 512 ;; # 256 pixels, 256 text tokens; a double, a single block
    *) echo "unknown case '$1'; one of: $case_names $family_names" >&2; return 2 ;;
    esac
    arch=$1
    dim=${DIM:-$2} layers=${LAYERS:-$3} heads=${HEADS:-$4} kv_heads=${KV_HEADS:-$5} ffn=${FFN:-$6}
    vocab=${VOCAB:-$7} batch=${BATCH:-$8} seq=${SEQ:-$9}
    [ "$arch" = gpt ] && kv_heads=$heads
    return 0
}

case_title()
{
    echo "$arch, width $dim, $layers layers, $heads/$kv_heads heads, ffn $ffn, vocabulary $vocab," \
        "batch $batch x $seq, $threads threads"
}

case_arguments()
{
    PEER=peers/torch_train.py
    case $arch in
    gpt | llama) ;;
    *) family_arguments; return ;;
    esac
    common="--model.n_layers $layers --model.dim $dim --model.n_heads $heads --model.n_kv_heads $kv_heads
        --model.ffn_dim $ffn --model.vocab_size $vocab --training.local_batch_size $batch --training.seq_len $seq
        --training.threads $threads --device ${DEVICE:-cpu} --data.source mock --validation.enable false"
    if [ "$arch" = gpt ]; then # learned positions of the length of a sequence, all biases, tied head
        TRAINMARK_MODEL="$preset --model.bias all --model.tied true --model.max_seq_len $seq $common"
        PEER_MODEL="--tied"
    else # rotary positions of base 500000 without scaling, no bias, own head
        TRAINMARK_MODEL="llama3.1_8B --model.rope_scaling none --model.rope_theta 500000 --model.tied false $common"
        PEER_MODEL="--kv-heads $kv_heads"
    fi
    PEER_MODEL="--arch $arch --dim $dim --layers $layers --heads $heads --ffn $ffn --vocab $vocab --batch $batch
        --seq $seq --threads $threads --device $(echo "${DEVICE:-cpu}" | sed 's/^hip/cuda/') $PEER_MODEL"
}

# Only batch, seq and (decoders) layers and vocab can be changed: all else is the published width.
family_arguments()
{
    PEER=peers/hf_train.py
    PEER_MODEL="--case $preset --layers $layers --vocab $vocab --batch $batch --seq $seq --threads $threads
        --device $(echo "${DEVICE:-cpu}" | sed 's/^hip/cuda/')"
    common="--training.local_batch_size $batch --training.threads $threads --validation.enable false --device ${DEVICE:-cpu}"
    decoder="$common --model.n_layers $layers --model.vocab_size $vocab --training.seq_len $seq --data.source mock"
    case $arch in
    flux_535m) TRAINMARK_MODEL="$arch $common" ;;
    deepseek_v2_lite) TRAINMARK_MODEL="$arch --model.moe_aux_loss 0 $decoder" ;;
    *) TRAINMARK_MODEL="$arch $decoder" ;;
    esac
}

# The program, the interpreter and the number of threads, the same for both sides.
case_setup()
{
    trainmark=${TRAINMARK:-./trainmark}
    python=${PYTHON:-python3}
    threads=${THREADS:-$(nproc)}
    here=$(dirname "$0")
    [ -x "$trainmark" ] || { echo "$trainmark is not there; build it with: make trainmark" >&2; exit 2; }
    work=$(mktemp -d) || exit 2
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}
