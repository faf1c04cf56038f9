#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where the step of one case goes, and how close its two kinds of work come to the machine's ceilings: the library's
# matrix product at 2048^3 in the run's format and the triad's bandwidth, both measured before and after in the same minutes.
#
#   CASE=gpt-medium   STEPS=8   THREADS=n   TRAINMARK=./trainmark   PYTHON=python3   PROBE_SECONDS=3
#   PROBES=build/release/bench      folder of gemm_probe and triad_probe: make build/release/bench/gemm_probe ...
#   DIM LAYERS HEADS KV_HEADS FFN VOCAB BATCH SEQ   other dimensions, for a quick try
#   Words after the script's name are passed on: bench/step_profile.sh --training.dtype bfloat16
set -eu
# shellcheck source=bench/cases.sh
. "$(dirname "$0")/cases.sh"
case_setup
case_shape "${CASE:-gpt-medium}"
case_arguments
probes=${PROBES:-build/release/bench}

dtype=float32
case " $* " in *"--training.dtype bfloat16 "*) dtype=bfloat16 ;; esac

probe()
{
    if [ -x "$probes/gemm_probe" ]; then
        "$probes/gemm_probe" --dtype $dtype --threads "$threads" --seconds "${PROBE_SECONDS:-3}" 2048x2048x2048:nn 2048x2048x2048:nt
    fi
    if [ -x "$probes/triad_probe" ]; then "$probes/triad_probe" --threads "$threads" --seconds "${PROBE_SECONDS:-3}"; fi
}

probe >"$work/probes"
# shellcheck disable=SC2086
"$trainmark" run $TRAINMARK_MODEL --training.steps "${STEPS:-8}" --out "$work/out" "$@" >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log"; exit 1; } >&2
probe >>"$work/probes"
echo "### ${CASE:-gpt-medium}: $(case_title) $*"
echo
"$python" "$here/report.py" profile "$work/out/result.json" "$work/probes"
