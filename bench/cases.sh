# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this folder: the shapes they measure. case_shape NAME sets arch, dim, layers, heads,
# kv_heads, ffn, vocab, batch and seq; the same word in capitals in the environment wins, for a quick try with a smaller
# shape. case_arguments sets TRAINMARK_MODEL (words for `trainmark run`) and PEER_MODEL (words for
# peers/torch_train.py).
# shellcheck shell=sh disable=SC2034

case_names="gpt-small gpt-medium llama-8b-block"

case_shape()
{
    preset=$1
    # arch dim layers heads kv_heads ffn vocab batch seq
    case $1 in
    gpt-small)      set -- gpt    384  6  6  6  1536 50304 8  512 ;;
    gpt-medium)     set -- gpt    768 12 12 12  3072 50304 4  512 ;;
    llama-8b-block) set -- llama 4096  1 32  8 14336 32000 1 1024 ;;
    *) echo "unknown case '$1'; one of: $case_names" >&2; return 2 ;;
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
    common="--model.n_layers $layers --model.dim $dim --model.n_heads $heads --model.n_kv_heads $kv_heads
        --model.ffn_dim $ffn --model.vocab_size $vocab --training.local_batch_size $batch --training.seq_len $seq
        --training.threads $threads --data.source mock --validation.enable false"
    if [ "$arch" = gpt ]; then # learned positions of the length of a sequence, all biases, tied head
        TRAINMARK_MODEL="$preset --model.bias all --model.tied true --model.max_seq_len $seq $common"
        PEER_MODEL="--tied"
    else # rotary positions of base 500000 without scaling, no bias, own head
        TRAINMARK_MODEL="llama3.1_8B --model.rope_scaling none --model.rope_theta 500000 --model.tied false $common"
        PEER_MODEL="--kv-heads $kv_heads"
    fi
    PEER_MODEL="--arch $arch --dim $dim --layers $layers --heads $heads --ffn $ffn --vocab $vocab --batch $batch
        --seq $seq --threads $threads --device cpu $PEER_MODEL"
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
