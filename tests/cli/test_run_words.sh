#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where a run goes, what it says and what it leaves, at the edges: folders, vocabularies, logs.
# shellcheck disable=SC1091,SC2012,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

export OMP_WAIT_POLICY=passive
two="--training.steps 2 --validation.enable false"
wrong="--training.steps 60 --optimizer.lr 100 --training.max_norm 0 --lr_scheduler.warmup_steps 0"

# --- a variable that is not read ----------------------------------------------------------------------------------------------

export OMP_NUM_THREADS=4093
says 0 "OMP_NUM_THREADS is 4093 and is not read: [0-9]* threads compute; training.threads sets" run ${tiny%--training.threads*} $two --training.threads 0 --out threads
trainmark run $tiny $two --training.threads 1 --out threads
check_not "who says how many knows" has "$err" "OMP_NUM_THREADS"
unset OMP_NUM_THREADS

# --- the vocabulary ---------------------------------------------------------------------------------------------------------

seq 1 3000 >text.txt
trainmark run $tiny $two --data.path text.txt --out grown
check "and config.yaml says why" has grown/config.yaml '^  vocab_size: 320  # what data.source text needs$'
says 4 "model.vocab_size is 256 .command line., but data.source text needs 257; raise it or leave it out" \
    run $tiny $two --data.path text.txt --model.vocab_size 256 --out never
check_not "nothing is made" [ -e never ]

# --- a socket for turns -------------------------------------------------------------------------------------------------------

for fd in 2 3x; do
    TRAINMARK_TURN_FD=$fd says 4 "TRAINMARK_TURN_FD must be the number of an open socket, found '$fd'; unset it$" run $tiny $two --out never
done
TRAINMARK_TURN_FD=1048576 says 4 "TRAINMARK_TURN_FD is 1048576" run $tiny $two --out never

# --- how threads wait beside others (who does: test_settle.c) -----------------------------------------------------------------

hogs=
for _ in $(seq 0 "$(getconf _NPROCESSORS_ONLN)"); do
    timeout 20 sh -c 'while :; do :; done' &
    hogs="$hogs $!"
done
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
trainmark run $tiny $two --out busy
kill $hogs
wait
wanted=passive1
[ "$(nproc)" -gt 1 ] || wanted=0 # one thread waits for nobody
check "threads sleep while they wait" [ "$(value busy/result.json OMP_WAIT_POLICY)$(grep -c 'idle worker threads slept' "$err")" = "$wanted" ]

# --- logs -----------------------------------------------------------------------------------------------------------------------

says 0 '' run $tiny $two --out logged --log.folder logs
check "below its directory" [ "$(ls logged/logs/rank-0 | tr '\n' ' ')" = "debug error info warning " ]
check "begin with the command" [ "$(head -n 1 logged/logs/rank-0/info | grep -cE ' rank 0 of 1, process [0-9]+: trainmark run --model.n_layers 1 --model.dim 32 ')" -eq 1 ]
check "and end with 'done'" has logged/logs/rank-0/info ' done$'
says 3 '' run $tiny $wrong --out wild --log.folder "$work/elsewhere"
check "are an error in the log" has elsewhere/rank-0/error 'invalid|finite|not a number|NaN'
says 130 "stopped by --timeout after 0.7 s$" run $tiny --training.steps 1000000 --out late --timeout 0.7 --log.folder logs
check "is a warning in the log" has late/logs/rank-0/warning 'interrupted|stopped'
check "it says how to go on" has "$err" "^to resume, rerun the same command with --checkpoint.enable true$"
trainmark run $tiny --training.steps 1000000 --out later --timeout 0.7 --checkpoint.enable true
check_not "with checkpoints it need not say that" has "$err" "continues from here"
trainmark run $tiny $two --out told
check_not "no table of what was counted" has "$out" "by convention"
trainmark run $tiny $two --out told -v
check "-v: every table" has "$out" "by convention"
trainmark run $tiny $two --out quiet -q
check "-q: results only" [ ! -s "$err" ]

# --- evaluations -------------------------------------------------------------------------------------------------------------------

trainmark run $tiny --evaluate --data.path text.txt --validation.steps 8 --json
check "as JSON: 8 batches of 2 sequences of 32 targets" [ "$(members target_tokens)" -eq 512 ]
loss=$(printf %.4f "$(members loss)") bits=$(printf %.4f "$(members bits_per_byte)")
check "bits of a byte are nats over ln 2, a little more as an end is no byte" awk -v nats="$loss" -v bits="$bits" 'BEGIN { x = nats / bits / log(2); exit !(x > 0.99 && x <= 1.0001) }'

finish
