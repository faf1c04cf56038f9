#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark check` from the outside: made-up machines, reports, lists of nodes, limits, tuning; wrong usage.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154,SC2086,SC2116
. "$(dirname "$0")/lib.sh"
unset NCCL_SOCKET_IFNAME OMPI_COMM_WORLD_RANK PMI_RANK
export OMP_WAIT_POLICY=passive

# put PATH CONTENT: a file of the machine in m/.
put()
{
    mkdir -p "m$(dirname "$1")"
    printf '%s\n' "$2" >"m$1"
}

# A machine with a fault of each kind.
put /proc/sys/kernel/hostname node7.example.org
put /proc/sys/kernel/numa_balancing 1
put /proc/sys/kernel/nmi_watchdog 0
put /proc/sys/kernel/randomize_va_space 2
put /proc/self/limits 'Max locked memory         8388608              8388608              bytes'
put /proc/uptime '100000.00 1.0'
put /dev/kmsg '3,9,99990000000,-;NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus'
put /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor powersave
put /proc/sys/vm/drop_caches 0

# --- reports --------------------------------------------------------------------------------------------------------------

says 5 "negative verdict: 1 of [0-9]+ checks failed: klog" check --sysroot m
check "what nobody here needs is skipped" has "$out" '  SKIP  memlock         [0-9.]+ MiB; no GPU or RDMA card is here'
mkdir -p m/sys/class/infiniband/mlx5_0
says 5 "1 of 1 checks failed: memlock" check --sysroot m --only memlock
rm -r m/sys/class/infiniband
says 4 "r.md" check --sysroot m --only cpu --report-file-name /dev/full/r.md
trainmark check --only settings,cpu,system,job
check "this machine: exit code 5 if something fails, else 0" [ "$code" -eq "$(grep -q '^  FAIL  ' "$out" && echo 5 || echo 0)" ]

# --- the page -------------------------------------------------------------------------------------------------------------

trainmark check --list --report-file-name list.md
sed 's/  */ /g; 2s/--*/---/g; 2s/ //g' list.md >list
sed -n '/^| id /,/^$/p' "$root/docs/check.md" | sed '/^$/d' >page
check "docs/check.md has the table of --list" cmp -s list page
trainmark check --help
for option in $(grep -o -e '`--[a-z][a-z0-9-]*' "$root/docs/check.md" | tr -d '`' | sort -u); do
    case $option in # of other programs
    --nodelist | --exclude | --cap-add | --ipc | --privileged | --security-opt | --network | --device) continue ;;
    esac
    check "--help knows $option" has "$out" "${option#--}"
done

# --- tuning ---------------------------------------------------------------------------------------------------------------

says 4 "nothing was changed" check --sysroot m --tune-host -- true
mkdir m/run
balancing=m/proc/sys/kernel/numa_balancing
governor=m/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
says 0 '' check --sysroot m --tune-host -- cat $balancing m/run/trainmark-tuned.json
check "it was tuned" [ "$(head -n 1 "$out")" = 0 ]
check "and recorded" has "$out" '"path": "/proc/sys/kernel/numa_balancing"'
check "the host is as before" [ "$(cat $balancing $governor | tr '\n' ' ')" = "1 powersave " ]
check_not "the record is gone" [ -e m/run/trainmark-tuned.json ]
says 5 "'sh' failed with exit code 3" check --sysroot m --tune-host -- sh -c 'exit 3'
says 4 "cannot run './nothing': No such file" check --sysroot m --tune-host -- ./nothing
# SIGTERM goes on to the command, and the host is put back.
wait_for_end='trap "exit 0" TERM; touch up; while :; do sleep 0.1; done'
"$TRAINMARK" check --sysroot m --tune-host -- sh -c "$wait_for_end" >/dev/null 2>"$err" &
tuner=$!
until [ -e up ]; do kill -0 $tuner || break; sleep 0.1; done
kill -TERM $tuner
wait $tuner
code=$?
check "a signal ends it" [ "$code" -eq 130 ]
check "and the host is as before" [ "$(cat $balancing)" = 1 ]
# Who does not heed the first one: a second one ends us at once.
"$TRAINMARK" check --sysroot m --tune-host -- sh -c 'trap "" TERM; echo $$ >deaf; exec sleep 1000' >/dev/null 2>"$err" &
tuner=$!
until [ -s deaf ]; do kill -0 $tuner || break; sleep 0.1; done
kill -TERM $tuner
sleep 0.2
is_at_work() { [ -n "$(sed 's/.*) //; s/ .*//; /Z/d' /proc/$tuner/stat 2>/dev/null)" ]; }
check "the first signal waits for the command" is_at_work
kill -TERM $tuner
for _ in $(seq 600); do is_at_work && sleep 0.1; done
check_not "the second does not" is_at_work
kill -KILL "$(cat deaf)"
wait $tuner
code=$?
check "with the code of an interrupt" [ "$code" -eq 130 ]
trainmark check --sysroot m --restore-host
check "what it left is restored" [ "$(cat $balancing)" = 1 ]

# --- measuring ------------------------------------------------------------------------------------------------------------

says 0 'PASS  perf_gemm' check --only perf --perf --per-gpu-timeout-sec 150 --gemm-tflops-min 1e-9 --write-thresholds limits.json

finish
