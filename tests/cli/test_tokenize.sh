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

trainmark data tokenize docs -o one $with --threads 1
check "a folder of text" has "$out" "^one: 13 documents, [0-9,]+ tokens \(uint16\) of 13 files$"
trainmark data tokenize docs -o two $with --threads 3 --batch 100
same "the same bytes for three threads and small batches" one two
trainmark data inspect two
check "an indexed data set" has "$out" "\| two +\| megatron +\| uint16 +\| +13 \| +13 \|"
trainmark data tokenize docs -o three --tokenizer "$fixtures/llama2.model" --special --threads 2
trainmark data tokenize docs -o four --tokenizer "$fixtures/llama2.model" --special --threads 1 --batch 64
same "tokens around each document, which is cut" three four
cat docs/deep/a.md >whole
trainmark tokenizer encode --tokenizer "$fixtures/gpt2.json" whole
ids=$(tr -d '[],' <"$out")
trainmark data tokenize whole -o single $with
check "the ids of tokenizer encode, and the end" [ "$(od -An -tu2 -v single.bin | tr -s ' \n' ' ' | sed 's/^ //; s/ $//')" = "$ids 0" ]
trainmark data tokenize 'docs/1?.txt' docs/deep/a.md -o five $with --json
check "a pattern and a file, as JSON" has "$out" '"documents": 11'
gzip -k docs/10.txt && zstd -q docs/11.txt 2>/dev/null
trainmark data tokenize docs/10.txt -o plain $with
trainmark data tokenize docs/10.txt.gz -o packed $with
same "gzip" plain packed
rm -f docs/*.gz docs/*.zst

# --- what is left out -----------------------------------------------------------------------------------------------------

cp docs/10.txt docs/again.txt
: >docs/nothing
printf 'a\000b' >docs/binary
ln -s gone docs/link
trainmark data tokenize docs -o left $with
same "and change nothing" one left
rm docs/again.txt docs/nothing docs/link

# --- JSON lines, parquet --------------------------------------------------------------------------------------------------

awk '{ printf "{\"id\": %d, \"text\": \"%s\"}\n", NR, $0 }' "$parquet/texts.txt" >texts.jsonl
printf '\n  \n' >>texts.jsonl
trainmark data tokenize texts.jsonl --field text -o lines $with --threads 2
check "JSON lines" has "$out" "^lines: 51 documents"
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
trainmark ${command% --save 0.0001*} --threads 2 --json
check "the same command goes on" has "$out" '"resumed_tokens": [1-9]'
same "killed and continued: the same bytes" all killed
check_not "nothing is left behind" [ -e killed.tokenize -o -e killed.bin.part -o -e killed.lengths.part ]

# --- refused --------------------------------------------------------------------------------------------------------------

printf '{"text": "a"}\n{"text": \n' >cut.jsonl
trainmark data tokenize cut.jsonl --field text -o x $with
failed_with 4 "a line that is no JSON" "'cut.jsonl', line 2"
trainmark data tokenize docs/binary -o x $with
failed_with 4 "a binary file that was named" "'docs/binary' is a binary file"
trainmark data tokenize nothing -o x $with
failed_with 4 "a file that is not there" "cannot reach 'nothing'"
gzip -c docs/10.txt | head -c 60 >cut.gz
trainmark data tokenize cut.gz -o x $with
failed_with 4 "a gzip file that was cut" "'cut.gz'.*truncated"
trainmark data tokenize docs -o x --tokenizer "$fixtures/o200k.json" --end 99999
failed_with 4 "an end that is no token" "--end is 99999, but"
trainmark data tokenize docs -o x --tokenizer "$fixtures/ranks.tiktoken" --pattern gpt2
failed_with 4 "no end is known" "--end ID, or --end none"
trainmark data tokenize docs -o no/such/folder $with
failed_with 1 "no such folder" "cannot create 'no/such/folder.bin.part'"
trainmark data tokenize docs $with
failed_with 2 "no output" "missing -o or --out PREFIX"
trainmark data tokenize docs -o x
failed_with 2 "no tokenizer" "missing --tokenizer FILE"
trainmark data tokenize "$parquet/brotli.parquet" --field text -o x $with
failed_with 4 "a codec that is not read" "compressed with Brotli"
head -c 700 "$parquet/zstd-1.parquet" >cut.parquet
trainmark data tokenize cut.parquet --field text -o x $with
failed_with 4 "a parquet file that was cut" "'cut.parquet' is not a parquet file, or damaged"

finish
