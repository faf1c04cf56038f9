#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every member of tm_model_shape is in the description that a checkpoint keeps of its model (train/checkpoint/description.c), or in the
# list below with the reason why a run may go on with another value.
set -u
cd "$(dirname "$0")/../.." || exit 1

left_out="
family: first line, by name
max_seq_len: the table of learned positions has it in its shape; else it is no part of the model
init: initial values do not matter when a run goes on
flux.axes: its elements are rows
init_std: of the initial values, too
moe.aux_loss: of the recipe, as a learning rate is
moe.aux_per_sequence: of the recipe
moe.bias_rate: of the recipe
"
# "type name" of each member of the struct, one a line; arrays and comments cut.
members_of()
{
    awk -v end="} $1;" '/^typedef struct/ { text = ""; inside = 1 } inside { sub(/\/\*.*/, ""); text = text " " $0 }
        index($0, end) == 1 { print text; exit } /^}/ { inside = 0 }' src/model/shape.h |
        sed 's/.*{//; s/}.*//' | tr ';' '\n' |
        awk 'NF > 1 { type = $1; $1 = ""; n = split($0, name, ","); for (i = 1; i <= n; i++) { gsub(/[ *]|\[.*\]/, "", name[i]); print type, name[i] } }'
}
members=$(members_of tm_model_shape | while read -r type name; do
    nested=$(members_of "$type")
    if [ -n "$nested" ]; then echo "$nested" | sed "s/.* /$name./"; else echo "$name"; fi
done)
tests=0 failures=0
for member in $members; do
    tests=$((tests + 1))
    if grep -qF ", $member)," src/train/checkpoint/description.c || echo "$left_out" | grep -q "^$member: "; then
        echo "ok $tests - $member"
    else
        failures=$((failures + 1))
        echo "not ok $tests - $member of tm_model_shape is no row of src/train/checkpoint/description.c"
    fi
done
echo "1..$tests"
[ "$failures" -eq 0 ] && [ "$tests" -gt 15 ]
