#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# "One file and one line": an op with gradient and fast kernel, a model family, a data source, an optimizer, an output
# and a device are added to a copy of the sources (the files of additions/, the lines below), counted, built and used.
#
# It compiles most of the program again, some minutes on one core; `make test-long` runs it.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"
additions=$here/additions
tree=$work/tree
build=$tree/build/release

# WHAT FILE LINE: all that is changed in files that are there. Two ops (one is the other's gradient) are two lines.
cat >"$work/lines" <<'END'
op src/op/ops.def TM_OP(relu2)
op src/op/ops.def TM_OP(relu2_grad)
family src/model/families.def TM_FAMILY(PRIMER, primer, "gpt with a squared ReLU")
source src/data/sources.def TM_SOURCE(counting, "every token is the one before it plus 1")
optimizer src/train/optimizer/optimizers.def TM_OPTIMIZER(nag, "NAG")
output src/record/sinks.def TM_SINK(losses)
device src/device/backends.def TM_BACKEND(plain)
END

# WHAT LINES FILES: how many lines of files that were there, and which new files.
cat >"$work/counts" <<'END'
op 2 src/op/relu2.c src/device/cpu/simd/relu2.c
family 1 src/model/primer.c
source 1 src/data/counting.c
optimizer 1 src/train/optimizer/nag.c
output 1 src/record/losses.c
device 1 src/device/plain/plain.c
END

# ---- the copy, the additions ----

mkdir -p "$build"
cp -a "$root/src" "$root/tests" "$root/tools" "$root/configs" "$root/Makefile" "$tree/"
# Objects that are there, with their times: make compiles what the additions touch.
case $(readlink -f "$TRAINMARK") in
"$root"/build/release/*)
    (cd "$root/build/release" && find . \( -name '*.[od]' -o -name '*.def' \) -exec cp -a --parents {} "$build" \;)
    ;;
esac
cp -a "$additions/src" "$tree/"
while read -r what file line; do echo "$line" >>"$tree/$file"; done <"$work/lines"

# ---- what was changed, counted ----

while read -r what wanted files; do
    changed=0
    for file in $(awk -v what="$what" '$1 == what { print $2 }' "$work/lines" | sort -u); do
        changed=$((changed + $(diff "$root/$file" "$tree/$file" | grep -c '^[<>]')))
    done
    check "$what: lines changed in files that were there: $wanted" [ "$changed" -eq "$wanted" ]
    for file in $files; do check_not "$what: $file is new" [ -e "$root/$file" ]; done
done <"$work/counts"
diff -rq "$root/src" "$tree/src" >"$out"
listed=$(cut -d ' ' -f 2 "$work/lines" | sort -u | wc -l)
check "no other file of src is changed" [ "$(grep -c '^Files' "$out")" -eq "$listed" ]
(cd "$additions" && find src -type f | sort) >"$work/found"
cut -d ' ' -f 3- "$work/counts" | tr ' ' '\n' | sort >"$work/listed"
check "every new file is counted" cmp -s "$work/found" "$work/listed"
{ diff -rq "$root/tests" "$tree/tests"; diff -q "$root/Makefile" "$tree/Makefile"; } >"$out"
check "nothing but src is changed" [ ! -s "$out" ]

# ---- built ----

make -C "$tree" -j"${JOBS:-$(nproc)}" BUILD=build/release EXTRA_CFLAGS=-Werror build/release/trainmark \
    build/release/tests/op/test_gradients build/release/tests/device/test_kernels >"$out" 2>"$err"
check "it builds without a warning" [ $? -eq 0 ]
(cd "$tree" && tools/check_layers.sh) >"$out" 2>"$err"
check "includes point down" [ $? -eq 0 ]

# ---- used ----

TRAINMARK=$build/trainmark
trainmark ops
check "op: it is listed" has "$out" "^relu2 +elementwise +y = max\(x, 0\)\^2$"
trainmark ops relu2_grad
check "op: its fast kernel is chosen" has "$out" "^float32 +relu2_grad/(base|avx2|avx512)$"
CMOCKA_MESSAGE_OUTPUT=TAP "$build/tests/op/test_gradients" >"$out" 2>"$err"
check "op: the gradient test of all ops passes" [ $? -eq 0 ]
CMOCKA_MESSAGE_OUTPUT=TAP "$build/tests/device/test_kernels" >"$out" 2>"$err"
check "op: the kernel test of all ops judges its kernel" has "$out" "^ok [0-9]+ - relu2$"
check "op: and its gradient's" has "$out" "^ok [0-9]+ - relu2_grad$"

train="--model.family primer --data.source counting --optimizer.name NAG --optimizer.lr 0.1 --training.steps 3
       --lr_scheduler.warmup_steps 0 $tiny"
trainmark run $train --out cpu
check "family, source, optimizer: trained" [ "$code" -eq 0 ]
check "output: three steps" [ "$(cut -d , -f 1 cpu/losses.csv | tr '\n' ' ')" = "step 1 2 3 " ]
check "the loss falls" awk -F , 'NR == 2 { first = $2 } END { exit !($2 < first) }' cpu/losses.csv
check "family: in config.yaml" has cpu/config.yaml "family: primer"
check "source: in config.yaml" has cpu/config.yaml "source: counting"
check "optimizer: in config.yaml" has cpu/config.yaml "name: NAG"
trainmark run $train --data.source mock --optimizer.lr 0.02 --training.steps 60 --out long
check "optimizer: a run of 60 steps is certified" [ "$code" -eq 0 ]
check "optimizer: its updates have no formula to be judged by" has "$out" "^ +update +none +.* no formula of NAG"
trainmark run $train --device plain --out plain
check "device: trained" [ "$code" -eq 0 ]
check "device: the losses are the CPU's within 1e-3" [ "$(paste -d , cpu/losses.csv plain/losses.csv |
    awk -F , 'NR > 1 && ($2 - $4) ^ 2 < 1e-6 { n++ } END { print n + 0 }')" -eq 3 ]
trainmark explain $train
check "explain: the family's op with its kernel" has "$out" "^ +[0-9]+ relu2_grad .* (base|avx2|avx512)$"
trainmark run $train --device nowhere
failed_with 4 "a device that is not there: the new one is named" "nowhere.*cpu, cuda\[:N\], hip\[:N\], reference, null, plain"
finish
