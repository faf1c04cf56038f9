#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From exec to the end of the first step against the step itself, and the bytes of the executable and of what it loads.
#
#   CASE=gpt-small   ROUNDS=5   STEPS=4   THREADS=n   TRAINMARK=./trainmark   PYTHON=python3
#   DIM LAYERS HEADS KV_HEADS FFN VOCAB BATCH SEQ   other dimensions, for a quick try
set -eu
# shellcheck source=bench/cases.sh
. "$(dirname "$0")/cases.sh"
case_setup
case_shape "${CASE:-gpt-small}"
case_arguments
steps=${STEPS:-4} rounds=${ROUNDS:-5} round=1
[ "$steps" -ge 2 ] || { echo "STEPS $steps: at least 2, a later step is the yardstick" >&2; exit 2; }
while [ "$round" -le "$rounds" ]; do
    # shellcheck disable=SC2086
    "$python" "$here/measure.py" "$work/records" "${CASE:-gpt-small}" trainmark "$round" 1 "$work/out" -- \
        "$trainmark" run $TRAINMARK_MODEL --training.steps "$steps" --out "$work/out"
    round=$((round + 1))
done
echo "### ${CASE:-gpt-small}: $(case_title)"
echo
"$python" "$here/report.py" startup "$work/records" "$work/out/result.json"
