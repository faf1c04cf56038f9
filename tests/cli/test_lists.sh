#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lists and the program itself: parts of a list, what is none, help in every form, readers that have seen enough. The lists:
# test_lists.c; options: test_options.c.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"
export OMP_WAIT_POLICY=passive

# --- lists that are not, and parts of them --------------------------------------------------------------------------------

trainmark ops --markdown
grep '^|' "$root/docs/ops.md" >page
check "the table of docs/ops.md is what the ops say (trainmark ops --markdown)" cmp -s "$out" page
trainmark reference gemm -o mine.md
check "written to a file, too" grep -q '^| workload' mine.md
check "which is what is printed" [ "$(grep -c '^| gemm' mine.md)" -eq "$("$TRAINMARK" reference gemm --json | grep -c '"row"')" ]
says 2 "never.doc" reference -o never.doc

# Lists fit a terminal of 120 columns. Words that are longer than their column stand alone. None says anything beside its JSON.
for command in "keys" "keys --framework megatron" "keys --framework torchtitan" "ops" "models" "reference" "discover" "results"; do
    trainmark $command
    check "$command: 120 columns" [ "$(awk 'length > 120 && NF > 1' "$out" | wc -l)" -eq 0 ]
    trainmark $command -q --json
    check "$command -q: nothing on standard error" [ "$code$(wc -c <"$err")" = 00 ]
done
for command in "manual pages" "run --dry-run" "version"; do
    trainmark $command -q --json
    check "$command --json is JSON" [ "$code$(head -c 1 "$out" | tr '[' '{')$(wc -c <"$err")" = "0{0" ]
done

# --- the program ----------------------------------------------------------------------------------------------------------

"$TRAINMARK" >"$out" 2>"$err" </dev/null
code=$?
check "without a command: wrong usage" [ "$code" -eq 2 ]
check "and the commands, on standard error" [ ! -s "$out" ]
cp "$err" usage
for words in help -h --help; do
    trainmark $words
    check "$words lists them, too" cmp -s usage "$out"
    check "$words is no error" [ "$code" -eq 0 ]
done
trainmark data pack --help
cp "$out" pack
trainmark help data pack
check "help of a command below another" cmp -s pack "$out"
trainmark -h data pack
check "in any form" cmp -s pack "$out"
trainmark help data pack more
check "and no farther" cmp -s pack "$out"
trainmark data --help
cp "$out" data
trainmark data
check "or without any word behind it" cmp -s data "$out"
for words in --version -V version; do
    says 0 '^trainmark [0-9]+\.[0-9]+' $words
done
trainmark version --json
check "as JSON: version, then the machine" [ "$(sed -n '2s/: .*//p; 3p' "$out")" = '  "version"
  "environment": {' ]

# --- the pages under docs/: each is in the index, each link leads somewhere, tables are the program's ---------------------------------

docs=$root/docs

for page in "$docs"/*.md; do
    name=${page##*/}
    [ "$name" = README.md ] || check "$name is in the index" grep -q "]($name)" "$docs/README.md"
done
check "the first page leads to the index" grep -q '](docs/README.md)' "$root/README.md"
bad=
for page in "$root/README.md" "$docs"/*.md; do
    folder=$(dirname "$page")
    grep -o ']([^)]*)' "$page" | sed 's/^](//; s/)$//; s/#.*//' | grep -v -e '^http' -e '^$' >links
    while read -r link; do
        [ -e "$folder/$link" ] || bad="$bad ${page##*/}:$link"
    done <links
done
check "every link leads to a file" [ -z "$bad" ]
[ -z "$bad" ] || echo "#$bad"
for group in Start Train Measure MLPerf Internals; do
    check "the index has $group" grep -q "^## $group\$" "$docs/README.md"
done
trainmark models --json
check "every model has all figures of its shape" awk -F '[ ":,]+' '/"n_heads"/ { heads = $3; n++ } /"n_kv_heads"/ { kv++; off += heads % $3 != 0 }
    /"head_dim"|"ffn_dim"|"vocab_size"|"parameters_active"/ { rest++ } END { exit !(n > 40 && kv == n && off == 0 && rest == 4 * n) }' "$out"
trainmark models --markdown
sed -n '/^| model /,$p' "$docs/models.md" >table
check "docs/models.md has the table of the program" cmp -s table "$out"
trainmark keys --combinations
sed -n '/^| this | cannot/,$p' "$docs/parallelism.md" >table
check "docs/parallelism.md has the table of what cannot be combined" cmp -s table "$out"

# --- a reader that has seen enough -------------------------------------------------------------------------------------------

yes '{"prompt": "a", "completion": "b"}' | head -n 3000 >preview.jsonl
for command in "explain tiny-llama" "keys" "models" "reference gemm" "ops" "run tiny-llama --print-config" "run --dry-run --memory 1GiB" "data preview preview.jsonl"; do
    { "$TRAINMARK" $command 2>err; echo $? >code; } | true
    check "$command | true: a quiet end" [ "$(cat code)" = 0 -a ! -s err ]
done
{ "$TRAINMARK" run $tiny --training.steps 3 --out unread 2>err; echo $? >code; } | true
check "a run goes on, and ends by its verdict" [ "$(cat code)" = 0 -a -s unread/result.json ]
check "and says so once" [ "$(grep -c 'nobody reads the output any more; the run goes on' err)" -eq 1 ]

finish
