#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Adapters of trainmark beside those of PEFT over transformers: the same shapes, threads and kind of data, process by process in turn.
# Prints a markdown section for LoRA and one for QLoRA.
#
#   KINDS="lora qlora"   which (default: both)       RANK=8
#   ROUNDS=3   times that every side runs            STEPS=8    steps of one process    WARMUP=2   first steps left out
#   MODES="eager compile"   PEFT's ways              THREADS=n  (default: all cores)    PYTHON=    with torch, transformers, peft,
#                                                                                       bitsandbytes (python3)
#   DTYPE=float32|bfloat16  of lora; qlora computes in bfloat16                         TRAINMARK=./trainmark
#   RECORDS=F  keep the raw records in F.KIND        DRY_RUN=1  print the commands only
#   DEVICE=cpu   or cuda, hip: both on that GPU
#   DIM LAYERS HEADS KV_HEADS FFN VOCAB BATCH SEQ    other dimensions (default: Llama 3.2 1B's blocks, four of them)
set -eu
# shellcheck source=bench/cases.sh
. "$(dirname "$0")/cases.sh"
case_setup
rounds=${ROUNDS:-3} steps=${STEPS:-8} warmup=${WARMUP:-2} modes=${MODES:-eager compile} rank=${RANK:-8}
dim=${DIM:-2048} layers=${LAYERS:-4} heads=${HEADS:-32} kv_heads=${KV_HEADS:-8} ffn=${FFN:-8192} vocab=${VOCAB:-32000}
batch=${BATCH:-1} seq=${SEQ:-512}
[ "$steps" -gt "$warmup" ] || { echo "STEPS $steps must be more than WARMUP $warmup" >&2; exit 2; }
[ "${DRY_RUN:-}" ] || "$python" -c 'import peft, bitsandbytes' 2>"$work/why" ||
    { tail -n 1 "$work/why"; echo "$python lacks peft or bitsandbytes; name one that has them: PYTHON=venv/bin/python"; exit 2; } >&2
records=${RECORDS:-$work/records}

measure() # kind side round command...
{
    name=$1 side=$2 turn=$3
    shift 3
    if [ "${DRY_RUN:-}" ]; then echo "$*"; return; fi
    echo "$name, round $turn of $rounds: $side" >&2
    rm -rf "$work/out"
    "$python" "$here/measure.py" "$records.$name" "$name" "$side" "$turn" "$warmup" "$work/out" -- "$@"
}

for kind in ${KINDS:-lora qlora}; do
    case $kind in
    lora) dtype=${DTYPE:-float32} base= flag= ;;
    qlora) dtype=bfloat16 base="--lora.base_format nf4" flag=--nf4 ;;
    *) echo "unknown kind '$kind'; one of: lora qlora" >&2; exit 2 ;;
    esac
    [ "$kind $dtype" = "lora bfloat16" ] && base="--lora.base_format bfloat16"
    [ "${DRY_RUN:-}" ] || : >"$records.$kind"
    round=1
    while [ "$round" -le "$rounds" ]; do
        # shellcheck disable=SC2086
        measure "$kind" trainmark "$round" "$trainmark" run llama3.1_8B --model.rope_scaling none --model.rope_theta 10000 \
            --model.tied false --model.n_layers "$layers" --model.dim "$dim" --model.n_heads "$heads" --model.n_kv_heads "$kv_heads" \
            --model.ffn_dim "$ffn" --model.vocab_size "$vocab" --training.local_batch_size "$batch" --training.seq_len "$seq" \
            --training.threads "$threads" --device "${DEVICE:-cpu}" --data.source mock --validation.enable false --lora.rank "$rank" $base \
            --training.steps "$steps" --training.dtype "$dtype" --out "$work/out"
        for mode in $modes; do
            compile=
            [ "$mode" = compile ] && compile=--compile
            # shellcheck disable=SC2086
            measure "$kind" "PEFT $mode" "$round" "$python" "$here/peers/peft_train.py" --dim "$dim" --layers "$layers" \
                --heads "$heads" --kv-heads "$kv_heads" --ffn "$ffn" --vocab "$vocab" --batch "$batch" --seq "$seq" \
                --threads "$threads" --rank "$rank" --steps "$steps" --warmup "$warmup" --dtype "$dtype" \
                --device "$(echo "${DEVICE:-cpu}" | sed 's/^hip/cuda/')" $flag $compile
        done
        round=$((round + 1))
    done
    [ "${DRY_RUN:-}" ] || "$python" "$here/report.py" compare "$records.$kind" \
        "$kind: llama, width $dim, $layers layers, vocabulary $vocab, rank $rank, batch $batch x $seq, $threads threads, $dtype"
done
