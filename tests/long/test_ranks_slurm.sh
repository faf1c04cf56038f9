#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks under srun, in a Slurm of our own on this machine: two virtual nodes, all state in the test's folder.
# shellcheck disable=SC1091,SC2154,SC2086
. "$(dirname "$0")/../cli/lib.sh"
export OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
modules=$(dirname "$(readlink -f "$TRAINMARK")")
for program in slurmctld slurmd munged srun; do
    command -v $program >/dev/null || { skip "ranks under srun" "no $program here (packages slurm-wlm slurmctld slurmd munge)"; finish; exit; }
done
[ "$(id -u)" -eq 0 ] || { skip "ranks under srun" "only root can start a Slurm"; finish; exit; }

state=$work/slurm
export SLURM_CONF=$state/slurm.conf
down()
{
    for file in "$state"/slurmd.*.pid "$state/slurmctld.pid" "$state/munge/pid"; do
        [ -s "$file" ] || continue
        pid=$(cat "$file")
        kill "$pid" 2>/dev/null
        for _ in $(seq 30); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -9 "$pid" 2>/dev/null
    done
    rm -rf "$work"
}
trap down EXIT
port=$((20000 + RANDOM % 20000)) host=$(hostname -s)
mkdir -p "$state"/{munge,state,spool/n0,spool/n1,tmp/n0,tmp/n1,log}
chmod 711 "$work" "$state"
chmod 700 "$state/munge"
head -c 128 /dev/urandom >"$state/munge/key"
chmod 400 "$state/munge/key"
# Spool and temporary folders of each node: PMIx makes folders there.
cat >"$SLURM_CONF" <<END_CONF
ClusterName=tm
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$port
AuthInfo=socket=$state/munge.sock
StateSaveLocation=$state/state
SlurmdSpoolDir=$state/spool/%n
TmpFS=$state/tmp/%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd.%n.pid
SlurmctldLogFile=$state/log/slurmctld
SlurmdLogFile=$state/log/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=pmix
ReturnToService=2
KillWait=3
KillOnBadExit=1
NodeName=n0 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=$(nproc) RealMemory=1000 State=UNKNOWN
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=$(nproc) RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=n0,n1 Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
END_CONF
munged --force --key-file="$state/munge/key" --socket="$state/munge.sock" --pid-file="$state/munge/pid" \
    --log-file="$state/munge/log" --seed-file="$state/munge/seed" >"$out" 2>"$err" &&
    slurmctld -c -f "$SLURM_CONF" >>"$out" 2>>"$err" && slurmd -N n0 -f "$SLURM_CONF" && slurmd -N n1 -f "$SLURM_CONF"
for _ in $(seq 100); do [ "$(sinfo -h -o %T 2>/dev/null | sort -u)" = idle ] && break; sleep 0.2; done
check "a Slurm of two nodes" [ "$(sinfo -h -o %T 2>/dev/null | sort -u)" = idle ]

# under SECONDS SRUN-ARGUMENTS... -- ARGUMENTS...
under()
{
    limit=$1
    shift
    own=
    while [ "$1" != -- ]; do own="$own $1"; shift; done
    shift
    timeout -k 5 "$limit" srun $own "$TRAINMARK" "$@" >"$out" 2>"$err" </dev/null
    code=$?
}
quick="--calls all-reduce,all-to-all --min-bytes 64 --max-bytes 65536 --factor 1024 --rep-ms 5 --warmup-ms 1 --precision 0"
for way in openmpi:pmix mpich:pmi2; do
    mpi=${way%:*}
    [ -f "$modules/trainmark-$mpi.so" ] || { skip "$mpi under srun" "trainmark-$mpi.so was not built"; continue; }
    under 60 -n 2 -N 1 --mpi=${way#*:} -- bench collectives $quick --json
    check "$mpi: two ranks on one node" [ "$code" -eq 0 ]
    check "$mpi: their calls are right" [ "$(grep -c '"correct": *true' "$out")" -eq 4 ]
    under 60 -n 2 -N 2 --mpi=${way#*:} -- bench collectives $quick --json
    check "$mpi: a rank on each of two nodes" [ "$code" -eq 0 ]
    check "$mpi: their calls are right, too" [ "$(grep -c '"correct": *true' "$out")" -eq 4 ]
    check "$mpi: there are two nodes" [ "$(grep -c '"hosts": *2' "$out")" -eq 4 ]
done
under 60 -n 2 -N 1 --mpi=none -- bench collectives $quick
check "srun that starts no MPI is refused" [ "$code" -eq 4 ]
check "and told what does" has "$err" "--mpi=pmix"
under 60 -n 2 -N 1 --mpi=pmix -- run $tiny --training.steps 4 --out trained
check "two ranks train under srun" [ "$code" -eq 0 ]
check "with one result" [ -f trained/result.json ]

finish
