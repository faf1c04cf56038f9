#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark check --all-ranks`: hosts of a world beside each other. The rules: tests/check/test_check_hosts.c.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
unset TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE GROUP_RANK NCCL_SOCKET_IFNAME
export OMP_WAIT_POLICY=passive
quick="check --all-ranks --measure-sec 0 --only governor,os,kernel"
port=$((20000 + $$ % 12000))

# What a rank of a launcher runs, and with it which program: start N: program.R, or the one that is tested, with $words and
# with what is in words.R. Each rank is a node of its own.
start()
{
    port=$((port + 2))
    : >"$err"
    for rank in $(seq $(($1 - 1)) -1 0); do
        program=$TRAINMARK
        [ -f "program.$rank" ] && program=./program.$rank
        ( export RANK="$rank" WORLD_SIZE="$1" LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port GROUP_RANK="$rank"
          exec timeout -k 5 "$seconds" $program $words $(cat "words.$rank" 2>/dev/null) >"out.$rank" 2>>"$err" </dev/null ) &
        echo $! >"pid.$rank"
    done
    codes=
    for rank in $(seq 0 $(($1 - 1))); do
        wait "$(cat "pid.$rank")"
        codes="$codes $?"
    done
    codes=${codes# }
    cp out.0 "$out"
    rm -f out.* pid.*
}
ended() { [ "$codes" = "$1" ] || { echo "# exit codes: $codes"; false; }; }

words="$quick --json"
start 3
check "three alike hosts" ended "0 0 0"

cp "$TRAINMARK" program.1
echo >>program.1
start 3
check "another program" ended "5 5 5"
check "another program: where" has "$out" "FAIL [^ ]*#2: program is [0-9a-f]{16}, elsewhere it is [0-9a-f]{16}"
rm program.1

mkdir -p m/etc m/proc/sys/kernel m/sys/devices/system/cpu/cpu0/cpufreq
echo 'PRETTY_NAME="Another System 7"' >m/etc/os-release
echo "--sysroot m" >words.2
start 3
check "another system: a warning" ended "0 0 0"
check "another system: where" has "$out" "WARN [^ ]*#3: os is '.*Another System 7.*', elsewhere it is"
mkdir -p m/dev
printf '%s\n' '100000.00 1.0' >m/proc/uptime
printf '%s\n' '3,9,99990000000,-;NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus' >m/dev/kmsg
words="check --all-ranks --measure-sec 0 --only klog --report-file-name hosts.csv --dump-path reports"
start 2
words="$words --skip-dmesg" # of this machine, whatever its log says; the one below --sysroot has it in words.2
check "without the one that fails" ended "0 0"
echo "--sysroot m --skip-dmesg false" >words.1
rm words.2
start 2
check "a check fails on one host" ended "5 5"
check "a check fails: where and what" has "$out" "FAIL [^ ]*#2: klog: .*Xid"
rm words.1

says 0 "rank 0: the disk was not measured: '/no/where': No such file or directory$" check --all-ranks --only governor --measure-sec 0.02 --disk-path /no/where --json
check "a disk that is none: no speed" has "$out" '"disk_mbps": null'
trainmark check --all-ranks --only governor --measure-sec 0.3 --disk-path . --json
check "a disk: nothing is left on it" [ -z "$(find . -name 'trainmark-offload*')" ]

if [ -f "$(dirname "$(readlink -f "$TRAINMARK")")/trainmark-openmpi.so" ] && command -v mpirun.openmpi >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    says 0 "ranks +2|\| +2 \|" $quick --ranks 2
else
    skip "hosts of an MPI" "mpirun.openmpi or trainmark-openmpi.so is not here (openmpi-bin libopenmpi-dev)"
fi
finish
