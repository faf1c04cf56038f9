#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans for several ranks on a machine that has one. What `explain` says of collectives and bytes: test_explain.c; memory of
# ranks: test_rank_plans.c.
# shellcheck disable=SC1091,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

pipe="--parallelism.ranks 4 --parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 4"
deep="--model.n_layers 4 --parallelism.pipeline_parallel_degree 2"
named="$deep --parallelism.module_fqns_per_model_part"
csv="--training.grad_accumulation 2 --parallelism.pipeline_parallel_schedule_csv"
printf '0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n' >order.csv
printf '0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n' >wrong.csv
"$TRAINMARK" run tiny-llama --print-config $named '[[tok_embeddings, layers.0], [layers.1, layers.2, layers.3, norm, output]]' | grep -v '^#' >resolved.yaml
table <<'END'
0 | run llama3.2_1B --dry-run --parallelism.ranks 256 --parallelism.data_parallel_replicate_degree 16 --memory 100TiB | 256 ranks (dp_replicate 16 x dp_shard 16) | memory of each rank
0 | run tiny-llama --dry-run --parallelism.context_parallel_degree 4 --parallelism.data_parallel_shard_degree 2 | 8 ranks (dp_shard 2 x cp 4)
4 | run tiny-llama --dry-run --parallelism.ranks 3 --parallelism.data_parallel_replicate_degree 2 | dp_replicate 2 multiply to 2 | start 2 or 4 ranks
4 | run tiny-llama --parallelism.data_parallel_shard_degree 8 | start 8 ranks (--ranks)
4 | explain tiny-llama --parallelism.context_parallel_degree 3 --training.seq_len 64 | 6 equal chunks | set it to 60 or 66
# Tensors that are dealt out whole: gradients and weights are gathered, then weights are summed into the parts.
0 | explain tiny-llama --parallelism.ranks 4 --optimizer.name Muon | update all_gather 12 calls | update reduce_scatter 6 calls
0 | explain tiny-llama $pipe --training.offload all | programs 0-1, in slots, disk
4 | explain tiny-llama $pipe --parallelism.fsdp_reshard_after_forward always --model.tied true | a tied table in two stages (model.tied) cannot be combined with shards of gradients
0 | explain tiny-llama $pipe --lora.rank 4 --lora.layers 3 | adapters rank 4, scale 1, 0 modules: 0 parameters are trained | 0 GFLOP per micro-batch are theirs, 0 % of all
# Stages by the names of modules, which are printed as they are read; orders from a file.
0 | explain resolved.yaml --parallelism.ranks 2 | stage 0 embedding, 1 blocks from 0 on
4 | explain tiny-llama $named '[[tok_embeddings, layers.0, layers.4], [layers.1, layers.2, layers.3, norm, output]]' | stage 0 has 'layers.4', which the model does not have; its modules are
0 | explain tiny-llama $deep $csv order.csv --schedule | pipeline order.csv: 2 ranks x 1 stage, 2 micro-batches; idle 33.3 % of a step
4 | explain tiny-llama $deep $csv wrong.csv | wrong.csv: row 1 (rank 0), column 2: '0B0' waits for ever for stage 1
END

finish
