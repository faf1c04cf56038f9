#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Does `trainmark ab` keep its promises on this machine? (docs/ab.md)
#
#   bench/ab_trials.sh record [SECONDS] [FOLDER]   one session of A against A that never ends early (1800 s; output/ab-record)
#   bench/ab_trials.sh resample [FOLDER]           trials cut out of that record: TRIALS (100) of A against A, which must say
#                                                  "no difference seen" in 95 of 100, and as many with PLANTED (3) percent,
#                                                  which must say "slower" in 90 of 100; a trial has WINDOW (120) seconds
#   bench/ab_trials.sh live [N]                    N (10) live sessions of A against A, and N with debug.slowdown_pct=PLANTED in
#                                                  B, of at most BUDGET (120) seconds each; passes if at most one of the
#                                                  former sees a difference and all but one of the latter say slower
#
#   ARGS="..."   arguments of `trainmark run` for A and B (default: the tiny model, one sequence a step)   TRAINMARK=./trainmark
#
# Exit code 5 when a promise is broken.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
trainmark=${TRAINMARK:-$root/trainmark}
args=${ARGS:-tiny-llama --training.local_batch_size 1}
planted=${PLANTED:-3}

usage() { sed -n '3,15p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }

record()
{
    "$trainmark" ab --a "$args" --b "$args" --budget "${1:-1800}" --target 0 --out "${2:-output/ab-record}"
}

# promise WHAT SEEN TRIALS LEAST-OF-100
promise()
{
    if [ $(($2 * 100)) -ge $(($4 * $3)) ]; then echo "kept    $1: $2 of $3"; else echo "BROKEN  $1: $2 of $3, wanted $4 of 100"; broken=1; fi
}

field() { echo "$1" | sed "s/.* $2 \([^ ]*\).*/\1/"; }

resample()
{
    file=${1:-output/ab-record}
    [ -d "$file" ] && file=$file/session.jsonl
    trials=${TRIALS:-100} window=${WINDOW:-120} broken=0
    make -s -C "$root" build/release/bench/ab_resample >&2
    tool=$root/build/release/bench/ab_resample
    none=$("$tool" "$file" "$trials" 0 "$window")
    slow=$("$tool" "$file" "$trials" "$planted" "$window")
    echo "A against A:        $none"
    echo "planted $planted %:        $slow"
    promise "no difference seen where there is none" "$(field "$none" none)" "$trials" 95
    promise "slower where $planted % are planted" "$(field "$slow" slower)" "$trials" 90
    return $((broken * 5))
}

# verdict EXTRA-ARGUMENTS-OF-B SEED: prints the result line of a live session and leaves the verdict in $said.
verdict()
{
    "$trainmark" ab --a "$args" --b "$args $1" --budget "${BUDGET:-120}" --seed "$2" >"$work/said"
    said=$(sed -n 's/^verdict *//p' "$work/said")
    echo "seed $2: $(sed -n 's/^B \/ A */B \/ A /p' "$work/said" | cut -c 1-34) $(sed -n 's/^ended *//p' "$work/said"): $said"
}

live()
{
    n=${1:-10} i=1 quiet=0 slower=0 broken=0
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    while [ "$i" -le "$n" ]; do
        verdict "" "$i"
        case $said in "no difference"*) quiet=$((quiet + 1)) ;; esac
        verdict "--debug.slowdown_pct $planted" $((1000 + i))
        case $said in "B is slower"*) slower=$((slower + 1)) ;; esac
        i=$((i + 1))
    done
    promise "no difference seen where there is none" "$quiet" "$n" $((n > 1 ? 100 - 100 / n : 100))
    promise "slower where $planted % are planted" "$slower" "$n" $((n > 1 ? 100 - 100 / n : 100))
    return $((broken * 5))
}

[ -x "$trainmark" ] || { echo "$trainmark is not there; build it with: make trainmark" >&2; exit 2; }
case ${1:-} in
record | resample | live) command=$1; shift; "$command" "$@" ;;
*) usage ;;
esac
