#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What explain and plans say of several ranks: who shares what, what goes over the wire, between hosts and within them, what every
# place needs; word for word, on the reference device.
# shellcheck disable=SC1091,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

export OMP_WAIT_POLICY=passive
plan="--model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 64 --training.seq_len 32
      --training.local_batch_size 2 --training.threads 1 --device reference --model.n_layers 4"
shard="--parallelism.data_parallel_shard_degree"
copies="--parallelism.data_parallel_replicate_degree"
tensor="--parallelism.tensor_parallel_degree"
context="--parallelism.context_parallel_degree"
pipe="--parallelism.pipeline_parallel_degree"

# shown WORD...: the schedule as text, and what JSON has in front of the programs.
shown()
{
    trainmark explain $plan --schedule "$@"
    { echo "> $*"; sed -n '/^ranks/,$p' "$out"; cat "$err"; echo "-> $code"; } >>said
    trainmark explain $plan --json "$@"
    { sed -n '/^  "ranks"/,/"programs"/p' "$out" | sed '/^  "memory"/,$d; /"programs"/d'; cat "$err"; echo "-> $code"; echo; } >>said
}
shown $shard 4 --ranks-per-host 2
shown $shard 4 --ranks-per-host 3 --training.dtype bfloat16 --optimizer.name Muon
shown $shard 2 $copies 4 --ranks-per-host 2 --training.global_batch_size 32
shown $tensor 2 $shard 2 --ranks-per-host 2
shown $tensor 2 $shard 2 --ranks-per-host 1 --parallelism.exact true
shown $context 4 --ranks-per-host 2
shown $context 2 $tensor 2 --ranks-per-host 3
as explain_shares.txt
shown $pipe 4 --training.global_batch_size 8 --ranks-per-host 2
shown $pipe 2 $shard 2 --training.global_batch_size 16 --ranks-per-host 1
shown $pipe 2 --training.global_batch_size 8 --ranks-per-host 2
shown $pipe 2 --training.global_batch_size 8 --parallelism.pipeline_parallel_schedule Interleaved1F1B --ranks-per-host 1
as explain_pipes.txt
experts="qwen3_30B-A3B --training.seq_len 128 --training.local_batch_size 4 --training.threads 1 --device reference --model.n_layers 2"
for each in 1 4 8; do
    trainmark explain $experts --parallelism.ranks 8 --parallelism.expert_parallel_degree 4 --ranks-per-host $each --schedule
    { echo "> $each"; sed -n '/^ranks/,$p' "$out"; cat "$err"; echo "-> $code"; } >>said
done
trainmark explain $experts --parallelism.ranks 8 --parallelism.expert_parallel_degree 8 --ranks-per-host 2 --json
sed -n '/^  "ranks"/,/"programs"/p' "$out" | sed '/^  "memory"/,$d; /"programs"/d' >>said
as explain_exchanges.txt

# --- what every place needs -------------------------------------------------------------------------------------------------

filter='/^  [a-z]*  *-*[0-9.]* [KMG]*i*B\(  #*\)*$/d; /^$/d'
for words in "$shard 3" "$shard 3 $context 2" "$pipe 2 $shard 3 --training.global_batch_size 12" "$tensor 2" "$copies 3" \
    "$shard 5 --optimizer.name Muon" "$shard 3 --optimizer.name Muon $context 2"; do
    trainmark run $plan --dry-run --memory 1GiB $words
    { echo "> $words"; sed "$filter" "$out"; cat "$err"; echo "-> $code"; } >>said
done
trainmark run $plan --dry-run --memory 150KiB $pipe 2 $shard 3 --training.global_batch_size 12
{ sed "$filter" "$out"; cat "$err"; echo "-> $code"; } >>said
trainmark run $plan --dry-run --memory 1GiB $shard 3 $context 2 --json
sed '/"configuration": {/,/^  }/d' "$out" >>said
filter=
as explain_places.txt

finish
