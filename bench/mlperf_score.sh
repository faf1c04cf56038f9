#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Time to score a folder of ten logs, from exec to exit, every number computed anew: median, smallest and largest of N runs.
# The goal is 50 ms. Run it on a quiet machine.
#
#   LOGS=DIR   N=30   LIMIT_MS=50   TRAINMARK=./trainmark   COMMAND=score
#
# LOGS is a folder of result_*.txt[.gz]; by default the published ones below TRAINMARK_MLPERF_LOGS (the packed and,
# unpacked to a temporary folder, the plain ones), or where they are absent the made-up ones of the tests. Exit status 1 if a median is above LIMIT_MS.
set -eu
cd "$(dirname "$0")/.."
trainmark=${TRAINMARK:-./trainmark}
n=${N:-30}
limit=${LIMIT_MS:-50}
command=${COMMAND:-score}
[ "$n" -ge 20 ] || { echo "N is $n: at least 20" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
slow=0

# time_folder NAME FOLDER
time_folder()
{
    [ -d "$2" ] || { echo "no folder '$2': LOGS names one of result_*.txt" >&2; exit 2; }
    bytes=$(cat "$2"/result_* | wc -c)
    i=0
    : >"$work/us"
    while [ "$i" -lt $((n + 3)) ]; do # the first three warm the caches
        from=$(date +%s%N)
        "$trainmark" mlperf "$command" "$2" >"$work/out" || [ $? -eq 5 ]
        to=$(date +%s%N)
        i=$((i + 1))
        [ "$i" -le 3 ] || echo $(((to - from) / 1000)) >>"$work/us"
    done
    sort -n "$work/us" | awk -v name="$1" -v bytes="$bytes" -v limit="$limit" '
        { x[NR] = $1 / 1000 }
        END {
            middle = NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2
            printf "%s: %d bytes: median %.1f ms, %.1f to %.1f ms, n = %d\n", name, bytes, middle, x[1], x[NR], NR
            exit middle > limit
        }' || slow=1
}

if [ -n "${LOGS:-}" ]; then
    time_folder "$LOGS" "$LOGS"
elif [ ! -d "${TRAINMARK_MLPERF_LOGS:=../shared/data/mlperf}" ]; then
    time_folder "made-up logs" tests/mlperf/example/results/BOX/llama2_70b_lora
else
    root=$TRAINMARK_MLPERF_LOGS
    for case in amd_mi300x_lora amd_mi355x_8b; do
        time_folder "$case, packed" "$root/$case"
        mkdir -p "$work/$case"
        for log in "$root/$case"/result_*.gz; do gzip -dc "$log" >"$work/$case/$(basename "$log" .gz)"; done
        time_folder "$case, plain" "$work/$case"
    done
fi
exit $slow
