#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On processors that others use, threads that wait sleep: when that is so, when it is said, and what children get.
# shellcheck disable=SC1091,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
note='note: other processes were using the CPU at the start, so idle .* \(OMP_WAIT_POLICY=passive\)$'
plan="bench gemm --M 8 --N 8 --K 8 --budget 20 --duration 0.01 --store none"

if [ "$(nproc)" -lt 2 ]; then
    skip "threads that wait" "one processor has no threads that wait"
    finish
fi
# As many loops as there are processors.
loops=
for _ in $(seq "$(nproc)"); do
    (while :; do :; done) &
    loops="$loops $!"
done
trap 'kill $loops 2>/dev/null; rm -rf "$work"' EXIT
sleep 0.3
trainmark $plan
check "a busy machine: it is said" [ "$(grep -cE "$note" "$err")" -eq 1 ]
check "the command is done as ever" has "$out" "trainmark"
check "as the last line" sh -c "tail -n 1 '$err' | grep -qE '$note'"
trainmark $plan -q
check_not "-q has no notes" has "$err" "$note"
trainmark bench gemm --dtype nonsense
check_not "an error comes without it" has "$err" "$note"
trainmark run $tiny --dry-run --memory 1GiB
check_not "a plan computes nothing" has "$err" "$note"
trainmark $plan --help
check_not "help computes nothing" has "$err" "$note"
trainmark run -h
check_not "in either form" has "$err" "$note"
trainmark explain $tiny
check_not "other commands neither" has "$err" "$note"
OMP_WAIT_POLICY=active
export OMP_WAIT_POLICY
trainmark $plan
check_not "who has chosen is not asked" has "$err" "$note"
unset OMP_WAIT_POLICY
GOMP_SPINCOUNT=1000
export GOMP_SPINCOUNT
trainmark $plan
check_not "in either way" has "$err" "$note"
unset GOMP_SPINCOUNT
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$TRAINMARK" $plan >"$out" 2>"$err" </dev/null
check_not "ranks are told by their launcher" has "$err" "$note"
if command -v taskset >/dev/null; then
    taskset -c "$(taskset -pc $$ | sed 's/.*: \([0-9]*\).*/\1/')" "$TRAINMARK" $plan >"$out" 2>"$err" </dev/null
    check_not "one thread waits for none" has "$err" "$note"
fi
trainmark ab --a-command "sh -c 'env >a; echo 1; echo 2; echo 3'" --b-command "sh -c 'env >b; echo 1; echo 2; echo 3'" --turn run \
    --budget 200 --target 1000 --min-pairs 6
check "what takes turns" has "$err" "$note"
check "sleeps on both sides" [ "$(grep -cx OMP_WAIT_POLICY=passive a) $(grep -cx OMP_WAIT_POLICY=passive b)" = "1 1" ]
kill $loops
wait 2>/dev/null
finish
