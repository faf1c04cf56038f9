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
trainmark $run '--training.local_batch_size=[4, 8]' '--optimizer.lr=[1e-3, 0.002]' --dry-run
check "without a limit they fit into this machine" [ "$(grep -c '| yes ' "$out")" -eq 4 ]
trainmark $run '--model.n_heads=[2, 3]' --dry-run --memory 1GiB
check "one cannot be planned" has "$out" '^\| +2 \| 3 +\| +\| cannot be planned \|$'
check "and is told why" has "$out" "^run 2: model.dim 32 \(experiment.yaml:1\) is not a multiple of model.n_heads 3 \(command line\); change one or give model.head_dim$"
check "the other can" has "$out" '^\| +1 \| 2 +\| +[0-9]+ \| yes +\|$'
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
# figure NAME ROW: a cell of the summary.
figure() { awk -F, -v name="$1" -v row="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } NR == row + 1 { print $at }' many/one/runs_summary.csv; }
# figures FILE SEQ GFLOP: the same from metrics.jsonl and result.json.
figures()
{
    awk -v seq=32 -v per_token="$(sed -n '/"convention": "titan"/,/}/s/^ *"per_token": \([0-9.e+]*\),$/\1/p' "$1/result.json")" '
        function value(name) { match($0, "\"" name "\": [0-9.e+-]*"); return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0 }
        /^\{"step"/ { n++; loss[n] = value("loss"); seconds[n] = value("seconds"); tokens[n] = value("tokens") }
        function moments(name, from, x,    i, m, s, q) {
            for (i = from; i <= n; i++) { m++; s += x[i]; q += x[i] * x[i] }
            q = q / m - (s / m) * (s / m)
            printf "avg_%s %.12g\nstd_%s %.12g\n", name, s / m, name, q > 0 ? sqrt(q) : 0
        }
        END {
            first = n > 5 ? 6 : 1
            for (i = 1; i <= n; i++) { step = tokens[i] - (i > 1 ? 0 : 0); fps[i] = tokens[i] / seq / seconds[i]; flops[i] = per_token * tokens[i] / seconds[i] / 1e12 }
            moments("loss", first, loss)
            moments("loss_tail", n - 9 > first ? n - 9 : first, loss)
            moments("step_time_total", first, seconds)
            moments("fps_gpu", first, fps)
            moments("tflops", first, flops)
            printf "num_samples %d\n", n - first + 1
        }' "$1/metrics.jsonl"
}
row=0
for folder in many/one/0001_* many/one/0002_* many/one/0003_* many/one/0004_*; do
    [ -d "$folder" ] || continue
    row=$((row + 1))
    figures "$folder" >wanted
    while read -r name value; do
        found=$(figure "$name" $row)
        check "run $row: $name" awk -v a="$value" -v b="$found" 'BEGIN { d = a - b; if (d < 0) d = -d; m = a < 0 ? -a : a; exit !(b != "" && d <= 1e-6 * m + 1e-9) }'
    done <wanted
    check "run $row: its speed" [ "$(figure tokens_per_second $row)" = \
        "$(sed -n '/"tokens_per_second_per_device": {/,/}/s/^ *"median": \([0-9.e+]*\),$/\1/p' "$folder/result.json")" ]
    check "run $row: its time" awk -v s="$(figure total_elapsed_time $row)" 'BEGIN { exit !(s > 0.01 && s < 60) }'
    check "run $row: its verdict" [ "$(figure verdict $row)" = not-judged ]
done
check "four runs" [ "$row" -eq 4 ]
trainmark results --label 'one/*' --json
check "their places in the store" [ "$(grep -o '"label": "one/000[1-4]_' "$out" | sort -u | wc -l)" -eq 4 ]
trainmark run experiment.yaml --out many/one "--training.steps=[3, 17]" "--exp_name=[a b/c:d, $long]" --debug.seed 5
check "nothing is done again" [ "$(sed -n 's/^run \([1-4]\) of 4: steps=[0-9]*_exp_name=[a0-].*: done already$/\1/p' "$out" | tr -d '\n')" = 1234 ]
trainmark run experiment.yaml --out labelled "--training.steps=[1, 2]" --store.label mine
trainmark results --label mine --json
check "a label of one's own stays" [ "$(grep -c '"label": "mine"' "$out")" -eq 2 ]
sed '1s/run_id/run_no/' many/one/runs_summary.csv >other
cp other many/one/runs_summary.csv
refused 4 "invalid configuration or input: 'many/one/runs_summary.csv' belongs to another sweep; name another directory with --out" \
    run experiment.yaml --out many/one "--training.steps=[3, 17]" "--exp_name=[a b/c:d, $long]" --debug.seed 5
wrong="--training.steps 60 --training.max_norm 0 --lr_scheduler.warmup_steps 0"
trainmark run experiment.yaml --out fails "--optimizer.lr=[1e-3, 100]" $wrong
check "a run whose numbers are none fails the sweep with its code" [ "$code" -eq 3 ]
check "and the first of them is named" has "$err" "run 1 \(lr=0.001\) ended with exit code 3; see fails/0001_logs_lr=0.001.txt$"
check "the other is done, too" [ "$(awk -F, 'NR > 1 { printf "%s ", $(NF - 5) }' fails/runs_summary.csv)" = "error error " ]

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
    for global in 12 7; do
        divisor=$global
        while [ $((global % divisor)) -ne 0 ] || [ "$(needed $divisor --training.global_batch_size $global)" -gt ${row#*:} ]; do divisor=$((divisor - 1)); done
        check "${row%:*} of $global: $divisor" [ "$(found ${row%:*} --training.global_batch_size $global)" = $divisor ]
    done
done
check "nothing fits into very little" [ -z "$(found 200KiB)" ]
check "there is a largest of all" [ "$(found 1TiB) $(found 1TiB --training.global_batch_size 64)" = "65536 64" ]
# A dry run names that batch, too, where it is not far from the one that is set.
for size in 200KiB 300KiB 500KiB 700KiB; do
    auto=$(found $size)
    trainmark $run --training.local_batch_size 3 --memory $size --dry-run
    [ "$auto" -le 11 ] && check "a dry run of 3 sequences in $size: $auto fit" has "$out" "fits: $auto( \\(3 is set|, the one)"
    [ "$auto" -gt 11 ] && check "a dry run of 3 sequences in $size: 12 or more fit" has "$out" "fits: at least 12 "
done
trainmark $run --training.local_batch_size auto --memory 20KiB --dry-run
failed_with 4 "not even one" "training.local_batch_size auto: not even one sequence fits into 20.00 KiB; use a smaller model or a shorter training.seq_len$"
trainmark $run --training.local_batch_size auto --model.n_heads 3 --memory 1GiB --dry-run
failed_with 4 "a model that cannot be" "model.n_heads"
check_not "is not one that is too large" has "$err" "not even one"
trainmark $run '--training.local_batch_size=[auto, 2]' --dry-run --memory 1GiB
check "auto may stand in a list: that run finds its own" [ "$(grep -c '| auto \|| 2 ' "$out")" -eq 2 ]
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
trainmark $small --scaling= --out never
failed_with 2 "no sizes at all" "option '--scaling' needs a value: --scaling N,N,...$"
trainmark $small --scaling 2,2 --out never
failed_with 2 "one twice" "--scaling has 2 twice$"
check_not "nothing was begun" [ -e never ]
trainmark $small --device reference --scaling 1 --out one
check "one rank" [ "$code" -eq 0 ]
check "is told when it begins" has "$err" "^scaling: 1 rank, 1 thread each$"
check "of weak scaling losses are not compared" has "$out" '^efficiency: tokens/s of a rank, of that of a rank of 1; weak scaling: every rank has the same batch, so losses are not compared$'
check "one rank is what others are compared with" [ "$(sed 1d one/scaling.csv | cut -d, -f1-3,6,7,9-13)" = "1,1,2,1,100,,,not-judged,done,0" ]
check "its speed is that of a rank" awk -F, 'NR == 2 { exit !($4 > 0 && $4 == $5) }' one/scaling.csv
check "its loss is that of the run" [ "$(sed 1d one/scaling.csv | cut -d, -f8)" = "$(sed -n '/^  "loss": {/,/}/s/^ *"last": \([0-9.e+-]*\),*$/\1/p' one/ranks-1/result.json)" ]
check "the table is the file" [ "$(sed -n 's/^| *1 | *1 | *2 |.*| *\([0-9.]*\) | not-judged | done *|$/\1/p' "$out")" = \
    "$(printf %.5g "$(sed 1d one/scaling.csv | cut -d, -f8)")" ]
trainmark $small --scaling 1,3,5 --scaling-mode strong --training.global_batch_size 4 --out uneven --json
failed_with 4 "what does not divide" "on 3 ranks the run ended with exit code 4; see uneven/ranks-3.txt$"
check "one of three ended well" [ "$(members ranks) $(members status) $(members exit_code) $(members global_batch)" = '1 3 5 "done" "failed" "failed" 0 4 4 4 null null' ]
check "of the others there is no figure" [ "$(members speedup) $(members scaling_efficiency_pct) $(members loss_difference)" = "1 null null 100 null null null null null" ]
for ranks in 3 5; do
    check "$ranks ranks: why" has "$out" "^    \"$ranks ranks: a step of 4 sequences cannot be divided among $ranks ranks; set training.global_batch_size to a multiple\",$"
done
check "strong scaling" has "$out" "strong scaling: every size has the same global batch\"$"
trainmark $small --scaling 1 --training.threads 2 --training.dtype bfloat16 --scaling-mode strong --out two
check "threads in the plural" has "$err" "^scaling: 1 rank, 2 threads each$"
trainmark run experiment.yaml --scaling 1 --optimizer.lr 100 $wrong --out broken
failed_with 3 "numbers that are none" "on 1 rank the run ended with exit code 3; see broken/ranks-1.txt$"
check "are in the table" has broken/scaling.csv '^1,,,,,,,,,,,failed,3$'
for words in "--evaluate --validation.enable true:--evaluate" "--dry-run:--dry-run" "--ranks 2:--ranks" "--debug.seed=[1,2]:several values of a key"; do
    trainmark $small --scaling 1,2 ${words%%:*} --out never
    failed_with 2 "scaling and ${words%%:*}" "--scaling cannot be given with ${words#*:}; leave one out$"
done

finish
