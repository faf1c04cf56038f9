#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A machine that is only busy raises no alarm: short runs on one and two ranks, none of which may find a slow rank, other
# bits of a repeated step or a value that is not finite; and certificates of a minute, none of which may fail.
#
#   RUNS=1000 CERTIFICATES=30 MINUTES=1 SEED=1 tests/long/test_no_alarm.sh
#
# Let other programs run beside it. Of n runs without an alarm, a rate above 3 / n is excluded at 95 %.
# shellcheck disable=SC1010,SC1091,SC2086,SC2154
first_seed=${SEED:-1}
. "$(dirname "$0")/../cli/lib.sh"
export TRAINMARK_STORE=none

seconds=600 # of one run: the machine is busy
runs=${RUNS:-1000} certificates=${CERTIFICATES:-30} minutes=${MINUTES:-1}
small="tiny-llama --model.n_layers 2 --model.dim 64 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 176
    --model.vocab_size 96 --training.seq_len 64 --training.local_batch_size 4 --training.stop_at_target false"

# The member of a result that says whether there was an alarm.
alarms()
{
    tr -d '\n' <run/result.json | sed 's/  */ /g' >flat
    if ! has flat '"differences": 0[,} ]'; then echo "bits of a repeated step"; fi
    if has flat '"cause": "slow"'; then echo "a slow rank"; fi
    if ! has flat '"nonfinite": null'; then echo "a value that is not finite"; fi
}

i=0 alarmed=0
while [ $i -lt "$runs" ]; do
    case $((i % 4)) in
    0) own="--debug.replay 5" ;;
    1) own="--ranks 2 --training.grad_accumulation 2" ;;
    2) own="--training.dtype bfloat16 --debug.replay 3" ;;
    3) own="--ranks 2 --parallelism.tensor_parallel_degree 2 --debug.replay 10" ;;
    esac
    trainmark run $small --training.steps 60 --debug.seed $((first_seed * 10000 + i)) $own --out run
    if [ ! -f run/result.json ]; then
        fail "run $i ($own) has no result" "exit code $code"
        i=$((i + 1))
        continue
    fi
    told=$(alarms)
    if [ -n "$told" ]; then
        alarmed=$((alarmed + 1))
        fail "run $i ($own), seed $((first_seed * 10000 + i))" "$told"
    fi
    rm -rf run
    i=$((i + 1))
done
echo "# $alarmed alarms in $runs runs"

i=0 alarmed=0 undecided=0
while [ $i -lt "$certificates" ]; do
    trainmark certify --minutes "$minutes" --seed $((first_seed * 10000 + i)) --out "certificate-$i.json"
    [ "$code" -eq 3 ] && undecided=$((undecided + 1))
    if [ "$code" -ne 0 ] && [ "$code" -ne 3 ]; then
        alarmed=$((alarmed + 1))
        fail "certificate $i" "exit code $code"
        grep -v '^ *|.*| pass ' "$out" | head -40
    fi
    i=$((i + 1))
done
echo "# $alarmed alarms, $undecided without a verdict in $certificates certificates of $minutes minutes"
check "no alarm" [ "$failures" -eq 0 ]
finish
