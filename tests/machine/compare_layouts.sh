#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/machine/compare_layouts.sh PROGRAM PYTHON CALCULATOR - where numbers of matrix instructions lie: what test_gcn_matrix.c
# states against AMD's matrix instruction calculator (github.com/ROCm/amd_matrix_instruction_calculator, which knows CDNA1
# to 3). PROGRAM: build/release/tests/machine/all; PYTHON with the module tabulate; CALCULATOR: matrix_calculator.py.
set -eu
program=$1 python=$2 calculator=$3
places=0 differ=0
for instruction in v_mfma_f32_32x32x2_f32 v_mfma_f32_32x32x8_f16 v_mfma_f32_32x32x8_bf16 v_mfma_f32_16x16x32_fp8_fp8 \
    v_mfma_f32_32x32x16_fp8_fp8 v_mfma_f32_32x32x16_fp8_bf8 v_mfma_f32_32x32x16_bf8_fp8 v_mfma_f32_32x32x16_bf8_bf8; do
    for matrix in A B D; do
        theirs=$("$python" "$calculator" --architecture cdna3 --instruction "$instruction" --register-layout \
            --$matrix-matrix --csv | grep '^[0-9]')
        ours=$("$program" layouts "$instruction" $matrix)
        n=$(echo "$ours" | tr ',' '\n' | grep -c '^v')
        places=$((places + n))
        if [ "$ours" != "$theirs" ]; then
            differ=$((differ + 1))
            echo "$instruction: matrix $matrix differs"
        fi
    done
done
echo "$places places of 24 matrices, $differ matrices differ"
[ "$differ" -eq 0 ]
