#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --device cuda and hip on the command line, over stand-ins that execute the kernels' machine code: devices, runs,
# checkpoints that pass between a CPU and a GPU, kept kernels, and what is said where something is missing or fails.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"

standins=$(dirname "$TRAINMARK")/tests/standins
unset TRAINMARK_GPU_RUNTIME TRAINMARK_NVRTC TRAINMARK_HIPRTC TRAINMARK_CUBLASLT TRAINMARK_HIPBLASLT TRAINMARK_KERNELS TRAINMARK_NVML
if ! [ -e "$standins/hip.so" ]; then
    skip "devices" "$standins/hip.so is not supported"
    finish
fi
export TRAINMARK_NVRTC="$standins/nvrtc.so" TRAINMARK_HIPRTC="$standins/hiprtc.so"
export TRAINMARK_CUBLASLT="$standins/cublaslt.so" TRAINMARK_HIPBLASLT="$standins/hipblaslt.so"
on() { TRAINMARK_GPU_RUNTIME="$standins/$1.so"; export TRAINMARK_GPU_RUNTIME; }
value_of() { sed -n "s/^ *\"$2\": \"*\([^\",]*\).*/\1/p" "$1/result.json" | head -n 1; }

# --- devices ------------------------------------------------------------------------------------------------------------------

on hip
trainmark devices
check "devices lists the CPU" has "$out" "^cpu  .* kernels, "
check "and the GPUs of a maker" has "$out" "^hip:3  .*gfx942, 4.00 GiB, 304 compute units"
check "with the files that were loaded" has "$out" "compiler  hiprtc .*hiprtc.so"
check "and what is missing of the other" has "$out" "^cuda .*install NVIDIA's driver"
check "and the library of products" has "$out" "products  hipBLASLt 1.1.0, .*hipblaslt.so"
trainmark devices --json
check "the same as JSON" has "$out" '"arch": "gfx942"'
check "with the compiler" has "$out" '"compiler": "hiprtc'
check "and the library of products" has "$out" '"products": "hipBLASLt 1.1.0"'
HSA_NO_SCRATCH_RECLAIM=0 HIP_VISIBLE_DEVICES=2,0,1,3 trainmark devices
check "what hides GPUs" has "$out" "^ *visible   4 devices: HIP_VISIBLE_DEVICES=2,0,1,3$"
check "a variable of the vendor's pages" has "$out" "^ *variable  RCCL_MSCCL_ENABLE=0, set by trainmark$"
check "the user's value stays" has "$out" "^ *variable  HSA_NO_SCRATCH_RECLAIM=0, set by the user$"
HSA_NO_SCRATCH_RECLAIM=0 GPU_DEVICE_ORDINAL=0 trainmark devices --json
check "as JSON" has "$out" '"variables": "GPU_DEVICE_ORDINAL=0"'
check "with who has set them" [ "$(grep -c -e '"set_by": "trainmark"' "$out") $(grep -c -e '"set_by": "the user"' "$out")" = "2 1" ]
TRAINMARK_HIPBLASLT=/nowhere/libhipblaslt.so trainmark devices --json
check "or what is missing for it" has "$out" '"hip products": ".*install hipblaslt'
TRAINMARK_HIPBLASLT=/nowhere/libhipblaslt.so trainmark devices
check "also as text" has "$out" "^hip .*install hipblaslt"

# Which library is taken, by its name: none of this folder, and one that the driver can run.
mkdir lib
for name in libcublasLt.so.12 libcublasLt.so.13; do cp "$standins/cublaslt.so" lib/$name && cp "$standins/cublaslt.so" $name; done
on cuda
cp "$standins/nvrtc.so" lib/libnvrtc.so.12 && cp "$standins/nvrtc.so" lib/libnvrtc.so.13
for version in 12090 13000; do
    TRAINMARK_NVRTC='' TRAINMARK_CUBLASLT='' STANDIN_GPU_VERSION=$version LD_LIBRARY_PATH="$work/lib" trainmark devices
    check "a driver of $version takes the library of it" has "$out" "products  cublasLt 13.1.0, $work/lib/libcublasLt.so.${version%???}$"
    check "and the compiler of it" has "$out" "compiler  NVRTC .*, $work/lib/libnvrtc.so.${version%???}$"
done
TRAINMARK_CUBLASLT='' trainmark devices
check "nothing is loaded from the current folder" [ "$(grep -c "$work/lib[^/]*cublasLt" "$out")" -eq 0 ]

# ROCm in a folder of one's own, named by ROCM_PATH: the libraries beside HIP, if they are of its release.
mkdir -p rocm/lib
put_rocm() { cp "$standins/$1.so" "rocm/lib/$2.$3" && ln -sf "$2.$3" "rocm/lib/$2.$4"; }
put_rocm hip libamdhip64.so 6.4.60401 6
put_rocm hiprtc libhiprtc.so 6.4.60401 6
put_rocm hipblaslt libhipblaslt.so 0.12.60401 0
rocm() { TRAINMARK_HIPRTC='' ROCM_PATH="$work/rocm" trainmark "$@"; }
TRAINMARK_GPU_RUNTIME='' TRAINMARK_HIPBLASLT=none rocm devices
check "HIP of ROCM_PATH" has "$out" "runtime   HIP .*, $work/rocm/lib/libamdhip64.so.6.4.60401"
check "with the compiler beside it" has "$out" "compiler  hiprtc .*, $work/rocm/lib/libhiprtc.so.6.4.60401"
TRAINMARK_GPU_RUNTIME="$work/rocm/lib/libamdhip64.so.6.4.60401" # the stand-in of products asks for it
TRAINMARK_HIPBLASLT='' rocm devices
check "and the library of products" has "$out" "products  hipBLASLt .*, $work/rocm/lib/libhipblaslt.so.0.12.60401"
rm rocm/lib/libhipblaslt.so*
put_rocm hipblaslt libhipblaslt.so 0.8.60204 0
TRAINMARK_HIPBLASLT='' rocm devices
check "one of another release is not taken" has "$out" \
    "no hipBLASLt was found .$work/rocm/lib/libhipblaslt.so.0.8.60204 is of ROCm 6.2.4, but the runtime in $work/rocm/lib is of 6.4.1"
check_not "though it is there" has "$out" "^ *products"
mkdir -p venv/lib/python3.12/site-packages/torch/lib venv/lib/python3.12/site-packages/torch-2.8.0+rocm6.4.dist-info
cp "$standins/hipblaslt.so" venv/lib/python3.12/site-packages/torch/lib/libhipblaslt.so
TRAINMARK_HIPBLASLT="" VIRTUAL_ENV="$work/venv" rocm devices
check "a copy inside PyTorch, of the same release, is" has "$out" "products  hipBLASLt .*, $work/venv/lib/python3.12/site-packages/torch/lib/libhipblaslt.so"
on hip
TRAINMARK_HIPRTC=/nowhere/libhiprtc.so trainmark devices --json
check "or what is missing for the compiler" has "$out" '"hip": ".*install ROCm.s hiprtc'

# --- what is not there ----------------------------------------------------------------------------------------------------------

TRAINMARK_GPU_RUNTIME=/nowhere/libcuda.so.1
trainmark run tiny-llama --device cuda --out never
check "no runtime: exit 4" [ "$code" -eq 4 ]
check "and what to install" has "$err" "install NVIDIA's driver"
on hip
trainmark run tiny-llama --device hip:7 --out never
check "no such GPU: exit 4" [ "$code" -eq 4 ]
check "with how many there are" has "$err" "hip:7: this process sees 4 GPUs, counted from 0"
trainmark run tiny-llama --device hip:x --out never
check "a number that is none: exit 4" [ "$code" -eq 4 ]
STANDIN_GPUS=0 trainmark run tiny-llama --device hip --out never
check "a runtime without GPUs: exit 4" [ "$code" -eq 4 ]
TRAINMARK_HIPRTC=/nowhere/libhiprtc.so trainmark run tiny-llama --device hip --out never
check "no compiler: exit 4" [ "$code" -eq 4 ]
check "and what to install" has "$err" "install ROCm's hiprtc"
STANDIN_COMPILE_FAIL=1 TRAINMARK_KERNELS='' trainmark run tiny-llama $tiny --device hip --out never
check "a kernel that does not compile: exit 1" [ "$code" -eq 1 ]
check "with the compiler's words" has "$err" "hiprtc 7.0 cannot compile the kernels of '.*': .*an error on command"
trainmark run tiny-llama --model.dim 8192 --device hip --out never
check "a plan that does not fit: exit 4" [ "$code" -eq 4 ]
echo '{"prompt": "a", "chosen": "b", "rejected": "c"}' >pairs.jsonl
trainmark explain tiny-llama --data.source preference --data.path pairs.jsonl --data.tokenizer byte --device hip
check "an op without a kernel: exit 4" [ "$code" -eq 4 ]
check "is named" has "$err" "no fast kernel for op 'preference_loss'"
check "nothing was left behind" [ ! -e never ]

# --- runs -----------------------------------------------------------------------------------------------------------------------

trainmark explain tiny-llama $tiny --device cuda
check "a GPU that is not here is planned for" has "$out" "^device  *cuda: planned for"
check "with its library of products" has "$out" " linear .*  library$"
check "and its workspace" has "$out" "^ *workspace "
TRAINMARK_CUBLASLT=none trainmark explain tiny-llama $tiny --device cuda
check "or without" has "$out" " linear .*  tiles$"
check "and why" has "$out" "refused: linear/library: TRAINMARK_CUBLASLT is 'none'"
on cuda
TRAINMARK_CUBLASLT=/nowhere/libcublasLt.so trainmark explain tiny-llama $tiny --device cuda
check "without one where a GPU is: own kernels" has "$out" " linear .*  tiles$"
check "with what to install" has "$out" "refused: linear/library: no cublasLt was found"
trainmark explain tiny-llama --device cuda --training.dtype bfloat16 --quantize.recipe mxfp6_e3m2
check "low precision is planned" has "$out" "^ *[0-9]* quantize .*  gpu$"
check "with what its products are" has "$out" "^quantized   factors hold what their codes stand for, and are multiplied in bfloat16$"
trainmark explain tiny-llama --device cuda --training.dtype bfloat16 --quantize.recipe nvfp4
check "also of other scales" has "$out" "^quantized .* multiplied in float32$"
check "and why they are no codes" has "$out" "^quantized   0 of 48 products multiply codes; no codes: scales of two levels are multiplied as values .48.$"
for recipe in fp8_tensorwise fp8_rowwise; do
    trainmark explain tiny-llama --device cuda --training.dtype bfloat16 --quantize.recipe $recipe
    check "$recipe: products of codes are planned" has "$out" "^ *[0-9]* scaled_mm .*  library$"
    check "$recipe: and counted" has "$out" "^quantized   48 of 48 products multiply codes$"
    check "$recipe: codes have a byte each" has "$out" "rmsnorm.quantized.codes float8_e4m3 .4096, 256. .* 1048576 B"
    check_not "$recipe: no value stands for a code" has "$out" "hold what their codes stand for"
    check_not "$recipe: nor is one multiplied" has "$out" "^ *[0-9]* linear(_dgrad|_wgrad)? .*attention "
done
trainmark explain tiny-llama --device cuda --training.dtype bfloat16 --quantize.recipe fp8_blockwise
check "scales of blocks: products of codes, too" has "$out" "^quantized   48 of 48 products multiply codes$"
check "scales lie as the library has them" has "$out" "rmsnorm.quantized.scales float32 *.8192. .* 32768 B"
trainmark explain tiny-llama --device cuda --training.dtype bfloat16 --quantize.recipe mxfp8
check "in e8m0" has "$out" "^quantized   48 of 48 products multiply codes$"
check "a byte each" has "$out" "rmsnorm.quantized.scales float8_e8m0 *.32768. .* 32768 B"
TRAINMARK_CUBLASLT=none trainmark explain tiny-llama --device cuda --training.dtype bfloat16 --quantize.recipe fp8_tensorwise
check "without a library own kernels multiply codes" has "$out" "^ *[0-9]* scaled_mm .*  matrix$"
check "and the reason is said" has "$out" "^quantized   48 of 48 products multiply codes, 48 by own kernels; not by the library: .* 'none'.* .48.$"
trainmark explain tiny-llama --training.dtype bfloat16 --quantize.recipe fp8_tensorwise
check "CPUs multiply values" has "$out" "^quantized   factors hold what their codes stand for, and are multiplied in float32$"
check_not "and say nothing of products of codes" has "$out" "products multiply codes"
on hip
STANDIN_BLAS_FAIL=cublasLtMatmul@1=5 trainmark run tiny-llama $tiny --device hip --out never
check "a product that fails: exit 1" [ "$code" -eq 1 ]
check "with its shape and the library's words" has "$err" "hipblasLtMatmul of .* x .*: the GPU could not execute it"

mkdir kernels && chmod 700 kernels
export TRAINMARK_KERNELS="$work/kernels"
small="$tiny --model.vocab_size 64 --training.steps 2 --checkpoint.enable true --checkpoint.interval 1"
on hip
trainmark run tiny-llama $small --device hip --out gpu
if [ "$code" -eq 1 ] && grep -q "cannot compile" "$err" && [ "${TM_TEST_COMPILERS:-}" != required ]; then
    skip "runs" "no compiler of kernels (tools/kernel_compilers.sh)"
    finish
fi
check "a run on a GPU" [ "$code" -eq 0 ]
check "says on which" has gpu/result.json '"device": .*hip'
check "the vendor's variables are in the result" has gpu/result.json '"HSA_NO_SCRATCH_RECLAIM": "1"'
check "and which of them are trainmark's" has gpu/result.json \
    '"TRAINMARK_GPU_VARIABLES": "HSA_NO_SCRATCH_RECLAIM,HSA_OVERRIDE_CPU_AFFINITY_DEBUG,RCCL_MSCCL_ENABLE"'
check "and in perf.csv" has gpu/perf.csv ",'-e HSA_NO_SCRATCH_RECLAIM=1 -e HSA_OVERRIDE_CPU_AFFINITY_DEBUG=0 -e RCCL_MSCCL_ENABLE=0$"
kept=$(find kernels -type f | wc -l)
check "its kernels are kept" [ "$kept" -gt 5 ]
STANDIN_COMPILE_FAIL=1 HSA_NO_SCRATCH_RECLAIM=0 NCCL_DEBUG='a b' trainmark run tiny-llama $small --device hip --out again
check "and taken again: nothing is compiled" [ "$code" -eq 0 ]
check "the user's variables stay" has again/result.json '"HSA_NO_SCRATCH_RECLAIM": "0"'
check "and are in perf.csv" has again/perf.csv "-e HSA_NO_SCRATCH_RECLAIM=0 .*-e NCCL_DEBUG='a b'"
check "on the library" has gpu/result.json '"sums": "hipBLASLt-1.1.0-gfx942-304"'
TRAINMARK_HIPBLASLT=none trainmark run tiny-llama $small --device hip --out own
check "a run without the library" [ "$code" -eq 0 ]
check "says so" has own/result.json '"sums": "gpu-tiles"'
check "and has other bits" [ "$(value_of own weights_hash)" != "$(value_of gpu weights_hash)" ]
check "the same weights" [ "$(value_of again weights_hash)" = "$(value_of gpu weights_hash)" ]
check "what no driver shows is unknown, and said" has "$err" "clock, power and temperature of the GPU are unknown: /sys/bus/pci/devices/0000:10:00.0 has neither"
check_not "and has no figure" has own/result.json '"gpu_clock_mhz"'
trainmark run tiny-llama $small --training.dtype bfloat16 --quantize.recipe fp8_blockwise --device hip --out narrow
check "a run in low precision" [ "$code" -eq 0 ]
check "says what its products are" has "$err" "^.*device hip: .*; quantized factors are multiplied in bfloat16; 0 of [0-9]+ products multiply codes; no codes: gfx942 has formats of FNUZ only .quantize.fnuz. .[0-9]+.$"
check "and that it is emulated" has narrow/result.json "bfloat16.fp8_blockwise .emulated."
trainmark run tiny-llama $small --training.dtype bfloat16 --quantize.recipe fp8_rowwise --quantize.fnuz true --device hip --out codes
check "a run on codes" [ "$code" -eq 0 ]
check "says so" has "$err" "^.*device hip: .*; ([0-9]+) of [0-9]+ products multiply codes$"
check "and is not emulated" has codes/result.json '"precision": "bfloat16.fp8_rowwise"'
trainmark verify codes
check_not "which fits the rest of the result" has "$out" "precision"
on cuda
TRAINMARK_NVML="$standins/nvml.so" STANDIN_NVML_BUS=0000:10:00.0 STANDIN_GPU_NAME="NVIDIA H100 80GB HBM3" \
    trainmark run tiny-llama $small --training.dtype bfloat16 --device cuda --out watched
check "a run with sensors" [ "$code" -eq 0 ]
check "has the clock" has watched/result.json '"gpu_clock_mhz": 18[0-9.]*'
check "the power" has watched/result.json '"gpu_power_w": 650.5'
check "and how long the power cap held it down" has watched/result.json '"gpu_power_cap_percent": 2[0-9.]*'
check "the peak is the published one" has watched/result.json '"peak_flops_per_second": 9894*0*,$'
check "said with its source" has "$err" "^.*MFU by the dense peak that is published: 989.4 TFLOP/s .NVIDIA H100 data sheet, SXM.$"
check "and at the clock that was seen" awk -F '[ ,:]+' '/"gpu_clock_mhz"/ { clock = $3 } /"mfu_percent"/ { mfu[++n] = $3 } /"mfu_at_clock_percent"/ { at[n] = $3 }
    END { for (i = 1; i <= n; i++) { q = at[i] * clock / (mfu[i] * 1830); off += !(q > 0.999999 && q < 1.000001) } exit !(n > 0 && off == 0) }' watched/result.json
on hip

# Algorithms of products: measured by one run, taken over by another, which does the same to the bit.
export STANDIN_BLAS_CHOICES=3 TRAINMARK_PRODUCTS="$work/products.jsonl"
TRAINMARK_PRODUCTS_TUNE=3 trainmark run tiny-llama $small --device hip --out tuned
check "a run that measures its products" [ "$code" -eq 0 ]
products=$(($(wc -l <products.jsonl) - 1))
check "writes them down" [ "$products" -gt 3 ]
check "and says how many" has "$err" "products by hipBLASLt 1.1.0, $products of them tuned"
check "and which in sums" has tuned/result.json '"sums": "hipBLASLt-1.1.0-gfx942-304-[0-9a-f]*"'
cp products.jsonl kept.jsonl
trainmark run tiny-llama $small --device hip --out taken
check "another run takes them over" has "$err" "products by hipBLASLt 1.1.0, $products of them tuned"
check "with the same sums" [ "$(value_of taken sums)" = "$(value_of tuned sums)" ]
check "and weights" [ "$(value_of taken weights_hash)" = "$(value_of tuned weights_hash)" ]
check "and leaves the file" cmp -s products.jsonl kept.jsonl
STANDIN_BLAS_VERSION=100000 trainmark run tiny-llama $small --device hip --out never
check "not with another version: exit 4" [ "$code" -eq 4 ]
check "named" has "$err" "has algorithms of hipBLASLt 1.1.0 on gfx942 with 304 units, and this is hipBLASLt 1.0.0 on gfx942"
TRAINMARK_PRODUCTS_TUNE=3 trainmark run tiny-llama $small --device hip --ranks 2 --out never
check "ranks do not measure: exit 4" [ "$code" -eq 4 ]
if has "$err" "needs an MPI"; then
    skip "with the reason" "no MPI is here"
else
    check "with the reason" has "$err" "several ranks would disturb each other's measurements"
fi
unset STANDIN_BLAS_CHOICES TRAINMARK_PRODUCTS

trainmark run tiny-llama $small --device cpu --out cpu
check "a run on a CPU sets none of them" [ "$(grep -c -e 'HSA_' -e 'TRAINMARK_GPU_VAR' cpu/result.json cpu/perf.csv | tr '\n' ' ')" = "cpu/result.json:0 cpu/perf.csv:0 " ]
check "other weights than a CPU's" [ "$(value_of cpu weights_hash)" != "$(value_of gpu weights_hash)" ]
rm -rf gpu/checkpoint/step-00000002 cpu/checkpoint/step-00000002
cp -r gpu/checkpoint moved
trainmark run tiny-llama $small --device hip --out gpu --checkpoint.load_step 1
check "a run that goes on has the weights of one never stopped" [ "$(value_of gpu weights_hash)" = "$(value_of again weights_hash)" ]
rm -rf cpu/checkpoint && cp -r moved cpu/checkpoint
trainmark run tiny-llama $small --device cpu --out cpu --checkpoint.load_step 1
check "a CPU goes on where a GPU stopped" [ "$code" -eq 0 ]
trainmark replay again --step 2 --twice
check "a step of a GPU is replayed" [ "$code" -eq 0 ]
check "with the bits of the run" has "$out" "same bits as the run"
check "also the second time" has "$out" "the same bits both times"
trainmark run tiny-llama $small --training.dtype bfloat16 --debug.microscope 2 --debug.replay 1 --device hip --out seen
check "a run with the microscope" has seen/metrics.jsonl '"event": "microscope", "step": 2, "format": "bfloat16"'
check "and repeated gradients" has seen/result.json '"differences": 0'

# Benches: the steps of `bench gpt` are those of `run`.
cat >micro.yaml <<'END'
model: { family: gpt, name: micro, dim: 32, n_layers: 3, n_heads: 2, ffn_dim: 64, vocab_size: 64, max_seq_len: 32, tied: true, init: gpt2 }
training: { seq_len: 8, local_batch_size: 2, steps: 60 }
data: { source: mock }
END
cell_of() { sed -n "s/^ *\"$2\": \"*\([^\",]*\).*/\1/p" "$1" | head -n 1; }
loss_of() { sed -n "$2s/^{\"step\": $2, \"loss\": \([^,]*\),.*/\1/p" "$1/metrics.jsonl"; }
ended_well() { [ "$code" -eq 0 ] || has "$err" "the machine was disturbed"; } # by others
trainmark bench gpt --device hip --sizes micro.yaml --layers 3 --rep-ms 150 --precision 0 --output-file gpt.json
check "bench gpt on a GPU" ended_well
steps=$(($(cell_of gpt.json calls_before) + $(cell_of gpt.json warmup) + $(cell_of gpt.json n)))
trainmark run micro.yaml --device hip --validation.enable false --out micro
check "takes the first step of run" [ "$(cell_of gpt.json loss_first)" = "$(loss_of micro 1)" ]
check "and its last one" [ "$(cell_of gpt.json loss_last)" = "$(loss_of micro "$steps")" ]
trainmark bench gemm --device hip --M 16 --N 24 --K 32 --rep-ms 1 --precision 0 --libraries --output-file gemm.json
check "bench gemm on a GPU" ended_well
check "by our kernels" has gemm.json '"engine": "trainmark"'
check "and by the library" has gemm.json '"engine": "hipBLASLt"'
STANDIN_BLAS_WRONG=1 trainmark bench gemm --device hip --M 16 --N 24 --K 32 --rep-ms 1 --precision 0
check "a wrong product: exit 3" [ "$code" -eq 3 ]
check "which one" has "$err" "hipBLASLt 16x24x32:nn: wrong result: C.15..23. is"
trainmark bench collectives --device hip --ranks 1
check "a bench that does not run there: exit 2" [ "$code" -eq 2 ]
check "with those that do" has "$err" "bench collectives runs on the devices cpu, reference, null, found --device hip; on GPUs run: gemm, attention, mlp"
TRAINMARK_GPU_RUNTIME=/nowhere/libamdhip64.so trainmark bench gemm --device hip
check "no runtime: exit 4, as of run" [ "$code" -eq 4 ]
check "and what to install" has "$err" "install ROCm's libamdhip64.so"
printf 'workload,row,device,devices,scope,dtype,batch,seq,column,value,unit,convention,source,date,note\n' >figures.csv
printf 'gemm,16x24x32,MI300X,1,device,bfloat16,,,tflops,500,TFLOP/s,,Us,2026,\n' >>figures.csv
cat >page.yaml <<'END'
title: products
source: Us
figures: figures.csv
rows:
  product: { hardware: 1xMI300X, theirs: multiply, ours: "bench gemm --shapes 16x24x32 --dtype bfloat16 --rep-ms 1 --precision 0", figure: gemm * bfloat16 }
  network: { hardware: 1xMI300X, theirs: train, ours: bench collectives }
END
STANDIN_GPU_NAME="AMD Instinct MI300X" trainmark reproduce page.yaml --out reproduced
check "a row of a page is measured on the GPU" has reproduced/product.ended '^--device$'
check "with its figure" has "$out" "^. product . tflops . ran "
check "one that does not run there says so" has "$out" "^network: bench collectives does not run on GPUs$"

for file in kernels/*; do printf damage | dd of="$file" bs=1 seek=90 conv=notrunc 2>/dev/null; done
trainmark run tiny-llama $small --training.steps 1 --checkpoint.enable false --device hip --out mended
check "damaged kernels are compiled anew" [ "$code" -eq 0 ]
chmod 777 kernels
STANDIN_COMPILE_FAIL=1 trainmark run tiny-llama $small --device hip --out never
check "a folder that others may write to is not used" [ "$code" -eq 1 ]

finish
