#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a run cannot read or write: files of others, full disks, limits. Wrong words and files
# that a line can make: wrong_inputs.txt; configurations: tests/config; texts: tests/data; checkpoints: tests/train.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# tiny_run PATTERN OPTION VALUE: a run that is refused.
tiny_run() { says 4 "$1" run $tiny --training.steps 3 --out run "$2" "$3"; }

seq 1 5000 >text.txt
mkdir empty
# Root may do everything: these are of a user who may not.
program=$TRAINMARK
if [ "$(id -u)" -eq 0 ]; then
    chmod 755 .
    printf '#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups "%s" "$@"\n' "$program" >unprivileged
    chmod 755 unprivileged
    TRAINMARK=$work/unprivileged
fi
if ! "$TRAINMARK" version >/dev/null 2>&1; then
    skip "unreadable folder" "root cannot become another user here"
    skip "run directory that cannot be written" "root cannot become another user here"
else
    mkdir closed
    cp text.txt closed/a
    [ "$(id -u)" -ne 0 ] || chown -R 65534 closed
    chmod 0 closed
    tiny_run "cannot read directory 'closed': Permission denied; give read permission" --data.path closed
    chmod 500 closed
    tiny_run "cannot create directory 'closed/run': Permission denied" --out closed/run
fi
TRAINMARK=$program

# --- what is written ------------------------------------------------------------------------------------------------------

tiny_run "'text.txt' exists and is not a directory; name another" --out text.txt
mkdir half
says 4 "does not fit in memory" run llama3.1_70B --model.n_layers 4000 --out half/made/run
check_not "no folder is left that it made" [ -e half/made ]
tiny_run "cannot create directory 'text.txt/below': Not a directory" --out text.txt/below
tiny_run "cannot append to 'text.txt': header is \"1\", wanted \"model,n_gpus" --perf-csv text.txt
check "the file with another header is as it was" [ "$(wc -l <text.txt)" -eq 5000 ]

# to_full NAME ARGUMENTS...: standard output is a full disk.
to_full()
{
    name=$1
    shift
    : >"$out"
    timeout -k 5 "$seconds" "$TRAINMARK" "$@" >/dev/full 2>"$err" </dev/null
    code=$?
    failed_with 1 "full disk behind standard output: $name" "cannot write to"
}
if [ -c /dev/full ]; then
    to_full run run $tiny --training.steps 3 --out full
    for command in "run --dry-run" "explain --json" "models" "keys" "version" "run --help" "results" "run $tiny --evaluate" \
        "bench stream --elements 1000 --rep-ms 1 --warmup-ms 0 --threads 1"; do
        to_full "$command" $command
    done
else
    skip "full disk behind standard output" "there is no /dev/full"
fi

# limited BLOCKS ARGUMENTS...: with a limit on the size of files (512 bytes a block). What the program says must not meet
# the limit itself, so it goes through a pipe.
limited()
{
    blocks=$1
    shift
    : >"$out"
    (
        ulimit -f "$blocks"
        timeout -k 5 "$seconds" "$TRAINMARK" run $tiny --store.path none "$@" 2>&1 >/dev/null </dev/null
        echo "exit $?"
    ) | cat >"$err"
    code=$(sed -n 's/^exit \([0-9]*\)$/\1/p' "$err")
}

limited 20 --training.steps 80 --out limit2
failed_with 1 "file-size limit: records" "cannot write to 'limit2/metrics.jsonl': File too large"
check_not "no torn line is in metrics.jsonl" grep -qv '^{.*}$' limit2/metrics.jsonl
limited 64 --training.steps 40 --checkpoint.enable true --checkpoint.interval 5 --out limit3
failed_with 1 "file-size limit: checkpoint" "tensors.safetensors': File too large; raise the file-size limit"

# --- limits of a process (ulimit) that leave too little: a message and an exit code of the table, never a crash ----------------------

export TRAINMARK_STORE=none
# under LIMIT VALUE WORD...: the program with that limit.
under()
{
    limit=$1 value=$2
    shift 2
    # shellcheck disable=SC3045 # of the shells that are /bin/sh, all have these
    (ulimit "$limit" "$value" && exec timeout -k 5 "$seconds" "$TRAINMARK" "$@") >"$out" 2>"$err" </dev/null
    code=$?
}

for kib in 32 64 256; do
    under -s $kib version
    failed_with 4 "a stack of $kib KiB" "stacks are limited to $kib KiB .ulimit -s., and 512 KiB are needed; .ulimit -s 8192. in front$"
done
if grep -q __asan_init "$TRAINMARK"; then
    skip "what is asked for is enough" "frames of this build are larger"
else
    under -s 512 run $tiny --training.steps 60 --checkpoint.enable true --out stack
    check "what is asked for is enough" [ "$code" -eq 0 -o "$code" -eq 3 ]
    under -s 512 run tiny-flux --training.steps 1 --training.local_batch_size 1 --out images
    check "also for images" [ "$code" -eq 0 ]
fi
# Whatever the limit, it is said, or does not matter.
for limits in "-n 5" "-n 6" "-n 8" "-n 10" "-n 13" "-n 16" "-n 20" "-n 64" "-f 1" "-f 8" "-f 64" "-f 1000" "-v 20000" "-v 40000" \
    "-v 60000" "-v 90000" "-v 200000"; do
    rm -rf few
    under $limits run $tiny --training.steps 6 --checkpoint.enable true --checkpoint.interval 3 --out few
    case $code in
    0) pass "ulimit $limits: enough" ;;
    1 | 4) if [ -s "$err" ]; then pass "ulimit $limits: said"; else fail "ulimit $limits" "exit code $code without a message"; fi ;;
    *) fail "ulimit $limits" "exit code $code" ;;
    esac
done

finish
