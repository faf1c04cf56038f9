#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The interpreters of tests/machine/ beside other emulators of GPU machine code, on one core, by processor time, with all checks,
# launch by launch in turns (machine_speed.c). Prints a markdown table for each architecture.
#
#   PROTOTYPE=folder (kd.h, kernels.cl.h, machine-code/amd/{emu.c,mfma.hip}, machine-code/ptx/{ptxemu.c,nvrtc.c,tc.cu})
#   ROUNDS=9   BUILD=build/release (after make build-tests)   VENV=build/venv (after tools/kernel_compilers.sh)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
prototype=${PROTOTYPE:?"the folder of the other emulators"}
rounds=${ROUNDS:-9} build=${BUILD:-$root/build/release} venv=${VENV:-$root/build/venv}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
objects=
for name in clocks counts memory module races gcn gcn_kernel gcn_matrix gcn_memory gcn_scalar gcn_text gcn_vector gcn_wide \
    ptx ptx_alu ptx_async ptx_load ptx_matrix ptx_memory ptx_resolve; do
    objects="$objects $build/tests/machine/$name.o"
done
${CC:-cc} -O2 -std=c11 -D_GNU_SOURCE -I"$root/tests" -o "$work/speed" "$here/machine_speed.c" $objects -ldl -lm
optimised="${CC:-cc} -O3 -march=native -ffp-contract=off -w -shared -fPIC"
$optimised -fno-math-errno "$prototype/machine-code/amd/emu.c" -o "$work/gcn.so" -lm
$optimised "$prototype/machine-code/ptx/ptxemu.c" -o "$work/ptx.so" -lm

# Kernels with instructions that none of trainmark's have are left out; PTX without contractions, as trainmark's own.
sed '/^KERNEL(cvt_all)/,$d' "$prototype/kernels.cl.h" >"$work/kernels.h"
cat "$prototype/kd.h" "$work/kernels.h" "$prototype/machine-code/amd/mfma.hip" >"$work/all.hip"
for arch in gfx942 gfx950; do
    "$venv/bin/python" -m ziglang clang -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -O3 -std=c++17 \
        --offload-arch=$arch -S "$work/all.hip" -o "$work/$arch.text"
done
sed -e 's/"-default-device"/"--fmad=false"/' -e 's/(p, 1, o)/(p, 2, o)/' "$prototype/machine-code/ptx/nvrtc.c" >"$work/nvrtc.c"
${CC:-cc} -O1 -w "$work/nvrtc.c" -o "$work/nvrtc" -ldl
for library in "$venv"/lib/python*/site-packages/nvidia/*/lib/libnvrtc.so.13; do folder=$(dirname "$library"); done
LD_LIBRARY_PATH=$folder "$work/nvrtc" compute_90 "$prototype/kd.h" "$work/kernels.h" "$prototype/machine-code/ptx/tc.cu" \
    >"$work/sm_90.text"

for arch in gfx942 gfx950 sm_90; do
    kind=gcn
    [ $arch = sm_90 ] && kind=ptx
    echo
    echo "| $arch | million instructions of waves per s | other | median of pair ratios | lowest .. highest | GFLOP/s | other | difference |"
    echo "|---|---:|---:|---:|---|---:|---:|---:|"
    "$work/speed" $kind "$work/$kind.so" "$work/$arch.text" "$rounds"
done
