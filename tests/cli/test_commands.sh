#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What commands have in common: JSON, lists in lines of 120 columns, and what comes of a reader that has seen enough. Help and
# options: test_options.c.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

for command in "models" "keys training" "keys --framework torchtune" "ops add" "discover" "version" "--version" "manual pages" "results" "reference gemm" "run --dry-run" "check --list"; do
    trainmark $command -q --json
    first=$(head -c 1 "$out")
    check "$command --json" [ "$code" -eq 0 ]
    check "$command --json is JSON" [ "$first" = "{" -o "$first" = "[" ]
    check "$command -q: nothing on standard error" [ ! -s "$err" ]
done

# Lists fit a terminal of 120 columns. Words that are longer than their column stand alone.
for command in "keys" "keys --framework megatron" "keys --framework torchtitan" "ops" "models" "reference" "discover" "results"; do
    trainmark $command
    check "$command: 120 columns" [ "$(awk 'length > 120 && NF > 1' "$out" | wc -l)" -eq 0 ]
done
trainmark results
check "no result, no table" [ "$(cat "$out")" = "no result; a run or a benchmark adds one" ]
trainmark reference

trainmark run --help
for key in training.steps training.local_batch_size training.seq_len optimizer.lr data.path model.hf_assets_path; do
    check "run --help has $key" has "$out" "^ +--$key"
done

# --- a reader that has seen enough -------------------------------------------------------------------------------------------

yes '{"prompt": "a", "completion": "b"}' | head -n 3000 >preview.jsonl
for command in "explain tiny-llama" "keys" "models" "reference gemm" "ops" "run tiny-llama --print-config" "run --dry-run --memory 1GiB" "data preview preview.jsonl"; do
    { "$TRAINMARK" $command 2>err; echo $? >code; } | true
    check "$command | true: a quiet end" [ "$(cat code)" = 0 -a ! -s err ]
done
{ "$TRAINMARK" run $tiny --training.steps 3 --out unread 2>err; echo $? >code; } | true
check "a run goes on, and ends by its verdict" [ "$(cat code)" = 0 -a -s unread/result.json ]
check "and says so once" [ "$(grep -c 'nobody reads the output any more; the run goes on' err)" -eq 1 ]

finish
