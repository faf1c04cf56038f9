#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes point down only: a file of a room includes headers of its own room and of rooms below it, and of another room
# only those that it shows. The order of the rooms, from the ground, and what they show, are the lists below
# (docs/architecture.md). The same holds for the sub-rooms of train and comm; in apps, each is
# a room. What lies in comm itself is its ground (headers) and its top (the rest). Headers include each other in no circle.
set -eu
cd "$(dirname "$0")/.."
order="base image stats gpu comm config token graph=op device model data encoder system train plan hf apps/bench apps/mlperf apps/check results record apps/node cli"
train="optimizer pipeline settings parallel adapter step checkpoint trainer certify generate run"
comm="engine p2p coll mesh"
# graph and op are one floor: a graph is made of ops, an op's gradient rule emits graph nodes.
# What a room shows to the others; every other header is private. Of base and stats: all.
shown="
apps/bench/ab.h
apps/bench/bench.h
apps/bench/product.h
apps/bench/published.h
comm/comm.h
apps/node/certificate.h
apps/node/node.h
gpu/blas.h
gpu/gemm_ex.h
gpu/dnn.h
gpu/compile.h
gpu/defaults.h
gpu/embedded.h
gpu/library.h
gpu/neighbours.h
gpu/places.h
gpu/platform.h
gpu/runtime.h
gpu/sensors.h
gpu/visible.h
comm/coll/hosts.h
comm/coll/nccl.h
comm/mesh/mesh.h
config/config.h
config/yaml.h
data/inspect.h
data/keys.h
data/pack.h
data/packing.h
data/pictures.h
data/preview.h
data/safetensors.h
data/seen.h
data/source.h
data/token_list.h
data/tokenize.h
data/verify.h
data/vocabulary.h
device/ceilings.h
device/cpu/gemm.h
device/backends.def
device/device.h
device/forward.h
device/judge.h
device/prepared.h
device/trial.h
encoder/cache.h
encoder/encoder.h
encoder/encoders.h
encoder/pixels.h
encoder/texts.h
graph/gradient.h
graph/blocks.h
graph/cut.h
graph/graph.h
graph/nf4.h
graph/passes/codes.h
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
image/image.h
image/resize.h
apps/mlperf/benchmark.h
apps/mlperf/breakdown.h
apps/mlperf/check.h
apps/mlperf/keys.h
apps/mlperf/log.h
apps/mlperf/notes.h
apps/mlperf/package.h
apps/mlperf/python.h
apps/mlperf/rcp.h
apps/mlperf/reference.h
apps/mlperf/score.h
apps/mlperf/seeds.h
apps/mlperf/submission.h
apps/mlperf/system_desc.h
apps/mlperf/value.h
apps/mlperf/writer.h
model/hf.h
model/keys.h
model/model.h
model/parallel.h
model/presets.h
model/shape.h
op/attrs.h
op/codes.h
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
op/relative.h
op/ring.h
plan/bound.h
plan/fit.h
plan/goodput.h
plan/hardware.h
plan/rates.h
plan/rows.h
plan/simulate.h
plan/theirs.h
record/keys.h
record/look.h
record/outputs.h
record/panel.h
record/record.h
record/table.h
results/baseline.h
results/certificate.h
results/compare.h
results/convert.h
results/fleet.h
results/keep.h
results/report.h
results/result.h
results/store.h
results/verify.h
apps/check/check.h
apps/check/hosts.h
apps/check/report.h
apps/check/tune.h
system/environment.h
system/thresholds.h
system/validity.h
train/adapter/adapters.h
train/checkpoint/checkpoint.h
train/checkpoint/view.h
token/chat.h
token/gguf.h
token/specials.h
token/template.h
token/token.h
token/train.h
train/generate/decode.h
train/optimizer/groups.h
train/settings/keys.h
train/trainer/locate.h
train/trainer/microscope.h
train/optimizer/optimizer.h
train/run/curve.h
train/run/replay_step.h
train/run/run.h
train/run/verdict.h
train/generate/sample.h
train/generate/scheduler.h
train/optimizer/schedule.h
train/step/step.h
train/step/supported.h
train/trainer/trainer.h
train/run/interleave.h
"
for header in $shown; do
    [ -f "src/$header" ] || { echo "tools/check_layers.sh shows src/$header, which is not there" >&2; exit 1; }
done
files=$(find src -name '*.c' -o -name '*.h' | wc -l)
bad=0
includes=$(mktemp)
trap 'rm -f "$includes"' EXIT
# "FILE INCLUDED", both without src/.
grep -r '^ *# *include "' src --include='*.c' --include='*.h' |
    sed -n 's|^src/\([^:]*\): *# *include "\([^"]*\)".*|\1 \2|p' >"$includes"
# Included, but neither there nor made by make.
# shellcheck disable=SC2013
for include in $(cut -d ' ' -f 2 "$includes" | sort -u); do
    [ -f "src/$include" ] || grep -q "generated/$include:" Makefile || { echo "no such header: $include"; bad=1; }
done
awk -v order="$order" -v train="$train" -v comm="$comm" -v shown="$(echo "$shown" | tr "\n" " ")" '
    BEGIN {
        n = split(order, rooms, " ")
        for (i = 1; i <= n; i++) {
            m = split(rooms[i], same, "=")
            for (k = 1; k <= m; k++) floor[same[k]] = i
        }
        n = split(train, names, " ")
        for (i = 1; i <= n; i++) within["train", names[i]] = i
        n = split(comm, names, " ")
        for (i = 1; i <= n; i++) within["comm", names[i]] = i
        n = split(shown, names, " ")
        for (i = 1; i <= n; i++) is_shown[names[i]] = 1
    }
    function room(path) { match(path, /^(apps\/)?[^\/]*/); return substr(path, 1, RLENGTH) }
    function wrong(text) { print "src/" $1 ": " text; bad = 1 }
    {
        split($1, here, "/")
        split($2, there, "/")
        if ($2 !~ /\//) { wrong("include \"" $2 "\" without its room"); next }
        from = room($1)
        to = room($2)
        if (!floor[from]) { wrong("unknown room " from); next }
        if (!floor[to]) { wrong("unknown room " to); next }
        if (floor[to] > floor[from]) wrong("room " from " includes " $2 ", which is above it")
        if (from != to) {
            if (to != "base" && to != "stats" && !is_shown[$2]) wrong($2 " is private to " to)
        } else if (here[1] == "train" || here[1] == "comm") {
            level = within[here[1], here[2]]
            if (here[1] == "comm" && here[2] ~ /\.c$/) level = 99
            else if (!level && !(here[1] == "comm" && here[2] ~ /\.h$/)) wrong("not in a sub-room of " here[1])
            if (within[there[1], there[2]] > level) wrong((level ? "sub-room " : "") here[1] "/" here[2] " includes " $2 ", which is above it")
        }
    }
    END { exit bad }' "$includes" || bad=1
circle=$(grep '^[^ ]*\.h [^ ]*\.h$' "$includes" | tsort 2>&1 >/dev/null) ||
    { echo "headers that include each other: $circle"; bad=1; }
[ $bad -eq 0 ] && echo "layers: $files files, every include points down"
exit $bad
