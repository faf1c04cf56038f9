#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A line of rows may have 2^30 bytes, which takes that much memory: the number of a longer one is told. Of the files next to
# nothing lies on the disk.
# shellcheck disable=SC1091,SC2034,SC2154
. "$(dirname "$0")/../cli/lib.sh"
seconds=300

printf '{"text": "a"}\n' >first.jsonl
cp first.jsonl later.jsonl
echo >>later.jsonl
truncate -s 1100000000 first.jsonl later.jsonl
trainmark data preview first.jsonl --samples 2
failed_with 4 "the second line" "'first.jsonl', line 2: more than 1073741824 bytes"
trainmark data preview later.jsonl --samples 2
failed_with 4 "behind a blank one" "'later.jsonl', line 3: more than 1073741824 bytes"
trainmark data preview later.jsonl --samples 1
check "what precedes it is shown" [ "$code" -eq 0 ]

finish
