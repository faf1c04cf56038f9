#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a run says of its own measurement: the machine, the steady state, why it stopped, and how its threads wait.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"


says 0 '' run $tiny --training.steps 30 --out watched -v
check "why it stopped" [ "$(value watched/result.json stopped)" = "all steps done" ]
for name in drift_percent drift_lo shift_percent effective_n half_width_percent outliers other_load_percent \
    frequency_change_percent minor_faults_per_second steal_percent thermal_throttles; do
    check "result.json has $name" has watched/result.json "\"$name\": (null|-?[0-9.e+-]+)"
done

trainmark run $tiny --training.stop_at_target true --metrics.target_half_width 0.01
failed_with 4 "two ways to end a run" "metrics.target_half_width \(command line\)" "training.stop_at_target \(command line\)" \
    "set training.stop_at_target: false"

# --- how threads wait -----------------------------------------------------------------------------------------------------

processors=$(getconf _NPROCESSORS_ONLN)
hogs=''
i=0
while [ $i -le "$processors" ]; do
    timeout 20 sh -c 'while :; do :; done' &
    hogs="$hogs $!"
    i=$((i + 1))
done
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
trainmark run $tiny --training.steps 2 --out busy
policy=$(value busy/result.json OMP_WAIT_POLICY)
noted=$(grep -c "idle worker threads slept" "$err")
OMP_WAIT_POLICY=active
export OMP_WAIT_POLICY
trainmark run $tiny --training.steps 2 --out told
kill $hogs 2>/dev/null
wait
if [ "$(nproc)" -gt 1 ]; then
    check "beside others threads sleep while they wait" [ "$policy$noted" = passive1 ]
else
    check "one thread waits for nobody" [ "$policy$noted" = 0 ]
fi
check "what the environment says counts" [ "$(value told/result.json OMP_WAIT_POLICY)" = active ]
check_not "and needs no note" has "$err" "threads sleep"

finish
