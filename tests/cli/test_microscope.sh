#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The microscope on the command line: run, explain, report, numerics.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

short="$tiny --training.steps 4 --validation.enable false"
low="$short --training.dtype bfloat16 --quantize.recipe fp8_tensorwise --quantize.log_freq 2"
hash_of() { sed -n 's/^ *"weights_hash": "\(.*\)",$/\1/p' "$1/result.json"; }

says 0 '' run $low --out without
says 0 '' run $low --out with --debug.microscope 2 --debug.microscope_bound 0.01
check "the same weights" [ "$(hash_of without)" = "$(hash_of with)" ]
check "two looks" [ "$(grep -c '"event": "microscope"' with/metrics.jsonl)" -eq 2 ]
check "a summary" has with/result.json '"first_divergent_step": 2,'
check "a table" has "$out" '^  first tensor exceeding the error bound of 0.01: layers\.0\.'
check "of the farthest tensors" has "$out" '^    layers\.0\..* (forward|backward|factor|gradient) +[0-9.]+e-0[0-9] +0\.9'
trainmark report with --out report.html
check "a table in the report" has report.html '<h2>Numbers of with beside those of float32'
trainmark report with --plot numbers.svg --chart numbers
check "and a chart" has numbers.svg 'Relative error of each tensor'
finish
