#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collective calls beside those of the MPI that they run over, in turn (A B A B): each round measures a call by
# `trainmark bench collectives`, then the same by every other side that is here:
#
#   mpi      the MPI's own calls, by a program of ours (bench/peers/mpi_calls.c) that its wrapper compiles
#   osu      OSU's micro-benchmarks, where osu_allreduce, ... are in PATH (no package of Debian 12 or PyPI has them)
#   netpipe  messages only: NPopenmpi or NPmpich2 (packages netpipe-openmpi, netpipe-mpich2), streaming (-s) as ours do
#
#   MPI=openmpi|mpich   RANKS=2   ROUNDS=5   MIN=1024 MAX=16777216 FACTOR=8   MS=200 for each row
#   CALLS="all-reduce all-gather reduce-scatter all-to-all broadcast p2p"
#   BUFFERS=shared|private of our side      TRAINMARK=./trainmark
#
# A round's time is the median over its samples, of the slowest rank. Prints the median over the rounds for each side in
# microseconds, and how many times as fast ours is as the fastest other of the same round: median (least .. most) over n
# rounds. 0.9 and above is within 10 %. Correctness is checked by our side after every row.
set -eu
mpi=${MPI:-openmpi} ranks=${RANKS:-2} rounds=${ROUNDS:-5} ms=${MS:-200}
least=${MIN:-1024} most=${MAX:-16777216} factor=${FACTOR:-8}
calls=${CALLS:-all-reduce all-gather reduce-scatter all-to-all broadcast p2p}
trainmark=${TRAINMARK:-./trainmark}
here=$(dirname "$0")
case $mpi in
openmpi)
    launch=(mpirun.openmpi --quiet --oversubscribe --bind-to none --mca pml ob1 --mca btl 'vader,self' -n "$ranks")
    netpipe=NPopenmpi
    ;;
mpich)
    launch=(mpiexec.mpich -n "$ranks")
    netpipe=NPmpich2
    ;;
*) echo "MPI is openmpi or mpich, found '$mpi'" >&2; exit 2 ;;
esac
[ -x "$trainmark" ] || { echo "$trainmark is not there; build it with: make trainmark" >&2; exit 2; }
command -v "mpicc.$mpi" >/dev/null || { echo "mpicc.$mpi is not here: install the MPI and its headers" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"mpicc.$mpi" -std=c11 -O2 -o "$work/mpi_calls" "$here/peers/mpi_calls.c"

# SIDE CALL: lines "SIDE CALL BYTES SECONDS", bytes as nccl-tests counts them.
ours()
{
    "$trainmark" bench collectives --mpi "$mpi" --ranks "$ranks" --buffers "${BUFFERS:-shared}" --calls "$1" \
        --min-bytes "$least" --max-bytes "$most" --factor "$factor" --rep-ms "$ms" --precision 0 \
        --output-file "$work/ours.csv" >/dev/null
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { print "trainmark", $at["call"], $at["bytes"], $at["median_ms"] / 1000 }' "$work/ours.csv"
    rm "$work/ours.csv"
}
mpi()
{
    "${launch[@]}" "$work/mpi_calls" "$1" "$least" "$most" "$factor" "$ms" | sed 's/^/mpi /'
}
# OSU counts bytes of what each rank gives.
osu()
{
    local times=1 program
    case $1 in
    all-reduce) program=osu_allreduce ;;
    all-gather) program=osu_allgather times=$ranks ;;
    reduce-scatter) program=osu_reduce_scatter ;;
    all-to-all) program=osu_alltoall times=$ranks ;;
    broadcast) program=osu_bcast ;;
    *) return 0 ;;
    esac
    command -v "$program" >/dev/null || return 0
    "${launch[@]}" "$program" -m "$((least / times)):$((most / times))" | awk -v call="$1" -v times="$times" \
        '/^[0-9]/ { print "osu", call, $1 * times, $2 / 1e6 }'
}
# NetPIPE tells half of a way there and back, or with -s the time of one message in a row of them.
netpipe()
{
    [ "$1" = p2p ] && [ "$ranks" -eq 2 ] && command -v "$netpipe" >/dev/null || return 0
    "${launch[@]}" "$netpipe" -s -p 0 -l "$least" -u "$most" -o "$work/np.out" 2>&1 | awk \
        '/times -->/ { for (i = 1; i < NF; i++) { if ($(i + 1) == "bytes") bytes = $i; if ($(i + 1) == "usec") time = $i }
                       if (time > 0) print "netpipe p2p", bytes, time / 1e6 }'
}

for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds" >&2
    for call in $calls; do
        for side in ours mpi osu netpipe; do $side "$call" | sed "s/^/$round /" >>"$work/lines"; done
    done
done
command -v osu_allreduce >/dev/null || echo "osu: not in PATH; collective calls are held against the MPI's own only"
command -v "$netpipe" >/dev/null || echo "netpipe: $netpipe is not in PATH; messages are held against the MPI's own only"
echo "$mpi, $ranks ranks, $rounds rounds"
awk '
    function median(list, n,    i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }
    function of(side, row,    list, n, r) {
        for (r = 1; r <= rounds; r++) if ((side, row, r) in time) list[++n] = time[side, row, r]
        return n ? sprintf("%.4g", median(list, n)) : ""
    }
    {
        if ($1 > rounds) rounds = $1
        time[$2, $3 " " $4, $1] = $5 * 1e6
        if ($2 == "trainmark" && !seen[$3 " " $4]++) rows[++m] = $3 " " $4
    }
    END {
        print "| call | bytes | trainmark us | mpi us | osu us | netpipe us | times as fast | n |"
        print "|---|---:|---:|---:|---:|---:|---:|---:|"
        for (i = 1; i <= m; i++) {
            n = 0
            for (r = 1; r <= rounds; r++) {
                best = ""
                for (s = split("mpi osu netpipe", sides, " "); s > 0; s--) {
                    key = sides[s] SUBSEP rows[i] SUBSEP r
                    if (key in time && (best == "" || time[key] < best)) best = time[key]
                }
                if (best != "" && ("trainmark", rows[i], r) in time) ratio[++n] = best / time["trainmark", rows[i], r]
            }
            middle = n ? median(ratio, n) : 0
            split(rows[i], part, " ")
            printf "| %s | %d | %s | %s | %s | %s | %s | %d |\n", part[1], part[2], of("trainmark", rows[i]), of("mpi", rows[i]),
                of("osu", rows[i]), of("netpipe", rows[i]),
                n ? sprintf("%.2f (%.2f .. %.2f)", middle, ratio[1], ratio[n]) : "", n
        }
    }' "$work/lines"
