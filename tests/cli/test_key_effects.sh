#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Keys whose effect only the whole program can show (those of a run are in tests/train/test_key_effects.c, which also sees to it
# that none is forgotten: it looks for lines that end with "shows KEY" here).
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# effects COMMAND: rows "WORDS | CONDITION | shows KEY" of standard input: after COMMAND WORDS the condition is true.
effects()
{
    while IFS='|' read -r words condition key <&3; do
        rm -rf r
        eval "trainmark $* --out r $words"
        check "${key# shows }" eval "$condition"
    done 3<&0
}
logged() { sed -n "s/.*\"key\": \"$1\", \"value\": \"*\([^\",]*\).*/\1/p" r/result_0.txt | tail -n 1; }

says 0 '' run $tiny --training.steps 4 --launch.master_port 4321 --out r
cp "$out" plain.txt
cp "$err" plain.err
saving="--checkpoint.enable true --checkpoint.interval 1"
trainmark run $tiny --training.steps 4 --out saved $saving
effects run '$tiny' --training.steps 4 <<'END'
--metrics.log_freq 4 | [ "$(grep -c 'loss:' "$out")" -lt "$(grep -c 'loss:' plain.txt)" ] | shows metrics.log_freq
--metrics.log_style megatron | has "$out" 'elapsed time per iteration' | shows metrics.log_style
--metrics.enable_tensorboard true | [ -n "$(ls r/tb)" ] | shows metrics.enable_tensorboard
--metrics.enable_tensorboard true --metrics.save_tb_folder events | [ -n "$(ls r/events)" ] | shows metrics.save_tb_folder
--log.file "$work/own.log" | grep -q 'loss:' own.log | shows log.file
--log.folder notes | grep -q 'loss:' r/notes/rank-0/info | shows log.folder
--log.level error --launch.master_port 4321 | [ "$(wc -l <"$err")" -lt "$(wc -l <plain.err)" ] | shows log.level
--prediction.hardware 2xEPYC-9654 | grep -q '^  predicted ' "$out" | shows prediction.hardware
--store.path "$work/other.db" | [ -s other.db ] | shows store.path
--store.path "$work/label.db" --store.label mine | "$TRAINMARK" results --store label.db --label mine --json >label && [ "$(grep -c '"id"' label)" -eq 1 ] | shows store.label
--job.description 'what it is for' | grep -q 'what it is for' r/result.json | shows job.description
--training.offload optimizer --training.offload_path "$work/nowhere" | grep -q nowhere "$err" | shows training.offload_path
--lora.rank 4 --lora.adapter_path nowhere | grep -q 'lora.adapter_path .command line. needs' "$err" | shows lora.adapter_path
$saving --checkpoint.folder saved | [ -d r/saved/step-00000004 ] | shows checkpoint.folder
$saving --checkpoint.keep_latest_k 1 | [ "$(echo r/checkpoint/step-*)" = r/checkpoint/step-00000004 ] | shows checkpoint.keep_latest_k
--training.steps 5 --out saved $saving --checkpoint.load_step 2 | grep -q 'resumed from step 2' "$err" | shows checkpoint.load_step
END

# On a terminal.
terminal()
{
    TERM=xterm LANG=C.UTF-8 script -qec "$TRAINMARK run $(echo $tiny) --training.steps 60 --debug.certificate false --out r $*" /dev/null >terminal.txt 2>&1
    grep -q "$(printf '\033\[[0-9;]*m')" terminal.txt
}
panel() { terminal "$@"; grep -aq "ETA" terminal.txt; }
if command -v script >/dev/null && terminal && panel; then
    for words in "metrics.disable_color_printing true" "log.color false"; do check_not "$words" terminal --$words; done
    check_not "log.panel" panel --log.panel false
    : shows metrics.disable_color_printing
    : shows log.color
    : shows log.panel
else
    skip "colours" "no script(1), or it makes no terminal"
fi

# Names and folders.
parts="--workspace w --work_group g --user_name u --exp_name e"
for changed in exp_name:w/g/u/other workspace:other/g/u/e work_group:w/other/u/e user_name:w/g/other/e; do
    trainmark run $tiny --training.steps 1 $parts --${changed%%:*} other
    check "${changed%%:*}" [ -s "${changed#*:}/result.json" ]
done
: shows exp_name
: shows workspace
: shows work_group
: shows user_name

# MLPerf.
small="--mlperf.enable true --mlperf.benchmark trainmark_tiny --mlperf.clear_caches false --training.seq_len 16
       --training.local_batch_size 2 --training.global_batch_size 4 --training.steps 2 --validation.steps 1
       --training.threads 1 --mlperf.submission_org me"
effects run '$small' <<'END'
 | [ -s r/result_0.txt -a "$(grep -c '"key": "eval_accuracy"' r/result_0.txt)" -eq 1 ] | shows mlperf.enable
--mlperf.benchmark llama31_8b | [ "$code" -eq 4 ] | shows mlperf.benchmark
--mlperf.log other.txt | [ -s r/other.txt ] | shows mlperf.log
--mlperf.eval_interval_samples 4 | [ "$(grep -c '"key": "eval_accuracy"' r/result_0.txt)" -gt 1 ] | shows mlperf.eval_interval_samples
--mlperf.submission_org them | [ "$(logged submission_org)" = them ] | shows mlperf.submission_org
--mlperf.submission_platform box | [ "$(logged submission_platform)" = box ] | shows mlperf.submission_platform
--mlperf.submission_division open | [ "$(logged submission_division)" = open ] | shows mlperf.submission_division
--mlperf.submission_status cloud | [ "$(logged submission_status)" = cloud ] | shows mlperf.submission_status
--mlperf.submission_poc_name Ann | [ "$(logged submission_poc_name)" = Ann ] | shows mlperf.submission_poc_name
--mlperf.submission_poc_email a@b.c | [ "$(logged submission_poc_email)" = a@b.c ] | shows mlperf.submission_poc_email
END
finish
