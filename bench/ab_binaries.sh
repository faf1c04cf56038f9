#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Is a new trainmark slower than an old one? Both train the same three models in turns (docs/ab.md).
#
#   bench/ab_binaries.sh OLD NEW [FOLDER]    binaries; every step is kept below FOLDER (output/ab-binaries)
#
#   BUDGET=900       seconds of one comparison at most; it ends earlier when it is precise enough
#   LEAST=1.5        percent: the least difference that four of five sessions must see
#   TURN=0.2         seconds of a turn
#   TARGET=0.5       percent: half-width at which a comparison ends early
#   WORKLOADS="tiny-llama gpt-small block-8B"    block-8B: one layer as wide as llama3.1_8B, 1,024 words of vocabulary
#   EXTRA="--training.threads 2"                 more arguments of `trainmark run` for both
#   TRAINMARK=NEW    the one that gives the turns
#
# Three processes of a workload live at a time: block-8B takes three times 2 GiB in bfloat16 as it is here.
# Exit code 5 when one is slower, or when a comparison is not precise enough to say so.
set -eu
usage() { sed -n '3,17p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2; }

[ $# -eq 2 ] || [ $# -eq 3 ] || usage
old=$1 new=$2 folder=${3:-output/ab-binaries}
trainmark=${TRAINMARK:-$new}
least=${LEAST:-1.5}
failed=0

arguments()
{
    case $1 in
    tiny-llama) echo "tiny-llama --training.local_batch_size 1" ;;
    gpt-small) echo "gpt-small --training.local_batch_size 1 --training.seq_len 128" ;;
    block-8B)
        echo "llama3.1_8B --model.n_layers 1 --model.vocab_size 1024 --training.local_batch_size 1 --training.seq_len 128" \
            "--training.dtype bfloat16 --training.regime pure --training.mock_data true"
        ;;
    *) echo "no workload '$1'; there are tiny-llama, gpt-small and block-8B" >&2; exit 2 ;;
    esac
}

# value FILE MEMBER [WITHIN]: a member of result.json, or of the object WITHIN.
value()
{
    awk -v name="\"$2\":" -v within="\"${3:-}\":" '
        $1 == within { inside = 1 }
        $1 == name && (within == "\"\":" || inside) {
            sub(/^[^:]*: "?/, "")
            sub(/"?,?$/, "")
            print
            exit
        }' "$1"
}

mkdir -p "$folder"
: >"$folder/table"
for workload in ${WORKLOADS:-tiny-llama gpt-small block-8B}; do
    words="$(arguments "$workload")${EXTRA:+ $EXTRA}"
    "$trainmark" ab --a "$words" --a-binary "$old" --b-binary "$new" --budget "${BUDGET:-900}" --target "${TARGET:-0.5}" \
        --turn "${TURN:-0.2}"         --out "$folder/$workload"
    echo
    result=$folder/$workload/result.json
    said=$(value "$result" verdict)
    note=$(awk -v said="$said" -v seen="$(value "$result" detectable)" -v least="$least" 'BEGIN {
        if (said == "slower") print "slower"
        else if (seen == "null" || seen == "" || 100 * seen > least) print "not precise enough: raise BUDGET"
        else print "kept" }')
    [ "$note" = kept ] || failed=5
    printf '%s\t' "$workload" "$(value "$result" step_seconds a)" "$(value "$result" step_seconds b)" \
        "$(value "$result" ratio b_over_a)" "$(value "$result" lo b_over_a)" "$(value "$result" hi b_over_a)" \
        "$(value "$result" detectable)" "$(value "$result" pairs)" "$said" >>"$folder/table"
    echo "$note" >>"$folder/table"
done

echo "old: $old: $(value "$result" build a)"
echo "new: $new: $(value "$result" build b)"
echo
echo "| workload | old, ms per step | new, ms per step | new / old | 95 % interval | least difference that would be seen | pairs | verdict | |"
echo "|---|---|---|---|---|---|---|---|---|"
awk -F'\t' '{
    precision = $5 == "null" ? "none | none" : sprintf("%.4f to %.4f | %.2f %%", $5, $6, 100 * $7)
    printf "| %s | %.4g | %.4g | %.4f | %s | %d | %s | %s |\n", $1, 1e3 * $2, 1e3 * $3, $4, precision, $8, $9, $10
}' "$folder/table"
exit $failed
