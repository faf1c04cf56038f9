#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The table wrong_inputs.txt: command lines that are wrong, with the exit code and the words of the message. Nothing is written,
# nothing is on standard output, the message is one of a few lines.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

mkdir docs
echo "some text" >docs/a.txt
echo "some text" >text.txt
: >empty.yaml
head -c 300 /dev/zero | tr '\0' '\377' >binary.yaml
head -c 300 /dev/zero >zeros
mkdir mixed lines
cp docs/a.txt zeros mixed
printf '{"text": "some text"}\n' >lines/a.jsonl
before=$(ls)

# wrong CODE ARGUMENTS WORDS...: one line of the table.
wrong()
{
    wanted=$1
    line=$2
    shift 2
    eval "trainmark $line" # quotes in the table are a shell's
    name="trainmark $line"
    problem=
    [ "$code" -eq "$wanted" ] || problem="exit code $code, wanted $wanted"
    [ ! -s "$out" ] || problem=${problem:-"standard output is not empty"}
    [ "$(wc -l <"$err")" -le 6 ] || problem=${problem:-"more than 6 lines on standard error"}
    for words; do grep -qF -e "$words" "$err" || problem=${problem:-"standard error lacks: $words"}; done
    [ "$(ls)" = "$before" ] || problem=${problem:-"something was written: $(ls | tr '\n' ' ')"}
    if [ -n "$problem" ]; then fail "$name" "$problem"; else pass "$name"; fi
}

sed '/^#/d; /^ *$/d' "$here/wrong_inputs.txt" >.table
while IFS= read -r row <&3; do
    wanted=${row%% | *}
    rest=${row#* | }
    line=${rest%% | *}
    set --
    while [ "$rest" != "${rest#* | }" ]; do
        rest=${rest#* | }
        set -- "$@" "${rest%% | *}"
    done
    wrong "$wanted" "$line" "$@"
done 3<.table

check "the table has 100 wrong inputs at least" [ "$(wc -l <.table)" -ge 100 ]

finish
