#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark bench gemm --library` beside a loop written by hand over the same library (gemm_handwritten.c), process by
# process in turn: both must say the same. Prints a markdown table; exit code 5 if a median ratio is more than 2 % off.
#
#   LIBRARIES="oneDNN OpenBLAS"   SHAPES="2048x2048x2048 1024x4096x1024 512x768x768"   ROUNDS=7   SECONDS_EACH=1
#   THREADS=n (all cores)         TRAINMARK=./trainmark                                LIMIT=2 (percent)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
trainmark=${TRAINMARK:-./trainmark}
libraries=${LIBRARIES:-oneDNN OpenBLAS}
shapes=${SHAPES:-2048x2048x2048 1024x4096x1024 512x768x768}
rounds=${ROUNDS:-7} seconds=${SECONDS_EACH:-1} threads=${THREADS:-$(nproc)} limit=${LIMIT:-2}
[ -x "$trainmark" ] || { echo "$trainmark is not there; build it with: make trainmark" >&2; exit 2; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
${CC:-cc} -O2 -std=c11 -D_GNU_SOURCE -fopenmp -o "$work/handwritten" "$here/gemm_handwritten.c" -lm -ldl
cache=$(getconf LEVEL3_CACHE_SIZE 2>/dev/null || echo 0)
[ "${cache:-0}" -gt 0 ] 2>/dev/null || cache=67108864

# The median of the column of a csv file that the header names.
cell() { awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i } NR == 2 { print $at }' "$1"; }
median() { sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

echo "| library | shape | trainmark bench, ms | by hand, ms | median of pair ratios | lowest .. highest |"
echo "|---|---|---:|---:|---:|---|"
bad=0
for library in $libraries; do
    for shape in $shapes; do
        : >"$work/ours"
        : >"$work/theirs"
        round=1
        while [ "$round" -le "$rounds" ]; do
            for side in $([ $((round % 2)) -eq 1 ] && echo ours theirs || echo theirs ours); do
                if [ "$side" = ours ]; then
                    "$trainmark" bench gemm --library "$library" --shapes "$shape" --duration "$seconds" \
                        --threads "$threads" --output-file "$work/out.csv" >"$work/log" 2>&1 || {
                        cat "$work/log" >&2
                        exit 1
                    }
                    cell "$work/out.csv" median_ms >>"$work/ours"
                else
                    # shellcheck disable=SC2046
                    "$work/handwritten" "$library" $(echo "$shape" | tr x ' ') "$threads" "$seconds" "$cache" |
                        cut -d ' ' -f 1 >>"$work/theirs"
                fi
            done
            round=$((round + 1))
        done
        paste "$work/ours" "$work/theirs" | awk '{ print $1 / $2 }' >"$work/ratios"
        ratio=$(median <"$work/ratios")
        printf '| %s | %s | %s | %s | %s | %s .. %s |\n' "$library" "$shape" "$(median <"$work/ours")" \
            "$(median <"$work/theirs")" "$ratio" "$(sort -g "$work/ratios" | head -n 1)" \
            "$(sort -g "$work/ratios" | tail -n 1)"
        awk -v r="$ratio" -v limit="$limit" 'BEGIN { exit !(r > 1 + limit / 100 || r < 1 - limit / 100) }' && bad=1
    done
done
[ "$bad" -eq 0 ] || { echo "a median ratio is more than $limit % off" >&2; exit 5; }
