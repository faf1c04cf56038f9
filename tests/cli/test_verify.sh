#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark verify` believes nothing that it can work out: results edited by whoever makes new digests for them, too. Runs of
# many kinds are what they say. Signatures.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

export TRAINMARK_STORE=none
plain="--training.steps 60 --validation.freq 20"

# --- forgeries ---

trainmark run $tiny $plain --out honest
check "a run to forge" [ -f honest/result.json ]
# recomputed FIGURE: what verify says of it in forged.
recomputed()
{
    timeout "$seconds" "$TRAINMARK" verify forged --json 2>/dev/null |
        awk -v figure="\"$1\"," '$1 == "\"figure\":" { here = $2 == figure }
            here && $1 == "\"recomputed\":" { gsub(/[",]/, "", $2); print $2; exit }'
}
# A digest is no secret: whoever edits a file makes new ones. The one of steps is another one where they are.
seal()
{
    digests="metrics_digest digest"
    ! cmp -s forged/metrics.jsonl "${from:-honest}/metrics.jsonl" || digests=digest
    for digest in $digests; do
        new=$(recomputed $digest)
        [ -z "$new" ] || sed -i "s/^\\( *\"$digest\": \"\\)[0-9a-f]*/\\1$new/" forged/result.json
    done
}
# said_of FIGURE VERDICT: in the JSON that was printed.
said_of()
{
    awk -v figure="\"figure\": \"$1\"," -v verdict="\"verdict\": \"$2\"" 'index($0, "\"figure\": ") { here = index($0, figure) }
        here && index($0, verdict) { found = 1 } END { exit !found }' "$out"
}
# forge NAME FIGURE FILE SED: the edit, sealed, is found, and FIGURE is named with both values; FIGURE `left WORD`: it is
# said that WORD is not verified.
forge()
{
    rm -rf forged && cp -r "${from:-honest}" forged
    sed -i "$4" "forged/$3"
    if cmp -s "forged/$3" "${from:-honest}/$3"; then
        fail "$1" "the edit changes nothing: $4"
        return
    fi
    seal
    trainmark verify forged --json
    case $2 in
    left*)
        if [ "$code" -eq 0 ] && said_of "${2#left }" "not verified"; then pass "$1"; else
            fail "$1" "exit code $code, wanted 0 and '${2#left }' as not verified"
        fi
        ;;
    *)
        if [ "$code" -eq 5 ] && said_of "$2" differs; then pass "$1"; else
            fail "$1" "exit code $code, wanted 5 and '$2' as different"
        fi
        ;;
    esac
}

cp -r honest forged
seal
says 0 '' verify forged
verdict=$(sed -n 's/^ *"verdict": "\([a-z-]*\)",/\1/p' honest/result.json | head -n 1)
other=invalid
[ "$verdict" != invalid ] || other=valid
forge "another verdict" verdict result.json "0,/\"verdict\": \"/s/\"verdict\": \"[a-z-]*/\"verdict\": \"$other/"
forge "the loss of a step in the middle" "left loss (metrics.jsonl)" metrics.jsonl '30s/"loss": [0-9]*\.[0-9]/&1/'
forge "a step that is missing" "metrics.jsonl" metrics.jsonl '7d'
for fact in floor validation_floor unigram_entropy; do
    forge "what is known of the data: $fact" judged/$fact result.json '/"judged": {/,/}/s/"'$fact'": /&1/'
done
forge "the hash of the weights" "left weights_hash" result.json 's/"weights_hash": "..../"weights_hash": "0000/'
from=

# --- honest runs ---

# honest NAME WORD...: whatever the verdict of this run, verify agrees.
honest()
{
    honest_name=$1
    shift
    rm -rf run
    trainmark run "$@" --out run
    if [ "$code" -ne 0 ] && [ "$code" -ne 3 ]; then
        fail "$honest_name" "exit code $code of the run"
        return
    fi
    trainmark verify run
    check "$honest_name" [ "$code$(grep -c 'not followed' "$out")" = 00 ]
}

honest "bfloat16" $tiny --training.steps 55 --training.dtype bfloat16
honest "a learning rate at which numbers overflow" $tiny --training.steps 20 --optimizer.lr 100 --optimizer.weight_decay 1 --training.max_norm 0
honest "adapters" $tiny --training.steps 20 --lora.rank 2
printf '{"prompt": "a b", "chosen": "c", "rejected": "d"}\n%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 >pairs.jsonl
honest "pairs" $tiny --training.steps 55 --data.source preference --data.path pairs.jsonl --data.validation_fraction 0.3 \
    --model.vocab_size 320
cp -r run preferred
from=preferred
forge "what is told of pairs" preference/rewards/accuracies result.json '/"preference": {/,/}/s/"rewards\/accuracies": [^,]*/"rewards\/accuracies": 0.875/'
from=
honest "images" tiny-flux --training.steps 2 --training.local_batch_size 1
honest "a benchmark of MLPerf" tiny-llama --mlperf.enable true --mlperf.benchmark trainmark_tiny --mlperf.clear_caches false \
    --mlperf.submission_org us --mlperf.submission_platform here --training.steps 2 --training.local_batch_size 1 --validation.steps 1
trainmark run $tiny --training.steps 40 --checkpoint.enable true --checkpoint.interval 10 --validation.freq 15 --out parts
trainmark run $tiny --training.steps 90 --checkpoint.enable true --checkpoint.interval 10 --validation.freq 15 --out parts
trainmark verify parts
check "a run that went on" [ "$code$(grep -c '"first": 41' parts/result.json)" = 01 ]
from=parts
forge "the losses before it" judged/before/mean metrics.jsonl '2s/"loss": [0-9.]*/"loss": 99/'
from=
trainmark run $tiny --training.steps 100000 --timeout 1 --out stopped
says 0 '' verify stopped
trainmark run $tiny --training.steps 8 --ranks 2 --parallelism.data_parallel_shard_degree 2 --out ranks
if [ "$code" -eq 0 ]; then
    trainmark verify ranks
    check "two ranks" [ "$code$(grep -c 'not followed' "$out")" = 00 ]
elif has "$err" 'needs an MPI'; then
    skip "two ranks" "no MPI is here"
else
    fail "two ranks" "exit code $code of the run"
fi

# --- signatures ---

if command -v ssh-keygen >/dev/null && ssh-keygen -q -t ed25519 -N '' -f key -C '' </dev/null &&
    ssh-keygen -q -t ed25519 -N '' -f another -C '' </dev/null && ssh-keygen -Y sign -n test -f key key.pub 2>/dev/null; then
    echo "me $(cat key.pub)" >allowed
    echo "you $(cat another.pub)" >others
    says 5 "'honest/result.json' is not signed: there is no 'honest/result.json.sig'$" verify honest --signers allowed
    trainmark verify honest --sign key
    check "signed" [ "$code$(grep -c '^signed: honest/result.json.sig$' "$out")" = 01 ]
    trainmark verify honest --signers allowed
    check "by whom" [ "$code$(grep -c '^signed by me$' "$out")" = 01 ]
    says 5 "'honest/result.json.sig' was made by me, not by you$" verify honest --signers allowed --identity you
    forge "a signed result, edited: the digest holds" "left weights_hash" result.json 's/"weights_hash": "..../"weights_hash": "0000/'
    says 5 "'forged/result.json' is not what me signed: " verify forged --signers allowed
    trainmark run $tiny --training.steps 3 --out honest
    check_not "a new run removes the signature of the old result" [ -e honest/result.json.sig ]
else
    skip "signatures" "ssh-keygen that signs is not here"
fi
mkdir empty
echo k >some.key
PATH="$work/empty" /bin/sh -c 'timeout=; exec "$0" verify stopped --sign some.key' "$TRAINMARK" >"$out" 2>"$err" </dev/null
code=$?
failed_with 4 "no ssh-keygen" "signatures need ssh-keygen .OpenSSH., which cannot be run: "
finish
