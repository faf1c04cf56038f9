#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Limits of a process (ulimit) that leave too little: a message that says so and an exit code of the table, never a crash.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

export TRAINMARK_STORE=none
# under LIMIT VALUE WORD...: the program with that limit.
under()
{
    limit=$1 value=$2
    shift 2
    # shellcheck disable=SC3045 # of the shells that are /bin/sh, all have these
    (ulimit "$limit" "$value" && exec timeout -k 5 60 "$TRAINMARK" "$@") >"$out" 2>"$err" </dev/null
    code=$?
}

for kib in 32 64 256; do
    under -s $kib version
    failed_with 4 "a stack of $kib KiB" "stacks are limited to $kib KiB .ulimit -s., and 512 KiB are needed; .ulimit -s 8192. in front$"
done
if grep -q __asan_init "$TRAINMARK"; then
    skip "what is asked for is enough" "frames of this build are larger"
else
    under -s 512 run $tiny --training.steps 60 --checkpoint.enable true --out stack
    check "what is asked for is enough" [ "$code" -eq 0 -o "$code" -eq 3 ]
    under -s 512 run tiny-flux --training.steps 1 --training.local_batch_size 1 --out images
    check "also for images" [ "$code" -eq 0 ]
fi
# Whatever the limit, it is said, or does not matter.
for limits in "-n 5" "-n 6" "-n 8" "-n 10" "-n 13" "-n 16" "-n 20" "-n 64" "-f 1" "-f 8" "-f 64" "-f 1000" "-v 20000" "-v 40000" \
    "-v 60000" "-v 90000" "-v 200000"; do
    rm -rf few
    under $limits run $tiny --training.steps 6 --checkpoint.enable true --checkpoint.interval 3 --out few
    case $code in
    0) pass "ulimit $limits: enough" ;;
    1 | 4) if [ -s "$err" ]; then pass "ulimit $limits: said"; else fail "ulimit $limits" "exit code $code without a message"; fi ;;
    *) fail "ulimit $limits" "exit code $code" ;;
    esac
done
finish
