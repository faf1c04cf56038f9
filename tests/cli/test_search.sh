#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several runs of one command, figure by figure: what a sweep plans and sums up, which batch fits, what a table of scaling says.
# shellcheck disable=SC1091,SC2012,SC2016,SC2086,SC2154,SC3045
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

cat >experiment.yaml <<'END'
model: {vocab_size: 64, n_layers: 1, dim: 32, n_heads: 2, n_kv_heads: 1, ffn_dim: 64}
training: {seq_len: 32, local_batch_size: 2, threads: 1, stop_at_target: false, steps: 3}
validation: {enable: false}
checkpoint: {enable: false}
END
run="run experiment.yaml --device reference"

# --- what a sweep would do --------------------------------------------------------------------------------------------------

trainmark $run '--training.local_batch_size=[4, 8]' '--optimizer.lr=[1e-3, 0.002]' --dry-run --memory 700KiB
check "a row for each run" [ "$(sed -n 's/^| *\([1-4]\) | \([48]\) *| \(0.00[12]\) *| .*/\1 \2 \3,/p' "$out" | tr -d '\n')" = "1 4 0.001,2 4 0.002,3 8 0.001,4 8 0.002," ]
check "what does not fit does not" awk -F'|' '/^\| *[1-4] / { n++; if ($6 !~ ($5 <= 700 * 1024 ? "yes" : "no")) bad = 1 } END { exit bad || n != 4 }' "$out"
needs=$(sed -n 's/^| *1 | 4 *| 0.001 *| *\([0-9]*\) |.*/\1/p' "$out")
trainmark $run --training.local_batch_size 4 --dry-run --memory 1GiB --json
check "a run needs what its own plan does" [ "$(members plan_bytes)" = "$needs" ]
hundred=$(seq -s ', ' 1 100)
trainmark $run "--debug.seed=[$hundred]" "--training.steps=[$hundred, 101]" --dry-run --memory 1GiB
failed_with 4 "more than 10,000 runs are no sweep" "the lists of this experiment \(command line: '(debug.seed|training.steps)', \.\.\.\) make more than 10000 runs$"

# --- what it writes -----------------------------------------------------------------------------------------------------------

long=$(printf '%0170d' 0)
trainmark run experiment.yaml --out many/one "--training.steps=[3, 17]" "--exp_name=[a b/c:d, $long]" --debug.seed 5
check "a sweep" [ "$code" -eq 0 ]
check "its command, word by word, then its lists" [ "$(cat many/one/command.txt)" = "experiment.yaml
--training.steps=[3, 17]
--exp_name=[a b/c:d, $long]
--debug.seed
5
training.steps: 3 17
exp_name: a b/c:d $long" ]
# A name is at most 150 characters, of letters that every file system has.
for row in 0001:steps=3_exp_name=a-b-c-d "0002:steps=3_exp_name=$(echo "$long" | cut -c 1-133)" 0003:steps=17_exp_name=a-b-c-d \
    "0004:steps=17_exp_name=$(echo "$long" | cut -c 1-132)"; do
    for name in "${row%:*}_config_${row#*:}.yaml" "${row%:*}_logs_${row#*:}.txt" "${row%:*}_${row#*:}"; do
        check "it writes $(echo "$name" | cut -c 1-40)" [ -s "many/one/$name" ]
    done
done
check "and nothing else" [ "$(find many/one -maxdepth 1 -mindepth 1 | wc -l)" -eq 14 ]
check "the summary has a cell for each title" awk -F, 'NR == 1 { n = NF } NF != n || /nan|inf/ { bad = 1 } END { exit bad || NR != 5 }' many/one/runs_summary.csv
check "what was asked for, and how it ended" [ "$(cut -d, -f1,4,5,20,24,25 many/one/runs_summary.csv)" = "run_id,training.steps,exp_name,status,verdict,exit_code
0001,3,a b/c:d,success,not-judged,0
0002,3,$long,success,not-judged,0
0003,17,a b/c:d,success,not-judged,0
0004,17,$long,success,not-judged,0" ]
trainmark results --label 'one/*' --json
check "their places in the store" [ "$(grep -o '"label": "one/000[1-4]_' "$out" | sort -u | wc -l)" -eq 4 ]

# --- the batch that fits --------------------------------------------------------------------------------------------------------

# found SIZE WORD...: the batch that auto finds in so much memory.
found()
{
    found_memory=$1
    shift
    trainmark $run --training.local_batch_size auto --memory $found_memory --dry-run "$@"
    sed -n 's/^trainmark: note: training.local_batch_size auto: \([0-9]*\)$/\1/p; s/^.*local_batch_size auto: \([0-9]*\)$/\1/p' "$err" | head -n 1
}
# It fits, one more does not; of a global batch it is the largest divisor that fits.
needed()
{
    needed_batch=$1
    shift
    trainmark $run --training.local_batch_size $needed_batch --dry-run --memory 4TiB --json "$@" && members plan_bytes
}
for row in 1MiB:1048576 5MiB:5242880; do
    largest=$(found ${row%:*})
    check "$largest sequences fit into ${row%:*}" [ "$(needed $largest)" -le ${row#*:} ]
    check "one more does not" [ "$(needed $((largest + 1)))" -gt ${row#*:} ]
done
trainmark $run --training.local_batch_size auto --memory 20KiB --dry-run
failed_with 4 "not even one" "training.local_batch_size auto: not even one sequence fits into 20.00 KiB; use a smaller model or a shorter training.seq_len$"
# A plan that fits, and a process that may not have so much: smaller ones are tried, each by a sixteenth.
(
    ulimit -v 750000
    timeout 300 "$TRAINMARK" run experiment.yaml --device cpu --training.local_batch_size auto --training.steps 2 \
        --memory 800MiB --out tight >"$out" 2>"$err" </dev/null
    echo $? >code
)
check "a smaller batch is found" [ "$(cat code)" -eq 0 ]
sed -n 's/.*a batch of \([0-9]*\) should fit by the plan, but did not run: trying a smaller one$/\1/p' "$err" >tried
check "after others" [ "$(wc -l <tried)" -ge 1 ]
check "each a sixteenth less" awk 'NR > 1 && $1 != last - int((last + 15) / 16) { bad = 1 } { last = $1 } END { exit bad }' tried
check "the last of them is the one" awk -v last="$(tail -n 1 tried)" -v size="$(sed -n 's/^  local_batch_size: \([0-9]*\) .*/\1/p' tight/config.yaml)" \
    'BEGIN { exit size != last - int((last + 15) / 16) }'
check "its two steps are not the run's" [ "$(grep -c '^{"step"' tight/metrics.jsonl)" -eq 2 ]
check "nothing is left of the trials" [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'trainmark-batch*' -newer experiment.yaml)" ]

# --- scaling on one rank --------------------------------------------------------------------------------------------------------

small="run experiment.yaml --training.steps 8"
for sizes in 0 1,0 257 1,257 '1,' ,1 1,,2 1x 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 -1; do
    trainmark $small "--scaling=$sizes" --out never
    failed_with 2 "no sizes: $sizes" "^trainmark: wrong usage: --scaling takes up to 16 numbers of ranks, 1 to 256 each, as in 1,2,4; found '$sizes'$"
done
trainmark $small --scaling 2,2 --out never
failed_with 2 "one twice" "--scaling has 2 twice$"
check_not "nothing was begun" [ -e never ]

finish
