#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The twins of llama2_70b_lora and flux1: ten runs each converge to their targets, comply in every round (but for the caches, which
# only root may drop), and are scored.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"
unset NEXP LOGDIR SEED
export OMP_WAIT_POLICY=passive
# shellcheck disable=SC2034
seconds=600

for twin in trainmark_tiny_lora trainmark_tiny_flux; do
    begin=$(date +%s)
    trainmark mlperf run "$root/configs/experiments/mlperf/$twin.yaml" --mlperf.submission_org Us --out $twin --seed 100
    echo "$twin: $(($(date +%s) - begin)) s"
    check "$twin: ten runs" [ "$(find $twin -maxdepth 1 -name 'result_*.txt' | wc -l)" -eq 10 ]
    check "$twin: all of them reached the target" [ "$(grep -l '"status": "success"' $twin/result_*.txt | wc -l)" -eq 10 ]
    check "$twin: the convergence test passes" has "$out" "RCP test PASSED"
    for ruleset in 5.1.0 6.0.0 6.1.0; do
        "$TRAINMARK" mlperf check $twin --ruleset $ruleset >checked
        check "$twin, $ruleset: nothing but the caches" [ "$(grep '^  ' checked | grep -cv -e cache_clear -e 'not verified' -e 'public checker')" -eq 0 ]
    done
    if grep -q cache_clear $twin/result_0.txt; then check "$twin: a valid score" [ "$code" -eq 0 ]; fi
done
check "the base model was made once" [ "$(find trainmark_tiny_lora/runs -name base_model | wc -l)" -eq 1 ]

finish
