#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Collective calls beside those of the MPI that they run over, in turn: `trainmark bench collectives`, a program of our own
# that calls the MPI's (bench/peers/mpi_calls.c), and OSU's micro-benchmarks (osu_allreduce, ...) where they are in PATH.
#
#   MPI=openmpi|mpich    RANKS=2    ROUNDS=3    MIN=1024 MAX=16777216 FACTOR=8    MS=200 for each row
#   BUFFERS=shared|private of our side          TRAINMARK=./trainmark
#
# Prints microseconds of each side (the median over the rounds of the medians over the samples) and how many times as fast
# ours is as the fastest other. Correctness is checked by our side after every row.
set -eu
mpi=${MPI:-openmpi} ranks=${RANKS:-2} rounds=${ROUNDS:-3} ms=${MS:-200}
least=${MIN:-1024} most=${MAX:-16777216} factor=${FACTOR:-8}
trainmark=${TRAINMARK:-./trainmark}
here=$(dirname "$0")
case $mpi in
openmpi) launch="mpirun.openmpi --quiet --oversubscribe --bind-to none --mca pml ob1 --mca btl vader,self -n $ranks" ;;
mpich) launch="mpiexec.mpich -n $ranks" ;;
*) echo "MPI is openmpi or mpich, found '$mpi'" >&2; exit 2 ;;
esac
[ -x "$trainmark" ] || { echo "$trainmark is not there; build it with: make trainmark" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"mpicc.$mpi" -std=c11 -O2 -o "$work/mpi_calls" "$here/peers/mpi_calls.c"

# Lines "SIDE CALL BYTES SECONDS".
ours()
{
    "$trainmark" bench collectives --mpi "$mpi" --ranks "$ranks" --buffers "${BUFFERS:-shared}" --min-bytes "$least" \
        --max-bytes "$most" --factor "$factor" --rep-ms "$ms" --precision 0 --output-file "$work/ours.csv" >/dev/null
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["call"] != "copy" { print "trainmark", $at["call"], $at["bytes"], $at["median_ms"] / 1000 }' "$work/ours.csv"
}
library()
{
    # shellcheck disable=SC2086
    $launch "$work/mpi_calls" "$least" "$most" "$factor" "$ms" | sed "s/^/$mpi /"
}
# OSU counts bytes of what each rank gives, nccl-tests of the whole (as above).
osu()
{
    for row in all-reduce:osu_allreduce:1 all-gather:osu_allgather:"$ranks" reduce-scatter:osu_reduce_scatter:1 \
        all-to-all:osu_alltoall:"$ranks" broadcast:osu_bcast:1; do
        program=${row#*:} && program=${program%:*}
        command -v "$program" >/dev/null || continue
        # shellcheck disable=SC2086
        $launch "$program" -m "$((least / ranks)):$most" | awk -v call="${row%%:*}" -v times="${row##*:}" \
            '/^[0-9]/ { print "osu", call, $1 * times, $2 / 1e6 }'
    done
}

round=1
while [ "$round" -le "$rounds" ]; do
    echo "round $round of $rounds" >&2
    for side in ours library osu; do $side >>"$work/lines"; done
    round=$((round + 1))
done
command -v osu_allreduce >/dev/null || echo "OSU's micro-benchmarks are not in PATH: $mpi's calls by bench/peers/mpi_calls.c only"
sort -k1,1 -k2,2 -k3,3n -k4,4g "$work/lines" | awk -v mpi="$mpi" '
    function flush() { if (n) median[side, row] = n % 2 ? value[(n + 1) / 2] : (value[n / 2] + value[n / 2 + 1]) / 2; n = 0 }
    { key = $1 SUBSEP $2 " " $3 }
    key != last { flush(); side = $1; row = $2 " " $3; last = key; if (side == "trainmark") rows[++m] = row }
    { value[++n] = $4 * 1e6 }
    END {
        flush()
        printf "| call | bytes | trainmark us | %s us | osu us | times as fast |\n|---|---:|---:|---:|---:|---:|\n", mpi
        for (i = 1; i <= m; i++) {
            split(rows[i], part, " ")
            other = median[mpi, rows[i]]
            their = median["osu", rows[i]]
            if (their != "" && (other == "" || their < other)) other = their
            printf "| %s | %d | %.4g | %.4g | %s | %.2f |\n", part[1], part[2], median["trainmark", rows[i]],
                median[mpi, rows[i]], their == "" ? "" : sprintf("%.4g", their), other / median["trainmark", rows[i]]
        }
    }'
