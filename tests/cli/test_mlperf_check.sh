#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark mlperf check`: files and folders, packed or not, exit codes, JSON.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

logs=$root/tests/fuzz/corpus/mllog

trainmark mlperf check "$logs/8b.txt"
check "a log that complies: exit code 0" [ "$code" -eq 0 ]
check "and the sets that were run" has "$out" "SUCCESS \(common, closed_common, closed_llama31_8b\)"
check "and who did not verify it" has "$out" "^1 of 1 logs comply with ruleset 5.1.0. Not verified by MLCommons Association.$"
trainmark mlperf check "$logs/tiny.txt"
check "a benchmark of our own: said so" has "$out" "the public checker does not know it"
trainmark mlperf check "$logs/open.txt"
check "open division by 5.1.0: exit code 5" [ "$code" -eq 5 ]
trainmark mlperf check "$logs/open.txt" --ruleset=6.0.0
check "open division by 6.0.0: exit code 0" [ "$code" -eq 0 ]

sed '/"max_steps"/d; s/"value": 0.95,/"value": 0.96,/' "$logs/8b.txt" >bad.txt
trainmark mlperf check bad.txt
check "a log that does not comply: exit code 5" [ "$code" -eq 5 ]
check "what is missing" has "$out" "Required EXACTLY_ONE occurrence of 'max_steps' but found 0"
check "what is wrong, with its line" has "$out" "line 17 \(record 16\): CHECK for 'opt_adamw_beta_2' failed"
trainmark mlperf check bad.txt --json
check "the same as JSON: exit code 5" [ "$code" -eq 5 ]
check "the same as JSON: line" has "$out" '"line": 17,'
check "the same as JSON: not verified" has "$out" '"verified_by_mlcommons": false'
grep '"seed"\|"lora_rank"' "$logs/lora.txt" | cat - "$logs/lora.txt" >twice.txt
trainmark mlperf check twice.txt
check "a repeated key is a warning" has "$out" "warning: Required EXACTLY_ONE occurrence of 'lora_rank' but found 2"
check "a warning is no failure" [ "$code" -eq 0 ]
trainmark mlperf check twice.txt --werror
check "but with --werror" [ "$code" -eq 5 ]

mkdir ten
for i in 0 1 2 3 4 5 6 7 8 9; do
    if [ $((i % 2)) -eq 0 ]; then gzip -c "$logs/8b.txt" >ten/result_$i.txt.gz; else cp "$logs/8b.txt" ten/result_$i.txt; fi
done
trainmark mlperf check ten
check "a folder, half of it packed: exit code 0" [ "$code" -eq 0 ]
check "every log is named" [ "$(grep -c '^result_[0-9].txt: SUCCESS' "$out")" -eq 10 ]
cp bad.txt ten/result_3.txt
trainmark mlperf check ten
check "one bad log of ten: exit code 5" [ "$code" -eq 5 ]
check "and it is counted" has "$out" "^9 of 10 logs comply"
cp bad.txt ten/result_4.txt
trainmark mlperf check ten
failed_with 4 "packed and not" "both result_4.txt and result_4.txt.gz"
rm ten/result_4.txt
head -c 100 ten/result_4.txt.gz >cut && mv cut ten/result_4.txt.gz
trainmark mlperf check ten
failed_with 4 "cut short" "result_4.txt.gz' is not a complete gzip file"

finish
