#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bfloat16 beside float32, process by process in turn: step time and planned activations.
#
#   CASES="gpt-small gpt-medium"  ROUNDS=3  STEPS=6  THREADS=n  TRAINMARK=./trainmark   (shapes: bench/cases.sh)
#
# A process counts with its median step time (result.json, after warm-up), a side with the median over its rounds.
set -eu
# shellcheck source=bench/cases.sh
. "$(dirname "$0")/cases.sh"
PYTHON=${PYTHON:-python3}
case_setup
rounds=${ROUNDS:-3} steps=${STEPS:-6}

# Median of the numbers on stdin.
median() { sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

step_seconds() # dtype: trains, prints the median step time
{
    # shellcheck disable=SC2086
    "$trainmark" run $TRAINMARK_MODEL --training.steps "$steps" --training.dtype "$1" --out "$work/out" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
    tr -d ' \n' <"$work/out/result.json" | sed 's/.*"step_seconds":\[\([^]]*\)\].*/\1/' | tr , '\n' | tail -n +2 | median
}

activations() # dtype: planned bytes of the class
{
    # shellcheck disable=SC2086
    "$trainmark" explain $TRAINMARK_MODEL --training.dtype "$1" --json 2>"$work/log" |
        sed -n 's/^ *"activations": \([0-9]*\).*/\1/p' | tail -n 1
}

for case in ${CASES:-gpt-small gpt-medium}; do
    case_shape "$case"
    case_arguments
    : >"$work/float32"
    : >"$work/bfloat16"
    round=1
    while [ "$round" -le "$rounds" ]; do
        for dtype in float32 bfloat16; do step_seconds "$dtype" >>"$work/$dtype"; done
        round=$((round + 1))
    done
    echo "### $case: $(case_title)"
    echo
    echo "| | float32 | bfloat16 | ratio |"
    echo "| --- | ---: | ---: | ---: |"
    f=$(median <"$work/float32") b=$(median <"$work/bfloat16")
    echo "| step, s, median of $rounds | $f | $b | $(echo "$f $b" | awk '{ printf "%.3f", $2 / $1 }') |"
    echo "| spread | $(sort -g "$work/float32" | sed -n '1p;$p' | paste -sd' ') | $(sort -g "$work/bfloat16" | sed -n '1p;$p' | paste -sd' ') | |"
    fa=$(activations float32) ba=$(activations bfloat16)
    echo "| activations, bytes | $fa | $ba | $(echo "$fa $ba" | awk '{ printf "%.3f", $2 / $1 }') |"
    echo
done
