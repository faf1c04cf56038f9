#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs and benchmarks store themselves; what a result says against its raw samples. What is done with stored ones: test_made.sh.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

says 0 "stored as result 1$" run $tiny --training.steps 60 --out a
trainmark run $tiny --training.steps 60 --debug.seed 2 --training.local_batch_size 4 --out b
MY_TEST_TOKEN=open-sesame-77 trainmark bench gemm --M 32 --N 32 --K 32 --budget 30 --rep-ms 20 --precision 0 --output-file open-sesame-77.json
measured=$code
mv open-sesame-77.json g.json
trainmark bench gemm --M 32 --N 32 --K 32 --budget 30 --rep-ms 20 --precision 0
check "it is stored" has "$err" "stored as result 4$"

trainmark results show 3
check "the table is what was written" [ "$(members tflops)" = "$(sed -n 's/.*"tflops": \([^,]*\),*.*/\1/p' g.json)" ]
check "with its options, and where it was measured" [ "$(members workload) $(grep -c '"environment": {\|"M": 32,' "$out")" = '"gemm" 3' ]
check "the verdict: only that its numbers are not valid" [ "$(members verdict | cut -d' ' -f1)" = "$([ $measured -eq 3 ] && echo '"invalid"' || echo null)" ]
check "no secret is in it" [ "$(members output-file)$(grep -c sesame "$out")" = '"***.json"0' ]

trainmark results export last~3 --out back
check "what is stored is what was written" [ "$(cd a && cksum result.json config.yaml metrics.jsonl)" = "$(cd back && cksum result.json config.yaml metrics.jsonl)" ]

# --- verify ---

trainmark verify a b 1
check "untouched results are what their samples say" [ "$code$(grep -c 'and the digest with the file' "$out")" = 03 ]
# Any digit: one changed at a time, all over the file.
lines=$(grep -n '[0-9]' a/result.json | cut -d: -f 1)
changed=0 caught=0
mkdir d && cp a/metrics.jsonl d
for line in $(echo "$lines" | awk 'NR % 25 == 1'); do
    awk -v at="$line" 'NR == at { i = match($0, /[0-9]/); d = substr($0, i, 1)
        $0 = substr($0, 1, i - 1) (d == "1" ? "2" : "1") substr($0, i + 1) } { print }' a/result.json >d/result.json
    trainmark verify d
    changed=$((changed + 1))
    if [ "$code" -eq 5 ] || [ "$code" -eq 4 ]; then caught=$((caught + 1)); else echo "# line $line passed"; fi
done
check "each of $changed changed digits is caught" [ "$changed" -gt 10 -a "$caught" -eq "$changed" ]

# --- stores that cannot be used ---

echo "no database at all, just a line of text" >bad.db
says 4 "bad.db' is damaged or not a store" run $tiny --training.steps 3 --store.path bad.db --out e
TRAINMARK_STORE='' HOME=/dev/null XDG_DATA_HOME='' "$TRAINMARK" run $tiny --training.steps 3 --out f >"$out" 2>"$err" </dev/null
code=$?
check "one that nobody named is a warning" [ "$code" -eq 0 ]
check "and it is told" has "$err" "this run will not be stored"

finish
