#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The microscope on the command line: run, explain, report, numerics.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

short="$tiny --training.steps 4 --validation.enable false"
low="$short --training.dtype bfloat16 --quantize.recipe fp8_tensorwise --quantize.log_freq 2"
hash_of() { sed -n 's/^ *"weights_hash": "\(.*\)",$/\1/p' "$1/result.json"; }

trainmark run $low --out without
check "a run without" [ "$code" -eq 0 ]
check "says null" has without/result.json '"microscope": null,'
check "factors every two steps" [ "$(grep -c '"event": "quantized"' without/metrics.jsonl)" -eq 2 ]
check "with their scales" has without/metrics.jsonl '"linear": "layers.0.attention.wq", "factor": "w", "amax": 0\.[0-9]+, "scale": [0-9]+'
trainmark run $low --out with --debug.microscope 2 --debug.microscope_bound 0.01
check "a run with" [ "$code" -eq 0 ]
check "the same weights" [ "$(hash_of without)" = "$(hash_of with)" ]
check "two looks" [ "$(grep -c '"event": "microscope"' with/metrics.jsonl)" -eq 2 ]
check "a summary" has with/result.json '"first_divergent_step": 2,'
check "a table" has "$out" '^  first tensor exceeding the error bound of 0.01: layers\.0\.'
check "of the farthest tensors" has "$out" '^    layers\.0\..* (forward|backward|factor|gradient) +[0-9.]+e-0[0-9] +0\.9'
trainmark report with --out report.html
check "a table in the report" has report.html '<h2>Numbers of with beside those of float32'
trainmark report with --plot numbers.svg --chart numbers
check "and a chart" has numbers.svg 'Relative error of each tensor'
trainmark explain $low --debug.microscope 2
check "a program of the plan" has "$out" 'microscope'
planned=$(grep -o 'memory  .* planned' "$out")
trainmark explain $low
check "whose memory is planned" [ "$planned" != "$(grep -o 'memory  .* planned' "$out")" ]
trainmark run $short --device reference --debug.microscope 2 --out wide
failed_with 4 "not beside float64" "debug.microscope compares with float32"

trainmark run $short --checkpoint.enable true --out first
trainmark export first -o folder
check "a folder" [ "$code" -eq 0 ]
echo '[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]' >ids.json
trainmark numerics folder --tokens ids.json --compare-dtype float32
check "numerics compares" [ "$code" -eq 0 ]
check "bfloat16 with float32" has "$out" '^  bfloat16 beside float32: loss '
check "no tensor is far off" has "$out" '^  no tensor exceeds the error bound of 0.1'
trainmark numerics folder --tokens ids.json --compare-dtype float32 --bound 1e-6
check "with a small bound the first that is rounded" has "$out" '^  first tensor exceeding the error bound of 1e-06: '
trainmark numerics folder --tokens ids.json --compare-dtype float32 --dtype float32 --bound 0 --json
check "float32 beside itself is the same" has "$out" '"first_divergent": null'
check "as JSON" has "$out" '"comparison": \{"format": "float32", "reference": "float32", "loss": '
trainmark numerics folder --tokens ids.json --compare-dtype float32 --device reference
failed_with 2 "not on the reference device" "compares float32 and bfloat16"
finish
