#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lists of benchmarks: what is no list, to the letter; tables one after the other, as text and as JSON, in files, in the store.
# shellcheck disable=SC1091,SC2016,SC2034,SC2059,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

# no NAME CONTENT [WORD...]: what is said of a file with this content.
no()
{
    printf "$2" >"$1.yaml"
    no_name=$1
    shift 2
    trainmark bench jobs "$no_name.yaml" "$@"
    { echo "> $no_name $*"; cat "$out" "$err"; echo "-> $code"; echo; } | sed "s,$work,WORK,g" >>said
}
no map 'a: 1\n'
no empty ''
no nothing '[]\n'
no text 'gemm\n'
no words '[gemm]\n'
no options '[{M: 3, N: 4}]\n'
no void '[{}]\n'
no workload '[{workload: gemmm, M: 3}]\n'
no list '[{workload: [gemm], M: 3}]\n'
no value '[{gemm: 3}]\n'
no deep '[{gemm: {M: {a: 1}}}]\n'
no nested '[{gemm: {M: [[1], 2]}}]\n'
no global 'global: 3\njobs: [{gemm: {M: 3}}]\n'
no globals 'global: {M: {a: 1}}\njobs: [{gemm: {M: 3}}]\n'
no jobless 'global: {M: 3}\n'
no unknown '[{gemm: {Q: 64}}, {gemm: {M: -1}}, {mlpp: {}}]\n'
no overridden '[{gemm: {M: 4, N: 4, K: 4}}]\n' --M x
no format '[{gemm: {M: 4, N: 4, K: 4}}]\n' --output-file x.csv
no unzipped '[{gemm: {M: 4, N: 4, K: 4}}]\n' --output-file x.md.gz
no json '[{gemm: {M: 4, N: 4, K: 4}}]\n' --output-file x.md --json
check_not "no table is written" [ -e x.md -o -e x.csv -o -e x.md.gz ]
mv said "$out"
code=0
expected jobs_refused.txt

cat >jobs.yaml <<'END'
global: {budget: 30, rep-ms: 1, warmup-ms: 0, precision: 0, threads: 1, N: 8, elements: 64}
jobs:
  - gemm: {name: first, K: 16, M: 8}
  - {workload: gemm, name: deep, M: 4, K: 32, N: 2, trans_b: true}
  - {workload: mlp, dims: 4-3, batch: 2, iterations: 2}
END
trainmark bench jobs jobs.yaml --output-file jobs.md
check "three tables" [ "$code" -eq 0 ]
check "under their names" [ "$(sed -n 's/^## //p' "$out" | tr '\n' ' ')" = "first deep mlp " ]
check "with a line between them" [ "$(grep -c '^## ' "$out")$(sed -n '1p' "$out")" = "3## first" ]
check "in the file, too" [ "$(sed -n 's/^## //p' jobs.md | tr '\n' ' ')" = "first deep mlp " ]
check "the job's own options are above all" [ "$(grep -c '| 8x8x16 ' jobs.md)$(grep -c '| 4x2x32 ' jobs.md)" = 11 ]
trainmark results --json
check "stored under their names" [ "$(sed -n 's/.*"label": "\([a-z]*\)".*/\1/p' "$out" | tr '\n' ' ')" = "deep first " ]
check "all three" [ "$(grep -c '"id"' "$out")" -eq 3 ]
trainmark bench jobs jobs.yaml --json --output-file jobs.json --seed 4
check "as JSON" [ "$code" -eq 0 ]
check "an array" [ "$(sed -n '1p;$p' "$out" | tr '\n' ' ')" = "[ ] " ]
check "of three" [ "$(grep -c '^,$' "$out") $(grep -c '"rows"' "$out")" = "2 3" ]
check "the same in the file" cmp -s "$out" jobs.json
trainmark results show last
check "what is on the command line is above all" has "$out" '"seed": 4,'
# A job that cannot be done does not keep the others from being done.
cat >jobs.yaml <<'END'
- gemm: {M: 4194304, N: 4194304, K: 4194304}
- gemm: {M: 4, N: 4, K: 4, rep-ms: 1, warmup-ms: 0, precision: 0, threads: 1}
END
trainmark bench jobs jobs.yaml --output-file part.md
failed_with 3 "the first fails" "job 1 \(gemm\): "
check "the second is there" has part.md '4x4x4'
trainmark bench jobs jobs.yaml --output-file nowhere/x.md
check "a file that cannot be made" [ "$code" -ne 0 ]
# What is in the store of a benchmark.
rm "$TRAINMARK_STORE"
trainmark bench gemm --M 4 --N 4 --K 4 --rep-ms 1 --warmup-ms 0 --precision 0 --threads 1 --seed 3
trainmark results show last
sed -n '/^  "environment": {/,/^  },/d; /^  "table": /q; p' "$out" | sed 's/"finished": "[^"]*"/"finished": "T"/' >document
cp document "$out"
expected jobs_document.txt
trainmark results show last
check "a whole JSON" [ "$(tail -n 1 "$out")" = "}" ]
check "with its table" has "$out" '"case": "4x4x4"'
trainmark bench gemm --M 4 --N 4 --K 4 --rep-ms 1 --warmup-ms 0 --precision 0 --threads 1 --compare reference --json
failed_with 2 "two tables are no JSON" "--compare prints a second table and cannot be given with --json; leave one out$"
trainmark bench gemm --M 4 --N 4 --K 4 --rep-ms 1 --warmup-ms 0 --precision 0 --threads 1 --compare reference
check "no published figure" has "$out" '^no published figure for these cases; `trainmark reference gemm` lists those there are$'
head -n 1 "$root/configs/reference/gemm.csv" >mine.csv
echo 'gemm,4x4x4,Mine,1,device,float32,,,tflops,5,TFLOP/s,2 M N K per product,a report,2026,' >>mine.csv
trainmark bench gemm --M 4 --N 4 --K 4 --rep-ms 1 --warmup-ms 0 --precision 0 --threads 1 --compare mine.csv
check "one's own" has "$out" '\| tflops .*\| +5 \|.*\| Mine +\|'
check "below a line" [ "$(grep -c '^$' "$out")" -ge 1 ]
echo "no store" >bad.db
trainmark bench gemm --M 4 --N 4 --K 4 --rep-ms 1 --warmup-ms 0 --precision 0 --threads 1 --store bad.db
failed_with 4 "a store that was named" "bad.db' is damaged or not a store"
TRAINMARK_STORE='' HOME=/dev/null XDG_DATA_HOME='' "$TRAINMARK" bench gemm --M 4 --N 4 --K 4 --rep-ms 1 --warmup-ms 0 \
    --precision 0 --threads 1 >"$out" 2>"$err" </dev/null
code=$?
check "one that nobody named is a warning" [ "$code" -eq 0 ]
check "and it is told" has "$err" "this benchmark is not stored: "

finish
