#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Short real runs: what they print and write, where values come from, stopping and going on, verdicts.
# shellcheck disable=SC1091,SC2016,SC2059,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# losses FOLDER: step, loss and gradient norm of every step that metrics.jsonl has, in its order.
losses() { sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl"; }
same_losses() { [ "$(losses "$1")" = "$(losses "$2")" ] && [ -n "$(losses "$1")" ]; }

# --- a run ----------------------------------------------------------------------------------------------------------------

says 0 '' run $tiny --training.steps 5 --out first
for file in config.yaml environment.csv metrics.jsonl perf.csv result.json; do
    check "it writes $file" [ -s first/$file ]
done
check "five records of steps" [ "$(losses first | wc -l)" -eq 5 ]
check "fewer than 50 steps are not judged" [ "$(value first/result.json verdict)" = not-judged ]
check "it says where the results are" has "$err" "^results in first;"
check "the peak comes first" has "$out" "^Peak FLOPS used for computing MFU: (N/A|[0-9.]+e\+[0-9]+)$"
number='-?[0-9]+\.[0-9]+'
step="^step: +[0-9]+  loss: +$number  grad_norm: +$number  memory: +$number""GiB\($number%\)  "
step="${step}tps: [0-9]{1,3}(,[0-9]{3})*  tflops: [0-9]+\.[0-9]{2,}  mfu: (N/A|$number%)$"
check "five step lines of the public form" [ "$(grep -cE "$step" "$out")" -eq 5 ]
check "validation line" has "$out" "^validate step: +5  loss: +$number  memory: +$number""GiB\($number%\)  tps: [0-9,]+$"
check "result line" has "$out" "^performance: +[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)? tokens_per_second$"
check_not "no word that makes a runner think of failure" has "$out" \
    "OutOfMemoryError|out of memory|Error:|SystemExit|exitcode|Traceback|FAILED|Exception:|ModuleNotFound"
trainmark run $tiny --training.steps 5 --out second
check "the same run again: the same losses" same_losses first second
trainmark run first/config.yaml --out loaded
check "the written configuration loads: the same losses" same_losses first loaded
check "the written configuration loads: the same hash" \
    [ "$(value first/result.json configuration_hash)" = "$(value loaded/result.json configuration_hash)" ]

says 0 "training.stepz" run $tiny --training.stepz 5 --allow-unknown-keys --training.steps 3 --out allowed

# --- dry run, explain, models ---------------------------------------------------------------------------------------------

says 0 "^nothing was trained: --dry-run" run $tiny --training.steps 5 --out dry --dry-run
check_not "a dry run writes nothing" [ -e dry ]
parameters=$(value first/result.json parameters)
trainmark explain $tiny --json
check "explain and run agree on the parameters" [ "$(value "$out" parameters)" = "$parameters" ]
check "explain and run agree on the arena" [ "$(value "$out" arena_bytes)" = "$(value first/result.json planned_bytes)" ]

# --- secrets --------------------------------------------------------------------------------------------------------------

MY_TOKEN=open-sesame-4711
export MY_TOKEN
printf 'model: tiny-llama\njob.description: "it is ${MY_TOKEN}"\n' >secret.yaml
says 0 '' run secret.yaml $tiny --training.steps 2 --out secret
check_not "the secret is in no file" grep -rq "$MY_TOKEN" secret
check_not "the secret is not printed" grep -q "$MY_TOKEN" "$out" "$err"
check "the secret is masked" grep -q '\*\*\*' secret/config.yaml
unset MY_TOKEN

# --- stopping and going on ------------------------------------------------------------------------------------------------

slow="--model.n_layers 2 --model.dim 64 --model.n_heads 2 --model.n_kv_heads 2 --model.ffn_dim 256 --training.seq_len 64
      --training.local_batch_size 8 --training.threads 1 --training.stop_at_target false --validation.steps 1
      --metrics.log_freq 1 --training.steps 150"

# start FOLDER ARGUMENTS...: a run in the background, $pid.
start()
{
    folder=$1
    shift
    : >"$out"
    "$TRAINMARK" run "$@" --out "$folder" >"$out" 2>"$err" </dev/null &
    pid=$!
}

# await PATTERN: waits for a line of the run's output.
await()
{
    until has "$out" "$1"; do
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.02
    done
}

# ended: the exit code of the run in the background.
ended()
{
    wait "$pid" 2>/dev/null
    code=$?
}

says 0 '' run $slow --out whole
check "has 150 steps" [ "$(losses whole | wc -l)" -eq 150 ]

start endless $slow --training.steps 1000000000000
await "^step: +2 "
kill -s TERM "$pid"
ended
failed_with 130 "memory of a run is not by the steps that it may make" "interrupted: stopped after step [0-9]+ of 1000000000000"

start stopped $slow
await "^step: +2 "
kill -s TERM "$pid"
ended
last=$(losses stopped | wc -l)
failed_with 130 "SIGTERM ends the run after the step" "interrupted: stopped after step $last of 150"
check "SIGTERM: before its end" [ "$last" -lt 150 ]
check "SIGTERM: there is a result" has "stopped/result.json" '"interrupted": true'
check "SIGTERM: there is a checkpoint" [ -s "stopped/checkpoint/step-$(printf %08d "$last")/complete" ]
check "SIGTERM: it says how to go on" has "$err" "checkpoint.enable true"
says 0 "resumed from step $last" run $slow --checkpoint.enable true --out stopped
check "SIGTERM: and ends as if it had not been stopped" same_losses whole stopped

# A step of many seconds, so that both signals arrive within it.
start twice $tiny --training.global_batch_size 200000
await "^Peak"
kill -s INT "$pid"
sleep 0.1
kill -s INT "$pid"
ended
check "a second SIGINT ends the run" [ "$code" -eq 130 ]
check_not "at once: the step has no end, the run no result" [ -e twice/result.json ]
check "no half-written file is left then, either" [ -z "$(torn_files)" ]

finish
