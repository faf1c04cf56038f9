# SPDX-License-Identifier: Apache-2.0
# tools/mutants/tests.sh - how judge.sh and together.sh run one test. They set build and work (a folder of their own).
# dash and bash know ulimit.
# shellcheck shell=sh disable=SC2154,SC3045

# Where tests write: in memory, as many wait for the disk.
if [ -w /dev/shm ]; then tmp=/dev/shm/mutants.$$; else tmp=$PWD/$work/tmp; fi

# Memory that a test program does not give back is an error, as in `make asan`.
leaks=$(${CC:-cc} -print-file-name=liblsan.so)
[ -f "$leaks" ] || leaks=

# run LIBRARIES TEST LIMIT: its exit status; 124: longer than so many seconds.
run()
{
    program=$build/$2 preload=$leaks
    [ -f "$2.sh" ] && program=$2.sh
    # Scripts start commands, which leave what they have to the system; some tests do, too.
    if [ -f "$2.sh" ] || [ -f "$build/leaky/$(echo "$2" | tr / %)" ]; then preload=; fi
    mkdir -p "$tmp"
    ( # the shell above would tell of each abort
        exec 2>/dev/null
        ulimit -c 0
        ulimit -S -d 12000000
        ulimit -S -f 4000000
        LD_LIBRARY_PATH=$1 TMPDIR=$tmp TRAINMARK=$PWD/$build/trainmark OMP_WAIT_POLICY=passive CMOCKA_TEST_ABORT=1 \
            timeout -k 5 "$3" env ${preload:+LD_PRELOAD="$preload"} "$program" >"$work/log" 2>&1 </dev/null || exit $?
    )
}

# limit_of TEST: ten times the seconds that it takes without a mutant, and GRACE (20). Fails if it is red without one.
limit_of()
{
    green=$build/green/$(echo "$1" | tr / %)
    if [ ! -f "$green" ] || [ "$build/libtrainmark.so" -nt "$green" ]; then
        from=$(date +%s%3N)
        if ! run "" "$1" 1800; then
            mkdir -p "$build/leaky"
            touch "$build/leaky/$(echo "$1" | tr / %)"
            run "" "$1" 1800 || { sleep 1; run "" "$1" 1800; } || return 1 # once may be the day's fault
        fi
        echo $(($(date +%s%3N) - from)) >"$work/green" && mv "$work/green" "$green"
    fi
    awk -v grace="${GRACE:-20}" '{ printf "%d", $1 / 100 + grace }' "$green"
}

# fault_of_test TEST LIMIT STATUS: does it fail without a mutant, too? Who takes long and was green before is believed.
fault_of_test()
{
    [ "$2" -lt 50 ] || [ "$3" -eq 124 ] || [ "$3" -eq 137 ] || return 1
    ! run "" "$1" "$2"
}
