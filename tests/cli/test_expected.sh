#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What people read first, word for word: the list of commands and one plan, on the reference device, whose kernels are the
# same everywhere (tests/cli/expected/, see `expected` in lib.sh). All the rest is judged by what it says.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

trainmark --help
expected help.txt
plan="--model.n_layers 4 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 --training.seq_len 32
      --training.local_batch_size 2 --training.threads 1 --device reference"
trainmark explain $plan --training.global_batch_size 8 --parallelism.pipeline_parallel_degree 2 --schedule
expected explain.txt
trainmark run $plan --dry-run --parallelism.ranks 3 --optimizer.name Muon --memory 1GiB
expected plan.txt

finish
