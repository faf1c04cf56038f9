#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark reproduce`: rows of a made-up page run, go on where they stopped, are planned where they do not fit; ours, interval and
# ratio are those of the row's own result; what differs from the page is named; exit codes; page files that are wrong.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

# A page of four rows with its figures.
cat >figures.csv <<'END'
workload,row,device,devices,scope,dtype,batch,seq,column,value,unit,convention,source,date,note
run,micro-llama,cpu,1,device,float32,2,32,tokens_per_second,5000,tokens/s,,Us,2026,
run,micro-llama,cpu,1,device,float32,2,32,tflops_titan,0.02,TFLOP/s,titan,Us,2026,
run,micro-llama,cpu,1,device,float32,2,32,memory_gb,0.013,GB (1e9 bytes),,Us,2026,
run,micro-llama,cpu,1,device,float32,2,32,step_ms,10,ms,,Us,2026,
run,micro-llama,cpu,1,device,float32,1,32,tflops_other,0.02,TFLOP/s,other,Us,2026,counted in another way
run,llama3.1_70B,MI300X,8,all,bfloat16,4,8192,tokens_per_second,8000,tokens/s,,Us,2026,
mlp,64-64-64,cpu,1,device,float32,8,,samples_per_second,50000,samples/s,,Us,2026,
END
cat >page.yaml <<'END'
title: A page of ours
source: Us
figures: figures.csv
common: --training.threads 1 --validation.enable false --training.stop_at_target false
rows:
  micro:
    hardware: cpu
    theirs: ./train.sh "two words"
    ours: run micro-llama --training.steps 8 --training.local_batch_size 2 --training.seq_len 32
    figure: run micro-llama float32 2 32
  big:
    hardware: 8xMI300X
    theirs: bash run_llama_train.sh
    figure: run llama3.1_70B bfloat16 4 8192
  huge:
    hardware: cpu
    theirs: train everything
    ours: run micro-llama --training.local_batch_size 1000000
  mlp:
    hardware: cpu
    theirs: python mlp.py
    ours: bench mlp --dims 64-64-64 --batch 8 --iterations 20 --threads 1
    figure: mlp 64-64-64
END

# of FILE OBJECT MEMBER: a number of an object of a result.json.
of() { sed -n "/\"$2\": {/,/}/s/.*\"$3\": \([^,]*\),*$/\1/p" "$1" | head -n 1; }
# cell ROW FIGURE COLUMN: of rows.csv; what is asked for stands in front of the columns with commas.
cell()
{
    awk -F, -v row="$1" -v figure="$2" -v column="$3" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $1 == row && $at["figure"] == figure { print $at[column] }' "${rows:-o/rows.csv}"
}
# near A B: equal to a part in 1e9.
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 > 0 && (a - b < 0 ? b - a : a - b) <= 1e-9 * a) }'; }
by() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.17g", a / b }'; }
product() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.17g", a * b }'; }

# --- rows that run, and their numbers ------------------------------------------------------------------------------------

says 0 '' reproduce page.yaml --out o
result=o/micro/result.json
rate=$(of $result tokens_per_second_per_device median)
check "measured" [ "$(cell micro tokens_per_second tag)" = measured ]
check "as JSON, too" [ "$(grep -o '"figure": ' o/rows.json | wc -l)" -eq "$(($(wc -l <o/rows.csv) - 1))" ]
check "ours is the run's" near "$(cell micro tokens_per_second ours)" "$rate"
check "beside the published one" near "$(cell micro tokens_per_second ratio)" "$(by "$rate" 5000)"
per_token=$(sed -n '/"convention": "titan"/,/}/s/.*"per_token": \([^,]*\),*$/\1/p' $result | head -n 1)
check "by its convention" near "$(cell micro tflops_titan ours)" "$(by "$(product "$rate" "$per_token")" 1e12)"
check "memory" near "$(cell micro memory_gb ours)" "$(by "$(sed -n 's/.*"used_bytes": \([0-9]*\),/\1/p' $result | head -n 1)" 1e9)"
step=$(of $result step_time median)
check "a time" near "$(cell micro step_ms ours)" "$(product "$step" 1000)"
check "a benchmark's figure" near "$(cell mlp samples_per_second ours)" "$(sed -n 's/.*"samples_per_second": \([^,]*\),*$/\1/p' o/mlp/table.json)"

# The interval of the median; where that has none, that of the whole.
plant() { sed -i "/\"tokens_per_second_per_device\": {/,/}/{s/\"lo\": .*/\"lo\": $1,/;s/\"hi\": .*/\"hi\": $2,/}
    /\"tokens_per_second_per_device_overall\": {/,/}/s/\"half_width_percent\": .*/\"half_width_percent\": $3/" $result; }
plant "$(product "$rate" 0.9)" "$(product "$rate" 1.2)" 3
trainmark reproduce page.yaml --out o --rows micro
check "with its interval" near "$(cell micro tokens_per_second lo)" "$(product "$rate" 0.9)"
plant null null 5
trainmark reproduce page.yaml --out o --rows micro
check "else that of the whole" near "$(cell micro tokens_per_second hi)" "$(product "$rate" 1.05)"
trainmark reproduce page.yaml --out o

# --- rows that do not fit ---------------------------------------------------------------------------------------------------

check "hardware that is not here" [ "$(cell big tokens_per_second state)" = "not here" ]
check "why" has "$out" "^big: needs 8 x MI300X; there is no GPU here$"
plan=$(cell big tokens_per_second plan_gib)
check "published for one device" near "$(cell big tokens_per_second published)" 1000
check "no figure is made up" [ -z "$(cell big tokens_per_second ours)" ]
check "a model that is too big is not run" [ ! -e o/huge ]
check "but planned" has "$out" "^huge: needs .* of a device, .* are available$"
trainmark run bash run_llama_train.sh --training.threads 1 --validation.enable false --dry-run --platform 8xMI300X --json
check "the plan is that of its line" near "$(product "$plan" 1073741824)" "$(sed -n 's/.*"plan_bytes": \([0-9]*\),/\1/p' "$out" | head -n 1)"
says 0 '"why": "planned for 8xMI355X: --platform"' reproduce page.yaml --rows big --platform 8xMI355X --json
says 0 '"state": "planned"' reproduce page.yaml --rows big --dry-run --json

# A row of several nodes: the lines that start it; that of torchrun, started as torchrun would on two nodes, but on processors.
cat >nodes.yaml <<'END'
title: Two nodes
rows:
  two:
    hardware: 2x1xMI300X
    theirs: srun -N 2 ./train.sh
    ours: run micro-llama --training.threads 1 --validation.enable false --training.local_batch_size 2 --training.seq_len 32
END
trainmark reproduce nodes.yaml --training.steps 4 --out nodes
words="trainmark run micro-llama .*--device hip --training.steps 4 --out nodes/two"
check "nodes: srun" has "$out" "^two, once for all nodes: srun -N 2 --ntasks-per-node 1 --mpi=pmix $words$"
check "nodes: torchrun" has "$out" "^two, or on each node \(NODE: 0 to 1, .*\): torchrun --nnodes 2 --node-rank NODE --nproc-per-node 1 .* --no-python $words$"

# --- going on ---------------------------------------------------------------------------------------------------------------

says 0 "^row 1 of 4: micro: done already$" reproduce page.yaml --out o
says 0 "^row 1 of 1: micro: ran$" reproduce page.yaml --out o --rows micro --training.steps 9
sed 's/^  micro:/  first:/; s/^  huge:/  second:/; s/local_batch_size 1000000/local_batch_size 2 --training.seq_len 64 --training.steps 150/; /^  mlp:/,$d' page.yaml >two.yaml
sh -c 'exec "$0" "$@"' "$TRAINMARK" reproduce two.yaml --out two --rows '[fs]*' >/dev/null 2>two.err &
pid=$!
while [ ! -e two/second/metrics.jsonl ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
check_not "a row that was killed is not done" [ -e two/second.ended ]
says 0 "^row 1 of 2: first: done already$" reproduce two.yaml --out two --rows '[fs]*'
check "and it is run" has "$err" "^row 2 of 2: second: ran$"

# --- what may cause a difference ------------------------------------------------------------------------------------------

# cause NAME PATTERN: of the last command.
cause() { if has "$out" "^micro: $1: $2"; then pass "cause: $1"; else fail "cause: $1" "wanted: $2"; fi; }
trainmark reproduce page.yaml --out c --rows micro --training.local_batch_size 4 --training.seq_len 16 --training.dtype bfloat16 \
    --activation_checkpoint.mode full --model.n_layers 1
cause model "model.n_layers 1 instead of [0-9]+$"
cause batch ".*training.local_batch_size 4 instead of 2"
cause sequence "training.seq_len 16 instead of 32$"
cause recompute "activation_checkpoint.mode full instead of none"
cause precision "training.dtype bfloat16 instead of float32"
check "the likeliest first" [ "$(grep -nE '^micro: (model|batch|sequence|recompute|precision)' "$out" | cut -d: -f3 | tr -d '\n')" = " model batch sequence recompute precision" ]
sed 's/^common/software: {libyaml: 0.1.4, libnothere: 1.0}\n&/; s/float32 2 32/float32 1 32/' page.yaml >software.yaml
trainmark reproduce software.yaml --out s --rows micro
cause "library version" "libyaml [0-9.]+ instead of 0.1.4$"
cause convention "tflops_other is counted as 'other', which is not counted here, counted in another way$"
sed -i 's/"not_passed": \[\]/"not_passed": [{"id": "gpu_power", "status": "WARN", "observed": "300 W of 750 W"}]/
        s/"not_passed": \[$/"not_passed": [{"id": "gpu_power", "status": "WARN", "observed": "300 W of 750 W"},/
        s/"frequency_change_percent": [^,]*/"frequency_change_percent": 12/
        /"machine": {/,/"reason"/{s/"verdict": "[^"]*"/"verdict": "noisy"/;s/"reason": .*/"reason": "others worked",/}' o/micro/result.json
trainmark reproduce page.yaml --out o --rows micro --training.steps 9
cause "power cap" "gpu_power: 300 W of 750 W$"
cause clock "it changed by 12 % meanwhile$"
cause machine "noisy: others worked$"
says 0 "^row 1 of 1: big: ran$" reproduce page.yaml --out slice --rows big --slice
check "on another device" has "$out" "^big: device: cpu instead of MI300X$"
rows=slice/rows.csv
check "measured, but of nothing" [ -z "$(cell big tokens_per_second tag)" ]

# --- a score of MLPerf ------------------------------------------------------------------------------------------------------

echo "mlperf,trainmark_tiny,cpu,1,all,float32,,,minutes,2,minutes,official score,Us,2026," | cat figures.csv - >scores.csv
cat >score.yaml <<END
title: Scores
source: Us
figures: scores.csv
rows:
  tiny:
    hardware: cpu
    theirs: bash run_with_docker.sh
    ours: mlperf run $root/configs/experiments/mlperf/trainmark_tiny.yaml --runs 1 --seed 1
    plan: run $root/configs/experiments/mlperf/trainmark_tiny.yaml
    figure: mlperf trainmark_tiny
END
score() { trainmark reproduce score.yaml --out score "$@" --mlperf.submission_org Us --mlperf.clear_caches false --training.steps 1 \
    --mlperf.eval_interval_samples 16 --validation.steps 1 --training.seq_len 16; }
score
check "one run is no score" [ "$code" -eq 3 ]
check "and says so" has "$out" "^tiny: no valid score: "
sed -i 's/"scaled_minutes": null/"scaled_minutes": 3/' score/tiny.log # as if it were one
sed -i '1s/5/0/' score/tiny.ended
score --at-least 0.7
rows=score/rows.csv
check "a score is the row's figure" near "$(cell tiny minutes ours)" 3
check "for all devices together" near "$(cell tiny minutes published)" 2
check "half as long again is not 0.7 as fast" [ "$code" -eq 5 ]

# --- exit codes ---------------------------------------------------------------------------------------------------------------

says 0 '' reproduce two.yaml --out two --rows '[fs]*' --at-least 1e-6
says 5 "negative verdict: 3 of 3 figures are below 100 of what is published$" reproduce two.yaml --out two --rows '[fs]*' --at-least 100
says 4 "no page 'nothing'; there are amd-v25.3, amd-v25.5, bring-up-mi350x, mlperf-v5.1, primus-v25.10, or name a file.yaml" reproduce nothing

# --- page files that are wrong ------------------------------------------------------------------------------------------------

# wrong SED PATTERN: page.yaml changed.
wrong()
{
    sed "$1" page.yaml >wrong.yaml
    says 4 "$2" reproduce wrong.yaml --dry-run
}
wrong 's/^    ours: run micro/    our: run micro/' "wrong.yaml:9: unknown key 'our' of a row; known are hardware,theirs,"
wrong 's/^common/comon/' "wrong.yaml:4: unknown key 'comon' of a page"
wrong 's/float32 2 32/float32 3 32/' "wrong.yaml:6: row 'micro': no published figure 'run micro-llama float32 3 32' of cpu by Us"
wrong 's/^source: Us/source: Them/' "wrong.yaml:6: row 'micro': no published figure .* of cpu by Them"
wrong 's/figure: mlp.*/figure: mlp/' "wrong.yaml:19: figure 'mlp' of 'mlp': wanted WORKLOAD ROW"
wrong '0,/    hardware: cpu/{//d}' "wrong.yaml:6: row 'micro' has no 'hardware'"
wrong 's/8xMI300X/8xMI3/' "wrong.yaml:11: hardware of 'big': .*unknown GPU"
wrong 's/^title.*//' "wrong.yaml:.*has no 'title'"
wrong '/^rows/,$d' "wrong.yaml:1: a page has title: TEXT and rows:"
wrong 's/^  big:/  ..\/big:/' "wrong.yaml:11: row '../big': its name is that of a folder"
wrong 's/figures.csv/none.csv/' "none.csv"
wrong 's/^rows:/rows: [/' "wrong.yaml:[0-9]+:[0-9]+: not valid YAML"

# --- the pages that are compiled in ---------------------------------------------------------------------------------------

trainmark reproduce
check "lists the pages" [ "$(grep -cE '^\| (amd-v25.3|amd-v25.5|bring-up-mi350x|mlperf-v5.1|primus-v25.10) ' "$out")" -eq 5 ]
check "and their rows" has "$out" "^\| amd-v25.3 .* 15 \| +15 \|$"

finish
