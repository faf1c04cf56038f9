#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random ranks of a training are killed (SIGKILL) or stopped (SIGSTOP) at random moments, also while checkpoints are written:
# the command ends within the deadline with exit code 1, leaves no process and no file behind, and begun again it comes to the
# weights and the checkpoint of a run that nobody disturbed.
#
#   KILLS=100 STOPS=20 RANKS=2 SEED=1 MPI="openmpi mpich" tests/long/test_ranks_kills.sh      (in all, half over each MPI)
# shellcheck disable=SC1091,SC2086,SC2154
first_seed=${SEED:-1} # lib.sh forgets it
. "$(dirname "$0")/../cli/lib.sh"
export OMP_WAIT_POLICY=passive
kills=${KILLS:-100} stops=${STOPS:-20} ranks=${RANKS:-2} deadline=3
RANDOM=$first_seed
modules=$(dirname "$(readlink -f "$TRAINMARK")")

# Every layout writes its checkpoints otherwise; half of the runs write behind.
layouts=("" "--parallelism.data_parallel_shard_strategy optim"
    "--parallelism.data_parallel_replicate_degree $ranks --parallelism.data_parallel_shard_degree 1"
    "--parallelism.pipeline_parallel_degree $ranks --model.n_layers $ranks --training.seq_len 128 --training.local_batch_size 1")
save="--training.steps 40 --training.global_batch_size $((2 * ranks)) --checkpoint.enable true --checkpoint.interval 2
      --checkpoint.keep_latest_k 2 --training.seed 7 --deadline $deadline"
hash_of() { sed -n 's/^ *"weights_hash": "\([0-9a-fx]*\)".*/\1/p' "$1/result.json" 2>/dev/null; }

# Sets $family: all processes below one.
find_family()
{
    family=
    local next=$1 found
    while [[ $next =~ [0-9] ]]; do
        found=""
        for pid in $next; do found+=" $(cat /proc/$pid/task/*/children 2>/dev/null)"; done
        next=$found
        family+=" $next"
    done
}
# Those of them that are ranks, by number.
find_ranks()
{
    folder='' victims=()
    for pid in $family; do
        found=$(tr '\0' '\n' </proc/$pid/environ 2>/dev/null | sed -n 's/^TRAINMARK_RANKS_FOLDER=//p')
        if [ -n "$found" ]; then folder=$found; fi
    done
    [ -z "$folder" ] || for ((r = 0; r < ranks; r++)); do
        pid=$(cat "$folder/pid.$r" 2>/dev/null)
        [ -z "$pid" ] || victims+=("$pid")
    done
}
lives() { case $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) in '' | Z | X) return 1 ;; esac; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# disturb SIGNAL MS COMMAND...: sends it to a random rank after so long. Sets $code (124: it did not end in time), $hit and $took.
disturb()
{
    local signal=$1 moment=$2 limit
    shift 2
    hit='' took=0 left=''
    "$@" >again.out 2>&1 </dev/null &
    main=$!
    sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
    find_family $main
    find_ranks
    local all=$family
    if [ ${#victims[@]} -eq "$ranks" ]; then
        kill -$signal "${victims[RANDOM % ranks]}" 2>/dev/null && hit=yes
    fi
    limit=$(($(now_ms) + 1000 * (deadline + 20) + whole)) begin=$(now_ms)
    while kill -0 $main 2>/dev/null && [ "$(now_ms)" -lt $limit ]; do sleep 0.05; done
    took=$(($(now_ms) - begin))
    code=124
    if kill -0 $main 2>/dev/null; then kill -9 $main; wait $main; else wait $main && code=0 || code=$?; fi 2>/dev/null
    for ((i = 0; i < 40; i++)); do
        left=''
        for pid in $all; do ! lives $pid || left+=" $pid"; done
        [ -n "$left" ] || break
        sleep 0.1
    done
    for pid in $left; do kill -9 $pid; done 2>/dev/null
    if [ -n "$folder" ] && [ -e "$folder" ]; then left+=" $folder"; fi
}

# campaign MPI SIGNAL COUNT
campaign()
{
    local mpi=$1 signal=$2 count=$3 hits=0 ended=0 wrong=0 late=0 unnamed=0 orphans=0 other=0 slowest=0 turn=0
    # Launchers end the others at once: then nobody can tell who was the first.
    local named='rank [0-9]+'
    [ "$signal" != KILL ] || named+='|[0-9]+ of [0-9]+ ranks ended without a word'
    while [ $hits -lt "$count" ] && [ $turn -lt $((20 * count + 20)) ]; do
        local k=$((ended % ${#layouts[@]})) mode=disabled
        [ $((ended % 2)) -eq 0 ] || mode=async
        turn=$((turn + 1))
        disturb $signal $((RANDOM * whole / 32768)) "$TRAINMARK" run $tiny $save --ranks "$ranks" --mpi "$mpi" ${layouts[k]} \
            --checkpoint.async_mode $mode --out again
        [ -z "$left" ] || { orphans=$((orphans + 1)) && echo "# left behind:$left"; }
        if [ "$code" -eq 0 ]; then
            ended=$((ended + 1))
            if [ "$(hash_of again)" != "${hashes[k]}" ] || ! same_checkpoint again "straight-$k"; then
                wrong=$((wrong + 1)) && echo "# '$(hash_of again)' instead of ${hashes[k]}" && cat again.out
            fi
            rm -rf again
        fi
        [ -n "$hit" ] || continue
        hits=$((hits + 1))
        [ $took -le $slowest ] || slowest=$took
        case $code in
        0) ;; # it had done its work by then
        1) grep -qE "$named" again.out || { unnamed=$((unnamed + 1)) && cat again.out; } ;;
        124) late=$((late + 1)) && cat again.out ;;
        *) other=$((other + 1)) && echo "# exit code $code" && cat again.out ;;
        esac
    done
    rm -rf again
    echo "# $mpi: $hits times SIG$signal, $ended runs came to their end, the slowest end took $slowest ms"
    check "$mpi, SIG$signal: so many times" [ $hits -eq "$count" ]
    check "$mpi, SIG$signal: the command ends in time" [ $late -eq 0 ]
    check "$mpi, SIG$signal: with exit code 1" [ $other -eq 0 ]
    check "$mpi, SIG$signal: and names a rank" [ $unnamed -eq 0 ]
    check "$mpi, SIG$signal: no process, no file is left" [ $orphans -eq 0 ]
    check "$mpi, SIG$signal: begun again it has the numbers of an undisturbed run" [ $wrong -eq 0 ]
}
same_checkpoint()
{
    local file
    for file in "$2"/checkpoint/step-00000040/*.bin; do
        cmp -s "$file" "$1/checkpoint/step-00000040/${file##*/}" || return 1
    done
}

mpis=$(echo ${MPI:-openmpi mpich} | wc -w)
for mpi in ${MPI:-openmpi mpich}; do
    launcher=mpirun.openmpi
    [ "$mpi" = openmpi ] || launcher=mpiexec.mpich
    if [ ! -f "$modules/trainmark-$mpi.so" ] || ! command -v $launcher >/dev/null; then
        skip "kills over $mpi" "$launcher or trainmark-$mpi.so is not here"
        continue
    fi
    hashes=()
    for k in "${!layouts[@]}"; do
        begin=$(now_ms)
        trainmark run $tiny $save --ranks "$ranks" --mpi "$mpi" ${layouts[k]} --out "straight-$k"
        whole=$(($(now_ms) - begin))
        hashes[k]=$(hash_of "straight-$k")
        check "$mpi: a run that nobody disturbs ${layouts[k]}" [ "$code" -eq 0 -a -n "${hashes[k]}" ]
    done
    campaign "$mpi" KILL $(((kills + mpis - 1) / mpis))
    campaign "$mpi" STOP $(((stops + mpis - 1) / mpis))
    rm -rf straight-*
done
finish
