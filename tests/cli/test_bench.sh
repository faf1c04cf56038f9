#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark bench`: the list of workloads, their options, their results in every format.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

trainmark bench
check "without a name it lists the workloads" [ "$code" -eq 0 ]
for name in stream; do
    check "$name is listed" has "$out" "^  $name +[a-z]"
    trainmark bench "$name" --help
    check "$name tells its options" has "$out" "^  --rep-ms .*default 100"
done
trainmark bench strem
failed_with 2 "an unknown workload" "did you mean 'stream'"
trainmark bench stream --durration 3
failed_with 2 "an unknown option" "durration.*did you mean 'duration'"
trainmark bench stream --xyzzy 3
failed_with 2 "an option that is like no other" "trainmark bench stream --help"
trainmark bench stream --rep-ms soon
failed_with 4 "a value of the wrong kind" "rep-ms.*must be a number, found 'soon'"
trainmark bench stream --threads 5000
failed_with 4 "a value out of range" "threads.*5000"
trainmark bench stream --output-file result.doc
failed_with 2 "an unknown file format is refused before measuring" "result.doc.*\.md"
trainmark bench stream --isa avx1024
failed_with 4 "an unknown set of instructions" "avx1024"

# --- stream -----------------------------------------------------------------------------------------------------------

trainmark bench stream --elements 100000 --rep-ms 1 --warmup-ms 0 --threads 1 --output-file stream.csv
check "stream runs" [ "$code" -eq 0 ]
check "stream: small arrays are not taken for main memory" has "$out" "smaller than four times the last-level cache"
for kernel in copy mul add triad dot; do
    check "stream: $kernel is right" has stream.csv "^[^,]*,$kernel,(ordinary|none),1,100000,.*,true,"
done

finish
