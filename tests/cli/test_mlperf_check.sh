#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark mlperf check`: files and folders, packed or not, exit codes, JSON.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

logs=$root/tests/fuzz/corpus/mllog

says 0 "SUCCESS \(common, closed_common, closed_llama31_8b\)" mlperf check "$logs/8b.txt"
check "and who did not verify it" has "$out" "^1 of 1 logs comply with ruleset 5.1.0. Not verified by MLCommons Association.$"
says 0 "the public checker does not know it" mlperf check "$logs/tiny.txt"

sed '/"max_steps"/d; s/"value": 0.95,/"value": 0.96,/' "$logs/8b.txt" >bad.txt
says 5 "Required EXACTLY_ONE occurrence of 'max_steps' but found 0" mlperf check bad.txt
check "what is wrong, with its line" has "$out" "line 17 \(record 16\): CHECK for 'opt_adamw_beta_2' failed"
says 5 '"line": 17,' mlperf check bad.txt --json
check "the same as JSON: not verified" has "$out" '"verified_by_mlcommons": false'
grep '"seed"\|"lora_rank"' "$logs/lora.txt" | cat - "$logs/lora.txt" >twice.txt
says 0 "warning: Required EXACTLY_ONE occurrence of 'lora_rank' but found 2" mlperf check twice.txt
says 5 '' mlperf check twice.txt --werror

mkdir ten
for i in 0 1 2 3 4 5 6 7 8 9; do
    if [ $((i % 2)) -eq 0 ]; then gzip -c "$logs/8b.txt" >ten/result_$i.txt.gz; else cp "$logs/8b.txt" ten/result_$i.txt; fi
done
says 0 '' mlperf check ten
check "every log is named" [ "$(grep -c '^result_[0-9].txt: SUCCESS' "$out")" -eq 10 ]
cp bad.txt ten/result_3.txt
says 5 "^9 of 10 logs comply" mlperf check ten
cp bad.txt ten/result_4.txt
says 4 "both result_4.txt and result_4.txt.gz" mlperf check ten
rm ten/result_4.txt
head -c 100 ten/result_4.txt.gz >cut && mv cut ten/result_4.txt.gz
says 4 "result_4.txt.gz' is not a complete gzip file" mlperf check ten

finish
