#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Collective calls on GPUs, over libraries that stand in for CUDA's driver, HIP's runtime, NCCL and RCCL (tests/standins);
# and ranks that torchrun, or somebody like it, has started.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
unset TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE GROUP_RANK VIRTUAL_ENV CONDA_PREFIX
export OMP_WAIT_POLICY=passive HOME="$work"
standins=$(dirname "$(readlink -f "$TRAINMARK")")/tests/standins
if [ ! -f "$standins/nccl.so" ] || [ ! -f "$standins/cuda.so" ]; then
    skip "collective calls on GPUs" "the stand-ins were not built (make build-tests)"
    finish
fi
export TRAINMARK_NCCL="$standins/nccl.so" TRAINMARK_GPU_RUNTIME="$standins/cuda.so" STANDIN_SHARED="$work/shared"
mkdir shared
quick="--min-bytes 1024 --max-bytes 262144 --factor 256 --rep-ms 1 --warmup-ms 1 --precision 0 --threads 1"
gpus="bench collectives --engine nccl $quick"

nothing_left() { [ -z "$(ls -A shared)" ]; }

# --- one GPU ------------------------------------------------------------------------------------------------------------

STANDIN_GPUS=1 says 0 '' $gpus --json
check "one GPU: all other rows are right" [ "$(grep -c '"correct": *true' "$out")" -eq 14 ]
check "the runtime's file and the GPU" has "$out" "CUDA 12\.4, loaded from $standins/cuda\.so; rank 0 is on GPU 0 of 1: a stand-in"

# --- two and four ranks -------------------------------------------------------------------------------------------------

start 2 $gpus --json
check "two ranks" ended "0 0"
check "two ranks: all rows are right" [ "$(grep -c '"correct": *true' "$out")" -eq 16 ]

# --- when something goes wrong ------------------------------------------------------------------------------------------

STANDIN_KILL=1@7= start 2 $gpus --calls all-reduce --deadline 1
check "a rank that is killed" ended "1 137"
check "a rank that is killed: which" has "$err" "rank 1 of group world is late"
check "nothing is left in memory" nothing_left

RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 says 4 "this is rank 0 of 2, launched by torchrun.*MASTER_ADDR.*--ranks 2" $gpus

# torchrun's own store listens at MASTER_PORT: the next one is ours.
export TORCHELASTIC_RUN_ID=job TORCHELASTIC_USE_AGENT_STORE=True
start 2 $gpus --calls all-reduce
check "beside torchrun's own store" ended "0 0"
unset TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE

# --- trainings on GPUs --------------------------------------------------------------------------------------------------

export TRAINMARK_NVRTC="$standins/nvrtc.so" TRAINMARK_CUBLASLT="$standins/cublaslt.so"
mkdir kernels && chmod 700 kernels
export TRAINMARK_KERNELS="$work/kernels"
small="$tiny --model.vocab_size 64 --training.steps 3 --training.global_batch_size 4 --training.local_batch_size 2"
value_of() { sed -n "s/^ *\"$2\": \"*\([^\",]*\).*/\1/p" "$1/result.json" | head -n 1; }
trained=0
start 2 run tiny-llama $small --device cuda --out gpus
if has "$err" "cannot compile|no compiler" && [ "${TM_TEST_COMPILERS:-}" != required ]; then
    skip "trainings on GPUs" "no compiler of kernels (tools/kernel_compilers.sh)"
else
    trained=1
    check "two GPUs train" ended "0 0"
    check "and where these are" has "$err" "rank 0: GPU 0 at 0000:10:00\.0.*; rank 1: GPU 1 at 0000:11:00\.0"
    check "the result names the library that adds" has gpus/result.json '"sums": ".*-nccl-2\.28\.9"'
    start 2 run tiny-llama $small --device cuda --out again
    check "the same weights again" [ "$(value_of again weights_hash)" = "$(value_of gpus weights_hash)" ]
    STANDIN_HANG=1@2= start 2 run tiny-llama $small --parallelism.data_parallel_replicate_degree 2 --device cuda --deadline 2 --out hung
    check "a GPU that hangs" [ "$codes" = "1 1" ]
    check "rank and call" has "$err" "rank ([01]) has waited 2 s for the end of all-reduce .*gradients of .* on GPU \\1 "
    rm -f shared/*
fi

# --- under an MPI -------------------------------------------------------------------------------------------------------

if [ -f "${standins%/tests/standins}/trainmark-openmpi.so" ] && command -v mpirun.openmpi >/dev/null; then
    STANDIN_GPUS=2 says 0 '"ranks": *2' $gpus --json
    STANDIN_GPUS=1 says 4 "ranks 0 and 1 on .* would use the same GPU" $gpus --ranks 2
    if [ "$trained" -eq 1 ]; then
        says 0 '' run tiny-llama $small --device cuda --ranks 2 --out started
        check "has the same weights" [ "$(value_of started weights_hash)" = "$(value_of gpus weights_hash)" ]
    fi
else
    skip "ranks of an MPI on GPUs" "mpirun.openmpi or trainmark-openmpi.so is not here (openmpi-bin libopenmpi-dev)"
fi
finish
