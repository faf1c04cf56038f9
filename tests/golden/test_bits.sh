#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The weights after 20 steps of many configurations, bit for bit, with the kernels of every instruction set that the
# machine has; and their planned memory and FLOPs. tests/golden/bits.txt holds configurations and records.
#
# Equal: hash of the weights, validation loss, FLOPs. No more than recorded: the arena, and in it weights, gradients and
# optimizer. A stop after step 10 and a resumption leave the same weights.
#
# What is recorded is not to be changed by work that claims to leave training as it is. Where numbers are meant to change,
# or a configuration is new:
#     TM_RECORD=1 TRAINMARK=$PWD/build/release/trainmark tests/golden/test_bits.sh; git diff tests/golden/bits.txt
# on a machine with AVX-512, built with ISA=all, writes all records anew, and says in the commit why they changed.
# The C library's logf, log, cos and sin are in the numbers: recorded with glibc.
# shellcheck disable=SC1091,SC2046,SC2086,SC2154
. "$(dirname "$0")/../cli/lib.sh"

record=$here/bits.txt
kernels="base avx2 avx512"
resumed="llama-bf16-accumulate-4 gpt-bf16-pure llama-f32-matrices-decay-cosine llama-bf16-text gpt-f32-packed-rows qwen3-f32
    flux-f32 deepseek-bf16-balanced llama-bf16-moments gpt-bf16-pure-by-chance gpt-bf16-pure-kahan llama-bf16-pure-8bit
    llama-f32-muon llama-bf16-fp8-delayed-accumulate-2 llama-bf16-mxfp4-then-fp8 llama-bf16-nvfp4
    experts-f32-fp8-delayed experts-bf16-nvfp4"

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
recorded() { awk -v run="$1" -v isa="$2" '$1 == "run" { on = $2 == run } on && $1 == isa' "$record"; }

# found PLAN RESULT: "HASH nats LOSS flops N arena N CLASS N ..." of an explained step and of the result of a run.
found()
{
    awk '
        { gsub(/[",]/, "") }
        FILENAME != last { last = FILENAME; part = "" }
        FNR == NR && $1 == "micro_batches:" { micro_batches = $2 }
        FNR == NR && $1 == "name:" && /^      name:/ { program = $2 }
        FNR == NR && /^      flops:/ {
            times = program == "first" || program == "update" ? 1 : program == "further" ? micro_batches - 1 : 0
            flops += times * $2
        }
        FNR == NR { next }
        $1 == "weights_hash:" { hash = $2 }
        $1 == "validation:" { nats = $2 }
        $1 == "planned_bytes:" { arena = $2 }
        $1 == "planned_by_class:" { part = "classes"; next }
        $1 == "}" { part = "" }
        part == "classes" { classes = classes " " substr($1, 1, length($1) - 1) " " $2 }
        END { printf "%s nats %s flops %.0f arena %s%s\n", hash, nats, flops, arena, classes }' "$1" "$2"
}

# train NAME KERNELS FOLDER MORE...: runs; $row is what `found` says.
train()
{
    train_words=$(words "$1") train_isa=$2 train_folder=$3
    row=
    if ! [ -s "$1.json" ]; then
        trainmark explain $train_words --json
        [ "$code" -eq 0 ] || return 1
        mv "$out" "$1.json"
    fi
    train_plan=$1.json
    shift 3
    trainmark run $train_words "$@" --isa $train_isa --out "$train_folder"
    [ "$code" -eq 0 ] && row=$(found "$train_plan" "$train_folder/result.json")
    : >"$out"
    [ -n "$row" ]
}

# differs "RECORDED" "FOUND": the differences that are not allowed, in words; "" if there are none.
differs()
{
    awk -v old="$1" -v new="$2" 'BEGIN {
        n = split(old, a)
        m = split(new, b)
        if (n < 8) { print "nothing is recorded"; exit }
        if (length(b[1]) != 16) { print "no hash"; exit }
        if (a[2] != b[1]) printf "weights %s, recorded %s; ", b[1], a[2]
        for (i = 2; i < m; i += 2) is[b[i]] = b[i + 1]
        for (i = 3; i < n; i += 2) {
            name = a[i]
            if ((name == "nats" || name == "flops") && a[i + 1] "" != is[name] "")
                printf "%s %s, recorded %s; ", name, is[name], a[i + 1]
            if (name ~ /^(arena|weights|gradients|optimizer)$/ && (is[name] == "" || is[name] + 0 > a[i + 1] + 0))
                printf "%s %s B, recorded %s B; ", name, is[name], a[i + 1]
        }
    }'
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
        for isa in $kernels; do
            if train "$name" $isa runs; then
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
check "with three records each" [ "$(grep -c '^ ' "$record")" -eq $((3 * $(echo "$names" | wc -l))) ]
check "AVX2 and AVX-512 leave the same bits" [ -z "$(awk '
    $1 == "avx2" { hash = $2 }
    $1 == "avx512" && $2 != hash { print "differ" }' "$record")" ]

# Here and there; `make test-full` tries all.
if [ -z "${TM_TEST_FULL:-}" ]; then
    names=$(echo "$names" | awk 'NR % 9 == 1')
    resumed=$(echo $resumed | cut -d ' ' -f 1,7)
fi
for isa in $kernels; do
    trainmark run $(words llama-f32) --training.steps 1 --isa $isa --out probe
    if [ "$code" -ne 0 ] && has "$err" "this machine runs"; then # or this build leaves it out
        skip "$isa kernels" "this machine has none: $isa"
        continue
    fi
    best=$isa
    for name in $names; do
        train "$name" $isa runs
        wrong=$(differs "$(recorded "$name" $isa)" "$row")
        if [ "$code" -eq 0 ] && [ -z "$wrong" ]; then
            pass "$name, $isa kernels"
        else
            fail "$name, $isa kernels" "$wrong"
        fi
    done
done

# --- a device that does nothing before somebody waits for it, and keeps its memory to itself ------------------------------

for name in $(echo "$names" | awk 'NR % 3 == 1'); do # the others differ in what the device does not see
    train "$name" $best late --device late
    wrong=$(differs "$(recorded "$name" $best)" "$row")
    check "$name, device late" [ "$code$wrong" = 0 ]
done

# --- stopped and resumed --------------------------------------------------------------------------------------------------

first_step() { sed -n '/"steps": {/,/}/s/^ *"first": \([0-9]*\),$/\1/p' "$1/result.json"; }

for name in $resumed; do
    was=$(recorded "$name" $best)
    saving="--checkpoint.enable true --checkpoint.interval 10 --checkpoint.keep_latest_k 0"
    rm -rf again
    train "$name" $best again $saving
    wrong=$(differs "$was" "$row")
    check "$name saves checkpoints and has the same weights" [ "$code$wrong" = 0 ]
    train "$name" $best again $saving --checkpoint.load_step 10
    wrong=$(differs "$was" "$row")
    check "$name goes on from step 10" [ "$(first_step again)" = 11 ]
    check "and has the same weights" [ "$code$wrong" = 0 ]
    train "$name" $best again $saving --checkpoint.load_step 10 --device late
    wrong=$(differs "$was" "$row")
    check "also on device late" [ "$code$wrong" = 0 ]
    rm -rf again/checkpoints
    train "$name" $best again $saving --device late
    train "$name" $best again $saving --checkpoint.load_step 10
    wrong=$(differs "$was" "$row")
    check "which saves the same" [ "$code$wrong" = 0 ]
done

finish
