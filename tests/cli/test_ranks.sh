#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --ranks: a command that starts itself under an MPI's launcher, and what happens to its ranks. The calls themselves:
# tests/comm.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
modules=$(dirname "$(readlink -f "$TRAINMARK")")
shared=/tmp
[ -w /dev/shm ] && shared=/dev/shm

# --- with each MPI ------------------------------------------------------------------------------------------------------

# rank_pids NAME: the numbers in the files NAME that ranks of process $main have left; other tests may run ranks, too.
rank_pids()
{
    for file in "$shared"/trainmark-ranks-*/$1; do
        pid=$(cat "$file" 2>/dev/null)
        above=$pid
        while [ "${above:-0}" -gt 1 ] && [ "$above" != "$main" ]; do
            above=$(sed 's/.*) . //; s/ .*//' "/proc/$above/stat" 2>/dev/null)
        done
        [ "${above:-0}" = "$main" ] && echo "$pid"
    done
}
# What all ranks of a running command leave behind: their numbers. wait_for_ranks N sets $pids.
wait_for_ranks()
{
    for _ in $(seq 100); do
        pids=$(rank_pids 'pid.*')
        [ "$(echo $pids | wc -w)" -eq "$1" ] && sleep 0.5 && return 0
        sleep 0.1
    done
    return 1
}
nobody_left()
{
    for _ in $(seq 40); do
        left=
        for pid in $pids; do
            case $(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null) in '' | Z | X) ;; *) left=$pid ;; esac
        done
        [ -z "$left" ] && return 0
        sleep 0.1
    done
    return 1
}
ended_within() { # ended_within SECONDS PID: sets $code
    for _ in $(seq "$(($1 * 10))"); do
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    kill -0 "$2" 2>/dev/null && { kill -9 "$2"; wait "$2"; code=124; return 1; }
    wait "$2"
    code=$?
}
# No folder is left whose command has ended.
no_folder()
{
    for folder in "$shared"/trainmark-ranks-*; do
        [ -f "$folder/run.lock" ] && flock -n "$folder/run.lock" true && [ -f "$folder/run.lock" ] && return 1
    done
    return 0
}

# Ranks that are killed, stopped and asked to stop: in the quick suite with the first MPI alone.
ended_ranks()
{
    "$TRAINMARK" bench collectives --mpi $mpi --ranks 3 --duration 30 >"$out" 2>"$err" </dev/null &
    main=$!
    check "$mpi: three ranks begin" wait_for_ranks 3
    kill -9 "$(echo $pids | cut -d' ' -f2)"
    ended_within 15 $main
    failed_with 1 "$mpi: a rank is killed" "without a word"
    check "$mpi: no process is left of it" nobody_left
    check "$mpi: nor a file" no_folder

    "$TRAINMARK" run --mpi $mpi --ranks 2 --deadline 1.5 $tiny --training.steps 1000000 >"$out" 2>"$err" </dev/null &
    main=$!
    wait_for_ranks 2
    kill -STOP "$(echo $pids | cut -d' ' -f2)"
    ended_within 15 $main
    failed_with 1 "$mpi: a rank is stopped" "rank 1 "
    check "$mpi: it is not left either" nobody_left

    "$TRAINMARK" bench collectives --mpi $mpi --ranks 2 --duration 30 >"$out" 2>"$err" </dev/null &
    main=$!
    check "$mpi: two ranks begin" wait_for_ranks 2
    kill -TERM $main
    ended_within 15 $main
    failed_with 130 "$mpi: asked to stop, the ranks do" "asking the ranks to stop"
    check "$mpi: one rank says so" [ "$(grep -c 'stopped while timing' "$err")" -eq 1 ]

    "$TRAINMARK" bench collectives --mpi $mpi --ranks 2 --duration 30 >"$out" 2>"$err" </dev/null &
    main=$!
    wait_for_ranks 2
    kill -9 $main
    wait $main
    check "$mpi: whoever started the ranks is killed: so are they" nobody_left
    trainmark bench collectives --mpi $mpi --ranks 2 $quick
    check "$mpi: the next one removes what that left" no_folder
}

# The weights of one rank that sums two parts of each step apart. The ranks find that batch.
trainmark run $tiny --training.steps 4 --training.local_batch_size 4 --training.global_batch_size 8 --training.separate_sums 2 --out alone
weights=$(grep -o '"weights_hash": *"[^"]*"' alone/result.json)
an_mpi=
quick="--calls all-reduce,p2p --min-bytes 1024 --max-bytes 8192 --rep-ms 2 --warmup-ms 1 --precision 0"
for mpi in openmpi mpich; do
    launcher=mpirun.openmpi packages="openmpi-bin libopenmpi-dev"
    [ $mpi = mpich ] && launcher=mpiexec.mpich packages="mpich libmpich-dev"
    if [ ! -f "$modules/trainmark-$mpi.so" ] || ! command -v $launcher >/dev/null; then
        skip "ranks over $mpi" "$launcher or trainmark-$mpi.so is not here ($packages)"
        continue
    fi
    says 0 '' bench collectives --mpi $mpi --ranks 3 $quick --json
    check "$mpi: one rank prints" [ "$(grep -c '"workload": *"collectives"\|"name": *"collectives"' "$out")" -le 1 ]
    check "$mpi: all rows are right" [ "$(grep -c '"correct": *true' "$out")" -eq 4 ]
    check "$mpi: nothing is left in memory" no_folder

    [ -z "${TM_TEST_FULL:-}" ] && [ "$an_mpi" ] || ended_ranks
    an_mpi=$mpi

    timeout -k 5 "$seconds" $launcher -n 2 "$TRAINMARK" bench collectives $quick >"$out" 2>"$err" </dev/null
    code=$?
    check "$mpi: under its launcher as it is" [ "$code" -eq 0 ]
    check "$mpi: two ranks there" has "$out" "\\| +2 \\|"

    says 0 '' run --mpi $mpi --ranks 2 $tiny --training.steps 4 --training.local_batch_size auto \
        --training.global_batch_size 8 --parallelism.data_parallel_replicate_degree 2 --parallelism.exact true --log.folder logs --out "run-$mpi"
    check "$mpi: with the bits of one rank" [ "$(grep -o '"weights_hash": *"[^"]*"' "run-$mpi/result.json")" = "$weights" ]
    check "$mpi: the log of the first rank has the steps" has "run-$mpi/logs/rank-0/info" '^20.*Z \[?.*step: *4'
    trainmark run --mpi $mpi --ranks 2 $tiny --training.steps 1 --model.vocab_size 65536 --out "large-$mpi"
    check "$mpi: what is shared is part of the arena" \
        [ "$(sed -n 's/^ *"outside_arena_bytes": *\(-*[0-9]*\).*/\1/p' "large-$mpi/result.json")" -gt 0 ]
done

# --- beginning again ----------------------------------------------------------------------------------------------------

if [ -z "$an_mpi" ]; then
    skip "beginning again" "no MPI is here"
else
    "$TRAINMARK" run $tiny --ranks 2 --max-restarts 2 --training.steps 120 --checkpoint.enable true --checkpoint.interval 10 \
        --out again >"$out" 2>"$err" </dev/null &
    main=$!
    until ls -d again/checkpoint/step-???????? >/dev/null 2>&1; do kill -0 $main || break; sleep 0.02; done
    kill -9 "$(rank_pids pid.1)"
    ended_within 50 $main
    check "after a rank was killed the command begins again" [ "$code" -eq 0 ]
    check "from the checkpoint" has "$err" "resumed from step [0-9]+0 in 'again/checkpoint'"
    check "to the end" has again/metrics.jsonl '"step": *120[,}]'
fi

finish
