#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans for hardware that is not here: --platform says how many ranks there are and what they have; so do the variables
# of launchers and launch.*. What is more explicit counts.
# shellcheck disable=SC1091,SC2086
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

plan() { trainmark run "$@" --dry-run; }
small="llama3.1_8B --model.n_layers 2 --training.mock_data true --training.local_batch_size 1"
# ranks NAME NUMBER: of the last plan.
ranks() { check "$1: $2 ranks" has "$out" ", $2 ranks \("; }

plan $small --platform 8xMI300X
check "it plans" [ "$code" -eq 0 ]
ranks "a node of eight" 8
check "the rest of the ranks share the model" has "$out" " 8 ranks \(dp_shard 8\)$"
check "the plan is of the CPU's program" has "$out" "^platform: the plan is of the program for cpu, not for MI300X"
GPUS_PER_NODE=2 NNODES=3 plan $small --platform 8xMI300X
ranks "the environment is of this machine" 8
check "variables that ask for other hardware are named" has "$err" "launch.nnodes 3 \(environment NNODES\) does not count, --platform says 1"
WORLD_SIZE=6 RANK=1 plan $small --platform 8xMI300X
ranks "so are a launcher's processes" 8
printf 'model: llama3.1_8B\nmodel.n_layers: 2\ntraining.mock_data: true\nlaunch: {nnodes: 3, gpus_per_node: 2}\n' >file.yaml
plan file.yaml --memory 4TiB
ranks "a file's nodes and devices" 6
plan file.yaml --platform 8xMI300X
ranks "they are more explicit" 6
plan $small --platform MI300X --memory 1GiB
check "--memory is more explicit" [ "$code" -eq 4 ]
plan llama3.1_8B --training.mock_data true --training.dtype bfloat16 --training.local_batch_size auto --platform 8xMI300X
check "the batch that fits its memory" has "$out" " fit into 189.00 GiB of MI300X "
says 0 "^platform    2 nodes of 8x MI355X \(AMD, gfx950\)" explain $small --platform 2x8xMI355X
check "explain has its ranks" has "$out" "this is rank 0 of 16"
check "explain has its memory" has "$out" "fits into 285.00 GiB of MI355X"

plan $small --memory 4TiB --parallelism.tensor_parallel_degree 2
check "a plan without any has what the degrees multiply to" has "$out" " 2 ranks \(tp 2\)$"

for variable in NNODES=2 NODE_RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=2; do
    env "$variable" "$TRAINMARK" run $tiny --training.steps 1 --out none >"$out" 2>"$err"
    code=$?
    check "$variable without a launcher trains nothing" [ "$code" -eq 4 ]
    check "$variable is named" has "$err" "environment ${variable%=*}\): ranks are started with --ranks, torchrun, srun or mpirun"
done
says 2 "add --dry-run, or leave it out" run --platform 8xMI300X

# --- published batches, as docs/memory.md has them ---------------------------------------------------------------------------

some=3
[ -n "${TM_TEST_FULL:-}" ] && some=100
grep -E '^\| (primus|amd)-' "$root/docs/memory.md" | head -n $some | tr -d ' ' | while IFS='|' read -r _ page row published largest _; do
    trainmark reproduce "$page" --rows "$row" --dry-run --json
    command=$(sed -n 's/^ *"command": "trainmark \(.*\)",$/\1/p' "$out" | head -n 1)
    hardware=$(sed -n 's/^ *"hardware": "\(.*\)",$/\1/p' "$out" | head -n 1)
    trainmark $command --platform "$hardware" --dry-run
    set -- $(sed -n 's/^largest training.local_batch_size that fits: \([0-9]*\).*/\1/p' "$out") none
    [ "$1" = "$largest" ] && [ "$published" -le "$largest" ] || echo "$row: $1, not $largest"
    echo "$row" >>rows
done >differs
check "the batches of docs/memory.md: $(head -n 1 differs)" [ ! -s differs -a "$(wc -l <rows)" -ge 3 ]

finish
