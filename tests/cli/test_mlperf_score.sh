#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# trainmark mlperf check, rcp, score, seeds, package and explain: what they print and write of the example, nine runs that reach the
# target and one that does not, and their exit codes. Figures: tests/mlperf.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

# example FOLDER: a package of it.
example() { rm -rf "$1" && cp -r "$root/tests/mlperf/example" "$1" && gunzip "$1"/results/BOX/*/*.gz; }
example pkg
results=pkg/results/BOX/llama2_70b_lora
cp -r $results a
cp -r a bad
sed -i '/"seed"/s/"value": [0-9]*/"value": 1003/; s/"status": "success"/"status": "aborted"/' bad/result_8.txt
mkdir one
cp a/result_9.txt one
table <<'END'
0 | mlperf rcp a | RCP Record: | 'RCP Mean': 3178.6666666666665, 'RCP Stdev': 299.91358755481554, 'Max Sp | RCP found, RCP test PASSED | Marking as infinite
0 | mlperf score a | MLPerf-style score 10.5533 scaled minutes = 10.3586 minutes x 1.018803 | result_0.txt 10.2042 minutes | does not count: does not comply
0 | mlperf score --json a | "scaled_minutes": 10.55333464387464, | "verified_by_mlcommons": false
0 | mlperf seeds a | 10 seeds in 10 logs: seed check PASSED
5 | mlperf rcp bad | Insufficient convergence, RCP test FAILED
5 | mlperf score bad | invalid: convergence test: Insufficient convergence
5 | mlperf seeds bad | 9 seeds in 10 logs: seed check FAILED
0 | mlperf explain a a | A a | B a | runs that count 9 of 10 9 of 10 | score, scaled minutes 10.55 10.55 | B / A: scaled minutes x 1.0000
5 | mlperf explain one | no run of 'one' counts
0 | mlperf package pkg | systems/BOX.json: SUCCESS | results/BOX/llama2_70b_lora: 10 logs, 1 do not comply | notice: result_9.txt does not comply: Failed checks for eval_accuracy: no line with 0 < value <= 0.925 | seed check PASSED | RCP test PASSED: RCP found | scaling.json written: factor 1.0188034188034187 | warning: 1 file does not comply, accepting this under olympic scoring | BOX llama2_70b_lora: 10.55333464387464, batch 8, 3120.0 samples to converge, RCP Pass | PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !
END
trainmark mlperf rcp a --json
check "rcp --json: every run" [ "$(members file | tr ' ' '\n' | sort | tr '\n' ' ')" = "$(cd a && printf '"%s"\n' result_*.txt | sort | tr '\n' ' ')" ]
check "one of them did not converge" [ "$(members converged | tr ' ' '\n' | sort | uniq -c | tr -s ' \n' ' ')" = " 1 false 9 true " ]
check "scaling.json" [ "$(cat $results/scaling.json)" = '{"scaling_factor": 1.0188034188034187}' ]
trainmark mlperf package pkg --json
check "package --json: the verdicts" [ "$(members package_check) $(members repository_check) $(members verified_by_mlcommons)" = \
    '"PASSED" "PASSED" false false' ]
check "package --json: the system, 1 node x 2 processors, 8 devices" [ "$(members system) $(members division) $(members availability) \
$(members number_of_nodes) $(members host_processors_count) $(members accelerators_count)" = '"BOX" "BOX" "closed" "closed" "Preview" "1" 2 8' ]

# Without writing the same is said; folders of nobody are errors, in the JSON, too.
rm $results/scaling.json
mkdir -p pkg/results/NONE/llama2_70b_lora pkg/results/BOX/unknown
echo '{' >pkg/systems/OTHER.json
: >'pkg/two words'
trainmark mlperf package pkg --no-write
cp "$out" unwritten
check_not "nothing is written" [ -e $results/scaling.json ]
trainmark mlperf package pkg
sed 's/would be //' unwritten | cmp -s - "$out"
check "the same without writing" [ $? -eq 0 ]
for words in "repository error: two words: the name has a space" "error: systems/OTHER.json is not JSON: byte 2" "error: there is no systems/NONE.json that describes this system" \
    "results/BOX/unknown: Skipping benchmark: unknown" "error: Incorrect number of files in dir, or wrong file names: found 0, expected 10"; do
    check "folders of nobody: $words" has "$out" "$words"
done
says 5 '^  "package_check": "FAILED",' mlperf package pkg --json
for words in "OTHER.json is not JSON" "there is no systems/NONE.json" "wrong file names: found 0, expected 10"; do
    check "as JSON: $words" has "$out" "$words"
done

# --- check ---------------------------------------------------------------------------------------------------------------------

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
