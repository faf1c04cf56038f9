#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Keys whose effect only the whole program can show (those of a run are in tests/train/test_key_effects.c, which also sees to it
# that none is forgotten: it looks for the lines "shows KEY" here).
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

shows() { key=$1; }
# run WORDS...: four steps of the tiny model into r.
run()
{
    rm -rf r
    trainmark run $tiny --training.steps 4 --out r "$@"
}
# effect WORDS... : the last run was good, and the command WORDS is true.
effect() { check "$key" "$@"; }

run
cp "$out" plain.txt
cp "$err" plain.err
cp r/result.json plain.json
without_times() { sed 's/[0-9][0-9.,]*//g' "$1"; }
check "a plain run" [ "$code" -eq 0 ]

shows metrics.log_freq
run --metrics.log_freq 4
effect [ "$(grep -c 'loss:' "$out")" -lt "$(grep -c 'loss:' plain.txt)" ]
shows metrics.log_style
run --metrics.log_style megatron
effect has "$out" 'elapsed time per iteration'
shows metrics.enable_tensorboard
run --metrics.enable_tensorboard true
effect [ -n "$(ls r/tb)" ]
shows metrics.save_tb_folder
run --metrics.enable_tensorboard true --metrics.save_tb_folder events
effect [ -n "$(ls r/events)" ]
shows log.file
run --log.file "$work/own.log"
effect grep -q 'loss:' own.log
shows log.folder
run --log.folder notes
effect grep -q 'loss:' r/notes/rank-0/info
shows log.level
run --log.level error --launch.master_port 4321
cp "$err" quiet.err
run --launch.master_port 4321
effect [ "$(wc -l <quiet.err)" -lt "$(wc -l <"$err")" ]
shows prediction.hardware
run --prediction.hardware 2xEPYC-9654
effect grep -q '^  predicted ' "$out"
shows store.path
run --store.path none
trainmark results --store "$work/other.db"
run --store.path "$work/other.db"
effect [ -s other.db ]
shows store.label
run --store.path "$work/other.db" --store.label mine
trainmark results --store "$work/other.db"
effect grep -q mine "$out"

# On a terminal.
terminal()
{
    TERM=xterm LANG=C.UTF-8 script -qec "$TRAINMARK run $(echo $tiny) --training.steps 60 --debug.certificate false --out r $*" /dev/null >terminal.txt 2>&1
    grep -q "$(printf '\033\[[0-9;]*m')" terminal.txt
}
panel()
{
    terminal "$@"
    grep -aq "ETA" terminal.txt
}
if command -v script >/dev/null && terminal; then
    shows metrics.disable_color_printing
    check_not "$key" terminal --metrics.disable_color_printing true
    shows log.color
    check_not "$key" terminal --log.color false
    check "a panel" panel
    shows log.panel
    check_not "$key" panel --log.panel false
else
    skip "colours" "no script(1), or it makes no terminal"
fi

# Names and folders.
trainmark run $tiny --training.steps 1 --exp_name named
shows exp_name
effect [ -s output/named/result.json ]
parts="--workspace w --work_group g --user_name u --exp_name e"
trainmark run $tiny --training.steps 1 $parts
check "the parts of the output path" [ -s w/g/u/e/result.json ]
for changed in workspace:other/g/u/e work_group:w/other/u/e user_name:w/g/other/e; do
    trainmark run $tiny --training.steps 1 $parts --${changed%%:*} other
    check "${changed%%:*}" [ -s "${changed#*:}/result.json" ]
done
shows workspace
shows work_group
shows user_name
shows job.description
run --job.description "what it is for"
effect grep -q 'what it is for' r/result.json
shows training.offload_path
run --training.offload optimizer --training.offload_path "$work/nowhere"
effect grep -q nowhere "$err"

shows lora.adapter_path
run --lora.rank 4 --lora.adapter_path nowhere
effect grep -q "lora.adapter_path .command line. needs" "$err"

# Checkpoints.
saving="--checkpoint.enable true --checkpoint.interval 1"
shows checkpoint.folder
run $saving --checkpoint.folder saved
effect [ -d r/saved/step-00000004 ]
shows checkpoint.keep_latest_k
run $saving --checkpoint.keep_latest_k 1
effect [ "$(ls r/checkpoint | grep -c step)" -eq 1 ]
shows checkpoint.load_step
run $saving
trainmark run $tiny --training.steps 5 --out r $saving --checkpoint.load_step 2
effect grep -q 'resumed from step 2' "$err"

# MLPerf.
small="--mlperf.enable true --mlperf.benchmark trainmark_tiny --mlperf.clear_caches false --training.seq_len 16
       --training.local_batch_size 2 --training.global_batch_size 4 --training.steps 2 --validation.steps 1
       --training.threads 1 --mlperf.submission_org me"
logged() { grep "\"key\": \"$1\"" r/result_0.txt | tail -n 1 | sed 's/.*"value": //; s/, "metadata".*//'; }
mlperf()
{
    rm -rf r
    trainmark run $small --out r "$@"
}
shows mlperf.enable
mlperf
effect [ -s r/result_0.txt ]
evaluations=$(grep -c '"key": "eval_accuracy"' r/result_0.txt)
shows mlperf.benchmark
mlperf --mlperf.benchmark llama31_8b
effect [ "$code" -eq 4 ]
shows mlperf.log
mlperf --mlperf.log other.txt
effect [ -s r/other.txt ]
shows mlperf.eval_interval_samples
mlperf --mlperf.eval_interval_samples 4
effect [ "$(grep -c '"key": "eval_accuracy"' r/result_0.txt)" -ne "$evaluations" ]
for one in org:them platform:box division:open status:cloud poc_name:Ann poc_email:a@b.c; do
    mlperf --mlperf.submission_${one%%:*} "${one#*:}"
    check "mlperf.submission_${one%%:*}" [ "$(logged submission_${one%%:*})" = "\"${one#*:}\"" ]
done
shows mlperf.submission_org
shows mlperf.submission_platform
shows mlperf.submission_division
shows mlperf.submission_status
shows mlperf.submission_poc_name
shows mlperf.submission_poc_email

finish
