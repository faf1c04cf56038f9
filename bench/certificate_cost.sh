#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the certificate of the gradients costs: its seconds beside those of the steps of a run, and in steps.
#
#   STEPS=100   ROUNDS=3   TRAINMARK=./trainmark   CASES="tiny-llama gpt-small"
#   Words after the script's name are passed on: bench/certificate_cost.sh --training.dtype bfloat16
#
# A row is the median round of a case by its share. The last column is that of a run with and without a certificate, by the
# seconds of both from exec to the end, in turn (it scatters as runs do).
set -eu

trainmark=${TRAINMARK:-./trainmark}
steps=${STEPS:-100}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TRAINMARK_STORE=none

# member FILE NAME [PARENT]: a number of result.json, of the object PARENT if there is one.
member()
{
    if [ -n "${3:-}" ]; then parent="\"$3\": {"; else parent=; fi
    awk -v name="\"$2\":" -v parent="$parent" '
        parent == "" || index($0, parent) { inside = 1 }
        inside && $1 == name { sub(/,$/, "", $2); print $2; exit }' "$1"
}

train()
{
    "$trainmark" run "$@" --training.steps "$steps" --training.stop_at_target false --validation.enable false \
        --out "$work/out" >"$work/log" 2>&1 || [ $? -eq 3 ] || { tail -n 5 "$work/log" >&2; exit 1; }
}

printf '%-24s %10s %14s %8s %16s %10s\n' case 'step, ms' 'certificate, s' steps "of $steps steps, %" 'run, %'
for case in ${CASES:-tiny-llama gpt-small}; do
    : >"$work/rows"
    for _ in $(seq "${ROUNDS:-3}"); do
        train "$case" "$@" --debug.certificate false
        without=$(member "$work/out/result.json" seconds)
        train "$case" "$@"
        {
            member "$work/out/result.json" median step_time
            member "$work/out/result.json" seconds certificate
            awk '/"step_seconds": \[/ { gsub(/[^0-9.e+, -]/, ""); n = split($0, x, ","); for (i = 1; i <= n; i++) s += x[i]; print s }' \
                "$work/out/result.json"
            # the run's own: the last member of that name at the first level
            awk '/^  "seconds":/ { sub(/,$/, "", $2); print $2 }' "$work/out/result.json"
            echo "$without"
        } | paste -s -d ' ' >>"$work/rows"
    done
    awk '{ printf "%.6f %s\n", $2 / $3, $0 }' "$work/rows" | sort -n | awk -v case="$case" '
        { row[NR] = $0 }
        END {
            split(row[int((NR + 1) / 2)], x)
            printf "%-24s %10.1f %14.3f %8.2f %16.2f %10.2f\n", case, 1e3 * x[2], x[3], x[3] / x[2], 100 * x[1], 100 * (x[5] / x[6] - 1)
        }'
done
