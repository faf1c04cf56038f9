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
export TRAINMARK_NCCL="$standins/nccl.so" TRAINMARK_GPU_RUNTIME="$standins/cuda.so"
quick="--min-bytes 1024 --max-bytes 262144 --factor 256 --rep-ms 1 --warmup-ms 1 --precision 0 --threads 1"
gpus="bench collectives --engine nccl $quick"

# A port that nobody has, and the next one neither.
port=$((20000 + $$ % 12000))

# start N COMMAND...: as N ranks of a launcher that only sets the environment. Sets $codes; $out is that of rank 0, $err
# that of all. ONLY: not all of them; LATE: rank 0 after the others.
start()
{
    start_n=$1
    shift
    port=$((port + 2))
    : >"$err"
    for start_rank in ${ONLY:-$(seq $((start_n - 1)) -1 0)}; do
        [ -n "${LATE:-}" ] && [ "$start_rank" = 0 ] && sleep 0.3
        ( export RANK="$start_rank" WORLD_SIZE="$start_n" LOCAL_RANK="$start_rank" LOCAL_WORLD_SIZE="$start_n"
          export MASTER_ADDR="${ADDRESS:-127.0.0.1}" MASTER_PORT=$port GROUP_RANK=$((start_rank / ${PER_NODE:-$start_n}))
          exec timeout -k 5 "$seconds" "$TRAINMARK" "$@" >"out.$start_rank" 2>>"$err" </dev/null ) &
        echo $! >"pid.$start_rank"
    done
    codes=
    for start_rank in ${ONLY:-$(seq 0 $((start_n - 1)))}; do
        wait "$(cat "pid.$start_rank")"
        codes="$codes $?"
    done
    codes=${codes# }
    code=${codes%% *}
    cp "out.${ONLY:-0}" "$out" 2>/dev/null || cp "out.${ONLY%% *}" "$out"
    rm -f out.* pid.*
}
ended() { [ "$codes" = "$1" ] || { echo "# exit codes: $codes"; false; }; }
nothing_left() { ! ls /dev/shm/trainmark-standin-* >/dev/null 2>&1; }

# --- one GPU ------------------------------------------------------------------------------------------------------------

STANDIN_GPUS=1 trainmark $gpus --json
check "one GPU: a rank is enough" [ "$code" -eq 0 ]
check "one GPU: all other rows are right" [ "$(grep -c '"correct": *true' "$out")" -eq 14 ]
check "one GPU: a message takes two" has "$out" "a message takes two ranks"
check "the library's file and version" has "$out" "nccl 2\.28\.9, loaded from $standins/nccl\.so"
check "the runtime's file and the GPU" has "$out" "CUDA 12\.4, loaded from $standins/cuda\.so; rank 0 is on GPU 0 of 1: a stand-in"
check "the engine's name" has "$out" '"engine": *"nccl"'
check "where the data lie" has "$out" '"buffers": *"device"'

STANDIN_GPUS=1 trainmark $gpus --calls all-reduce --min-bytes 33554432 --max-bytes 33554432
check "a copy is the yardstick" has "$out" 'link: [01] of 1 calls of 32768 KiB or more took no longer'
TRAINMARK_NCCL="$standins/rccl.so" TRAINMARK_GPU_RUNTIME="$standins/hip.so" STANDIN_GPUS=1 trainmark $gpus --calls all-reduce
check "RCCL on HIP" [ "$code" -eq 0 ]
check "RCCL: named" has "$out" "rccl 2\.28\.9, loaded from .*HIP 12\.4, loaded from|rccl 2\.28\.9, loaded from"
check "HIP: named" has "$out" "HIP 12\.4, loaded from $standins/hip\.so"

TRAINMARK_NCCL='' trainmark $gpus --ranks 1 --library "$standins/nccl.so" --calls all-reduce
check "the library as an option" [ "$code" -eq 0 ]

# --- what is missing ----------------------------------------------------------------------------------------------------

mkdir empty
TRAINMARK_NCCL='' trainmark $gpus --ranks 1 --library "$work/empty/libnccl.so.2"
failed_with 4 "no library where it is said to be" "NCCL cannot be loaded .*empty/libnccl.so.2"
TRAINMARK_GPU_RUNTIME="$work/empty/libcuda.so.1" trainmark $gpus
failed_with 4 "no runtime of a GPU" "no runtime of a GPU was found .*install NVIDIA's driver"
STANDIN_GPUS=0 trainmark $gpus --ranks 1
failed_with 4 "no GPU" "shows no GPU to this process; see CUDA_VISIBLE_DEVICES"
STANDIN_GPU_FAIL=cuInit@1=700 trainmark $gpus --ranks 1
failed_with 1 "no driver behind the runtime" "rank 0 on .*: GPU 0 \(CUDA\): cuInit: an illegal memory access"
mkdir -p venv/lib/python3.9/site-packages/nvidia/nccl/lib
cp "$standins/nccl.so" venv/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2
TRAINMARK_NCCL='' VIRTUAL_ENV="$work/venv" STANDIN_GPUS=1 trainmark $gpus --calls all-reduce
check "the library of the environment in use" has "$out" "loaded from .*/venv/lib/python3\.9/site-packages/nvidia/nccl/lib/libnccl\.so\.2"
TRAINMARK_NCCL="$standins/cuda.so" trainmark $gpus --ranks 1
failed_with 4 "another library" "has no ncclGetVersion"
TRAINMARK_NCCL="$standins/nccl-ancient.so" trainmark $gpus --ranks 1
failed_with 4 "a version without messages" "\(version 2\.4\.2\) has no ncclSend; 2\.7"
trainmark $gpus --ranks 1 --buffers private
failed_with 2 "buffers of processes" "--buffers says where processes have their memory"
trainmark bench collectives --ranks 1 --library "$standins/nccl.so"
failed_with 2 "a library without its engine" "--library names a file for --engine nccl"
printf '%s\n' '- collectives: {engine: nccl}' >jobs.yaml
trainmark bench jobs jobs.yaml
failed_with 4 "in a list of jobs" "collective calls take two ranks"
STANDIN_GPU_FAIL=cuMemAlloc_v2@1=2 trainmark $gpus --ranks 1
failed_with 4 "no memory on the GPU" "GPU 0 \(a stand-in, 4\.0 GiB\) has no memory for"
STANDIN_GPU_FAIL=cuStreamQuery@20=700 trainmark $gpus --ranks 1
failed_with 1 "an error of the GPU" "GPU 0 \(a stand-in\): cuStreamQuery: an illegal memory access was encountered \(error 700\)"

# --- two and four ranks -------------------------------------------------------------------------------------------------

start 2 $gpus --json
check "two ranks" ended "0 0"
check "two ranks: all rows are right" [ "$(grep -c '"correct": *true' "$out")" -eq 16 ]
check_not "two ranks: no verdict by a copy" has "$out" '"link": *"(as|below)'
check "two ranks: one prints" [ "$(grep -c '"correct"' "$out")" -eq 16 ]
for format in bfloat16 float64; do
    LATE=1 start 4 $gpus --format $format --json
    check "four ranks, $format" ended "0 0 0 0"
    check "four ranks, $format: all rows are right" [ "$(grep -c '"correct": *true' "$out")" -eq 16 ]
done
PER_NODE=2 start 4 $gpus --calls all-reduce,all-to-all-v --json
check "two nodes of two" ended "0 0 0 0"
check "two nodes: told" has "$out" '"hosts": *2'
TRAINMARK_NCCL="$standins/nccl-old.so" start 2 $gpus --calls all-reduce,p2p
check "an old version, which blocks" ended "0 0"
check "an old version: told" has "$out" "nccl 2\.7\.8, loaded from"
NCCL_COMM_BLOCKING=0 start 2 $gpus --calls all-reduce,all-to-all --json
check "calls that do not block" ended "0 0"
check "calls that do not block: told" has "$out" "NCCL_COMM_BLOCKING=0: its calls do not wait"
check "calls that do not block: right" [ "$(grep -c '"correct": *true' "$out")" -eq 4 ]
TRAINMARK_NCCL="$standins/nccl-old.so" start 2 $gpus --calls all-reduce --format bfloat16
check "an old version without bfloat16" ended "4 4"
check "an old version without bfloat16: told" has "$err" "is version 2\.7\.8: bfloat16 came with 2\.10"

STANDIN_GPUS=2 start 3 $gpus
check "fewer GPUs than ranks" ended "4 4 4"
check "fewer GPUs than ranks: which" has "$err" "ranks 0 and 2 on .* would use the same GPU \(0000:10:00\.0\): 3 ranks there, and rank 2 sees 2 GPUs"
STANDIN_VERSION_OF=1=22704 start 2 $gpus
check "two versions of the library" ended "4 4"
check "two versions: which" has "$err" "rank 0 has nccl 2\.28\.9, rank 1 on .* has nccl 2\.27\.4"
STANDIN_INIT=1=2 start 2 $gpus --deadline 1
check_not "no communicator" ended "0 0"
check "no communicator: who and what" has "$err" "rank 1: ncclCommInitRankConfig .*unhandled system error \(2\)"
rm -f /dev/shm/trainmark-standin-* # of the rank that waited for it
STANDIN_WRONG=1@1 start 2 $gpus --calls all-reduce --max-bytes 1024
check "a wrong result" ended "3 3"
check "a wrong result: told" has "$err" "all-reduce of 1024 bytes: a rank did not receive what the others sent"
check "a wrong result: in the table" has "$out" "all-reduce .*(no|false)"

# Each rank in a container of its own, with a GPU of its own: all are number 0 there.
STANDIN_GPUS=1 PER_NODE=1 start 2 $gpus --calls all-reduce
check "each node its only GPU" ended "0 0"

# --- when something goes wrong ------------------------------------------------------------------------------------------

STANDIN_RETURN=1@7=3 start 2 $gpus --calls all-gather --deadline 2
check "a call that fails" [ "$codes" = "1 1" ]
check "a call that fails: who and what" has "$err" \
    "rank 1: ncclAllGather \(all-gather of [0-9]+ float32 'all-gather'\): internal error \(3\); the stand-in was told to"
STANDIN_ASYNC=0@7=6 start 2 $gpus --calls all-reduce --deadline 2
check "an error behind the call" [ "$codes" = "1 1" ]
check "an error behind the call: who and what" has "$err" "rank 0: what was under way \(all-reduce .*remote process exited"
STANDIN_HANG=1@7= start 2 $gpus --calls all-reduce --deadline 1
check "a GPU that hangs" [ "$codes" = "1 1" ]
check "a GPU that hangs: all ranks are there" has "$err" "has waited 1 s for the end of all-reduce .*all ranks are there"
STANDIN_STUCK=1@7= start 2 $gpus --calls all-reduce --deadline 1
check "a call that does not return" [ "$codes" = "1 1" ]
check "a call that does not return: which" has "$err" "rank 1 has waited 1 s within ncclAllReduce, all-reduce"
STANDIN_STUCK=0@7= TRAINMARK_NCCL="$standins/nccl-old.so" start 2 $gpus --calls all-gather --deadline 1
check "nor one of an old version" has "$err" "rank 0 has waited 1 s within ncclAllGather, all-gather"
STANDIN_KILL=1@7= start 2 $gpus --calls all-reduce --deadline 1
check "a rank that is killed" [ "$codes" = "1 137" ]
check "a rank that is killed: which" has "$err" "rank 1 of group world is late"
PER_NODE=1 STANDIN_KILL=2@7= start 3 $gpus --calls all-reduce --deadline 5
check "a rank of another node is killed" [ "$codes" = "1 1 137" ]
check "a rank of another node is killed: which" has "$err" "rank 2 on .* has gone: its connection is closed"
check "nothing is left in memory" nothing_left

# --- how ranks meet -----------------------------------------------------------------------------------------------------

ONLY="0 1" start 4 $gpus --deadline 1
check "ranks that do not come" [ "$codes" = "1 1" ]
check "ranks that do not come: which" has "$err" "ranks 2, 3 of 4 did not come to rank 0 on .* within 1 s"
ONLY=1 start 2 $gpus --deadline 1
check "no first rank" has "$err" "rank 0 was not at MASTER_ADDR 127\.0\.0\.1, port [0-9]+, within 1 s"
ADDRESS=no.such.host.invalid start 2 $gpus --deadline 1
check "no such address" has "$err" "MASTER_ADDR 'no\.such\.host\.invalid' is no address"
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 trainmark $gpus
failed_with 4 "no address" "this is rank 0 of 2, launched by torchrun.*MASTER_ADDR.*--ranks 2"

RANK=5 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29000 trainmark $gpus
failed_with 4 "no rank of the world" "RANK is 5, WORLD_SIZE is 2"

# torchrun's own store listens at MASTER_PORT: the next one is ours.
export TORCHELASTIC_RUN_ID=job TORCHELASTIC_USE_AGENT_STORE=True
start 2 $gpus --calls all-reduce
check "beside torchrun's own store" ended "0 0"
unset TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE

start 2 bench collectives --calls all-reduce,all-to-all-v,p2p $quick --json
check "the memory of processes, too" ended "0 0"
check "the memory of processes: over tcp" has "$out" '"engine": *"tcp"'
check "the memory of processes: all rows are right" [ "$(grep -c '"correct": *true' "$out")" -eq 6 ]
PER_NODE=1 start 3 bench collectives $quick --json
check "processes that share no memory" ended "0 0 0"
check "processes that share no memory: all rows are right" [ "$(grep -c '"correct": *true' "$out")" -eq 16 ]

layout="--training.steps 4 --training.global_batch_size 8 --parallelism.data_parallel_replicate_degree 2
        --parallelism.exact true"
trainmark run $tiny --training.steps 4 --training.global_batch_size 8 --training.separate_sums 2 --out alone
start 2 run $tiny $layout --out two
check "two of them train" ended "0 0"
check "with the bits of one" [ "$(grep -o '"weights_hash": *"[^"]*"' two/result.json)" = "$(grep -o '"weights_hash": *"[^"]*"' alone/result.json)" ]

# --- trainings on GPUs --------------------------------------------------------------------------------------------------

export TRAINMARK_NVRTC="$standins/nvrtc.so" TRAINMARK_CUBLASLT="$standins/cublaslt.so"
mkdir kernels && chmod 700 kernels
export TRAINMARK_KERNELS="$work/kernels"
small="$tiny --model.vocab_size 64 --training.steps 3 --training.global_batch_size 4 --training.local_batch_size 2"
copies="--parallelism.data_parallel_replicate_degree 2"
value_of() { sed -n "s/^ *\"$2\": \"*\([^\",]*\).*/\1/p" "$1/result.json" | head -n 1; }
trained=0
start 2 run tiny-llama $small --device cuda --out gpus
if has "$err" "cannot compile|no compiler" && [ "${TM_TEST_COMPILERS:-}" != required ]; then
    skip "trainings on GPUs" "no compiler of kernels (tools/kernel_compilers.sh)"
else
    trained=1
    check "two GPUs train" ended "0 0"
    check "and where these are" has "$err" "rank 0: GPU 0 at 0000:10:00\.0.*; rank 1: GPU 1 at 0000:11:00\.0"
    check "also in the result" [ "$(sed -n 's/^ *"gpu": "\(.*\)",*$/\1/p' gpus/result.json | tr '\n' ' ')" = "0000:10:00.0 0000:11:00.0 " ]
    check "which ranks have which" has "$err" "ranks 0-1 on .*: GPUs 0-1, sums by nccl 2\.28\.9 .$standins/nccl\.so"
    check "the result names the library that adds" has gpus/result.json '"sums": ".*-nccl-2\.28\.9"'
    check "the ledger has communication" has gpus/result.json '"communication'
    check "pinned memory of the host" has gpus/result.json '"pinned_bytes": 1782[0-9]{4}'
    check "memory beside the plan" has gpus/result.json '"device_other_bytes": [1-9]'
    trainmark run tiny-llama $tiny --training.steps 2 --device cuda --scaling 1,2 --out scaling
    check "one GPU and two, in a table" [ "$code/$(grep -c '"status": "done"' scaling/scaling.json)" = 0/2 ]
    start 2 run tiny-llama $small --device cuda --out again
    check "the same weights again" [ "$(value_of again weights_hash)" = "$(value_of gpus weights_hash)" ]
    STANDIN_GPUS=1 start 2 run tiny-llama $small --device cuda --out never
    check "fewer GPUs than ranks" ended "4 4"
    check "which" has "$err" "ranks 0 and 1 on .* would use the same GPU .*start at most as many ranks as there are GPUs"
    start 2 run tiny-llama $small --device cuda:1 --out never
    check "one GPU for all" ended "4 4"
    check "what to do" has "$err" "ranks 0 and 1 on .* would use the same GPU .*without a number"
    TRAINMARK_NCCL=/nowhere/libnccl.so.2 start 2 run tiny-llama $small --device cuda --out never
    check "no library" ended "4 4"
    check "what to install" has "$err" "several GPUs train with NCCL, and NCCL cannot be loaded .*TRAINMARK_NCCL=FILE"
    TRAINMARK_NCCL="$standins/nccl-old.so" start 2 run tiny-llama $small --device cuda --out never
    check "an old library" ended "4 4"
    check "how old" has "$err" "is version 2\.7\.8; trainings take 2\.10 or a later one"
    start 2 run tiny-llama $small $copies --parallelism.exact true --device cuda --out never
    check "the bits of one rank" ended "4 4"
    check "why not" has "$err" "parallelism\.exact .*the library of GPUs. collectives has its own"
    stages="--model.n_layers 2 --parallelism.pipeline_parallel_degree 2 --training.local_batch_size 1"
    start 2 run tiny-llama $small $stages --device cuda --out stages
    check "two stages train" ended "0 0"
    start 2 run tiny-llama $small $stages --device cuda --out stages_again
    check "with the same weights again" [ "$(value_of stages_again weights_hash)" = "$(value_of stages weights_hash)" ]
    STANDIN_NCCL_FAIL=1:ncclRecv@2=6 start 2 run tiny-llama $small $stages --device cuda --deadline 5 --out never
    check "a message that fails" [ "$codes" = "1 1" ]
    check "which" has "$err" "rank 1: ncclRecv \(message of [0-9]+ bytes 'activations of stage 0, from rank 0'\): remote process exited"
    rm -f /dev/shm/trainmark-standin-*
    STANDIN_HANG=1@2= start 2 run tiny-llama $small $copies --device cuda --deadline 2 --out hung
    check "a GPU that hangs" [ "$codes" = "1 1" ]
    check "rank and call" has "$err" "rank ([01]) has waited 2 s for the end of all-reduce .*gradients of .* on GPU \\1 "
    rm -f /dev/shm/trainmark-standin-*
fi

# --- under an MPI -------------------------------------------------------------------------------------------------------

if [ -f "${standins%/tests/standins}/trainmark-openmpi.so" ] && command -v mpirun.openmpi >/dev/null; then
    STANDIN_GPUS=2 trainmark $gpus --json
    check "as many ranks as GPUs" [ "$code" -eq 0 ]
    check "as many ranks as GPUs: two" has "$out" '"ranks": *2'
    check "as many ranks as GPUs: right" [ "$(grep -c '"correct": *true' "$out")" -eq 16 ]
    STANDIN_GPUS=1 trainmark $gpus --ranks 2
    failed_with 4 "more ranks than GPUs" "ranks 0 and 1 on .* would use the same GPU"
    STANDIN_RETURN=1@7=3 trainmark $gpus --ranks 2 --calls all-gather
    failed_with 1 "a call fails under an MPI" "rank 1: ncclAllGather"
    if [ "$trained" -eq 1 ]; then
        trainmark run tiny-llama $small --device cuda --ranks 2 --out started
        check "a training that starts its ranks" [ "$code" -eq 0 ]
        check "has the same weights" [ "$(value_of started weights_hash)" = "$(value_of gpus weights_hash)" ]
    fi
else
    skip "ranks of an MPI on GPUs" "mpirun.openmpi or trainmark-openmpi.so is not here (openmpi-bin libopenmpi-dev)"
fi
finish
