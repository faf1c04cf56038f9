#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lists and the program itself: parts of a list, what is none, help in every form. The lists: test_lists.c.
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# --- lists that are not, and parts of them --------------------------------------------------------------------------------

refused 2 "wrong usage: no key begins with 'stor.'; \`trainmark keys\` lists all" keys stor
refused 2 "wrong usage: no key begins with 'stor.'; \`trainmark keys\` lists all" keys stor --json
refused 2 "wrong usage: --markdown prints the tables of docs/configuration.md; leave out --json" keys --markdown --json
refused 2 "wrong usage: --markdown prints the tables of docs/configuration.md; leave out --framework" \
    keys --markdown --framework megatron
trainmark keys --markdown
check "the tables of keys" [ "$code" -eq 0 ]
check "have each key once" [ "$(grep -c '^| .store\.path. ' "$out")" -eq 1 ]
refused 4 "invalid configuration or input: unknown op 'ad'; \`trainmark ops\` lists them" ops ad --json
refused 2 "wrong usage: --markdown prints the table of all operations; leave out 'add'" ops add --markdown
trainmark ops --markdown
grep '^|' "$root/docs/ops.md" >page
check "the table of docs/ops.md is what the ops say (trainmark ops --markdown)" cmp -s "$out" page
table <<'END'
0 | ops layernorm_grad | inputs dy (N, C), x (N, C), w (C), mean (N), rstd (N), [addend (N, C)] | outputs dx (N, C) activation, [dw (C)] gradient +=, [db (C)] gradient += | in place with dy, addend | bfloat16-pure layernorm_grad/
END
trainmark reference gemm -o mine.md
check "written to a file, too" grep -q '^| workload' mine.md
check "which is what is printed" [ "$(grep -c '^| gemm' mine.md)" -eq "$("$TRAINMARK" reference gemm --json | grep -c '"row"')" ]
refused 2 "wrong usage: no published figure for workload 'gem'; \`trainmark reference\` lists all" reference gem
trainmark reference gem -o never.md
check_not "nothing is written" [ -e never.md ]
trainmark reference -o never.doc
failed_with 2 "a table of an unknown format" "never.doc"
trainmark discover
cp "$out" all
for tag in pyt jax primus training pretrain; do
    trainmark discover $tag
    check "$tag is what all have" cmp -s "$out" all
done
for name in primus_pyt_train_llama-3.1-8b jax_maxtext_train_llama-3.1-8b_fp8 pyt_megatron_lm_train_llama-3.1-8b \
    primus_pyt_megatron_lm_train_llama-3.1-8b_overlay pyt_huggingface_llama-3.1-8b; do
    prints "pyt_train_llama-3.1-8b           llama3.1_8B" discover $name
done
prints "pyt_train_tiny-llama             tiny-llama" discover tiny-llama --tags nothing
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
