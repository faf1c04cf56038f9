#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of before are read: tests/train/checkpoints has what the last program wrote that had other files, of one
# process and of two ranks. What is loaded has the hash that those runs gave for their weights.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

model="tiny-llama --model.n_layers 1 --model.dim 8 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 16
    --model.vocab_size 96 --training.seq_len 8 --training.local_batch_size 1 --training.threads 1 --training.dtype bfloat16
    --validation.enable false --checkpoint.enable true --checkpoint.folder $work/kept"

for row in 3:27a27af7e065e8c4 4:e2689f47b3cee2f1; do
    rm -rf kept run
    cp -r "$here/../train/checkpoints/version-${row%%:*}" kept
    says 0 '' run $model --training.steps 2 --out run
    check "with the weights that it has" grep -q "\"weights_hash\": \"${row#*:}\"" run/result.json
    check "and stays as it is" [ ! -e kept/step-00000002/tensors.safetensors ]
    says 0 "resumed from step 2 in" run $model --training.steps 3 --checkpoint.keep_latest_k 1 --out run
    check "a checkpoint of today is beside it, and it goes" [ "$(echo kept/*)" = "kept/lock kept/step-00000003" ]
    check "as safetensors" [ "$(cd kept/step-00000003 && echo *)" = "complete index.bin tensors.safetensors" ]
done
finish
