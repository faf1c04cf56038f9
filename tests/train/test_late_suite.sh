#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training on the device `late`, which does nothing before somebody waits for it and whose memory nobody can look into: a
# copy or a wait that was forgotten shows. The tests of training run on it as they do on cpu, and whole runs (evaluation,
# checkpoints, resumption, generated text) leave the recorded bits. Not here: tests of the CPU's own memory, of long
# trainings, of how often a step looks at the clock (test_fast_clock), and of what needs no device.
# shellcheck disable=SC1091,SC2046,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"

built=$(dirname "$TRAINMARK")/tests
TM_TEST_DEVICE=late
export TM_TEST_DEVICE

for name in golden/test_golden train/test_measurement train/test_pipeline_file \
    train/test_properties train/test_step train/test_weights_hash; do
    if ! [ -x "$built/$name" ]; then
        skip "$name" "it is not supported beside $TRAINMARK"
        continue
    fi
    (cd "$root" && "$built/$name") >"$out" 2>&1
    check "$name on late" [ $? -eq 0 ]
done

unset TM_TEST_DEVICE

# --- whole programs; tests/golden/test_bits.sh has the weights of whole runs ----------------------------------------------

seq 1 2000 >text.txt
for device in cpu late; do
    trainmark run tiny-llama $tiny --training.steps 8 --model.vocab_size 257 --data.source text --data.path text.txt \
        --data.sample_tokens 40 --device $device --out $device
    check "a run on $device" [ "$code" -eq 0 ]
    sed -n 's/^ *"\(weights_hash\|validation\|sample\)": //p' "$device/result.json" >$device.txt
done
check "with a text" grep -q 1 cpu.txt
check "weights, loss and generated text are the same" cmp cpu.txt late.txt

finish
