#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes point down only: a file of a room includes headers of its own room and of rooms below it, and of another room
# only those that it shows. The order of the rooms, from the ground, and what they show, are the lists below
# (docs/architecture.md).
set -eu
cd "$(dirname "$0")/.."
order="base stats gpu comm config token graph op device model data system train hf bench mlperf results record cli"
# graph and op are one floor: a graph is made of ops, an op's gradient rule emits graph nodes.
floor_of() {
    case $1 in op) room=graph ;; *) room=$1 ;; esac
    n=0
    for r in $order; do
        [ "$r" = "$room" ] && { echo $n; return; }
        n=$((n + 1))
    done
    echo "unknown room '$1'" >&2
    exit 1
}
# What a room shows to the others; every other header is private. Of base and stats: all.
shown="
bench/ab.h
bench/bench.h
bench/published.h
comm/comm.h
gpu/blas.h
gpu/compile.h
gpu/embedded.h
gpu/library.h
gpu/runtime.h
comm/hosts.h
comm/nccl.h
comm/mesh.h
config/config.h
config/yaml.h
data/inspect.h
data/keys.h
data/pack.h
data/preview.h
data/safetensors.h
data/source.h
data/token_list.h
data/tokenize.h
data/verify.h
data/vocabulary.h
device/ceilings.h
device/cpu/gemm.h
device/backends.def
device/device.h
graph/gradient.h
graph/blocks.h
graph/cut.h
graph/graph.h
graph/nf4.h
graph/passes/microscope.h
graph/passes/passes.h
graph/passes/quantize.h
graph/passes/units.h
graph/plan.h
graph/tensor.h
graph/value.h
hf/adapter.h
hf/config.h
hf/folder.h
hf/numerics.h
hf/source.h
mlperf/benchmark.h
mlperf/breakdown.h
mlperf/check.h
mlperf/keys.h
mlperf/log.h
mlperf/notes.h
mlperf/package.h
mlperf/python.h
mlperf/rcp.h
mlperf/reference.h
mlperf/score.h
mlperf/seeds.h
mlperf/submission.h
mlperf/system_desc.h
mlperf/value.h
mlperf/writer.h
model/hf.h
model/keys.h
model/model.h
model/parallel.h
model/presets.h
model/shape.h
op/attrs.h
op/compare.h
op/dynamic.h
op/exchange.h
op/fused.h
op/keeps.h
op/kernel.h
op/muon.h
op/op.h
op/ops.def
op/preference.h
op/quantize.h
op/ring.h
record/keys.h
record/look.h
record/outputs.h
record/record.h
record/table.h
results/compare.h
results/convert.h
results/fleet.h
results/keep.h
results/report.h
results/result.h
results/store.h
results/verify.h
system/check.h
system/check_hosts.h
system/check_report.h
system/check_tune.h
system/environment.h
system/thresholds.h
system/validity.h
train/adapters.h
train/checkpoint_view.h
token/chat.h
token/specials.h
token/template.h
token/token.h
token/train.h
train/decode.h
train/groups.h
train/keys.h
train/look.h
train/optimizer.h
train/run.h
train/sample.h
train/schedule.h
train/step.h
train/trainer.h
train/turn.h
"
is_shown() {
    case $1 in base/* | stats/*) return 0 ;; esac
    for header in $shown; do [ "$header" = "$1" ] && return 0; done
    return 1
}
for header in $shown; do
    [ -f "src/$header" ] || { echo "tools/check_layers.sh shows src/$header, which is not there" >&2; exit 1; }
done
bad=0
for file in $(find src -name '*.c' -o -name '*.h'); do
    room=$(echo "$file" | cut -d/ -f2)
    here=$(floor_of "$room")
    for include in $(sed -n 's/^ *# *include "\([^"]*\)".*/\1/p' "$file"); do
        case $include in */*) ;; *) echo "$file: include \"$include\" without its room"; bad=1; continue ;; esac
        # Made by make, or there.
        [ -f "src/$include" ] || grep -q "generated/$include:" Makefile || { echo "$file: no such header: $include"; bad=1; continue; }
        other=${include%%/*}
        if [ "$(floor_of "$other")" -gt "$here" ]; then
            echo "$file: room $room includes $include, which is above it"
            bad=1
        fi
        if [ "$other" != "$room" ] && ! is_shown "$include"; then
            echo "$file: $include is private to $other"
            bad=1
        fi
    done
done
[ $bad -eq 0 ] && echo "layers: $(find src -name '*.c' -o -name '*.h' | wc -l) files, every include points down"
exit $bad
