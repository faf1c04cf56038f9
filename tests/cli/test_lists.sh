#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What commands list: models, keys, operations, published figures, the catalogue, man pages, completion; line by line
# against tests/cli/expected/, of long lists a part.
# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2094,SC2154
. "$(dirname "$0")/lib.sh"

# --- models and keys ------------------------------------------------------------------------------------------------------

filter='/^model \|^$\|^tiny-llama \|^gpt-small \|^llama3.1_8B \|^flux\|^mixtral\|^GFLOP\|^Any/!d'
trainmark models
expected lists_models.txt
filter='/"name": "\(tiny-llama\|gpt2-124M\|mistral_7B\|flux.1_dev\)"/,/^  }/!{/^[][]/!d}'
trainmark models --json
expected lists_models.json
filter=
for section in store metrics log; do trainmark keys $section && cat "$out"; done >keys
cp keys "$out"
expected lists_keys.txt
for section in store log; do trainmark keys $section --json && cat "$out"; done >keys
cp keys "$out"
expected lists_keys.json
trainmark keys --json
check "all keys are one array" [ "$(grep -c '^\[$\|^\]$' "$out") $(grep -c '^  {$' "$out")" = \
    "2 $(grep -c '"name"' "$out")" ]
trainmark keys
check "as many as there are as text" [ "$(grep -c '^ *--[a-z_0-9]*\.[a-z_.0-9]* ' "$out")" -gt 100 ]
refused 2 "wrong usage: no key begins with 'stor.'; \`trainmark keys\` lists all" keys stor
refused 2 "wrong usage: no key begins with 'stor.'; \`trainmark keys\` lists all" keys stor --json
refused 2 "wrong usage: --markdown prints the tables of docs/configuration.md; leave out --json" keys --markdown --json
refused 2 "wrong usage: --markdown prints the tables of docs/configuration.md; leave out --framework" \
    keys --markdown --framework megatron
trainmark keys --markdown
check "the tables of keys" [ "$code" -eq 0 ]
check "have each key once" [ "$(grep -c '^| .store\.path. ' "$out")" -eq 1 ]

# --- operations -----------------------------------------------------------------------------------------------------------

# The kernels are those of the machine.
filter='s,^\(float32\|bfloat16\|bfloat16-pure\)\( *\)[a-z_0-9]*/.*,\1\2NAME,'
for op in add linear swiglu rmsnorm_grad adamw ring_attention; do trainmark ops $op && cat "$out"; done >ops
cp ops "$out"
expected lists_ops.txt
for op in add ring_attention; do trainmark ops --json $op && cat "$out"; done >ops
cp ops "$out"
expected lists_ops.json
filter='/^\(add\|linear\|linear_cross_entropy\|attention_grad\) \|^$\|^train/!d'
trainmark ops
expected lists_ops_all.txt
filter=
trainmark ops --json
check "operations as one array" [ "$(grep -c '^\[$\|^\]$' "$out") $(grep -c '^  {$' "$out")" = \
    "2 $(grep -c '^TM_OP' "$root/src/op/ops.def")" ]
refused 4 "invalid configuration or input: unknown op 'ad'; \`trainmark ops\` lists them" ops ad --json
refused 2 "wrong usage: --markdown prints the table of all operations; leave out 'add'" ops add --markdown

# --- published figures ----------------------------------------------------------------------------------------------------

head -n 1 "$root/configs/reference/run.csv" >mine.csv 2>/dev/null || head -n 1 "$(find "$root/configs/reference" -name '*.csv' | sort | head -n 1)" >mine.csv
find "$root/configs/reference" -name '*.csv' | sort | while read -r file; do grep -v '^#' "$file" | sed -n '2p;5p'; done >>mine.csv
trainmark reference --file mine.csv
expected lists_reference.txt
trainmark reference --file mine.csv gemm --json
expected lists_reference.json
filter=
trainmark check --list
expected lists_checks.txt
trainmark check --list --json
expected lists_checks.json
trainmark reference --file mine.csv gemm -o mine.md
check "written to a file, too" grep -q '^| workload' mine.md
refused 2 "wrong usage: no published figure for workload 'gem'; \`trainmark reference\` lists all" reference gem
trainmark reference gem -o never.md
check_not "nothing is written" [ -e never.md ]
trainmark reference -o never.doc
failed_with 2 "a table of an unknown format" "never.doc"

# --- the catalogue --------------------------------------------------------------------------------------------------------

trainmark discover
expected lists_catalogue.txt
trainmark discover --tags pyt_train_tiny-llama --json gpt2
expected lists_catalogue.json
trainmark discover tiny-llama --tags nothing
check "one of two tags is enough" [ "$code$(wc -l <"$out")" = 01 ]
for tag in pyt jax primus training pretrain; do
    trainmark discover $tag
    check "$tag is what all have" [ "$(wc -l <"$out")" -eq "$(wc -l <"$root/tests/cli/expected/lists_catalogue.txt")" ]
done
for name in primus_pyt_train_llama-3.1-8b jax_maxtext_train_llama-3.1-8b_fp8 pyt_megatron_lm_train_llama-3.1-8b \
    primus_pyt_megatron_lm_train_llama-3.1-8b_overlay pyt_huggingface_llama-3.1-8b; do
    trainmark discover $name
    check "$name" [ "$(cat "$out")" = "pyt_train_llama-3.1-8b           llama3.1_8B" ]
done
refused 4 "invalid configuration or input: no entry has the tag 'nothing'; \`trainmark discover\` lists all" \
    discover nothing --json
refused 4 "invalid configuration or input: no entry has the tag 'pyt_train_'; \`trainmark discover\` lists all" \
    discover pyt_train_

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
trainmark help data
check "help of one that has others" cmp -s data "$out"
trainmark data
check "or without any word behind it" cmp -s data "$out"
for words in --version -V version; do
    trainmark $words
    check "$words" has "$out" '^trainmark [0-9]+\.[0-9]+'
done
trainmark version --json
check "as JSON: version, then the machine" [ "$(sed -n '2s/: .*//p; 3p' "$out")" = '  "version"
  "environment": {' ]
refused 2 "wrong usage: unknown command 'rum'; did you mean 'run'? \`trainmark help\` lists all" rum
refused 2 "wrong usage: unknown command 'zzzzzz'; \`trainmark help\` lists all" zzzzzz
refused 2 "wrong usage: unknown command 'data pak'; did you mean 'pack'? \`trainmark data\` lists all" data pak
refused 2 "wrong usage: '--json' stands where a command should; options follow it: trainmark COMMAND --json" --json
refused 2 "wrong usage: '-q' stands where a command should; options follow it: trainmark data COMMAND -q" data -q
refused 2 "wrong usage: missing PATH; \`trainmark data verify --help\` shows the usage" data verify
refused 2 "wrong usage: unexpected 'b'; \`trainmark data verify --help\` shows the usage" data verify a b
refused 2 "wrong usage: an argument is empty; wanted PATH" data verify ''
refused 2 "wrong usage: unknown option '--expct'; did you mean '--expect'? \`trainmark data verify --help\` lists all" \
    data verify a --expct x
refused 2 "wrong usage: unknown option '--zzzzzzzz'; \`trainmark data verify --help\` lists all" data verify a --zzzzzzzz
refused 2 "wrong usage: option '--expect' must be 32 hexadecimal digits in lower case, found 'abc'" data verify a --expect abc
refused 2 "wrong usage: option '--expect' must be 32 hexadecimal digits in lower case, found '0123456789ABCDEF0123456789abcdef'" \
    data verify a --expect 0123456789ABCDEF0123456789abcdef

finish
