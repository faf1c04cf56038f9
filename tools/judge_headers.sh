#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what trainmark calls of GPU libraries, and what it knows of their numbers and structs, with the makers' own
# headers, which trainmark is built without; the same for the stand-ins of the tests (docs/gpu.md). It compiles, and runs
# nothing of a maker's.
#
#   CUDA_INCLUDE=DIR CUDNN_INCLUDE=DIR ... make judge-headers
#
#   CUDA_INCLUDE       cuda.h, nvrtc.h, cublasLt.h, cublas_api.h, nvml.h: those that are there, in one or several folders
#   CUDNN_INCLUDE      cudnn_graph.h (with CUDA_INCLUDE)     NCCL_INCLUDE    nccl.h (with CUDA_INCLUDE)
#   HIP_INCLUDE        hip/hip_runtime_api.h, hip/hiprtc.h, hipblas-common
#   HIPBLASLT_INCLUDE  hipblaslt/hipblaslt.h (with HIP_INCLUDE)   RCCL_INCLUDE   rccl/rccl.h (with HIP_INCLUDE)
#   ROCBLAS_INCLUDE    rocblas/rocblas.h (with HIP_INCLUDE)
#   AMDGPU_INCLUDE     the kernel's kgd_pp_interface.h, of Linux 7.2 or later
#   LIBRARIES          files whose symbols have to be there: lib*.so*, or what `nm -D` says of them: lib*.symbols
#
# Folders are parted by colons. Exit code: 5 if something differs, 1 if nothing could be compared.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C.UTF-8
CC=${CC:-cc} CXX=${CXX:-c++}
own=tests/gpu/headers
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
compared=0 status=0

"$CC" -std=c11 -D_GNU_SOURCE -Isrc $own/tables.c -o "$work/tables" && "$work/tables" >"$work/rows" || exit 1

# Functions of stand-ins by gcc's list of prototypes: FILE, OPTION, LIBRARIES, the part of FILE that has them.
prototypes()
{
    "$CC" -std=c11 -D_GNU_SOURCE -Isrc -Itests -Itests/standins "$2" -fopenmp -w -fsyntax-only -aux-info "$work/list" "tests/standins/$1" || exit 1
    sed -n "s,^/\* tests/standins/${4:-$1}:[0-9]*:.F \*/ extern \(.*[ *]\)\([A-Za-z_0-9]*\) (\(.*\));.*,\2|\1|(\3),p" "$work/list" |
        awk -F'|' -v file="tests/standins/${4:-$1}" -v libraries="$3" 'BEGIN { n = split(libraries, l, " ") }
            { for (i = 1; i <= n; i++) print l[i] "\t" file "\tcall\t" $1 "\t" $2 "\t" $3 }' >>"$work/standins"
}

if "$CC" --version | grep -qi 'free software foundation'; then
    : >"$work/standins"
    for f in gpu gpu_device gpu_program; do
        prototypes $f.c -DCUDA cuda
        prototypes $f.c -DHIP hip
    done
    prototypes compilers.c -DCUDA nvrtc
    prototypes compilers.c -DHIP hiprtc
    prototypes blaslt.c -DCUDA cublaslt
    prototypes blaslt.c -DHIP hipblaslt
    prototypes blaslt.c -DCUDA cublas blaslt_gemm_ex.h
    prototypes blaslt.c -DHIP rocblas blaslt_gemm_ex.h
    prototypes cudnn.c -DCUDA cudnn
    prototypes nccl.c -DCUDA "nccl rccl"
    prototypes nvml.c -DCUDA nvml
    awk -F'\t' 'NR == FNR { if ($3 == "call") known[$1 " " $4] = 1; next } ($1 " " $4) in known' "$work/rows" "$work/standins" >"$work/known"
    cat "$work/known" >>"$work/rows"
else
    echo "the stand-ins' functions are not compared: $CC is not gcc"
fi
for part in 'RUNTIME -DCUDA' 'RUNTIME -DHIP' 'PRODUCTS -DCUDA' 'PRODUCTS -DHIP' 'ATTENTION tests/standins/cudnn_work.c' 'COLLECTIVES tests/standins/nccl_work.c'; do
    # shellcheck disable=SC2086
    "$CC" -std=c11 -w -Isrc -Itests -Itests/standins -D$part $own/standins.c -pthread -lm -o "$work/numbers" && "$work/numbers" >>"$work/rows" || exit 1
done
sort -u "$work/rows" -o "$work/rows"

# Is a header in one of the folders?
has()
{
    for folder in $(echo "$1" | tr : ' '); do
        [ -f "$folder/$2" ] && return 0
    done
    return 1
}

# LIBRARY, what is included, the version as an expression, FOLDERS, definitions.
judge()
{
    library=$1 version=$3
    folders=$(echo "$4" | tr : '\n' | sed -n 's/^..*/-isystem &/p')
    printf '%s\n' "$2" >"$work/headers.hpp"
    # shellcheck disable=SC2086
    if ! "$CXX" -std=c++17 -w $5 $folders -E -dD "$work/headers.hpp" >"$work/text" 2>"$work/errors"; then
        head -5 "$work/errors"
        echo "$library: its header does not compile"
        status=5
        return
    fi
    tr -cs 'A-Za-z_0-9' '\n' <"$work/text" | sort -u >"$work/words"
    awk -F'\t' -v library="$library" -v version="$version" -f $own/judge.awk file=1 "$work/words" file=2 $own/later.txt file=3 "$work/rows" >"$work/judge.cpp"
    # shellcheck disable=SC2086
    if ! "$CXX" -std=c++17 $5 $folders -I"$work" -I$own -Isrc "$work/judge.cpp" -o "$work/judge" 2>"$work/errors"; then
        grep error "$work/errors" | head -5
        echo "$library: the comparison does not compile"
        status=5
        return
    fi
    compared=1
    "$work/judge" || status=5
    awk -F'\t' -v library="$library" 'NR == FNR { if ($1 == library && $3 == "call") called[$4] = 1; next }
        { split($0, word, " ") }
        word[1] == "#define" && (word[2] in called) && word[3] ~ "^" word[2] "_v[0-9]+$" && !told[word[2]]++ {
            print library ": the header has a later one of the same arguments: " word[3] }' "$work/rows" "$work/text"
    sed -n "s/.*judge.cpp.*‘\([^‘]*\)’ is deprecated.*/$library: the header calls it deprecated: \1/p" "$work/errors" | sort -u
}

# Newer headers of cuDNN say which type and how many elements an attribute takes; the stand-in does the same.
types()
{
    for folder in $(echo "${CUDNN_INCLUDE:-}" | tr : ' '); do
        cat "$folder"/cudnn_graph*.h 2>/dev/null
    done | sed -n 's/^ *\* - \(CUDNN_ATTR_[A-Z_0-9]*\) (\([A-Z_0-9]*\), \([^ ]*\) .*/\1\t\2\t\3/p' >"$work/types"
    [ -s "$work/types" ] || return
    awk -F'\t' 'NR == FNR { type[$1] = $2; many[$1] = $3; next }
        $3 == "type" && ($4 in type) { n++ }
        $3 == "type" && ($4 in type) && (type[$4] != $5 || (many[$4] == "1") != ($6 == "1")) {
            print "DIFFERS " $2 ": " $4 ": here " $5 ", " $6 ", there " type[$4] ", " many[$4]; bad++ }
        END { print "cudnn     types of " n + 0 " attributes agree" (bad ? "; " bad " DIFFER" : ""); exit bad || n == 0 ? 5 : 0 }' "$work/types" "$work/rows" || status=5
}

hip='-D__HIP_PLATFORM_AMD__ -D__HIP_DISABLE_CPP_FUNCTIONS__'
cuda=${CUDA_INCLUDE:-} rocm=${HIP_INCLUDE:-}
has "$cuda" cuda.h && judge cuda '#include <cuda.h>' CUDA_VERSION "$cuda" ''
has "$cuda" nvrtc.h && judge nvrtc '#include <nvrtc.h>' 0 "$cuda" ''
has "$cuda" cublasLt.h && judge cublaslt '#include <cublasLt.h>' 'CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH' "$cuda" ''
# What cublas_api.h has for C++ alone are functions of the same names.
has "$cuda" cublas_api.h && judge cublas '#include <cstdint>
#include <driver_types.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuComplex.h>
#include <library_types.h>
extern "C" {
#undef __cplusplus
#include <cublas_api.h>
#define __cplusplus 201703L
}' 'CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH' "$cuda" ''
has "$cuda" nvml.h && judge nvml '#include <nvml.h>' NVML_API_VERSION "$cuda" ''
has "${CUDNN_INCLUDE:-}" cudnn_graph.h && judge cudnn '#include <cudnn_graph.h>' CUDNN_VERSION "$CUDNN_INCLUDE:$cuda" -DCUDNN_WARN_DEPRECATED
types
has "${NCCL_INCLUDE:-}" nccl.h && judge nccl '#include <nccl.h>' NCCL_VERSION_CODE "$NCCL_INCLUDE:$cuda" ''
has "$rocm" hip/hip_runtime_api.h && judge hip '#include <hip/hip_runtime_api.h>
#include <hip/library_types.h>' HIP_VERSION "$rocm" "$hip"
has "$rocm" hip/hiprtc.h && judge hiprtc '#include <hip/hiprtc.h>
#include <hip/hip_version.h>' HIP_VERSION "$rocm" "$hip"
has "${HIPBLASLT_INCLUDE:-}" hipblaslt/hipblaslt.h && judge hipblaslt '#include <hipblaslt/hipblaslt.h>' 'HIPBLASLT_VERSION_MAJOR * 100000 + HIPBLASLT_VERSION_MINOR * 100 + HIPBLASLT_VERSION_PATCH' "$HIPBLASLT_INCLUDE:$rocm" "$hip"
has "${ROCBLAS_INCLUDE:-}" rocblas/rocblas.h && judge rocblas '#include <rocblas/rocblas.h>' 'ROCBLAS_VERSION_MAJOR * 10000 + ROCBLAS_VERSION_MINOR * 100 + ROCBLAS_VERSION_PATCH' "$ROCBLAS_INCLUDE:$rocm" "$hip"
has "${RCCL_INCLUDE:-}" rccl/rccl.h && judge rccl '#include <rccl/rccl.h>' NCCL_VERSION_CODE "$RCCL_INCLUDE:$rocm" "$hip"
# The kernel's header is C and needs others of the kernel: only its tables are taken.
if has "${AMDGPU_INCLUDE:-}" kgd_pp_interface.h; then
    {
        echo '#include <cstddef>
#include <cstdint>'
        awk '/^#define +[A-Z_0-9]+[ \t]+[0-9]/
            /^(enum amdgpu_metrics_attr_(id|type)|struct (metrics_table_header|amdgpu_xcp_metrics(_v1_[0-9]+)?|gpu_metrics_attr|gpu_metrics_v1_[0-9])) \{/, /^};/' "$AMDGPU_INCLUDE/kgd_pp_interface.h"
    } >"$work/metrics.hpp"
    judge amdgpu '#include "metrics.hpp"' 0 "$work" ''
fi

# Is every call of a library in its file? FILE
symbols()
{
    case $(basename "$1") in
    libcuda.*) of=cuda ;;
    libnvrtc.*) of=nvrtc ;;
    libcublasLt.*) of=cublaslt ;;
    libcublas.*) of=cublas ;;
    libcudnn.so* | libcudnn.symbols) of=cudnn ;;
    libnccl.*) of=nccl ;;
    libnvidia-ml.*) of=nvml ;;
    libamdhip64.*) of=hip ;;
    libhiprtc.*) of=hiprtc ;;
    libhipblaslt.*) of=hipblaslt ;;
    librocblas.*) of=rocblas ;;
    librccl.*) of=rccl ;;
    *) return ;;
    esac
    if ! case $1 in *.symbols) cat "$1" ;; *) nm -D --defined-only "$1" ;; esac >"$work/listed"; then
        status=5
        return
    fi
    awk '{ sub(/@.*/, "", $NF); print $NF }' "$work/listed" | sort -u >"$work/symbols"
    awk -F'\t' -v of=$of '$1 == of && $2 ~ /^src/ && $3 == "call" { print $4 }' "$work/rows" | sort -u >"$work/called"
    missing=$(comm -23 "$work/called" "$work/symbols" | tr '\n' ' ')
    compared=1
    echo "$of $1: $(wc -l <"$work/called") calls${missing:+; MISSING: $missing}"
    [ -z "$missing" ] || status=5
}
for file in ${LIBRARIES:-}; do symbols "$file"; done

if [ $compared = 0 ] && [ $status = 0 ]; then
    sed -n '/^#   CUDA_INCLUDE=/,/^# Folders/s/^# \{0,1\}//p' "$0"
    exit 1
fi
exit $status
