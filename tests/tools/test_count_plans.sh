#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The count of how the plans of other programs' files end.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"

mkdir -p all/deep
for name in one deep/two; do
    printf 'model:\n  name: tiny-llama\n' >all/$name.yaml
done
printf '[model]\nname = "tiny-llama"\ndimm = 3\n' >all/wrong.toml
printf '[model]\nname = "tiny-llama"\ndimn = 4\n' >all/deep/wrong.toml
echo 'nothing' >all/readme.md
TRAINMARK=$TRAINMARK "$root/tools/count_plans.sh" all >"$out" 2>"$err"
check "files of one kind are one line" has "$out" '^ +2 4	.*unknown key X'
check "what plans has no message" has "$out" '^ +2 0	$'
check "all are counted" has "$out" '^2 of 4 plan, 2 are refused, 0 took too long$'
"$root/tools/count_plans.sh" >"$out" 2>"$err"
check "without a folder: usage" [ $? -eq 2 ]
finish
