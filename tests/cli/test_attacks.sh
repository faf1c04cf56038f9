#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Folders prepared by somebody else, names that command a terminal, secrets in variables, two runs at once, data that changes:
# what an audit did to the program, again.
# shellcheck disable=SC1091,SC2016,SC2059,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

esc=$(printf '\033')
tiny_run() { trainmark run $tiny --training.steps 3 --out run "$@"; }

# Starts a run of many steps in the background; waits until it has done some. Its output: $back.out, $back.err.
back=$work/.back
start_run()
{
    timeout "$seconds" "$TRAINMARK" run $tiny --training.steps 1000000 --out run "$@" >"$back.out" 2>"$back.err" </dev/null &
    started=$!
    tries=0
    until [ -s run/metrics.jsonl ] || [ $tries -ge 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

# The program below the `timeout` that was started.
program() { grep -ls "^PPid:[^0-9]*$started\$" /proc/[0-9]*/status | cut -d / -f 3; }

# --- links in a prepared folder -------------------------------------------------------------------------------------------

mkdir run
echo treasure >victim
for name in config.yaml metrics.jsonl result.json run.lock; do
    rm -f run/*
    ln -s "$work/victim" "run/$name"
    tiny_run
    check "a link named $name is not written through" [ "$(cat victim)" = treasure ]
    if [ "$name" = metrics.jsonl ] || [ "$name" = run.lock ]; then
        check "a link named $name is refused" [ "$code" -ne 0 ]
    else
        check "a link named $name is replaced" [ "$code" -eq 0 -a -f "run/$name" -a ! -L "run/$name" ]
    fi
done
rm -rf run
: >empty
ln -s "$work/empty" all.csv
tiny_run --perf-csv all.csv
check_not "rows are not added through a link" [ -s empty ]
check "and that is told" has "$err" "all.csv': it is a symbolic link"
rm all.csv
ln -s "$work/victim" all.csv
tiny_run --log.file all.csv
check "nor log lines" [ "$(cat victim)" = treasure ]
rm -rf run all.csv
mkdir -p run/checkpoint away
for name in complete index.bin tensors.safetensors tensors.bin; do echo treasure >away/$name; done
ln -s "$work/away" run/checkpoint/step-00000001
ln -s "$work/away" run/checkpoint/step-00000002.tmp.1
ln -s "$work/victim" run/checkpoint/lock
tiny_run --checkpoint.enable true --checkpoint.keep_latest_k 1 --checkpoint.load_step -1
check "a link named lock is not opened" [ "$(cat victim)" = treasure ]
rm -f run/checkpoint/lock
tiny_run --checkpoint.enable true --checkpoint.keep_latest_k 1
check "checkpoints that are links lose no file" [ "$(cat away/* | sort -u)" = treasure -a "$(find away -type f | wc -l)" -eq 4 ]
rm -rf run away

# --- second names (hard links), closed descriptors ---------------------------------------------------------------

mkdir -p run/checkpoint
for name in metrics.jsonl run.lock checkpoint/lock; do
    ln victim "run/$name"
    tiny_run --checkpoint.enable true
    check "a second name $name of a file is not written to" [ "$(cat victim)" = treasure ]
    check "with its name" has "$err" "(run|checkpoint|metrics.jsonl)'.*(second name|Too many links)"
    rm -f "run/$name"
done
tiny_run
rm -rf run
"$TRAINMARK" run $tiny --training.steps 3 --checkpoint.enable true --out run <&- >&- 2>&-
check "closed outputs are an error" [ $? -eq 1 ]
check_not "and nothing that was printed is in a record" grep -rqE "^(trainmark|step)" run --include=metrics.jsonl --include=run.lock
rm -rf run
start_run --training.offload all --training.offload_path "$work"
check "the run in the background has begun" [ -s run/metrics.jsonl ]
tiny_run
failed_with 4 "two runs into one folder" "'run' is in use by process [0-9]+ on host [^ ]+ since" "--out DIR"
kill -9 "$(program)"
wait "$started"
tiny_run
check "after a kill the folder is free" [ "$code" -eq 0 ]
check_not "and no lock stays behind" [ -e run/run.lock ]
check "nor a file of what was moved to the disk" [ -z "$(find . -name 'trainmark-offload*')" ]
rm -rf run
timeout "$seconds" "$TRAINMARK" run $tiny --training.steps 3000 --checkpoint.enable true --checkpoint.interval 10 \
    --checkpoint.keep_latest_k 1 --out run >"$back.out" 2>"$back.err" </dev/null &
started=$!
tries=0
until [ -s run/metrics.jsonl ] || [ $tries -ge 400 ]; do sleep 0.02; tries=$((tries + 1)); done
mv run moved
wait "$started"
code=$?
cp "$back.err" "$err"
check "records of a folder that went away are missed" [ "$code" -eq 1 ]
check "and it is said" has "$err" "trainmark: input/output error: .*run.* (was removed|was moved or removed|No such file)" # wherever it was just then
rm -rf run moved
start_run --checkpoint.enable true --checkpoint.interval 10 --checkpoint.keep_latest_k 1
rm -f run/metrics.jsonl
tries=0
until has "$back.err" "cannot keep 'run/metrics.jsonl': it was moved or removed" || [ $tries -ge 200 ]; do sleep 0.05; tries=$((tries + 1)); done
check "records that somebody removes are missed while the run goes on" \
    has "$back.err" "removed during the run; its records are lost; the run goes on without it"
check "which it does" kill -INT "$(program)"
wait "$started"
rm -rf run

# --- hanging up saves, and what batch systems send -----------------------------------------------------------------------

for signal in HUP USR1 USR2 XCPU; do
    start_run --checkpoint.enable true
    for time in 1 2 3; do
        kill -$signal "$(program)" 2>/dev/null
        [ $signal != HUP ] || break
    done
    wait "$started"
    code=$?
    check "SIG$signal: exit code 130 and a checkpoint" [ $code -eq 130 -a -n "$(ls run/checkpoint 2>/dev/null | grep step-)" ]
    rm -rf run
done

# --- names that command a terminal, secrets in variables --------------------------------------------------------------------

printf 'model:\n  name: "\\e]0;owned\\a\\e[2J"\n  vocab_size: 64\n' >c.yaml
pipeline='https://ci:hunter2secret@host/x' AWS_CREDENTIAL=cred-value-1 NCCL_DEBUG_FILE=postgres://u:pass-value-5@h/d \
    says 0 '' run c.yaml $tiny --training.steps 3 --out run
check_not "no escape from YAML is printed or recorded" grep -q "$esc" "$out" "$err" run/result.json run/perf.csv run/metrics.jsonl
check_not "nor a secret" grep -rqE "hunter2secret|cred-value-1|pass-value-5" run
check "what was left out is counted" grep -qE '^variables_left_out' run/environment.csv
trainmark run "$(printf 'no\ntrainmark: all is %s well.yaml' "$esc")"
check_not "no line of a name passes for ours" grep -q "^trainmark: all is\|$esc" "$err"
rm -rf run
pipeline='=HYPERLINK("http://x","y")' trainmark run $tiny --training.steps 3 --out run
check_not "perf.csv holds no formula" grep -qE '(^|,)"?[=@]' run/perf.csv
rm -rf run

# --- models and data that change ------------------------------------------------------------------------------------------

mkdir text
yes "a line of the text" | head -c 80000000 >text/big.txt
start_run --data.path text
truncate -s 1K text/big.txt
wait "$started"
code=$?
cp "$back.err" "$err"
failed_with 4 "a text cut short during the run" "big.txt' was (changed during the run; keep data.path unchanged|truncated during the run, or its disk cannot be read; keep data unchanged)$"
rm -rf run text

# --- scratch folders ------------------------------------------------------------------------------------------------------

TMPDIR=$work/tmp
export TMPDIR
mkdir "$TMPDIR"
timeout "$seconds" "$TRAINMARK" ab --a "$tiny" --b "" --budget 50 >/dev/null 2>&1 </dev/null &
started=$!
tries=0
until [ -n "$(find "$TMPDIR" -name metrics.jsonl)" ] || [ $tries -ge 200 ]; do sleep 0.05; tries=$((tries + 1)); done
check "ab has a scratch folder" [ "$(find "$TMPDIR" -maxdepth 1 -name 'trainmark-ab-*' | wc -l)" -eq 1 ]
kill -9 "$(program)"
wait "$started"
trainmark ab --a "$tiny" --b "$tiny" --budget 1 --min-pairs 6
check "the next ab removes what a killed one left" [ "$(find "$TMPDIR" -maxdepth 1 -name 'trainmark-ab-*' | wc -l)" -eq 0 ]

# --- files that keep the program busy -------------------------------------------------------------------------------------

# A chat template that takes long for each of many rows: the first signal ends the program, before anything is made.
mkdir busy
cat >busy/tokenizer_config.json <<'EOF'
{"chat_template": "{% set s = 'ab' * 500000 %}{% set t = 'ba' * 400000 ~ 'x' %}{% for i in range(300) %}{% if t in s %}{% endif %}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"}
EOF
cp "$root/tests/token/chat/qwen3/tokenizer.json" busy/
row='{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
yes "$row" | head -n 1000 >busy/rows.jsonl
timeout -k 20 "$seconds" "$TRAINMARK" run $tiny --data.source sft --data.path busy/rows.jsonl --data.tokenizer busy --out stopped >"$out" 2>"$err" &
started=$!
sleep 1
for one in $(program); do kill -TERM "$one"; done
wait $started
code=$?
check "the first signal ends what reads a file" [ "$code" -eq 130 ]
check "and it is told" has "$err" '^trainmark: interrupted$'
check_not "nothing is made" [ -e stopped ]

finish
