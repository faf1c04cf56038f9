#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark check --all-ranks`: hosts of a world beside each other. The rules: tests/check/test_check_hosts.c.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
unset TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE GROUP_RANK NCCL_SOCKET_IFNAME
export OMP_WAIT_POLICY=passive
quick="check --all-ranks --measure-sec 0 --only governor,os,kernel"
export HOSTS=1 # each rank is a node of its own

words="$quick --json"
start 3 $words
check "three alike hosts" ended "0 0 0"

cp "$TRAINMARK" program.1
echo >>program.1
start 3 $words
check "another program" ended "5 5 5"
check "another program: where" has "$out" "FAIL [^ ]*#2: program is [0-9a-f]{16}, elsewhere it is [0-9a-f]{16}"
rm program.1

mkdir -p m/dev m/proc
printf '%s\n' '100000.00 1.0' >m/proc/uptime
printf '%s\n' '3,9,99990000000,-;NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus' >m/dev/kmsg
words="check --all-ranks --measure-sec 0 --only klog --report-file-name hosts.csv --dump-path reports --skip-dmesg"
echo "--sysroot m --skip-dmesg false" >words.1 # of this machine: whatever its log says
start 2 $words
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
