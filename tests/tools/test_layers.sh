#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/check_layers.sh finds an include that points up, within train and comm too, a private header and a circle of headers.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"

mkdir tree
(cd "$root" && tar cf - src tools Makefile) | (cd tree && tar xf -)

# finds NAME FILE INCLUDE WORDS: with the include in the file the check fails and says so.
finds()
{
    cp "tree/$2" saved
    echo "#include \"$3\"" >>"tree/$2"
    tree/tools/check_layers.sh >"$out" 2>"$err"
    code=$?
    cp saved "tree/$2"
    check "$1" [ "$code" -eq 1 ]
    check "$1: it is named" grep -q "$4" "$out"
}

tree/tools/check_layers.sh >"$out" 2>&1
check "the sources are in order" [ $? -eq 0 ]
finds "a room above" src/graph/tensor.c train/step/step.h "room graph includes train/step/step.h, which is above it"
finds "a sub-room above" src/train/optimizer/groups.c train/run/run.h "sub-room train/optimizer includes train/run/run.h, which is above it"
finds "a sub-room of comm above" src/comm/p2p/ring.c comm/coll/coll.h "sub-room comm/p2p includes comm/coll/coll.h, which is above it"
finds "and above the ground of comm" src/comm/group.h comm/p2p/p2p.h "comm/group.h includes comm/p2p/p2p.h, which is above it"
finds "an app, from what trains" src/train/optimizer/groups.c apps/bench/bench.h "train includes apps/bench/bench.h, which is above it"
finds "an app beside it" src/apps/check/stack.c apps/node/node.h "apps/check includes apps/node/node.h"
finds "a private header" src/cli/models.c train/step/stages.h "train/step/stages.h is private to train"
finds "a circle of headers" src/train/optimizer/optimizer.h train/optimizer/groups.h "headers that include each other"
cp tree/src/train/step/checks.c tree/src/train/checks.c
tree/tools/check_layers.sh >"$out" 2>&1
check "a file in no sub-room" [ $? -eq 1 ]

finish
