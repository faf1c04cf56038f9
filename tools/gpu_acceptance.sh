#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/gpu_acceptance.sh - what a GPU has to show. Everything is built on another machine, with the judged kernels inside that a
# release has; the GPU's needs glibc, the driver and a compiler of kernels (NVRTC or hiprtc) for those of odd shapes that the tests
# try, and for the runs of speed a python3 with PyTorch.
#
#   tools/gpu_acceptance.sh bundle [FOLDER]          build; FOLDER (build/accept) is all that has to travel
#   FOLDER/tools/gpu_acceptance.sh correctness OUT   240 s at most: facts, every kernel, trainings, commands
#   FOLDER/tools/gpu_acceptance.sh speed OUT         300 s at most: products by each kernel, steps beside PyTorch's, in turns
#   FOLDER/tools/gpu_acceptance.sh fine-tuning OUT   300 s at most: low precision and adapters, beside torchao and PEFT
#   FOLDER/tools/gpu_acceptance.sh families OUT      300 s at most: experts and images, beside transformers and diffusers
#
# Each stage is a process with a limit of its own, and no failure stops the next one. OUT gets results.jsonl (a line a stage, at
# once), devices.json, runs.jsonl (a result a training), products.jsonl (a rate a product and kernel) and log.txt.gz. Exit status:
# 0, or 5 if a stage failed.
#
#   ACCEPT_DEVICE=cuda|hip    (the first whose GPU trainmark finds)
#   ACCEPT_BUILT=FOLDER       bundle what lies there, and build nothing
#   ACCEPT_PEERS="NAME ..."   packages of Python 3.12 that go along (without what they ask for), where the GPU's machine lacks them:
#                             transformers peft diffusers torchao bitsandbytes accelerate tokenizers safetensors huggingface_hub ...
#   ACCEPT_STANDINS=FOLDER    libraries that execute machine code instead of a GPU: tests of this script; small shapes
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)

usage()
{
    sed -n '7,11s/^# *//p' "$0" >&2
    exit 2
}

# Programs and the libraries that they load, but for those of glibc and of C++, and the scripts of the comparison.
bundle()
{
    to=${1:-$here/build/accept}
    cd "$here"
    from=${ACCEPT_BUILT:-${BUILD:-build/release}}
    [ "${ACCEPT_BUILT:-}" ] || make ISA=all BUILD="$from" KERNELS=embedded judged-set trainmark "$from/tests/gpu/all"
    rm -rf "$to"
    mkdir -p "$to/bin" "$to/lib" "$to/tools" "$to/bench/peers"
    strip -o "$to/lib/trainmark" "$from/trainmark"
    strip -o "$to/lib/gpu_tests" "$from/tests/gpu/all"
    ldd "$to/lib/trainmark" "$to/lib/gpu_tests" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' |
        grep -vE '/(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+)\.so|/ld-linux' | sort -u | xargs cp -L -t "$to/lib"
    # shellcheck disable=SC2016
    printf '%s\n' '#!/bin/sh' 'lib=$(cd "$(dirname "$0")/../lib" && pwd)' \
        'LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$lib/trainmark" "$@"' >"$to/bin/trainmark"
    chmod +x "$to/bin/trainmark"
    cp tools/gpu_acceptance.sh "$to/tools/"
    cp bench/cases.sh bench/compare_torch.sh bench/compare_peft.sh bench/measure.py bench/report.py "$to/bench/"
    cp bench/peers/torch_train.py bench/peers/hf_train.py bench/peers/peft_train.py "$to/bench/peers/"
    [ -z "${ACCEPT_PEERS:-}" ] || peers "$to/peers"
    du -sh "$to" | sed 's/\t/  /'
}

# Unpacked wheels, without tests and without libraries for other releases of CUDA than 13.0.
peers() # FOLDER
{
    mkdir -p "$1/wheels"
    # shellcheck disable=SC2086
    python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --dest "$1/wheels" $ACCEPT_PEERS
    for wheel in "$1"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$1"; done
    rm -rf "$1/wheels"
    find "$1" -name 'libbitsandbytes_*.so' ! -name '*_cuda130.so' ! -name '*_cpu.so' -delete
    find "$1" -type d -name tests -prune -exec rm -rf {} +
}

# stage NAME SECONDS COMMAND...: its lines go to the log.
stage()
{
    name=$1 limit=$2 code=0 begin=$(date +%s%N)
    shift 2
    printf '\n== %s: %s\n' "$name" "$*" >>"$out/log.txt"
    timeout -k 5 "$limit" "$@" >"$out/stage.txt" 2>&1 </dev/null || code=$?
    cat "$out/stage.txt" >>"$out/log.txt"
    result=ok
    [ "$code" -eq 0 ] && ! grep -qx '1\.\.0' "$out/stage.txt" || result=failed # also of tests that none has the name of
    [ "$code" -ne 124 ] && [ "$code" -ne 137 ] || result=late
    [ "$result" != ok ] || ! grep -q 'SKIPPED' "$out/stage.txt" || result=skipped
    tell "$result" "$code" $((($(date +%s%N) - begin) / 1000000)) "$(grep -v '^ *$' "$out/stage.txt" | tail -n 1)"
}

skip() # NAME WHY
{
    name=$1
    tell skipped 0 0 "$2"
}

tell()
{
    said=$(printf %s "$4" | tr -d '\000-\037' | cut -c 1-200 | sed 's/[\\"]/\\&/g')
    printf '{"stage": "%s", "result": "%s", "exit": %d, "milliseconds": %d, "said": "%s"}\n' "$name" "$1" "$2" "$3" "$said" |
        tee -a "$out/results.jsonl"
    case $1 in failed | late) bad=$((bad + 1)) ;; esac
}

# training NAME SECONDS ARGUMENTS...: a run; its result becomes a line of runs.jsonl.
training()
{
    folder=$out/runs/$1 run=$1 limit=$2
    shift 2
    stage "$run" "$limit" "$trainmark" run "$@" --out "$folder"
    [ ! -e "$folder/result.json" ] || { printf '{"run": "%s", "result": ' "$run"; tr -d '\n' <"$folder/result.json"; echo '}'; } >>"$out/runs.jsonl"
}

facts()
{
    uname -sr
    nvidia-smi 2>&1 || rocm-smi 2>&1 || true
    ldconfig -p | grep -E 'libcuda\.|nvrtc|cublasLt|cudnn|nccl|amdhip64|hiprtc|hipblaslt|rccl' || true
    "$trainmark" devices --json >"$out/devices.json"
    "$trainmark" devices
}

correctness()
{
    # An operation in every order of waves on emulators, which are slow; all of them, all examples, on a GPU.
    if [ "$standins" ]; then export TM_TEST_OP=add; else export TM_TEST_FULL=1 TM_TEST_SHAPES=medium; fi
    stage kernels 90 env "$paths" "$tests/test_gpu_kernels" "on_$device"
    stage products 30 env "$paths" "$tests/test_products" "on_$device"
    stage initial-values 10 "$trainmark" ops --check initial_values --device "$device"
    stage trainings 60 env "$paths" "$tests/test_gpu_training" "trains_as_a_cpu_on_$device"
    unset TM_TEST_OP TM_TEST_FULL TM_TEST_SHAPES
    if [ "$standins" ]; then
        set -- --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 --model.vocab_size 64 \
            --training.seq_len 32 --training.local_batch_size 2 --training.steps 2 --validation.enable false
    else
        set -- --training.seed 1
    fi
    training verdict 40 tiny-llama --device "$device" "$@"
    training bfloat16 40 tiny-llama --device "$device" --training.dtype bfloat16 "$@"
    [ "$standins" ] || training gpt-small 40 gpt-small --device "$device" --training.dtype bfloat16 --training.steps 20
    set -- "$@" --checkpoint.enable true --checkpoint.interval 1
    training first-step 20 tiny-llama --device "$device" "$@" --training.steps 1
    stage second-step 20 "$trainmark" run tiny-llama --device "$device" "$@" --training.steps 2 --out "$out/runs/first-step"
    stage third-on-a-cpu 20 "$trainmark" run tiny-llama --device cpu "$@" --training.steps 3 --out "$out/runs/first-step"
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
    if [ "$standins" ] || [ -z "$sanitizer" ]; then
        skip memcheck "compute-sanitizer is not there"
    else
        for op in linear attention_grad cross_entropy; do
            TM_TEST_OP=$op stage "memcheck-$op" 20 "$sanitizer" --tool memcheck --error-exitcode 9 --target-processes all \
                env "$paths" "$tests/test_gpu_kernels" "on_$device"
        done
    fi
}

# A case of bench/cases.sh beside PyTorch, process by process in turn.
beside() # NAME SECONDS CASE ROUNDS VARIABLE=VALUE...
{
    name=$1 limit=$2 case=$3 rounds=$4
    shift 4
    stage "$name" "$limit" env CASES="$case" ROUNDS="$rounds" DTYPE=bfloat16 DEVICE="$device" TRAINMARK="$trainmark" \
        RECORDS="$out/records" "$@" "$here/bench/compare_torch.sh"
}

speed()
{
    [ "$standins" ] || export TM_TEST_SHAPES=large
    if [ "$standins" ]; then set -- --M 32 --N 32 --K 32 --rep-ms 1 --precision 0; else set -- --shapes llama70b --budget 40; fi
    stage gemm 60 "$trainmark" bench gemm --device "$device" --dtype bfloat16 --libraries "$@" --output-file "$out/gemm.json"
    if [ "$standins" ]; then set -- --elements 5003 --rep-ms 1 --precision 0; else set -- --budget 8; fi
    stage memory 15 "$trainmark" bench stream --device "$device" "$@" --output-file "$out/memory.json"
    # By the library where there is one, and by own kernels: in turns.
    if [ "$standins" ]; then set -- --seq 32 --heads 2 --rep-ms 1 --precision 0; else set -- --model llama3.1_8B --batch 4 --seq 4096 --budget 3; fi
    for turn in 1 2; do
        for by in library own; do
            if [ $by = own ]; then cudnn=none; else cudnn=${TRAINMARK_CUDNN:-}; fi
            stage "attention-$by-$turn" 10 env TRAINMARK_CUDNN="$cudnn" "$trainmark" bench attention --device "$device" \
                --dtype bfloat16 "$@" --output-file "$out/attention-$by-$turn.json"
        done
    done
    stage products 30 env "$paths" TM_TEST_RATES="$out/products.jsonl" "$tests/test_products" "on_$device"
    if [ "$standins" ]; then
        # shellcheck disable=SC2086
        training step 60 tiny-llama --device "$device" --training.dtype bfloat16 $in_small --training.steps 3
        return
    fi
    training cold 25 gpt-small --device "$device" --training.dtype bfloat16 --training.steps 3 --validation.enable false
    training warm 15 gpt-small --device "$device" --training.dtype bfloat16 --training.steps 3 --validation.enable false
    beside gpt-medium 70 gpt-medium 2 STEPS=20 WARMUP=5 BATCH=16
    beside llama-8b-width 160 llama-8b-block 1 STEPS=8 WARMUP=2 BATCH=4 SEQ=4096 LAYERS=4 MODES="eager compile"
}

# Those tests of a file that are for this device.
tests_of() # NAME SECONDS FILE [WORD]
{
    stage "$1" "$2" env "$paths" TM_TEST_FULL=1 "$tests/$3" "${4:-_on_$device}"
}

# In small, over emulators: the same commands.
in_small="--model.n_layers 1 --training.seq_len 32 --training.local_batch_size 1 --training.steps 2 --validation.enable false
    --model.vocab_size 64 --model.dim 64 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64"

fine_tuning()
{
    if [ "$standins" ]; then
        # shellcheck disable=SC2086
        training float8 60 tiny-llama --device "$device" --training.dtype bfloat16 --quantize.recipe fp8_tensorwise $in_small
        # shellcheck disable=SC2086
        training lora 60 tiny-llama --device "$device" --training.dtype bfloat16 --lora.rank 4 --lora.base_format nf4 $in_small
        # shellcheck disable=SC2086
        training moments-8-bits 60 tiny-llama --device "$device" --optimizer.name AdamW8bit $in_small
        # shellcheck disable=SC2086
        training tf32 60 tiny-llama --device "$device" --training.tf32 true $in_small
        return
    fi
    training moments-8-bits 20 tiny-llama --device "$device" --training.dtype bfloat16 --optimizer.name AdamW8bit
    training tf32 20 tiny-llama --device "$device" --training.tf32 true
    tests_of blocks 10 test_gpu_adapters
    tests_of adapters 20 test_gpu_training "adapters_train_on_$device"
    tests_of recipes 30 test_gpu_quantize
    set -- STEPS=8 WARMUP=2 BATCH=4 SEQ=4096 LAYERS=4 MODES=compile
    beside tensorwise 80 llama-8b-block 1 FLOAT8=tensorwise "$@"
    beside rowwise 80 llama-8b-block 1 FLOAT8=rowwise "$@"
    # The widths of Llama 3.1 8B, of which four blocks.
    stage adapters-beside-peft 80 env KINDS="lora qlora" ROUNDS=1 DTYPE=bfloat16 DEVICE="$device" TRAINMARK="$trainmark" \
        DIM=4096 LAYERS=4 FFN=14336 VOCAB=128256 BATCH=2 SEQ=4096 RANK=16 RECORDS="$out/records" "$here/bench/compare_peft.sh"
}

families()
{
    if [ "$standins" ]; then
        # shellcheck disable=SC2086
        training experts 60 mixtral_8x7B --device "$device" $in_small --model.n_experts 4 --model.moe_ffn_dim 32
        return
    fi
    tests_of experts 20 test_gpu_training "experts_train_on_$device"
    tests_of flux 15 test_gpu_training "flux_trains_on_$device"
    tests_of images 15 test_gpu_images
    set -- STEPS=8 WARMUP=2 MODES=compile
    beside mixtral 55 mixtral-8x7b 1 BATCH=2 SEQ=4096 "$@"
    beside qwen3-moe 50 qwen3-30b-a3b 1 BATCH=2 SEQ=4096 LAYERS=2 "$@"
    beside gpt-oss 45 gpt-oss-20b 1 BATCH=2 SEQ=2048 "$@"
    beside deepseek 50 deepseek-v2-lite 1 BATCH=2 SEQ=4096 "$@"
    beside flux 45 flux-535m 1 BATCH=32 "$@"
}

[ $# -ge 1 ] || usage
case $1 in
bundle) bundle "${2:-}"; exit ;;
correctness | speed | fine-tuning | families) [ $# -eq 2 ] || usage ;;
*) usage ;;
esac

trainmark=$here/bin/trainmark standins=${ACCEPT_STANDINS:-} bad=0
mkdir -p "$2/runs"
out=$(cd "$2" && pwd)
: >"$out/results.jsonl" && : >"$out/runs.jsonl" && : >"$out/log.txt"
TRAINMARK_KERNELS=${TRAINMARK_KERNELS:-$out/kernels}
export TRAINMARK_KERNELS
mkdir -p "$TRAINMARK_KERNELS" && chmod 700 "$TRAINMARK_KERNELS"
device=${ACCEPT_DEVICE:-}
if [ "$standins" ]; then
    export TRAINMARK_GPU_RUNTIME="$standins/${device:=cuda}.so" TRAINMARK_NVRTC="$standins/nvrtc.so"
    export TRAINMARK_HIPRTC="$standins/hiprtc.so" TRAINMARK_CUBLASLT="$standins/cublaslt.so" TRAINMARK_HIPBLASLT="$standins/hipblaslt.so"
    export TRAINMARK_CUBLAS="$standins/cublaslt.so" TRAINMARK_ROCBLAS="$standins/hipblaslt.so"
    export TRAINMARK_CUDNN="$standins/cudnn.so"
fi
[ "$device" ] || device=$("$trainmark" devices | sed -n 's/^\(cuda\|hip\):0 .*/\1/p' | head -n 1)
[ "$device" ] || { echo "no GPU: trainmark devices says what is missing" >&2; "$trainmark" devices >&2; exit 4; }
unset TM_TEST_FULL TM_TEST_OP TM_TEST_SHAPES TM_TEST_RATES
[ ! -d "$here/peers" ] || export PYTHONPATH="$here/peers${PYTHONPATH:+:$PYTHONPATH}"
export TM_TEST_GPU=real TM_TEST_SECONDS=100 TM_TEST_COMPILERS=required
tests=$out/tests
mkdir -p "$tests"
export TRAINMARK_STORE="$tests/results.db"
for file in test_gpu_kernels test_gpu_training test_products test_gpu_adapters test_gpu_quantize test_gpu_images; do
    ln -sf "$here/lib/gpu_tests" "$tests/$file"
done
paths="LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

echo "device: $device"
name=facts
code=0
facts >"$out/stage.txt" 2>&1 || code=$?
if [ "$code" -eq 0 ]; then
    tell ok 0 0 "$(grep "^$device:0" "$out/stage.txt")"
else
    tell failed "$code" 0 "$(tail -n 1 "$out/stage.txt")"
fi
cat "$out/stage.txt" >>"$out/log.txt"
"$(echo "$1" | tr - _)"
rm -rf "$out/stage.txt" "$tests"
gzip -f "$out/log.txt"
echo "$bad of $(wc -l <"$out/results.jsonl") stages failed"
[ "$bad" -eq 0 ] || exit 5
