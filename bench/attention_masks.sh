#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What windows and documents cost: time of attention, forward and backward, at 8192 tokens with a window of 1024 and with 16
# documents of 512, as a part of full causal time. Wanted: at most 0.35 and 0.15. In turns, best of ROUNDS (5).
# usage: bench/attention_masks.sh [isa] [threads] [rounds]
set -eu
cd "$(dirname "$0")/.."
make -s build/release/bench/attention_probe
exec build/release/bench/attention_probe "${1:-avx512}" "${2:-1}" masks "${3:-5}"
