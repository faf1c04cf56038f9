#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# trainmark beside PyTorch: the same shapes, threads and kind of data, process by process in turn, so that both see the
# same weather. Prints a markdown section per case.
#
#   CASES="gpt-small gpt-medium llama-8b-block"   which (these; bench/cases.sh). Slices of other families beside transformers and
#       diffusers: qwen3-0.6b deepseek-v2-lite mixtral-8x7b qwen3-30b-a3b gpt-oss-20b flux-535m
#   ROUNDS=3   times that every side runs          STEPS=8    steps of one process    WARMUP=2   first steps left out
#   MODES="eager compile"   PyTorch's ways         THREADS=n  (default: all cores)    PYTHON=    with torch (python3)
#   DTYPE=float32|bfloat16  bfloat16: float32 weights, bfloat16 compute, PyTorch by autocast   ISA= kernels (--isa)
#   TRAINMARK=./trainmark                          DRY_RUN=1  print the commands only
#   RECORDS=F  keep the raw records in F.CASE
#   DEVICE=cpu   or cuda, hip: the whole step of both on that GPU
#   FLOAT8=tensorwise|rowwise  of gpt and llama: linears of the blocks in 8 bits, PyTorch by torchao; each beside trainmark in DTYPE
#   DIM LAYERS HEADS KV_HEADS FFN VOCAB BATCH SEQ  other dimensions, for a quick try
#
# A process counts with batch tokens / median step time over its steps after WARMUP, a side with the median over its
# rounds, PyTorch with the better of its modes.
set -eu
# shellcheck source=bench/cases.sh
. "$(dirname "$0")/cases.sh"
case_setup
rounds=${ROUNDS:-3} steps=${STEPS:-8} warmup=${WARMUP:-2} modes=${MODES:-eager compile}
[ "$steps" -gt "$warmup" ] || { echo "STEPS $steps must be more than WARMUP $warmup" >&2; exit 2; }
[ "${DRY_RUN:-}" ] || "$python" -c 'import torch' 2>"$work/why" ||
    { tail -n 1 "$work/why"; echo "$python has no torch; name one that has: PYTHON=venv/bin/python"; exit 2; } >&2
records=${RECORDS:-$work/records} dtype=${DTYPE:-float32} isa=${ISA:+--isa $ISA} float8=${FLOAT8:-}

measure() # case side round command...
{
    name=$1 side=$2 turn=$3
    shift 3
    if [ "${DRY_RUN:-}" ]; then echo "$*"; return; fi
    echo "$name, round $turn of $rounds: $side" >&2
    rm -rf "$work/out"
    "$python" "$here/measure.py" "$records" "$name" "$side" "$turn" "$warmup" "$work/out" -- "$@"
}

for case in ${CASES:-$case_names}; do
    case_shape "$case"
    case_arguments
    [ "${DRY_RUN:-}" ] || : >"$records.$case"
    all=$records
    records=$records.$case
    round=1
    while [ "$round" -le "$rounds" ]; do
        for recipe in "" $float8; do
            # shellcheck disable=SC2086
            measure "$case" "trainmark${recipe:+ float8 $recipe}" "$round" "$trainmark" run $TRAINMARK_MODEL --training.steps "$steps" \
                --training.dtype "$dtype" ${recipe:+--quantize.recipe fp8_$recipe} $isa --out "$work/out"
        done
        for mode in $modes; do
            flag=
            [ "$mode" = compile ] && flag=--compile
            # shellcheck disable=SC2086
            measure "$case" "PyTorch $mode" "$round" "$python" "$here/$PEER" $PEER_MODEL \
                --steps "$steps" --warmup "$warmup" --dtype "$dtype" ${float8:+--float8 $float8} $flag
        done
        round=$((round + 1))
    done
    if [ "$float8" ]; then report=sides; else report=compare; fi
    [ "${DRY_RUN:-}" ] || "$python" "$here/report.py" $report "$records" "$case: $(case_title), $dtype${float8:+, float8 $float8}"
    records=$all
done
