#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kill -9 at random moments, again and again, on the disk that TMPDIR names: the run that goes on from what is left has the bits
# of one that was never stopped.
#
#   KILLS=100 SEED=1 tests/long/test_kill.sh    kills in all; a run is started until it ends, then the next one
# shellcheck disable=SC1091,SC2086,SC2154
first_seed=${SEED:-1} # lib.sh forgets it
. "$(dirname "$0")/../cli/lib.sh"

kills=${KILLS:-100}
save="--training.steps 40 --checkpoint.enable true --checkpoint.interval 1 --checkpoint.keep_latest_k 2 --training.seed 7"
hash_of() { sed -n 's/^ *"weights_hash": "\([0-9a-fx]*\)".*/\1/p' "$1/result.json"; }
same_checkpoint() { cmp -s "straight/checkpoint/step-00000040/$2" "$1/checkpoint/step-00000040/$2"; }

begin=$(date +%s%N)
trainmark run $tiny $save --out straight
whole=$((($(date +%s%N) - begin) / 1000000))
check "a run that is never stopped" [ "$code" -eq 0 -a -n "$(hash_of straight)" ]

# Moments: uniform over the time that a whole run takes.
awk -v n="$kills" -v ms="$whole" -v seed="$first_seed" \
    'BEGIN { srand(seed); for (i = 0; i < n; i++) printf "%.3f\n", rand() * ms / 1000 }' >moments
killed=0 runs=0 wrong=0 failed=0
exec 3<moments
while [ $killed -lt "$kills" ]; do
    read -r moment <&3 || { exec 3<moments; read -r moment <&3; }
    timeout -s KILL "$moment" "$TRAINMARK" run $tiny $save --out again >again.out 2>&1 </dev/null
    code=$?
    if [ $code -eq 137 ]; then
        killed=$((killed + 1))
        continue
    fi
    # timeout ends with the one that it kills; the system may still be ending that, with its lock.
    if [ $code -eq 4 ] && grep -q "'again' is in use by" again.out; then
        sleep 0.05
        continue
    fi
    runs=$((runs + 1))
    [ $code -eq 0 ] || { failed=$((failed + 1)) && cat again.out; }
    hash=$(hash_of again 2>/dev/null) # also of one that was killed between its last checkpoint and its result
    if [ "$hash" != "$(hash_of straight)" ] || ! same_checkpoint again tensors.safetensors ||
        ! same_checkpoint again index.bin; then
        wrong=$((wrong + 1))
        echo "# '$hash' instead of $(hash_of straight)"
        ls -l again/checkpoint again/checkpoint/step-00000040
        cat again.out
    fi
    rm -rf again
done 2>/dev/null
echo "# $killed kills in $runs runs that came to their end"
check "runs come to their end" [ "$runs" -gt 0 ]
check "and none fails" [ "$failed" -eq 0 ]
check "with the weights and the checkpoint of the run that was never stopped" [ "$wrong" -eq 0 ]
finish
