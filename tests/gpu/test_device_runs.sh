#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs with --device cuda and hip, over stand-ins that execute the kernels' machine code: checkpoints that pass between a
# CPU and a GPU, kept kernels, algorithms of products, sensors, benches, and calls that fail.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/standins.sh"

small="$tiny --model.vocab_size 64 --training.steps 2 --checkpoint.enable true --checkpoint.interval 1"
on hip
trainmark run tiny-llama $small --device hip --out gpu
! has_no_compiler "runs" || finish
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
TRAINMARK_GPU_RUNTIME="$standins/cuda.so" TRAINMARK_CUDNN="$standins/cudnn.so" \
    trainmark run tiny-llama $small --training.dtype bfloat16 --device cuda --out attends
check "attention by the library" [ "$code" -eq 0 ]
check "is said" has "$err" "^.*device cuda: .*; products by cublasLt 13.1.0; attention by cuDNN 9.19.0$"
check "and is part of what the bits depend on" has attends/result.json '"sums": "cublasLt-13.1.0-sm_90-132.cuDNN-9.19.0"'
STANDIN_DNN_FAIL=cudnnBackendExecute@3=2000 TRAINMARK_GPU_RUNTIME="$standins/cuda.so" TRAINMARK_CUDNN="$standins/cudnn.so" \
    trainmark run tiny-llama $small --training.dtype bfloat16 --device cuda --out never
check "a call of it that fails: exit 1" [ "$code" -eq 1 ]
check "with its words" has "$err" "cudnnBackendExecute: CUDNN_STATUS_BAD_PARAM: cudnnBackendExecute: a test lets it fail .status 2000 of cuDNN 9.19.0."
check "on the library" has gpu/result.json '"sums": "hipBLASLt-1.1.0-gfx942-304"'
STANDIN_BLAS_FAIL=cublasLtMatmul@1=5 trainmark run tiny-llama $tiny --device hip --out never
check "a product that fails: exit 1" [ "$code" -eq 1 ]
check "with its shape and the library's words" has "$err" "hipblasLtMatmul of .* x .*: the GPU could not execute it"
TRAINMARK_HIPBLASLT=none trainmark run tiny-llama $small --device hip --out own
check "a run without the library" [ "$code" -eq 0 ]
check "says so" has own/result.json '"sums": "gpu-tiles"'
check "and has other bits" [ "$(value_of own weights_hash)" != "$(value_of gpu weights_hash)" ]
check "the same weights" [ "$(value_of again weights_hash)" = "$(value_of gpu weights_hash)" ]
check "what no driver shows is unknown, and said" has "$err" "clock, power and temperature of the GPU are unknown: /sys/bus/pci/devices/0000:10:00.0 has neither"
check_not "and has no figure" has own/result.json '"gpu_clock_mhz"'
trainmark run tiny-llama $small --training.dtype bfloat16 --quantize.recipe fp8_blockwise --quantize.fnuz false --device hip --out narrow
check "a run in low precision" [ "$code" -eq 0 ]
check "says what its products are" has "$err" "^.*device hip: .*; quantized factors are multiplied in bfloat16; 0 of [0-9]+ products multiply codes; no codes: gfx942 has formats of FNUZ only .quantize.fnuz. .[0-9]+.$"
check "and that it is emulated" has narrow/result.json "bfloat16.fp8_blockwise .emulated."
trainmark run tiny-llama $small --training.dtype bfloat16 --quantize.recipe fp8_rowwise --device hip --out codes
check "a run on codes" [ "$code" -eq 0 ]
check "takes the formats of this GPU, and says it" has "$err" "formats of 8 bits are FNUZ's"
check "says so" has "$err" "^.*device hip: .*; ([0-9]+) of [0-9]+ products multiply codes$"
check "and is not emulated" has codes/result.json '"precision": "bfloat16.fp8_rowwise"'
trainmark verify codes
check_not "which fits the rest of the result" has "$out" "precision"
on cuda
# The library may round factors of float32, where that is asked for.
for tf32 in false true; do STANDIN_GPU_NAME="NVIDIA H100 80GB HBM3" trainmark run tiny-llama $small --training.dtype float32 --training.tf32 $tf32 --device cuda --out tf32-$tf32; done
check "a run in TF32" [ "$code" -eq 0 ]
check "is named so" has tf32-true/result.json '"precision": "float32.tf32"'
check "also the order of its sums" has tf32-true/result.json '"sums": "cublasLt.*-tf32'
check "has other bits than float32" [ "$(value_of tf32-true weights_hash)" != "$(value_of tf32-false weights_hash)" ]
check "no peak to compare with" has tf32-true/result.json '"peak_flops_per_second": null'
trainmark verify tf32-true
check_not "and fits its plan" has "$out" "precision"
says 4 "training.tf32 is a GPU's: add --device cuda" run tiny-llama $small --training.tf32 true --device cpu
TRAINMARK_CUBLASLT=none trainmark run tiny-llama $small --training.tf32 true --training.dtype float32 --device cuda --out never
check "without the library nothing is TF32: exit 4" [ "$code" -eq 4 ]
says 4 "training.tf32 rounds products of float32, and training.dtype is bfloat16" run tiny-llama $small --training.tf32 true --training.dtype bfloat16 --device cuda
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
ended_well() { [ "$code" -eq 0 ] || has "$err" "the machine was disturbed"; } # by others
trainmark bench gpt --device hip --sizes micro.yaml --layers 3 --rep-ms 150 --precision 0 --output-file gpt.json
check "bench gpt on a GPU" ended_well
steps=$(($(cell_of gpt.json calls_before) + $(cell_of gpt.json warmup) + $(cell_of gpt.json n)))
trainmark run micro.yaml --device hip --validation.enable false --out micro
check "takes the first step of run" [ "$(cell_of gpt.json loss_first)" = "$(loss_of micro 1)" ]
check "and its last one" [ "$(cell_of gpt.json loss_last)" = "$(loss_of micro "$steps")" ]
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
