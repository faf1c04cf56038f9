#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --device cuda and hip on the command line, over stand-ins: which devices there are, what is planned for them, and what
# is said where something is missing. Runs: test_device_runs.sh.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/standins.sh"

# --- devices ------------------------------------------------------------------------------------------------------------------

on hip
STANDIN_GPU_VERSION=60342133 trainmark devices
check "devices lists the CPU" has "$out" "^cpu  .* kernels, "
check "and the GPUs of a maker" has "$out" "^hip:3  .*gfx942, 4.00 GiB, 304 compute units"
check "by its runtime" has "$out" "^ *runtime   HIP 6.3, $standins/hip.so$"
check "with the files that were loaded" has "$out" "compiler  hiprtc .*hiprtc.so"
check "and what is missing of the other" has "$out" "^cuda .*install NVIDIA's driver"
check "and the library of products" has "$out" "products  hipBLASLt 1.1.0, .*hipblaslt.so"
trainmark devices --json
check "the same as JSON" [ "$(sed -n '/"hip:3"/,/"compilers"/p' "$out" | tr -d ' \n')" = "\"name\":\"hip:3\",\"gpu\":\"astand-in\",\"arch\":\"gfx942\",\
\"memory_bytes\":4294967296,\"multiprocessors\":304,\"shared_bytes\":65536,\"bus\":\"0000:13:00.0\",\"runtime\":\"HIP12.4\",\
\"library\":\"$standins/hip.so\",\"judged_modules\":0}],\"compilers\":[" ]
check "with the compiler" has "$out" '"compiler": "hiprtc'
check "and the library of products" has "$out" '"products": "hipBLASLt 1.1.0"'
check "nothing of this maker is missing" [ "$(sed '1,/"missing"/d' "$out" | cut -d: -f1 | tr -d ' \n')" = '"cuda"}}' ]
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
check_not "nothing is loaded from the current folder" has "$out" "$work/lib[^/]*cublasLt"
check "attention is NVIDIA's library's, if there is one" has "$out" "^cuda *TRAINMARK_CUDNN is 'none': no library computes attention"
TRAINMARK_CUDNN="$standins/cudnn.so" trainmark devices
check "and it is listed" has "$out" "^ *attention cuDNN 9.19.0, .*/cudnn.so$"
TRAINMARK_CUDNN="$standins/cudnn.so" trainmark devices --json
check "also as JSON" has "$out" '"attention": "cuDNN 9.19.0"'

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
trainmark explain tiny-llama --model.dim 1024 --model.n_heads 2 --model.n_kv_heads 1 --device hip
check "shapes without a kernel: exit 4" [ "$code" -eq 4 ]
check "the op is named" has "$err" "no fast kernel for op 'attention'"
check "with what its kernels take" has "$err" "attention/tiles: takes heads of up to 256 elements"
check "nothing was left behind" [ ! -e never ]

# --- runs -----------------------------------------------------------------------------------------------------------------------

trainmark explain tiny-llama $tiny --device cuda
check "a GPU that is not here is planned for" has "$out" "^device  *cuda: planned for"
check "with its library of products" has "$out" " linear .*  library$"
check "and its workspace" has "$out" "^ *workspace "
TRAINMARK_CUBLASLT=none trainmark explain tiny-llama $tiny --device cuda
check "or without" has "$out" " linear .*  tiles$"
check "and why" has "$out" "refused: linear/library: TRAINMARK_CUBLASLT is 'none'"
bf16="--device cuda --training.dtype bfloat16"
TRAINMARK_CUDNN="$standins/cudnn.so" trainmark explain tiny-llama $tiny $bf16
check "attention of bfloat16 is planned by the library" [ "$(grep -cE " attention(_grad)? .*  cudnn$" "$out")" -eq 3 ]
trainmark explain tiny-llama $tiny $bf16
check "or by own kernels" [ "$(grep -cE " attention(_grad)? .*  matrix$" "$out")" -eq 3 ]
check "with the reason" has "$out" "refused: attention_grad/cudnn: TRAINMARK_CUDNN is 'none'"
on cuda
TRAINMARK_CUBLASLT=/nowhere/libcublasLt.so trainmark explain tiny-llama $tiny --device cuda
check "without one where a GPU is: own kernels" has "$out" " linear .*  tiles$"
check "with what to install" has "$out" "refused: linear/library: no cublasLt was found"
trainmark explain tiny-llama --device cuda --training.dtype bfloat16 --quantize.recipe fp8_blockwise
check "products of codes are planned" has "$out" "^ *[0-9]* scaled_mm .*  library$"
check "and counted" has "$out" "^quantized   48 of 48 products multiply codes$"
check "codes have a byte each" has "$out" "rmsnorm.quantized.codes float8_e4m3 .4096, 256. .* 1048576 B"
check "scales lie as the library has them" has "$out" "rmsnorm.quantized.scales float32 *.8192. .* 32768 B"
check_not "no value stands for a code" has "$out" "hold what their codes stand for"
trainmark explain tiny-llama --training.dtype bfloat16 --quantize.recipe fp8_tensorwise
check "CPUs multiply values" has "$out" "^quantized   factors hold what their codes stand for, and are multiplied in float32$"
check_not "and say nothing of products of codes" has "$out" "products multiply codes"

finish
