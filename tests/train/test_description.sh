#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every member of tm_model_shape is in the description that a checkpoint keeps of its model (train/description.c), or in the
# list below with the reason why a run may go on with another value.
set -u
cd "$(dirname "$0")/../.." || exit 1

left_out="
family: first line, by name
max_seq_len: the table of learned positions has it in its shape; else it is no part of the model
init: initial values do not matter when a run goes on
"
members=$(awk '/^typedef struct/ { text = ""; inside = 1 } inside { sub(/\/\*.*/, ""); text = text " " $0 }
               /^} tm_model_shape;/ { print text; exit } /^}/ { inside = 0 }' src/model/shape.h |
          sed 's/.*{//; s/}.*//' | tr ';,' '\n\n' | sed 's/^.*[ *]\([a-z_0-9]*\)\(\[.*\]\)\{0,1\} *$/\1/' | grep .)
tests=0 failures=0
for member in $members; do
    tests=$((tests + 1))
    if grep -qE "ROW\([A-Z0-9]+, $member(\.[a-z_.0-9]+)?\)" src/train/description.c || echo "$left_out" | grep -q "^$member: "; then
        echo "ok $tests - $member"
    else
        failures=$((failures + 1))
        echo "not ok $tests - $member of tm_model_shape is no row of src/train/description.c"
    fi
done
echo "1..$tests"
[ "$failures" -eq 0 ] && [ "$tests" -gt 15 ]
