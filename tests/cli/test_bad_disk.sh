#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A disk that fails once, at each call of a short run in turn (tests/standins/bad_disk.c): the run says which file and ends with exit code 1,
# or the failure did no harm; nothing that is half written is taken for whole; a run that goes on comes to the same weights,
# removes what is left, and the store and the file of --perf-csv have whole rows.
#
#   TM_TEST_FULL=1: every call in every way; else a sample. CASES="EIO:17 kill:40": these alone
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

one="--training.local_batch_size 1 --training.seq_len 16 --model.n_layers 1 --model.dim 16 --model.n_heads 2 --model.n_kv_heads 2
     --model.vocab_size 64 --training.threads 1 --training.stop_at_target false --validation.enable false
     --debug.certificate false --checkpoint.enable true --checkpoint.interval 3 --checkpoint.keep_latest_k 2"

# The folder of a case has a name that no other path has.
go_on() # FOLDER WORD...: its run, up to step 12
{
    go_folder=$1
    shift
    TRAINMARK_STORE=$go_folder/store.db timeout -k 5 "$seconds" env "$@" "$TRAINMARK" run tiny-llama $one \
        --training.steps ${steps:-12} --out "$go_folder/run" --perf-csv "$go_folder/all.csv" --quiet
}
hash_of() { sed -n 's/^ *"weights_hash": "\([0-9a-f]*\)".*/\1/p' "$1/run/result.json" 2>/dev/null; }
# Does every row have the cells of the header? No cell of this run has a comma or a line break, but the quoted command.
whole_csv() { [ "$(sed 's/"[^"]*"/_/g' "$1" | awk -F, '{ print NF }' | sort -u | tr '\n' ' ')" = "29 " ] && [ -z "$(tail -c 1 "$1")" ]; }

if ! cc -std=gnu11 -O1 -shared -fPIC -o bad_disk.so "$root/tests/standins/bad_disk.c" -ldl 2>cc.err; then
    skip "a disk that fails" "cc makes no library: $(head -n 1 cc.err)"
    finish
fi
if ! LD_PRELOAD=$work/bad_disk.so "$TRAINMARK" version >/dev/null 2>version.err; then
    skip "a disk that fails" "this build takes no library before its own: $(head -n 1 version.err)"
    finish
fi
mkdir begun
steps=6 go_on begun >begun.out 2>&1
check "a run of 6 steps" [ $? -eq 0 ]
cp -r begun straight
go_on "$work/straight" BAD_DISK_BELOW="$work/straight" BAD_DISK_LOG="$work/calls" LD_PRELOAD="$work/bad_disk.so" >straight.out 2>&1
check "goes on to 12" [ $? -eq 0 ]
wanted=$(hash_of straight)
check "with all its calls counted" [ -n "$wanted" -a "$(wc -l <calls)" -gt 100 ]

# Of a call that is made many times in a row the first and the last. What can fail how: a signal cuts short what takes time, a
# full disk what takes room, and only writes can be done in part.
awk '{ line[NR] = $0; sub(/\.tmp\..*/, "", line[NR]); call[NR] = $1 }
    END {
        for (i = 1; i <= NR; i++) {
            if (line[i] == line[i - 1] && line[i] == line[i + 1]) continue
            print "EIO:" i; print "kill:" i
            if (call[i] ~ /^(write|pwrite|fsync|fdatasync|open|close|rename)$/ && i > 1) print "EINTR:" i
            if (call[i] ~ /^(write|pwrite|fsync|fdatasync|open|mkdir|ftruncate)$/) print "ENOSPC:" i
            if (call[i] ~ /^(write|pwrite)$/) print "short:" i
        }
    }' calls >all_cases
if [ -n "${CASES:-}" ]; then
    echo "$CASES" | tr ' ' '\n' >cases
elif [ -n "${TM_TEST_FULL:-}" ]; then
    cp all_cases cases
else
    awk 'NR % 43 == 7' all_cases >cases
fi

# one_case HOW AT: prints a line for what is wrong.
one_case()
{
    how=$1 at=$2
    d=$work/case-$how-$at
    rm -rf "$d" && cp -r "$work/begun" "$d"
    go_on "$d" BAD_DISK_BELOW="$d" BAD_DISK_AT="$at" BAD_DISK_HOW="$how" LD_PRELOAD="$work/bad_disk.so" >"$d.out" 2>"$d.err"
    code=$?
    call=$(sed -n "${at}p" "$work/calls" | sed "s,$work/straight/,,")
    wrong() { echo "$how at call $at ($call): $*"; sed 's/^/    /' "$d.err" | grep -v 'note: ' | head -n 4; }
    case $how in
    kill) [ $code -eq 137 ] || wrong "exit code $code, wanted 137" ;;
    EINTR | short) [ $code -eq 0 ] || wrong "exit code $code, wanted 0" ;;
    *)
        [ $code -le 1 ] || wrong "exit code $code, wanted 0 or 1"
        [ $code -ne 1 ] || grep -q "^trainmark: .*'$d" "$d.err" || wrong "the message names no file"
        ;;
    esac
    if [ $code -eq 0 ]; then
        [ "$(hash_of "$d")" = "$wanted" ] || wrong "exit code 0, but not the weights of a run that never failed"
        "$TRAINMARK" verify "$d/run" >/dev/null 2>&1 || wrong "exit code 0, and the result does not verify"
        [ "$(wc -l <"$d/all.csv")" -eq 3 ] || wrong "exit code 0, and no row in the file of --perf-csv"
        [ "$("$TRAINMARK" results --store "$d/store.db" --json 2>&1 | grep -c '"id"')" -eq 2 ] || wrong "exit code 0, and not stored"
    fi
    # What is there is whole, or is not there. A run whose records are lost goes on: its result says what metrics.jsonl lacks.
    lost=no
    [ $code -ne 1 ] || ! grep -q "metrics.jsonl'" "$d.err" || lost=yes
    holds() { [ $lost = yes ] || "$TRAINMARK" verify "$d/run" >/dev/null 2>"$d.verify"; }
    [ ! -e "$d/run/result.json" ] || holds || wrong "a result that is not: $(cat "$d.verify")"
    go_on "$d" >"$d.out" 2>"$d.again"
    [ $? -eq 0 ] || wrong "does not go on: $(cat "$d.again")"
    [ "$(hash_of "$d")" = "$wanted" ] || wrong "does not come to the same weights"
    holds || wrong "its result does not verify: $(cat "$d.verify")"
    whole_csv "$d/all.csv" || wrong "rows of --perf-csv are not whole"
    "$TRAINMARK" results --store "$d/store.db" --json >"$d.list" 2>&1 || wrong "the store: $(cat "$d.list")"
    [ -z "$(find "$d" -name '*.tmp*' -o -name '*.old')" ] || wrong "is left: $(find "$d" -name '*.tmp*' -o -name '*.old')"
    rm -rf "$d" "$d".*
}
# half N: every second case.
half() { awk -v n="$1" 'NR % 2 == n' cases | while IFS=: read -r how at; do one_case "$how" "$at"; done; }
half 1 >wrong.1 2>&1 &
half 0 >wrong.0 2>&1
wait
cat wrong.1 wrong.0 >wrong.all
sed 's/^/# /' wrong.all
check "$(wc -l <cases) failures at one of $(wc -l <calls) calls each do no harm" [ ! -s wrong.all ]
finish
