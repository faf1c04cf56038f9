#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How well does `trainmark plan` predict training steps on this machine's processors? (docs/hardware-files.md)
#
#   bench/predict.sh [FOLDER]     FOLDER: for the hardware file and logs (output/predict)
#
# Three times: the machine is measured (`trainmark bench stream`, gemm, attention, ops) into a hardware file of one thread;
# then ten of thirty configurations, none of which the measurement knows, are predicted with it and trained. A step is
# measured in processor time, as the difference of a long and a short run, so other users of the machine count less.
# Prints a line for each; median and worst error at the end.
#
#   TRAINMARK=./trainmark   SECONDS_EACH=4: seconds of steps of a long run
#
# Exit code 5 when the median error is above MOST (5) percent.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
trainmark=${TRAINMARK:-$root/trainmark}
folder=${1:-output/predict}
seconds=${SECONDS_EACH:-4}
most=${MOST:-5}
mkdir -p "$folder"
file=$folder/machine.yaml
rows=$folder/rows
: >"$rows"

gpt="gpt-small --model.max_seq_len 512 --model.vocab_size 1024"
llama="tiny-llama --model.vocab_size 1000"
qwen="qwen3_debugmodel --model.vocab_size 1500"
mixtral="mixtral_8x7B --model.vocab_size 600 --model.n_experts 4"

# A configuration a line: MODEL LAYERS WIDTH HEADS KV FFN TOKENS BATCH [more keys]
configurations()
{
    cat <<END
$gpt|3 192 3 3 768 128 4
$gpt|4 256 4 4 1024 128 8
$gpt|2 320 5 5 1280 256 3
$gpt|6 384 6 6 1536 256 2
$gpt|3 640 10 10 2560 128 2
$gpt|2 768 12 12 3072 384 2
$gpt|12 128 2 2 512 256 2
$gpt|5 512 8 8 1024 512 1
$llama|2 192 3 3 512 256 4
$llama|3 320 5 1 896 128 6
$llama|8 256 4 2 768 256 2
$llama|4 384 6 2 1152 512 1
$llama|2 640 10 5 1792 192 2
$llama|3 512 8 4 1408 384 1
$llama|2 768 12 4 2304 128 3
$llama|12 192 6 2 576 128 3
$llama|4 448 7 7 1280 160 3
$llama|6 128 2 1 512 384 4
$qwen|2 192 3 1 640 256 3
$qwen|3 384 6 2 1024 128 4
$qwen|4 256 4 4 896 384 1
$qwen|2 640 10 2 1600 256 1
$qwen|6 320 5 5 960 128 2
$qwen|2 448 7 1 1344 512 1
$mixtral|2 192 3 1 384 256 2
$mixtral|3 256 4 2 640 128 4
$mixtral|2 384 6 2 768 256 1
$mixtral|4 320 5 5 512 128 2
$mixtral|2 512 8 4 896 192 2
$mixtral|2 640 10 2 640 128 3
END
}

calibrate()
{
    for bench in "stream" "gemm --budget 20" "attention --seq 512" "ops"; do
        # shellcheck disable=SC2086
        "$trainmark" bench $bench --threads 1 --store none --write-hardware "$file" >>"$folder/bench.log" 2>&1 ||
            { echo "trainmark bench $bench failed: $folder/bench.log" >&2; exit 1; }
    done
}

# processor_time STEPS WORDS...: seconds of the whole run
processor_time()
{
    steps=$1
    shift
    # The second line of `times` is of the commands that ended.
    sh -c 'log=$1; shift; "$0" run "$@" >"$log" 2>&1 && times' "$trainmark" "$folder/run.log" "$@" --training.threads 1 \
        --training.steps "$steps" --training.stop_at_target false --validation.enable false --data.source mock \
        --store.path none --out "$folder/run" >"$folder/times" ||
        { echo "trainmark run $* failed: $folder/run.log" >&2; return 1; }
    sed -n 2p "$folder/times" | tr 'ms' '  ' | awk '{ print $1 * 60 + $2 + $3 * 60 + $4 }'
}

one()
{
    model=${1%%|*}
    # shellcheck disable=SC2086
    set -- ${1#*|}
    experts=
    case $model in mixtral*) experts="--model.moe_ffn_dim $5" ;; esac
    case $model in qwen*) experts="--model.head_dim 64" ;; esac
    words="$model --model.n_layers $1 --model.dim $2 --model.n_heads $3 --model.n_kv_heads $4 --model.ffn_dim $5 $experts
        --training.seq_len $6 --training.local_batch_size $7 --training.dtype float32"
    # shellcheck disable=SC2086
    predicted=$("$trainmark" plan $words --platform "$file" --json 2>>"$folder/bench.log" | sed -n 's/.*"step_s": \([0-9.e-]*\).*/\1/p')
    steps=$(awk -v p="$predicted" -v s="$seconds" 'BEGIN { n = int(s / p); print (n < 6 ? 6 : n > 2000 ? 2000 : n) }')
    # shellcheck disable=SC2086
    short=$(processor_time 2 $words)
    # shellcheck disable=SC2086
    long=$(processor_time $((steps + 2)) $words)
    awk -v p="$predicted" -v s="$short" -v l="$long" -v n="$steps" -v what="${model%% *} $*" \
        'BEGIN { m = (l - s) / n; printf "%-44s predicted %9.3f ms, measured %9.3f ms, %+6.1f %%\n", what, 1e3 * p, 1e3 * m, 100 * (p / m - 1) }' |
        tee -a "$rows"
}

n=0
configurations | while read -r line; do
    # Every third, so that the families are spread over the three measurements.
    n=$((n + 1))
    echo "$((n % 3)) $line"
done | sort -s -n -k 1,1 >"$folder/configurations"
before=
while read -r part line; do
    [ "$part" = "$before" ] || calibrate
    before=$part
    one "$line"
done <"$folder/configurations"
sed 's/.*, *\([-+][0-9. ]*\) %$/\1/; s/[-+ ]//g' "$rows" | sort -n | awk -v most="$most" '
    { e[NR] = $1 }
    END {
        median = NR % 2 ? e[(NR + 1) / 2] : (e[NR / 2] + e[NR / 2 + 1]) / 2
        printf "%d configurations: median error %.1f %%, worst %.1f %%\n", NR, median, e[NR]
        exit median > most ? 5 : 0
    }'
