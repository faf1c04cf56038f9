#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark run --mlperf.enable true`: the log of a run, and what may not be logged. Runs that are stopped:
# tests/record/test_mllog.c.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# The benchmark's own model, but few tokens: a run of a second that does not reach the target. The caches of this machine are
# left alone.
small="--mlperf.enable true --mlperf.benchmark trainmark_tiny --mlperf.clear_caches false --training.seq_len 16
       --training.local_batch_size 2 --training.global_batch_size 4 --training.steps 5 --validation.steps 2
       --mlperf.eval_interval_samples 7 --training.threads 1 --optimizer.lr 0.0125 --debug.seed 77"

logged() { grep "\"key\": \"$1\"" "$2" | tail -n 1 | sed 's/.*"value": //; s/, "metadata".*//'; }

says 4 "wants mlperf.submission_org" run $small --out a
check_not "a run that cannot begin leaves nothing" [ -e a ]
says 0 '' run $small --mlperf.submission_org me --out a
log=a/result_0.txt
check "the log is there" [ -s $log ]
check "evaluations every second step, and at the end" [ "$(grep -c '"key": "eval_accuracy"' $log)" -eq 3 ]
check "their true number of samples" has $log '"key": "eval_accuracy".*"samples_count": 8}'
check "it ends with all samples, aborted" has $log '"key": "run_stop".*"samples_count": 20, "status": "aborted"}'
loss=$(grep '"event": "evaluation"' a/metrics.jsonl | tail -n 1 | sed 's/.*"loss": //; s/,.*//')
check "the last loss is that of metrics.jsonl" [ "$(logged eval_accuracy $log)" = "$loss" ]
says 5 "occurrence of 'cache_clear' but found 0" mlperf check a
check "target" has "$out" "Failed checks for eval_accuracy"
check "and nothing else" [ "$(grep -c '^  .*\[' "$out")" -eq 2 ]

says 4 "the clock of such a run may not pause" run $small --mlperf.submission_org me --out c --checkpoint.enable true
check_not "nothing is left" [ -e c ]
says 4 "cannot write to '.*' \(mlperf.log" run $small --mlperf.submission_org me --out c --mlperf.log /nowhere/x.txt
says 4 "wants mlperf.benchmark" run --mlperf.enable true --mlperf.submission_org me --out c

# A run of adapters has every line that the rules of llama2_70b_lora ask for: said to be one, its log lacks the target, the
# cleared caches and nothing else.
trainmark run micro-llama --data.source reports --data.answers plain --training.seq_len 16 --training.local_batch_size 2 \
    --training.steps 1 --validation.steps 1 --checkpoint.enable true --out d
says 0 '' export d -o base
lora="micro-llama $small --mlperf.submission_org me --mlperf.benchmark trainmark_tiny_lora --data.source reports --lora.rank 16
      --lora.alpha 32 --model.hf_assets_path base"
says 0 '' run $lora --out e
log=e/result_0.txt
mkdir f
sed 's/trainmark_tiny_lora/llama2_70b_lora/' $log >f/result_0.txt
says 5 "occurrence of 'cache_clear' but found 0" mlperf check f
check "target" has "$out" "Failed checks for eval_accuracy: no line with 0 < value <= 0.925"
check "and nothing else" [ "$(grep -c '^  .*\[' "$out")" -eq 2 ]
says 0 '' run $lora --quantize.recipe mxfp4 --quantize.filter_fqns lora_ --quantize.switch_recipe fp8_delayed --quantize.switch_step 2 --out g
check "the lowest format counts" [ "$(logged lowest_numerical_precision_in_linear g/result_0.txt)" = '"mxfp4"' ]
sed -i 's/"vocab_size": *64/"vocab_size": 128/' base/config.json
says 4 "whose model.vocab_size is 64; found 128|found another one" run $lora --out h

finish
