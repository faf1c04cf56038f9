#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# trainmark mlperf rcp, score, seeds, package and explain: what they print, what they write, and their exit codes.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# event MS KEY VALUE [METADATA]
event()
{
    printf ':::MLLOG {"namespace": "", "time_ms": %s, "event_type": "POINT_IN_TIME", ' "$1"
    printf '"key": "%s", "value": %s, ' "$2" "$3"
    printf '"metadata": {"file": "/run/log.py", "lineno": 7%s}}\n' "${4:+, $4}"
}

# lora FILE SEED SAMPLES MS [LOSS] [STATUS]: a run of llama2_70b_lora, batch 8.
lora()
{
    {
        event 1000 cache_clear true
        event 1000 init_start null
        event 1000 submission_benchmark '"llama2_70b_lora"'
        event 1000 submission_org '"Somebody"'
        event 1000 submission_division '"closed"'
        event 1000 submission_platform '"Box"'
        event 1000 seed "$2"
        event 1000 global_batch_size 8
        event 1000 train_samples 3901
        event 1000 eval_samples 173
        event 1000 opt_base_learning_rate 0.0004
        event 1000 opt_learning_rate_training_steps 1024
        event 1000 opt_adamw_weight_decay 0.0001
        event 1000 opt_gradient_clip_norm 0.3
        event 1000 gradient_accumulation_steps 1
        event 1000 lora_rank 16
        event 1000 lora_alpha 32
        event 60000 init_stop null
        event 60000 run_start null
        event 60000 block_start null '"samples_count": 0'
        event 500000 block_stop null "\"samples_count\": $3"
        event 520000 eval_accuracy "${5:-0.92}" "\"samples_count\": $3"
        event $((60000 + $4)) run_stop null "\"samples_count\": $3, \"status\": \"${6:-success}\""
    } >"$1"
}

# Example of a run that did not converge among ten.
example()
{
    mkdir -p "$1"
    set -- "$1" 3072 612250 3072 611980 2688 541000 3456 684300 3072 613300 3072 612001 3456 685777 \
        3072 611500 2688 540444
    folder=$1
    number=0
    shift
    while [ $# -gt 0 ]; do
        lora "$folder/result_$number.txt" "$((number + 100))" "$1" "$2"
        number=$((number + 1))
        shift 2
    done
    lora "$folder/result_9.txt" 109 3840 770000 0.93 aborted
}

example a
says 0 '' mlperf rcp a
check "rcp: the record" has "$out" \
    "^RCP Record: .*'RCP Mean': 3178.6666666666665, 'RCP Stdev': 299.91358755481554, 'Max Sp"
check "rcp: the verdict" has "$out" '^RCP found, RCP test PASSED$'
check "rcp: the run that did not converge" has "$out" '^result_9.txt .*Marking as infinite'

says 0 '' mlperf score a
check "score: the line" has "$out" \
    '^MLPerf-style score   10.5533 scaled minutes = 10.3586 minutes x 1.018803 '
check "score: the run that does not count" has "$out" '^result_9.txt .*does not count: does not comply$'
check_not "score writes nothing" test -e a/scaling.json
says 0 '"scaled_minutes": 10.55333464387464,' mlperf score --json a
check "score --json: says that nobody verified it" has "$out" '"verified_by_mlcommons": false'

says 0 '^10 seeds in 10 logs: seed check PASSED$' mlperf seeds a


# A package.
results=pkg/results/BOX/llama2_70b_lora
mkdir -p pkg/systems
example $results
{
    printf '{"division": "closed", "status": "Preview", "number_of_nodes": "1", "host_processors_per_node": "2", '
    printf '"accelerators_per_node": "8"'
    for member in submitter system_name host_processor_model_name host_processor_core_count \
        host_processor_vcpu_count host_processor_frequency host_processor_caches host_processor_interconnect \
        host_memory_capacity host_storage_type host_storage_capacity host_networking host_networking_topology \
        host_memory_configuration accelerator_model_name accelerator_host_interconnect accelerator_frequency \
        accelerator_on-chip_memories accelerator_memory_configuration accelerator_memory_capacity \
        accelerator_interconnect accelerator_interconnect_topology cooling hw_notes framework other_software_stack \
        operating_system sw_notes; do printf ', "%s": ""' "$member"; done
    printf '}\n'
} >pkg/systems/BOX.json
says 0 '1 file does not comply, accepting this under olympic scoring' mlperf package pkg
check "package: the verdict" has "$out" '^PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !$'
check "package: the score" has "$out" \
    '^BOX llama2_70b_lora: 10.55333464387464, batch 8, 3120.0 samples to converge, RCP Pass$'
check "package: scaling.json" [ "$(cat $results/scaling.json)" = '{"scaling_factor": 1.0188034188034187}' ]
trainmark mlperf package pkg --json
cp "$out" package
check "package --json: the verdicts" [ "$(members package_check) $(members repository_check) $(members verified_by_mlcommons)" = \
    '"PASSED" "PASSED" false false' ]
check "package --json: the system, 1 node x 2 processors, 8 devices" [ "$(members system) $(members division) $(members availability) \
$(members number_of_nodes) $(members host_processors_count) $(members accelerators_count)" = '"BOX" "BOX" "closed" "closed" "Preview" "1" 2 8' ]
check "package --json: files" [ "$(members folder) $(members files) $(members files_that_do_not_comply) $(members scaling_json)" = \
    '"llama2_70b_lora" 10 1 "scaling.json written"' ]
example a
trainmark mlperf score a --json # the same runs
check "score --json: nine of ten count" [ "$(members counts)" = "true true true true true true true true true false" ]
score=$(for name in scaled_minutes rcp_scaling_factor samples_to_converge counts minutes rcp_summary mean min_samples; do members $name; done)
cp package "$out"
check "package --json: the score is that of \`mlperf score\`" [ "$score" = \
    "$(for name in scaled_minutes rcp_scaling_factor samples_to_converge counts minutes rcp_summary mean min_samples; do members $name; done)" ]
table <<'END'
# Of 612.25 and 770 s.
0 | mlperf score a | result_0.txt 10.2042 minutes | result_9.txt 12.8333 minutes does not count: does not comply
0 | mlperf package pkg | systems/BOX.json: SUCCESS | results/BOX/llama2_70b_lora: 10 logs, 1 do not comply | notice: result_9.txt does not comply: Failed checks for eval_accuracy: no line with 0 < value <= 0.925 | seed check PASSED | RCP test PASSED: RCP found | scaling.json written: factor 1.0188034188034187 | warning: 1 file does not comply, accepting this under olympic scoring | MLPerf-style scores, in scaled minutes
END
# packaged NAME CODE SCORE WORDS...: its exit code, the score, and what is said of it, first without writing; the JSON has the
# same score, verdict and errors, and scaling.json is there only where a factor follows. It is as before after that.
packaged()
{
    packaged_name=$1 packaged_code=$2 packaged_score=$3
    shift 3
    trainmark mlperf package pkg --no-write
    cp "$out" unwritten
    trainmark mlperf package pkg
    check "$packaged_name: exit code $packaged_code" [ "$code" -eq "$packaged_code" ]
    sed -e 's/would be //' "$out" >written
    check "$packaged_name: the same without writing" sh -c "sed 's/would be //' unwritten | cmp -s - written"
    check "$packaged_name: its score" has "$out" "^BOX llama2_70b_lora: $packaged_score"
    for packaged_words; do check "$packaged_name: $packaged_words" has "$out" "$packaged_words"; done
    errors=$(grep -c '^ *error: ' "$out")
    trainmark mlperf package pkg --json
    check "$packaged_name: as JSON" [ "$code" -eq "$packaged_code" ]
    [ "$packaged_code" -eq 0 ] && verdict=PASSED || verdict=FAILED
    check "$packaged_name: its verdict" has "$out" "^  \"package_check\": \"$verdict\","
    check "$packaged_name: at least $errors errors" [ "$(awk '/"errors": \[$/ { on = 1; next } /\]/ { on = 0 } on' "$out" | grep -c .)" -ge "$errors" ]
    example $results
    rm -f $results/scaling.json
}
echo '{"scaling_factor": 2}' >$results/scaling.json
for run in 0 1 2 3 4 5 6 7 8 9; do lora $results/result_$run.txt $run $((3456 + 384 * (run % 3))) $((600000 + 1000 * run)); done
packaged "slower than the reference: no factor" 0 "10.07[0-9]*, batch 8, 3792.0 samples to converge, RCP Pass$" \
    "RCP test PASSED: RCP found" "old scaling.json removed: factor 1.0"
echo '{' >pkg/systems/OTHER.json
mkdir -p pkg/results/NONE/llama2_70b_lora pkg/results/BOX/unknown
packaged "folders of nobody" 5 "10.55" "error: systems/OTHER.json is not JSON: byte 2" \
    "error: there is no systems/NONE.json that describes this system" "results/BOX/unknown: Skipping benchmark: unknown" \
    "error: Incorrect number of files in dir, or wrong file names: found 0, expected 10"

# Explain.
example a
example c
for run in 0 1 2 3 4 5 6 7 8 9; do lora c/result_$run.txt $((50 + run)) $((2688 + 384 * (run % 3))) $((500000 + 3000 * run)); done
# Of 500, 503, ... 527 s and 2688, 3072, 3456, ... samples; from 60 s on 440 s are training.
table <<'END'
0 | mlperf explain a c | A a | B c | runs that count 9 of 10 10 of 10 | score, scaled minutes 10.55 9.00 | B / A: scaled minutes x 0.8524 = samples x 0.9855, time per sample x 1.0147, time outside of training x 0.8408, | trimming x 0.9826, factor x 1.0317
0 | mlperf rcp c | result_0.txt 2688 samples | Running RCP Checker, pass: pruned_rcps | RCP found, RCP test PASSED
0 | mlperf seeds c | 10 seeds in 10 logs: seed check PASSED
END
trainmark mlperf rcp c
record=$(sed -n "s/.*'RCP Mean': \([0-9.]*\), 'RCP Stdev': \([0-9.]*\), 'Max Speedup': \([0-9.]*\), 'Min Epochs': \([0-9.]*\)}\$/\1 \2 \3 \4/p" "$out")
trainmark mlperf rcp c --json
check "rcp --json: the record is that of the text" [ "$(members mean) $(members deviation) $(members max_speedup) $(members min_samples)" = "$record" ]
example bad
lora bad/result_8.txt 103 2688 540444 0.92 aborted
says 5 "^Insufficient convergence, RCP test FAILED$" mlperf rcp bad
says 5 "^invalid: convergence test: Insufficient convergence$" mlperf score bad
says 5 "^9 seeds in 10 logs: seed check FAILED$" mlperf seeds bad
rm a/*
lora a/result_0.txt 1 3072 600000 0.93
says 5 'no run of' mlperf explain a

finish
