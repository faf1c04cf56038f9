#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The GPT suite on a quiet machine: first Small and Medium both ways (slices and whole, in turn), which must agree within
# LIMIT percent, then all sizes.
#
#   VALIDATE_BUDGET=300   BUDGET=600   LIMIT=5   OUT=output/gpt   TRAINMARK=./trainmark   SIZES=small,medium
#
# Leaves $OUT/validation.{tsv,md} and $OUT/suite.{tsv,md}. Exit 1 when a prediction is farther off than LIMIT.
set -eu
trainmark=${TRAINMARK:-./trainmark} out=${OUT:-output/gpt} limit=${LIMIT:-5}
[ -x "$trainmark" ] || { echo "$trainmark is not there; build it with: make trainmark" >&2; exit 2; }
mkdir -p "$out"
"$trainmark" bench gpt --sizes "${SIZES:-small,medium}" --validate always --budget "${VALIDATE_BUDGET:-300}" \
    --output-file "$out/validation.tsv" >"$out/validation.md"
cat "$out/validation.md"
status=0
awk -F '\t' -v limit="$limit" '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["row"] == "prediction" {
        n++
        error = $at["error_pct"]
        far = error == "" || error > limit + 0 || error < -limit
        bad += far
        printf "%s: predicted %s ms, error %s %%, half of the interval %s %%: %s\n", $at["case"], $at["step_ms"], error,
            $at["half_width_pct"], far ? "NOT within " limit " %" : "within " limit " %"
    }
    END { if (n == 0) print "nothing was validated: raise VALIDATE_BUDGET"; exit n == 0 || bad > 0 }
' "$out/validation.tsv" || status=1
"$trainmark" bench gpt --budget "${BUDGET:-600}" --compare reference --output-file "$out/suite.tsv" >"$out/suite.md"
cat "$out/suite.md"
exit $status
