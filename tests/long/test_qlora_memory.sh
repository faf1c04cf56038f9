#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model of the shape of Llama 3.2 1B, its weights in 4 bits, trains two steps of 1 x 512 in at most 2.5 GiB, all told.
# shellcheck disable=SC1091,SC2034,SC2154
. "$(dirname "$0")/../cli/lib.sh"
export OMP_WAIT_POLICY=passive
seconds=900

trainmark run llama3.2_1B --lora.rank 8 --lora.base_format nf4 --training.dtype bfloat16 --training.local_batch_size 1 \
    --training.seq_len 512 --training.steps 2 --training.mock_data true --validation.enable false --metrics.log_freq 1 --out run
check "two steps" [ "$code" -eq 0 ]
resident=$(sed -n 's/.*"resident_bytes": *\([0-9]*\).*/\1/p' run/metrics.jsonl | sort -n | tail -n 1)
echo "resident: ${resident:-0} bytes"
check "at most 2.5 GiB are resident" [ "${resident:-9999999999}" -le 2684354560 ]

finish
