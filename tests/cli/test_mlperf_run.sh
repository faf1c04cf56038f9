#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark mlperf run` and `reference`: seeds, logs, going on where it stopped, and what is wrong.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
unset NEXP LOGDIR
export OMP_WAIT_POLICY=passive

config=$root/configs/experiments/mlperf/trainmark_tiny.yaml
# Two steps: no run reaches the target, every run is a result.
short="--mlperf.submission_org Us --mlperf.clear_caches false --training.steps 2 --training.seq_len 16 --mlperf.eval_interval_samples 16 --validation.steps 1"

says 4 "wants mlperf.submission_org" mlperf run "$config" --out nobody --runs 1
check "a run that cannot begin leaves no log" [ ! -e nobody/result_0.txt ]

says 0 "benchmark: trainmark_tiny of Us" mlperf run "$config" $short --dry-run
says 0 '"mlperf.benchmark": "trainmark_tiny",' mlperf run "$config" $short --dry-run --json
check "a plan as JSON is one object" [ "$(sed -n '1p;$p' "$out" | tr -d '\n')" = "{}" ]
check "a plan trains nothing" [ ! -e output ]

# Variables that say how many runs, and the first seed: an option is above them; what is empty is not given.
none="mlperf run none.yaml --out none"
for value in 0 2x; do
    NEXP=$value says 2 "NEXP must be a whole number from 1 to 10000, found '$value'" $none
    NEXP=$value says 4 "cannot open configuration 'none.yaml', named by the command: No such file or directory" $none --runs 1 --seed 1
done
for value in -1 1.5; do SEED=$value says 2 "SEED must be a whole number from 0 to 2147483647, found '$value'" $none; done
benchmark="mlperf.enable .command line. wants mlperf.benchmark: one of llama31_8b.llama2_70b_lora.flux1."
for value in 10000 ''; do NEXP=$value says 4 "$benchmark" $none; done
for value in 2147483647 ''; do SEED=$value says 4 "$benchmark" $none; done

NEXP=2 SEED=7 says 5 '' mlperf run "$config" --out two $short
check "two results, as the variable says" [ "$(echo two/result_*)" = "two/result_0.txt two/result_1.txt" ]
check "seeds are counted up, second" grep -q '"key": "seed", "value": 8,' two/result_1.txt
check "the judges speak" has "$out" "not verified by MLCommons|Not verified by MLCommons"

cp two/result_0.txt kept
rm two/result_1.txt
says 5 "run 1 of 2: done already" mlperf run "$config" --out two --runs 2 --seed 7 $short
check "what is there is not touched" cmp -s kept two/result_0.txt
check "what is missing is run" has "$out" "run 2 of 2: seed 8, aborted, 32 samples"
trainmark mlperf run "$config" --out two --runs 2 --seed 7 $short --json
check "--json: verdicts of the four judges" [ "$(members verdict) $(members valid)" = \
    '"FAILED" "FAILED" "FAILED" "PASSED" "FAILED" "FAILED" false' ]
for judge in check seeds rcp score; do
    trainmark mlperf $judge two
    sed '/^Not verified/d; s/^\(result_.*txt\)  */\1 /' "$out" >"$judge.said"
done
trainmark mlperf run "$config" --out two --runs 2 --seed 7 $short
for judge in check seeds rcp score; do
    sed -n "/^--- mlperf $judge\$/,/^--- /p" "$out" | sed '/^--- /d; /^Not verified/d; s/^\(result_.*txt\)  */\1 /' >part
    [ $judge = score ] || sed -i '$d' part # the line between two
    check "the judge $judge speaks as it does alone" cmp -s part $judge.said
done
says 4 "holds runs of another command" mlperf run "$config" --out two --runs 2 --seed 7 $short --optimizer.lr 0.001

# Interrupted in the middle of the first run: no half result, no child left.
timeout -s INT 1 "$TRAINMARK" mlperf run "$config" --out "$work/cut" --runs 2 --mlperf.submission_org Us >"$out" 2>"$err"
check "an interrupted run leaves no result" [ ! -e cut/result_0.txt ]
for _ in $(seq 100); do
    grep -qs "$work/[c]ut/runs/run_0" /proc/[0-9]*/cmdline || break
    sleep 0.1
done
check_not "and no process" grep -qs "$work/[c]ut/runs/run_0" /proc/[0-9]*/cmdline

# A benchmark of adapters: the base model is made first, once, and every run begins with it.
lora=$root/configs/experiments/mlperf/trainmark_tiny_lora.yaml
cat >base.yaml <<'END'
model.name: micro-llama
data: {source: reports, answers: plain}
training: {local_batch_size: 2, seq_len: 32, steps: 2}
validation: {steps: 1}
END
tune="--mlperf.submission_org Us --mlperf.clear_caches false --training.steps 2 --training.seq_len 32
      --mlperf.eval_interval_samples 16 --validation.steps 1 --mlperf.base base.yaml"
says 5 "^base model: base.yaml, " mlperf run "$lora" --out tuned --runs 2 --seed 7 $tune
check "it is a model" [ -s tuned/runs/base_model/model.safetensors ]
check "both runs are results" [ -s tuned/result_0.txt -a -s tuned/result_1.txt ]
check "the runs begin with it" grep -q "hf_assets_path: .*tuned/runs/base_model" tuned/runs/run_1/config.yaml
rm tuned/result_1.txt
says 5 "^base model: there already" mlperf run "$lora" --out tuned --runs 2 --seed 7 $tune
echo 'training.steps: none' >base.yaml
trainmark mlperf run "$lora" --out broken --runs 1 $tune
failed_with 4 "a base model that cannot be trained" "the training of the base model ended with exit code 4" "base.yaml:1"
says 4 "or let .trainmark mlperf run. make it by mlperf.base" run "$lora" --mlperf.enable true --mlperf.submission_org Us --out alone

says 5 "did not reach the target; every run of a reference must reach the target" mlperf reference "$config" --out ref --output ref.json --runs 4 $short
check "writes no record" [ ! -e ref.json ]

# The same runs, had they reached the target: after 32, 48, 64 and 80 samples.
sed -i 's/"status": "aborted"/"status": "success"/; /eval_accuracy/s/"value": [0-9.]*/"value": 0.5/' ref/result_?.txt
for run in 1 2 3; do sed -i "s/\"samples_count\": 32/\"samples_count\": $((32 + run * 16))/" "ref/result_$run.txt"; done
says 0 '' mlperf reference "$config" --out ref --output ref.json --runs 4 $short
check "in numbers" [ "$(tail -n 2 "$out")" = "reference of trainmark_tiny, batch 16, 4 runs: mean 56.0 samples, deviation 17.88854381999832, fewest that pass 29.702014923095703, greatest speedup 1.8853939756274076
written: ref.json" ]
trainmark mlperf reference "$config" --out ref --output again.json --runs 4 $short --json
check "which is written, too" cmp -s again.json ref.json
says 0 "^RCP found, RCP test PASSED$" mlperf rcp ref --reference ref.json
sed -i '/"global_batch_size"/s/"value": 16/"value": 17/' ref/result_2.txt
says 4 "result_2.txt: another batch size than in result_0.txt$" mlperf reference "$config" --out ref --output never.json --runs 4 $short
check "no record is left" [ ! -e never.json ]

finish
