#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lists of benchmarks: what is no list, to the letter; tables one after the other, as text and as JSON, in files, in the store.
# shellcheck disable=SC1091,SC2016,SC2059,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

# no WORDS CONTENT [WORD...]: a file with this content is refused with these words.
no()
{
    no_words=$1 no_name="no list: $(echo "$1" | head -n 1)"
    printf "$2" >list.yaml
    shift 2
    trainmark bench jobs list.yaml "$@"
    case "$(cat "$err")" in
    *"$no_words"*) check "$no_name" [ "$code $(wc -c <"$out")" = "$no_code 0" ] ;;
    *) fail "$no_name" "nothing says so" ;;
    esac
}
a_list='list.yaml:1: a job file is a list of jobs, or a map with `jobs` and `global`; a job is a map: {workload: gemm, M: 256, ...} or {gemm: {M: 256, ...}}'
no_code=4
for content in 'a: 1\n' '' '[]\n' 'gemm\n' 'global: 3\njobs: [{gemm: {M: 3}}]\n' 'global: {M: 3}\n'; do no "$a_list" "$content"; done
no "list.yaml:1: unknown workload 'gemmm'; \`trainmark bench\` lists all" '[{workload: gemmm, M: 3}]\n'
no "list.yaml:1: unknown workload ''" '[{workload: [gemm], M: 3}]\n'
no "3 problems
    list.yaml:1: unknown option '--Q=64': unknown key 'Q' (command line); did you mean 'M'?
    list.yaml:1: 'M' (command line) is out of range: found -1, wanted 1 to 16777216
    list.yaml:1: unknown workload 'mlpp'; \`trainmark bench\` lists all" '[{gemm: {Q: 64}}, {gemm: {M: -1}}, {mlpp: {}}]\n'
no "list.yaml:1: 'M' (command line) must be an integer, found 'x'" '[{gemm: {M: 4, N: 4, K: 4}}]\n' --M x

cat >jobs.yaml <<'END'
global: {budget: 30, rep-ms: 1, warmup-ms: 0, precision: 0, threads: 1, N: 8, elements: 64}
jobs:
  - gemm: {name: first, K: 16, M: 8}
  - {workload: gemm, name: deep, M: 4, K: 32, N: 2, trans_b: true}
  - {workload: mlp, dims: 4-3, batch: 2, iterations: 2}
END
says 0 '' bench jobs jobs.yaml --output-file jobs.md
check "under their names" [ "$(sed -n 's/^## //p' "$out" | tr '\n' ' ')" = "first deep mlp " ]
check "the job's own options are above all" [ "$(grep -c '| 8x8x16 ' jobs.md)$(grep -c '| 4x2x32 ' jobs.md)" = 11 ]
trainmark results --json
check "stored under their names" [ "$(sed -n 's/.*"label": "\([a-z]*\)".*/\1/p' "$out" | tr '\n' ' ')" = "deep first " ]
says 0 '' bench jobs jobs.yaml --json --output-file jobs.json --seed 4
check "an array" [ "$(sed -n '1p;$p' "$out" | tr '\n' ' ')" = "[ ] " ]
# A job that cannot be done does not keep the others from being done.
cat >jobs.yaml <<'END'
- gemm: {M: 4194304, N: 4194304, K: 4194304}
- gemm: {M: 4, N: 4, K: 4, rep-ms: 1, warmup-ms: 0, precision: 0, threads: 1}
END
says 3 "job 1 \(gemm\): " bench jobs jobs.yaml --output-file part.md
check "the second is there" has part.md '4x4x4'

finish
