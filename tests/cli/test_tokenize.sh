#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark data tokenize`: every kind of input, the same bytes for any number of threads and after kill -9, what is left out,
# and what is refused.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

fixtures=$root/tests/token/fixtures
parquet=$root/tests/data/parquet
with="--tokenizer $fixtures/gpt2.json --end 0"

# same NAME A B: are two data sets the same bytes?
same() { cmp -s "$2.bin" "$3.bin" && cmp -s "$2.idx" "$3.idx" && pass "$1" || fail "$1" "$2 and $3 differ"; }

mkdir docs docs/deep
i=0
while [ $i -lt 12 ]; do
    printf 'Document %d says:\n  %s, isn'"'"'t it? 1234%d\n' $i "$(seq -s ' ' $i $((i * 20)))" $i >docs/$((i + 10)).txt
    i=$((i + 1))
done
printf 'deeper text\n' >docs/deep/a.md

# --- text -----------------------------------------------------------------------------------------------------------------

says 0 "^one: 13 documents, [0-9,]+ tokens \(uint16\) of 13 files$" data tokenize docs -o one $with --threads 1
trainmark data tokenize docs -o two $with --threads 3 --batch 100
same "the same bytes for three threads and small batches" one two
cat docs/deep/a.md >whole
trainmark tokenizer encode --tokenizer "$fixtures/gpt2.json" whole
ids=$(tr -d '[],' <"$out")
trainmark data tokenize whole -o single $with
check "the ids of tokenizer encode, and the end" [ "$(od -An -tu2 -v single.bin | tr -s ' \n' ' ' | sed 's/^ //; s/ $//')" = "$ids 0" ]

# --- JSON lines, parquet --------------------------------------------------------------------------------------------------

awk '{ printf "{\"id\": %d, \"text\": \"%s\"}\n", NR, $0 }' "$parquet/texts.txt" >texts.jsonl
printf '\n  \n' >>texts.jsonl
says 0 "^lines: 51 documents" data tokenize texts.jsonl --field text -o lines $with --threads 2
trainmark data tokenize texts.jsonl --field text -o few $with --batch 10 --threads 1
same "JSON lines in small batches" lines few
for file in none-1 snappy-2 gzip-1 zstd-2 plain delta; do
    trainmark data tokenize "$parquet/$file.parquet" --field text -o rows $with
    same "parquet: $file" lines rows
done

# --- killed ---------------------------------------------------------------------------------------------------------------

i=0
while [ $i -lt 40 ]; do
    cat docs/*.txt docs/*.txt docs/*.txt docs/*.txt
    i=$((i + 1))
done | head -c 1500000 >long.txt
awk '{ printf "{\"text\": \"%s\"}\n", $0 }' long.txt >long.jsonl
command="data tokenize long.jsonl --field text -o killed $with --batch 500 --save 0.0001 --threads 1"
trainmark data tokenize long.jsonl --field text -o all $with
kills=0
while [ $kills -lt 200 ]; do
    "$TRAINMARK" $command >"$out" 2>"$err" &
    pid=$!
    until [ -f killed.tokenize ] || ! kill -0 $pid 2>/dev/null; do :; done
    kill -9 $pid 2>/dev/null || break
    wait $pid 2>/dev/null
    [ -f killed.tokenize ] && kills=$((kills + 1))
    [ $kills -ge 3 ] && break
done
check "killed in the middle" [ -f killed.tokenize ]
check_not "no index before the end" [ -f killed.idx ]
says 0 '"resumed_tokens": [1-9]' ${command% --save 0.0001*} --threads 2 --json
same "killed and continued: the same bytes" all killed
check_not "nothing is left behind" [ -e killed.tokenize -o -e killed.bin.part -o -e killed.lengths.part ]

# --- refused --------------------------------------------------------------------------------------------------------------

gzip -c docs/10.txt | head -c 60 >cut.gz
says 4 "'cut.gz'.*truncated" data tokenize cut.gz -o x $with

finish
