#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program with judged kernels inside (KERNELS=embedded), over stand-ins that execute that code: runs without a compiler, what
# is compiled here and said to be not judged, code that the driver does not load, another architecture, a damaged set.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"

root=$(cd "$here/../.." && pwd)
build=$(dirname "$TRAINMARK") standins=$(dirname "$TRAINMARK")/tests/standins
unset TRAINMARK_GPU_RUNTIME TRAINMARK_NVRTC TRAINMARK_HIPRTC TRAINMARK_CUBLASLT TRAINMARK_HIPBLASLT TRAINMARK_KERNELS
if ! [ -x "$root/build/venv/bin/python" ] && [ "${TM_TEST_COMPILERS:-}" != required ]; then
    skip "judged kernels" "no compilers of kernels (tools/kernel_compilers.sh)"
    finish
fi
make -s -C "$root" BUILD="${build#"$root"/}" "${build#"$root"/}/judged/trainmark" >"$out" 2>"$err"
check "a program with judged kernels" [ $? -eq 0 ]
TRAINMARK=$build/judged/trainmark
export TRAINMARK_KERNELS=''
export TRAINMARK_CUBLASLT="$standins/cublaslt.so" TRAINMARK_HIPBLASLT="$standins/hipblaslt.so"

"$root/tools/embed_kernels.py" check >"$out" 2>"$err"
check "the code is what its texts are assembled to" [ $? -eq 0 ]

# on MAKER ARCHITECTURE CODE; compiler: the stand-in, or none.
on()
{
    export TRAINMARK_GPU_RUNTIME="$standins/$1.so" STANDIN_GPU_ARCH="$2" STANDIN_GPU_CODE="$root/build/kernels/$3"
}
compiler()
{
    case $1 in
    none) export TRAINMARK_NVRTC=/nowhere/libnvrtc.so TRAINMARK_HIPRTC=/nowhere/libhiprtc.so ;;
    *) export TRAINMARK_NVRTC="$standins/nvrtc.so" TRAINMARK_HIPRTC="$standins/hiprtc.so" ;;
    esac
}
# Modules of an architecture: the same list for all; sm_90 has some beside it.
modules_of() { find "$root/build/kernels/$1" -name '*.code' | wc -l; }
inside=$(modules_of gfx942) more=$(modules_of sm_90a)
short="--model.n_layers 1 --model.dim 64 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 --model.vocab_size 64
    --training.seq_len 16 --training.local_batch_size 1 --training.steps 1 --validation.enable false"
odd="--model.head_dim 40"
modules() { tr -d ' \n' <"$1/result.json" | grep -qE "\"kernel_modules\":\{\"judged\":$2,\"compiled_here\":$3\}"; }

# --- without a compiler ---------------------------------------------------------------------------------------------------

compiler none
for case in hip:gfx942:gfx942 hip:gfx950:gfx950 cuda:sm_80:sm_80 cuda:sm_90:sm_80; do
    maker=${case%%:*} arch=${case#*:}
    on "$maker" "${arch%:*}" "${arch#*:}"
    arch=${arch%:*}
    for format in float32 bfloat16; do
        trainmark run tiny-llama $short --training.dtype $format --device "$maker" --out "$arch-$format"
        check "$arch, $format: a run without a compiler" [ "$code" -eq 0 ]
        check "$arch, $format: all of it judged" modules "$arch-$format" '[1-9][0-9]*' 0
        check "$arch, $format: says so" has "$err" "device $maker: .*$arch; kernels: [0-9]+ modules of judged code; products"
    done
    trainmark devices
    all=$inside
    [ "$arch" != sm_90 ] || all=$((inside + more))
    check "$arch: devices says so" has "$out" "kernels   $all modules of judged code; others are compiled here"
done
# Kernels that sm_90 alone has: there they run, elsewhere others do.
for case in sm_80:0 sm_90:2 sm_100:0; do
    arch=${case%:*}
    on cuda "$arch" sm_90a
    : >launched
    STANDIN_GPU_LAUNCHED=$work/launched trainmark run tiny-llama $short --model.head_dim 64 --training.dtype bfloat16 \
        --device cuda --out "$arch-own"
    check "$arch, heads of 64: a run without a compiler" [ "$code" -eq 0 ]
    check "$arch, heads of 64: all of it judged" modules "$arch-own" '[1-9][0-9]*' 0
    check "$arch, heads of 64: its own kernels" [ "$(grep -cE 'attention_wgmma_(queries|keys)$' launched)" -eq "${case#*:}" ]
done
check "the same losses on a newer GPU" [ "$(grep -o '"weights_hash": "[^"]*' sm_80-bfloat16/result.json)" = \
    "$(grep -o '"weights_hash": "[^"]*' sm_90-bfloat16/result.json)" ]

on hip gfx942 gfx942
trainmark run tiny-llama $short $odd --device hip --out never
failed_with 4 "a module that is not inside" "the kernels of 'attention' have to be compiled here: no compiler of kernels was found"
trainmark devices --json
check "how many, as JSON" has "$out" "\"judged_modules\": $inside$"

# --- what is compiled here ------------------------------------------------------------------------------------------------

compiler there
trainmark run tiny-llama $short $odd --device hip --out odd
check "heads of another size: a run" [ "$code" -eq 0 ]
check "compiled here" modules odd '[1-9][0-9]*' 1
check "and not judged" has "$err" "modules of judged code, 1 compiled here by hiprtc 7\.0, not judged; products"

# The driver does not load code objects that are none of this folder.
mkdir empty
STANDIN_GPU_CODE=$work/empty trainmark run tiny-llama $short --device hip --out refused
check "code that the driver does not load: a run" [ "$code" -eq 0 ]
check "is said" has "$err" "the judged kernels of '.*' are not loaded, these and further ones are compiled here: .*hipModuleLoadData"
check "once" [ "$(grep -c 'are not loaded' "$err")" -eq 1 ]
check "and nothing was judged" modules refused 0 '[1-9][0-9]*'
compiler none
STANDIN_GPU_CODE=$work/empty trainmark run tiny-llama $short --device hip --out never
failed_with 4 "code that the driver does not load, without a compiler" "the kernels of .* have to be compiled here: no compiler of kernels"

on hip gfx90a gfx942
trainmark devices
check "an architecture without code" has "$out" "kernels   compiled here, not judged"
trainmark run tiny-llama $short --device hip --out never
failed_with 4 "an architecture without code, without a compiler" "install ROCm's hiprtc"
on cuda sm_75 sm_80
trainmark devices
check "an older architecture" has "$out" "kernels   compiled here, not judged"
on cuda sm_90 sm_80
STANDIN_GPU_VERSION=11080 trainmark devices
check "an older driver" has "$out" "kernels   compiled here, not judged"

# --- a damaged set --------------------------------------------------------------------------------------------------------

on hip gfx942 gfx942
at=$(grep -abo TMKSET1 "$TRAINMARK" | tail -n 1 | cut -d : -f 1)
cp "$TRAINMARK" damaged
printf X | dd of=damaged bs=1 seek=$((at + 5000)) conv=notrunc 2>/dev/null
TRAINMARK=$work/damaged
trainmark run tiny-llama $short --device hip --out never
failed_with 1 "a damaged set" "the judged kernels inside this program are damaged: install it anew"
trainmark devices
check "devices: a damaged set" has "$out" "judged code is damaged"
check "nothing was left behind" [ ! -e never ]

finish
