#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stored runs and benchmarks: listed, shown, exported, compared, gated; what a result says against its raw samples.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

sqlite() { command -v sqlite3 >/dev/null && sqlite3 "$TRAINMARK_STORE" "$1" >"$out" 2>"$err"; }
# number FILE MEMBER: of the first line `"MEMBER": value`.
number() { sed -n "s/^ *\"$2\": \([^,]*\),\{0,1\}\$/\1/p" "$1" | head -n 1; }

trainmark results
check "an empty store is no error" has "$out" "^no result; a run or a benchmark adds one$"
trainmark run $tiny --training.steps 60 --out a
check "a run says where it is stored" has "$err" "stored as result 1$"
trainmark run $tiny --training.steps 60 --debug.seed 2 --training.local_batch_size 4 --out b
trainmark run $tiny --training.steps 60 --store.path none --out c
check "store.path none stores nothing" [ "$code" -eq 0 ]
trainmark run $tiny --training.steps 60 --store.path own.db --out c
trainmark results --store own.db
check "a store of one's own" [ "$(grep -c tiny-llama "$out")" -eq 1 ]
trainmark bench gemm --M 32 --N 32 --K 32 --budget 30 --rep-ms 20 --precision 0 --output-file g.json
trainmark bench gemm --M 32 --N 32 --K 32 --budget 30 --rep-ms 20 --precision 0
check "a benchmark is stored" has "$err" "stored as result 4$"

# --- list, show, export, import, delete ---

trainmark results --json
check "four results, none of the others" [ "$(grep -c '"id"' "$out")" -eq 4 ]
check "the newest first" [ "$(sed -n 's/.*"id": \([0-9]*\),.*/\1/p' "$out" | tr '\n' ' ')" = "4 3 2 1 " ]
trainmark results --kind run --name 'TINY*' --last 1
check "filters" [ "$(grep -o '^|  *[0-9][0-9]*' "$out" | sort -u)" = "|  2" ]
trainmark results --kind run --verdict none
check "a filter that nothing passes" has "$out" "^no result"
trainmark results show 1
check "show prints what was written" cmp -s "$out" a/result.json
trainmark results show '#1' --document metrics
check "and the records of the steps" cmp -s "$out" a/metrics.jsonl
trainmark results show 1 --document metrics --json
awk 'BEGIN { printf "[" } { printf "%s\n  %s", (NR > 1 ? "," : ""), $0 } END { print "\n]" }' a/metrics.jsonl >metrics.json
check "as one array" cmp -s "$out" metrics.json
trainmark results show 1 --document configuration --json
failed_with 2 "which a configuration is not" "config.yaml is YAML; .--document result. has the configuration as JSON$"
TRAINMARK_STORE=none trainmark results
failed_with 4 "a store that is switched off" "the store is switched off .none.; name a file with --store or TRAINMARK_STORE$"
trainmark results show 9
failed_with 4 "a number that is not there" "there is no result '9'"
trainmark results show 3 --document metrics
failed_with 4 "a benchmark has no metrics.jsonl" "was stored without metrics.jsonl"
trainmark results export last~3 --out back
check "export makes a run directory" cmp -s back/result.json a/result.json
check "with all that was stored" cmp -s back/config.yaml a/config.yaml
trainmark results export 1 --out back
failed_with 4 "export replaces nothing" "already exists"
trainmark results import a/result.json b --label copy
check "import adds results" [ "$(cut -d ' ' -f 1 "$out" | tr '\n' ' ')" = "5 6 " ]
trainmark results delete 5 last
check "delete" [ "$code" -eq 0 ]
trainmark results delete 1 77
failed_with 4 "deleting what is not there deletes nothing" "there is no result '77'"
trainmark results import a --label copy --json
check "import as JSON" has "$out" '^{"imported": ?[0-9]+, ?"path": ?"a"}$'
trainmark results export last --out again --json
check "export as JSON" has "$out" '^{"exported": ?[0-9]+, ?"path": ?"again"}$'
trainmark results delete last --json
check "delete as JSON" has "$out" '^{"deleted": ?[0-9]+}$'
trainmark results --label copy
check "they are gone" has "$out" "^no result"
trainmark results shwo 1
failed_with 2 "an unknown word" "unknown command 'results shwo'; did you mean 'show'"

# --- compare ---

trainmark compare 1 2
check "compare: figures with intervals" has "$out" "^\| tokens_per_second_per_device  *\| tokens/s \|"
check "the same run twice: nothing differs" [ "$code" -eq 0 ]
check "what differs, the likeliest cause first" has "$out" "^\| *1 \| batch_tokens "
check "a seed differs" has "$out" "\| seed  *\| 1 *\| 2 "
trainmark compare 1 2 --json
check "compare --json: figures, and what differs" [ "$(grep -c '"relative_change_percent"' "$out")" -ge 3 -a "$(grep -c '"batch_tokens"' "$out")" -ge 1 ]
trainmark compare a 1
check "a folder and a stored run" has "$out" "^nothing else differs that was recorded$"
trainmark compare g.json 4
check "tables of benchmarks" has "$out" "^\| 32x32x32: tflops "
trainmark compare 1 3
failed_with 4 "a run and a benchmark" "have no figure in common"
trainmark compare 1 nothing
failed_with 4 "a file that is not there" "there is no file or directory 'nothing'"
trainmark compare 1
failed_with 2 "compare with what" "with what\?"
trainmark compare 1 --baseline
failed_with 4 "no earlier result" "no earlier result of this configuration"
trainmark run $tiny --training.steps 60 --out again
trainmark compare again --baseline --max-slowdown 1000
failed_with 3 "one start of each" "[01] starts? of A and [01] of the baseline count; 5 of each side are needed"
check "the result before of the same configuration, by itself" has "$out" "^\| the baseline +\| +1 \|"
# --- limits ---

trainmark compare a --write-thresholds limits.json
check "limits are written" has limits.json '"MBS=2,GBS=2,PRECISION=fp32"'
trainmark compare a --thresholds limits.json
check "the run keeps its own limits" [ "$code" -eq 0 ]
check "gates and what is only recorded" has "$out" "\| RECORD +\|"
printf '{"MBS=2,GBS=2,PRECISION=fp32": {"training.tokens_per_sec_per_gpu": {"kind": "min", "value": 1e15}}}' >high.json
trainmark compare a --thresholds high.json
failed_with 5 "a limit that is not kept" "1 of 1 limits are exceeded"
trainmark compare b --thresholds high.json
failed_with 4 "a cell that is not there" "MBS=4,GBS=4"

# --- verify ---

trainmark verify a b last
check "untouched results are what their samples say" [ "$code$(grep -c 'and the digest with the file' "$out")" = 03 ]
# Any digit: one changed at a time, all over the file.
lines=$(grep -n '[0-9]' a/result.json | cut -d: -f 1)
changed=0 caught=0
mkdir d && cp a/metrics.jsonl d
for line in $(echo "$lines" | awk 'NR % 9 == 1'); do
    awk -v at="$line" 'NR == at { i = match($0, /[0-9]/); d = substr($0, i, 1)
        $0 = substr($0, 1, i - 1) (d == "1" ? "2" : "1") substr($0, i + 1) } { print }' a/result.json >d/result.json
    trainmark verify d
    changed=$((changed + 1))
    if [ "$code" -eq 5 ] || [ "$code" -eq 4 ]; then caught=$((caught + 1)); else echo "# line $line passed"; fi
done
check "each of $changed changed digits is caught" [ "$changed" -gt 20 ] && [ "$caught" -eq "$changed" ]
check "all of them" [ "$caught" -eq "$changed" ]
# A digest that was made to fit: the figures themselves are recomputed (no step time begins with 1.5e9).
cp a/result.json d/result.json
sed 's/"p95": [0-9.e-]*/"p95": 0.5/' a/result.json >d/result.json
trainmark verify d
check "a figure that the samples do not give" has "$out" "\| step_time/p95 .* differs"
cp a/result.json d/result.json
sed '5s/"loss": [0-9]/"loss": 9/' a/metrics.jsonl >d/metrics.jsonl
trainmark verify d --json
check "a changed record of a step" has "$out" '"figure": "metrics_digest"'
trainmark verify g.json
failed_with 4 "a benchmark has no raw samples" "keeps no raw samples"
printf '{"format": 3}' >no.json
trainmark verify no.json
failed_with 4 "no result at all" "is not a result"

# --- job files ---

printf 'global: {budget: 30, rep-ms: 20, precision: 0, M: 32, N: 32}\njobs:\n  - gemm: {K: 16}\n  - {workload: gemm, name: deep, K: 64, N: 16}\n' >jobs.yaml
trainmark bench jobs jobs.yaml --output-file jobs.md
check "a job file: both tables" [ "$code$(grep -c '^## ' "$out")$(grep -c '32x16x64' "$out")" = 021 ]
check "and in the file" [ "$(grep -c '^## ' jobs.md)$(grep -c '32x16x64' jobs.md)" = 21 ]
trainmark results --label deep
check "its name is the label in the store" [ "$(grep -c '| deep ' "$out")" -eq 1 ]
printf -- '- gemm: {K: 16}\n- gemmm: {K: 64}\n' >jobs.yaml
trainmark bench jobs jobs.yaml
failed_with 4 "an unknown workload: nothing runs" "jobs.yaml:2: unknown workload 'gemmm'"
printf -- '- gemm: {K: 16}\n- gemm: {Q: 64}\n' >jobs.yaml
trainmark bench jobs jobs.yaml
failed_with 4 "an unknown option: nothing runs" "jobs.yaml:2: .*unknown key 'Q'"
printf 'a: 1\n' >jobs.yaml
trainmark bench jobs jobs.yaml
failed_with 4 "no job file" "a job file is a list of jobs"

# --- stores that cannot be used ---

echo "no database at all, just a line of text" >bad.db
trainmark run $tiny --training.steps 3 --store.path bad.db --out e
failed_with 4 "a store that was named is an error before the first step" "bad.db' is damaged or not a store"
TRAINMARK_STORE='' HOME=/dev/null XDG_DATA_HOME='' "$TRAINMARK" run $tiny --training.steps 3 --out f >"$out" 2>"$err" </dev/null
code=$?
check "one that nobody named is a warning" [ "$code" -eq 0 ]
check "and it is told" has "$err" "this run will not be stored"

finish
