#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What debug.replay costs, in processor time: runs with and without it by turns, and from their difference the cost of a
# repeated step, in steps, and of the default of one in 400.
#
#   ROUNDS=6   TRAINMARK=./trainmark   CASES="small own"   STEPS=  EVERY=
#
# small: steps of about 10 ms; own: tiny-llama at its own size. Steps are repeated more often than by default (EVERY), as one
# in 400 drowns in what two runs differ by. `seconds` of result.json, by the clock, stands beside it.
set -eu

trainmark=${TRAINMARK:-./trainmark}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TRAINMARK_STORE=none OMP_WAIT_POLICY=passive
TIMEFORMAT='%U %S'

# processor WORDS...: user and system seconds of a run.
processor()
{
    { time "$trainmark" run "$@" --training.stop_at_target false --validation.enable false --debug.certificate false \
        --out "$work/out" >"$work/log" 2>&1 || [ $? -eq 3 ]; } 2>"$work/time" || { tail -n 5 "$work/log" >&2; exit 1; }
    awk '{ print $1 + $2 }' "$work/time"
}

printf '%-6s %6s %6s %16s %18s %26s %22s\n' case steps every 'a step, ms (CPU)' 'repeated steps' 'one costs, steps [95 %]' 'every 400: %, [95 %]'
for case in ${CASES:-small own}; do
    case $case in
    small) words="tiny-llama --training.local_batch_size 1 --training.seq_len 64" steps=${STEPS:-400} every=${EVERY:-20} ;;
    own) words=tiny-llama steps=${STEPS:-40} every=${EVERY:-4} ;;
    *) echo "$0: no case '$case': small, own" >&2; exit 2 ;;
    esac
    : >"$work/rows"
    for _ in $(seq "${ROUNDS:-6}"); do
        # Start and end of a run cost the same with it and without: two lengths show what a step takes.
        # shellcheck disable=SC2086
        {
            without=$(processor $words --training.steps "$steps" --debug.replay 0)
            with=$(processor $words --training.steps "$steps" --debug.replay "$every")
            repeated=$(awk '/"replay": \{/ { inside = 1 } inside && $1 == "\"steps\":" { print $2 + 0; exit }' "$work/out/result.json")
            short=$(processor $words --training.steps $((steps / 4)) --debug.replay 0)
        }
        echo "$without $with $short $repeated" >>"$work/rows"
    done
    awk -v case="$case" -v steps="$steps" -v every="$every" '
        { step = ($1 - $3) / (steps - int(steps / 4)); one = ($2 - $1) / $4 / step; n++; sum += one; squares += one * one; all += step; repeated = $4 }
        END {
            split("12.71 4.30 3.18 2.78 2.57 2.45 2.36 2.31 2.26", t) # Student, n - 1 degrees of freedom
            mean = sum / n
            half = n > 1 ? (n - 1 in t ? t[n - 1] : 2) * sqrt((squares - n * mean * mean) / (n - 1) / n) : 0
            printf "%-6s %6d %6d %16.2f %18d %8.2f [%.2f, %.2f] %12.2f [%.2f, %.2f]\n", case, steps, every, 1e3 * all / n, repeated,
                mean, mean - half, mean + half, mean / 4, (mean - half) / 4, (mean + half) / 4
        }' "$work/rows"
    sed 's/^/    seconds of the processor without, with, a quarter of the steps; repeated: /' "$work/rows"
done
