#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The weights after 20 steps of many configurations, bit for bit, and their validation loss, with the kernels of every
# instruction set that the machine has. tests/golden/bits.txt holds configurations and records. (Stopped and resumed, and
# on the device late: tests/differential.)
#
# What is recorded is not to be changed by work that claims to leave training as it is. Where numbers are meant to change,
# or a configuration is new:
#     TM_RECORD=1 TRAINMARK=$PWD/build/release/trainmark tests/golden/test_bits.sh; git diff tests/golden/bits.txt
# on a machine with AVX2, built with ISA=all, writes all records anew; say in the commit why they changed. Kernels of AVX-512
# leave the bits of those of AVX2.
# The C library's log and cos are in the numbers of images: recorded with glibc.
# shellcheck disable=SC1091,SC2046,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"

record=$here/bits.txt
kernels="base avx2 avx512"

# --- data -----------------------------------------------------------------------------------------------------------------

seq 1 2000 >text.txt
mkdir documents rows
for i in 1 2 3 4 5; do seq $i $i 600 >documents/$i.txt; done
{
    "$TRAINMARK" data pack documents --out rows/train.npy --format govreport --seq-len 32 --answer-after 40 &&
        "$TRAINMARK" data pack documents --out rows/validation.npy --format govreport --seq-len 32 &&
        "$TRAINMARK" data pack documents --out words
} >"$out" 2>"$err"
check "token files" [ $? -eq 0 ]

# --- one run --------------------------------------------------------------------------------------------------------------

keys_of() { sed -n "s/^with $1 //p" "$record"; }
all=$(keys_of all)

# words NAME: the words of the run of that name.
words()
{
    words_rest=$(sed -n "s/^run $1 //p" "$record")
    words_own=${words_rest#"${words_rest%% *}"}
    echo "$(keys_of "${words_rest%% *}") $all $words_own"
}

# recorded NAME KERNELS: what is recorded.
recorded() { awk -v run="$1" -v isa="$2" '$1 == "run" { on = $2 == run } on && $1 == isa { print $2, $3, $4 }' "$record"; }

# train NAME KERNELS: runs; $row is "HASH nats LOSS".
train()
{
    row=
    trainmark run $(words "$1") --isa $2 --out runs
    [ "$code" -eq 0 ] && row=$(awk '
        { gsub(/[",]/, "") }
        $1 == "weights_hash:" { hash = $2 }
        $1 == "validation:" { nats = $2 }
        END { print hash " nats " nats }' runs/result.json)
    : >"$out"
    [ -n "$row" ]
}

# --- record ---------------------------------------------------------------------------------------------------------------

if [ "${TM_RECORD:-0}" = 1 ]; then
    while IFS= read -r line; do
        case $line in
        ' '*) continue ;;
        esac
        echo "$line" >>new.txt
        case $line in
        'run '*) ;;
        *) continue ;;
        esac
        name=${line#run } name=${name%% *}
        for isa in base avx2; do
            if train "$name" $isa; then
                printf '    %-6s %s\n' $isa "$row" >>new.txt
            else
                fail "$name, $isa kernels" "nothing was recorded"
            fi
        done
    done <"$record"
    [ "$failures" -eq 0 ] && check "recorded anew: look at git diff tests/golden/bits.txt" cp new.txt "$record"
    finish
fi

# --- check ----------------------------------------------------------------------------------------------------------------

names=$(sed -n 's/^run \([^ ]*\) .*/\1/p' "$record")
check "24 configurations at least" [ "$(echo "$names" | wc -l)" -ge 24 ]
check "with two records each" [ "$(grep -c '^ ' "$record")" -eq $((2 * $(echo "$names" | wc -l))) ]

# Here and there; `make test-full` tries all.
[ -n "${TM_TEST_FULL:-}" ] || names=$(echo "$names" | awk 'NR % 9 == 1')
for isa in $kernels; do
    trainmark run $(words llama-f32) --training.steps 1 --isa $isa --out probe
    if [ "$code" -ne 0 ] && has "$err" "this machine runs"; then # or this build leaves it out
        skip "$isa kernels" "this machine has none: $isa"
        continue
    fi
    for name in $names; do
        train "$name" $isa
        was=$(recorded "$name" $(echo $isa | sed s/avx512/avx2/))
        if [ "$row" = "$was" ]; then
            pass "$name, $isa kernels"
        else
            fail "$name, $isa kernels" "$row, recorded $was"
        fi
    done
done

finish
