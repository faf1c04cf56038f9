#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark bench` from the outside: files, starts of the program, stopping. Figures of its rows, options and what cannot be
# measured: tests/bench.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

quick="--rep-ms 1 --warmup-ms 0 --threads 1"

trainmark bench gemm --shapes 33x47x65,64x32x16:tn --trans_b $quick --precision 0 --cache both --output-file gemm.csv
check "gemm: two shapes, cold and warm" [ "$code $(column gemm.csv case | tr ' ' '\n' | sort -u | tr '\n' ' ')" = "0 33x47x65 64x32x16 " ]
check "gemm: all are right" [ "$(column gemm.csv correct)" = "true true true true " ]
trainmark bench gpt --sizes micro-llama --validate never --precision 100 --batch 1 --threads 1 --output-file gpt.csv
check "gpt" [ "$code $(wc -l <gpt.csv)" = "0 2" ]
trainmark bench startup --runs 1 --cache warm --threads 1 --output-file startup.csv \
    --arguments "model.n_layers=1 model.dim=32 model.n_heads=2 model.n_kv_heads=1 training.local_batch_size=1"
check "startup: starts this program" [ "$code $(column startup.csv n)" = "0 1 " ]
check "startup: and measures it" awk -v s="$(column startup.csv startup_s)" -v r="$(column startup.csv resident_bytes)" 'BEGIN { exit !(s > 0 && r > 1e6) }'
says 4 "ended with exit code 4.*nosuch" bench startup --runs 1 --cache warm --model nosuch
check "startup leaves nothing behind" [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'trainmark-startup-*' -user "$(id -u)" -newer gpt.csv 2>/dev/null)" ]

# A disturbed machine has no numbers today: then there is no file either.
trainmark bench stream --elements 100000 $quick --write-hardware box.yaml
if [ "$code" -eq 0 ]; then
    says 4 "no key '[a-z_0-9]+', which a CPU needs" plan tiny-llama --platform ./box.yaml
else
    check "no file of a disturbed machine" [ "$code$(ls box.yaml 2>/dev/null)" = 3 ]
fi

for path in "$PWD/x:right" :/usr/lib; do
    LD_LIBRARY_PATH=$path says 4 "LD_LIBRARY_PATH.*absolute" bench gemm --library OpenBLAS --M 4 --N 4 --K 4 $quick
done

# Stopped by the user. --foreground: the signal comes once; a second one would end the program at once.
timeout --foreground --preserve-status -s INT 1 "$TRAINMARK" bench gemm --M 64 --N 64 --K 64 --threads 1 --duration 50 >"$out" 2>"$err"
code=$?
failed_with 130 "stopped by the user" "interrupted"
finish
