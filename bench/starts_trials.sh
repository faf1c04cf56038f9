#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Does `trainmark compare --baseline` keep its promises on this machine, and do the intervals of a run? (docs/results.md)
#
#   bench/starts_trials.sh record [N] [FOLDER]   N (400) equal runs of a second each, one after the other (output/starts)
#   bench/starts_trials.sh count [FOLDER]        counts over them: intervals of the two halves of a run; comparisons of equal
#                                                sides, and of sides of which one is slower by 5 %
#   bench/starts_trials.sh live [N] [K]          N (20) comparisons of K (5) equal starts in turns, N with debug.slowdown_pct
#                                                5 in A, by the command itself; prints how often it ended with 0, 3 and 5
#
#   ARGS="..."   arguments of `trainmark run` (default: a tiny model, 250 steps, one thread)   TRAINMARK=./trainmark
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
trainmark=${TRAINMARK:-$root/trainmark}
args=${ARGS:-tiny-llama --training.local_batch_size 2 --training.seq_len 32 --model.n_layers 2 --model.dim 64
    --model.n_heads 4 --model.n_kv_heads 2 --training.stop_at_target false --validation.freq 0 --debug.certificate false
    --training.threads 1 --training.steps 250}
export TRAINMARK_STORE=none

usage() { sed -n '3,12p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }

# shellcheck disable=SC2086
start() { "$trainmark" run $args "$@" >/dev/null 2>&1; }

record()
{
    n=${1:-400} folder=${2:-output/starts} i=1
    while [ "$i" -le "$n" ]; do
        start --out "$folder/$(printf '%05d' "$i")"
        i=$((i + 1))
    done
}

count()
{
    make -s -C "$root" build/release/bench/starts_count >&2
    "$root/build/release/bench/starts_count" "${1:-output/starts}"/*
}

live()
{
    n=${1:-20} k=${2:-5}
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    for slower in 0 5; do
        ended_0=0 ended_3=0 ended_5=0 trial=1
        while [ "$trial" -le "$n" ]; do
            rm -rf "$work/a" "$work/b"
            i=1
            while [ "$i" -le "$k" ]; do
                for side in $([ $((i % 2)) -eq 1 ] && echo a b || echo b a); do
                    if [ "$side" = a ]; then start --debug.slowdown_pct "$slower" --out "$work/a/$i"; else start --out "$work/b/$i"; fi
                done
                i=$((i + 1))
            done
            code=0
            "$trainmark" compare "$work/a" --baseline "$work/b" >/dev/null 2>&1 || code=$?
            eval "ended_$code=\$((ended_$code + 1))"
            trial=$((trial + 1))
        done
        echo "A slower by $slower %: of $n comparisons of $k starts each, slower $ended_5, not slower $ended_0, no verdict $ended_3"
    done
}

[ -x "$trainmark" ] || { echo "$trainmark is not there; build it with: make trainmark" >&2; exit 2; }
case ${1:-} in
record | count | live) command=$1; shift; "$command" "$@" ;;
*) usage ;;
esac
