#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark ops`: the list, one op, the page.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

trainmark ops
check "ops: a code of success" [ "$code" -eq 0 ]
check "ops: one with its formula" has "$out" "^linear  +linear  +y = x w\^T \+ bias \+ residual$"
check "ops: as many as there are" [ "$(grep -c '  ' "$out")" -ge "$(grep -c '^TM_OP' "$root/src/op/ops.def")" ]

trainmark ops layernorm_grad
check "one op: its inputs" has "$out" "^inputs +dy \(N, C\), x \(N, C\), w \(C\), mean \(N\), rstd \(N\), \[addend \(N, C\)\]$"
check "one op: its outputs" has "$out" "^outputs +dx \(N, C\) activation, \[dw \(C\)\] gradient \+=, \[db \(C\)\] gradient \+=$"
check "one op: what it may overwrite" has "$out" "^in place with dy, addend$"
check "one op: its kernels" has "$out" "^bfloat16-pure layernorm_grad/(base|avx2|avx512)$"

trainmark ops lienar
failed_with 4 "an unknown op" "unknown op 'lienar'" "trainmark ops"
trainmark ops --jsn
failed_with 2 "an unknown option of ops" "unknown option .--jsn.*trainmark ops --help"

trainmark ops --markdown
grep '^|' "$root/docs/ops.md" >page
check "the table of docs/ops.md is what the ops say (trainmark ops --markdown)" cmp -s "$out" page

finish
