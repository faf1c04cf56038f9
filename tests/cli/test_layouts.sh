#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans for several ranks on a machine that has one: collectives, bytes, what does not fit together.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

trainmark explain tiny-llama --parallelism.ranks 4
check "ranks are explained" [ "$code" -eq 0 ]
check "who shares what" has "$out" "^ranks       dp_shard 4: this is rank 0 of 4, which share weights, gradients"
check "gathers of a step" has "$out" "^  first     all_gather +10 calls, .*MiB on the wire; 2 with nothing to compute beside"
check "reductions of a step" has "$out" "^  first     reduce_scatter +6 calls"
check "a quarter of the states" has "$out" "per parameter 4 B: weights 1, gradients 1, optimizer 2"

copies="--parallelism.data_parallel_shard_degree 1 --parallelism.data_parallel_replicate_degree"
# shellcheck disable=SC2086
trainmark explain tiny-llama $copies 4
check "copies reduce beside the backward pass" has "$out" "^  first     all_reduce +6 calls"
check "and hold everything" has "$out" "per parameter 16 B: weights 4, gradients 4, optimizer 8"

# 4 hosts of 2 ranks: 2 N (p - k) / p = 1.5 N leave a rank from rank to rank, ((R - 1) + (H - 1)) / p N = 0.75 N shared by hosts.
trainmark explain tiny-llama $copies 8 --ranks-per-host 2 --json
check "bytes between hosts" awk '
    /"program": "first"/ { all = 0 } /"op": "all_reduce"/ { all = 1 }
    { gsub(/[",]/, "") } $1 == "wire_bytes:" { wire = $2 } $1 == "between_hosts_bytes:" { between = $2 }
    $1 == "between_hosts_direct_bytes:" && all { n = wire / 1.75; good += $2 == 1.5 * n && between >= 0.75 * n && between < 0.751 * n; all = 0; exit }
    END { exit !good }' "$out"
# 2 ranks on each host divide the matrices, and 4 hosts have copies: what tp sums stays within a host.
trainmark explain tiny-llama --parallelism.ranks 8 --parallelism.tensor_parallel_degree 2 --ranks-per-host 2
check "groups within a host send nothing to others" has "$out" "of a rank, on average: 0 B to other hosts \(0 B from rank to rank\), "
trainmark explain tiny-llama --parallelism.ranks 4 --ranks-per-host 1
check "groups of one rank a host send all of it" has "$out" "of a rank, on average: .* to other hosts \(.*\), 0 B within its own"
trainmark explain tiny-llama --parallelism.ranks 4 --json
check "the same as JSON" has "$out" '"dp_shard": 4'
check "with bytes of each collective" has "$out" '"wire_bytes": [1-9]'

trainmark run llama3.2_1B --dry-run --parallelism.ranks 256 --parallelism.data_parallel_replicate_degree 16 --memory 100TiB
check "a dry run for 256 ranks" [ "$code" -eq 0 ]
check "names the mesh" has "$out" " 256 ranks \(dp_replicate 16 x dp_shard 16\)"
check "whose plans are alike" has "$out" "^memory of each rank$"

trainmark run tiny-llama --dry-run --parallelism.ranks 13 --memory 1TiB --isa base --training.local_batch_size 1 --training.seq_len 64
check "places whose parts are alike" has "$out" "^  shards 0-11: 16.14 MiB each"
check "and the last one, which has less" has "$out" "^  shard 12: 16.13 MiB each"

trainmark explain deepseek_v3_16B --parallelism.ranks 8 --parallelism.expert_parallel_degree 8 \
    --training.local_batch_size 8 --training.dtype bfloat16
check "experts of a rank" has "$out" "^experts     8 of 64 on each rank; an all-to-all moves 768.0+ MiB, 7/8 of it to other ranks"
check "and the room for rows" has "$out" "^            room for 393216 rows at a time, 2 times the even share; 4 rounds at most"
check "rows sent in a forward and a backward pass" has "$out" "^  first     send_rows "

trainmark run tiny-llama --dry-run --parallelism.ranks 3 --parallelism.data_parallel_replicate_degree 2
failed_with 4 "a wrong product" "dp_replicate 2 multiply to 2.*start 2 or 4 ranks"
trainmark run tiny-llama --parallelism.data_parallel_shard_degree 8
failed_with 4 "shards without ranks" "start 8 ranks \(--ranks\)"
trainmark explain tiny-llama --parallelism.ranks 4 --optimizer.name Muon
check "tensors dealt out whole: gradients and weights are gathered" has "$out" "^  update +all_gather +12 calls"
check "and weights summed into the parts" has "$out" "^  update +reduce_scatter +6 calls"
trainmark explain tiny-llama --parallelism.ranks 4 --parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 4 \
    --training.offload all
check "what a micro-batch keeps is in slots of the file" has "$out" "programs 0-1, in slots, disk"
trainmark explain tiny-llama --parallelism.ranks 4 --parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 4 \
    --parallelism.fsdp_reshard_after_forward always --model.tied true
failed_with 4 "what stages do not go with" "a tied table in two stages \(model.tied\) cannot be combined with shards of gradients"
trainmark explain tiny-llama --parallelism.ranks 4 --parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 4 \
    --parallelism.fsdp_reshard_after_forward always
check "weights of stages are gathered for every micro-batch" has "$out" "^  backward +all_gather +[1-9][0-9]* calls"
check "and gradients reduced behind it" has "$out" "^  backward +reduce_scatter +[1-9][0-9]* calls"

trainmark explain tiny-llama --lora.rank 4 --lora.layers 3 --parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2 \
    --training.grad_accumulation 2
check "a stage without adapters" has "$out" "^adapters    rank 4, scale 1, 0 modules: 0 parameters are trained, [0-9,]+ frozen"
check "of which nothing is their work" has "$out" "^ +0 GFLOP per micro-batch are theirs, 0 % of all"
trainmark explain tiny-llama --lora.rank 4 --parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 2 \
    --parallelism.pipeline_parallel_schedule ZBVZeroBubble
check "a stage with adapters" has "$out" "^adapters    rank 4, scale 1, [1-9][0-9]* modules: [1-9][0-9,]* parameters are trained"
trainmark explain tiny-llama --parallelism.ranks 4 --training.dtype bfloat16
check "weights travel in bfloat16" has "$out" "^  first     all_gather +10 calls, "
gathered=$(sed -n 's/^  first     all_gather *10 calls, *\([0-9.]*\) MiB.*/\1/p' "$out")
trainmark explain tiny-llama --parallelism.ranks 4
whole=$(sed -n 's/^  first     all_gather *10 calls, *\([0-9.]*\) MiB.*/\1/p' "$out")
check "half the bytes" awk "BEGIN { exit !($gathered * 2 - $whole < 0.011 && $whole - $gathered * 2 < 0.011) }"
trainmark explain tiny-llama --parallelism.ranks 4 --lora.rank 4 --lora.base_format nf4 --training.dtype bfloat16
check "adapters beside a base in parts" has "$out" "^ranks       dp_shard 4: this is rank 0 of 4, which share weights, gradients"

trainmark explain tiny-llama --parallelism.context_parallel_degree 4
check "sequences in parts are explained" has "$out" "^ranks       cp 4: this is rank 0 of 4, which share weights, gradients"
check "keys are gathered, and their gradients reduced" has "$out" "^  first     reduce_scatter +10 calls"
trainmark run tiny-llama --dry-run --parallelism.context_parallel_degree 4 --parallelism.data_parallel_shard_degree 2
check "ranks of both kinds" has "$out" " 8 ranks \(dp_shard 2 x cp 4\)"
trainmark explain tiny-llama --parallelism.context_parallel_degree 3 --training.seq_len 64
failed_with 4 "a length that does not divide" "6 equal chunks.*set it to 60 or 66"
trainmark explain tiny-llama --parallelism.context_parallel_degree 2 --parallelism.context_parallel_rotate_method alltoall
check "keys that go from rank to rank" has "$out" "^  first     pass_on "

deep="--model.n_layers 4 --parallelism.pipeline_parallel_degree 2"
named=--parallelism.module_fqns_per_model_part
# shellcheck disable=SC2086
trainmark explain tiny-llama $deep $named '[[tok_embeddings, layers.0], [layers.1, layers.2, layers.3, norm, output]]'
check "stages by names" has "$out" "^  stage 0 +embedding, 1 blocks from 0 on"
# shellcheck disable=SC2086
trainmark run tiny-llama --print-config $deep $named '[[tok_embeddings, layers.0], [layers.1, layers.2, layers.3, norm, output]]'
check "names are printed as they are read" has "$out" 'module_fqns_per_model_part: \["tok_embeddings\|layers.0", "layers.1\|'
grep -v '^#' "$out" >resolved.yaml
trainmark explain resolved.yaml --parallelism.ranks 2
check "and read as they are printed" has "$out" "^  stage 0 +embedding, 1 blocks from 0 on"
# shellcheck disable=SC2086
trainmark explain tiny-llama $deep $named '[[tok_embeddings, layers.0, layers.4], [layers.1, layers.2, layers.3, norm, output]]'
failed_with 4 "a name that the model does not have" "stage 0 has 'layers.4', which the model does not have; its modules are"
printf '0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n' >order.csv
csv="--training.grad_accumulation 2 --parallelism.pipeline_parallel_schedule_csv order.csv"
# shellcheck disable=SC2086
trainmark explain tiny-llama $deep $csv --schedule
check "an order from a file" has "$out" "^pipeline    order.csv: 2 ranks x 1 stage, 2 micro-batches; idle 33.3 % of a step"
printf '0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n' >order.csv
# shellcheck disable=SC2086
trainmark explain tiny-llama $deep $csv
failed_with 4 "ranks that wait for each other" "order.csv: row 1 .rank 0., column 2: '0B0' waits for ever for stage 1"
# shellcheck disable=SC2086
trainmark explain tiny-llama --model.n_layers 8 --parallelism.pipeline_parallel_degree 4 --training.grad_accumulation 8 --schedule \
    --parallelism.pipeline_parallel_schedule DualPipeV
check "DualPipeV is printed" has "$out" "^pipeline    DualPipeV: 4 ranks x 2 stages, 8 micro-batches; idle 5.9 % of a step"

finish
