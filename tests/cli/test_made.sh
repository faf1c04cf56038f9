#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is said of results that were made up, word for word: listed, compared, judged, verified, reported. They are those of
# tests/support/told_runs.h with other figures.
# shellcheck disable=SC1091,SC2034,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

told=$(dirname "$(readlink -f "$TRAINMARK")")/tests/results/all
[ -x "$told" ] || told=$root/build/release/tests/results/all
for name in rich metrics; do "$told" told $name >told_$name; done

# made FOLDER FINISHED EXPRESSION...: a run; expressions of sed change it.
made()
{
    made_folder=$1 made_time=$2
    shift 2
    mkdir -p "$made_folder"
    sed -e "s/\"####################\"/\"$made_time\"/; s/\"################\"/\"0000000000000000\"/" \
        -e 's/"environment": null/"environment": {"os": {"host": "box"}, "cpu": {"model": "Example"}, "build": {"commit": "c0ffee"}}/' \
        -e 's/"configuration": null/"configuration": {"model.dim": 64, "optimizer.lr": 0.001, "training.local_batch_size": 2, "training.seq_len": 2048}/' \
        "$@" told_rich >"$made_folder/result.json"
    cp told_metrics "$made_folder/metrics.jsonl"
}

made a 2026-01-31T12:00:00Z
made b 2026-02-01T12:00:00Z -e 's/"median": 4096/"median": 3600/; s/"lo": 4000/"lo": 3500/; s/"hi": 4196/"hi": 3700/' \
    -e 's/"model.dim": 64/"model.dim": 96/; s/"seed": "18446744073709551614"/"seed": 3/; s/"verdict": "noisy"/"verdict": "valid"/' \
    -e 's/"commit": "c0ffee"/"commit": "0ff1ce"/; s/"optimizer.lr": 0.001/"optimizer.lr": 0.002/'
made c 2026-02-02T12:00:00Z -e 's/"verdict": "noisy"/"verdict": "invalid"/; s/"host": "box"/"host": "other"/'
made d 2026-02-03T12:00:00Z -e 's/"median": 4096/"median": 4300/; s/"lo": 4000/"lo": 4290/; s/"hi": 4196/"hi": 4310/'
printf '{"name": "gemm", "rows": [{"case": "4x4x4", "tflops": 2.5, "avg_time_ms": 4, "half_width_pct": 1}]}' >g.json
printf '{"name": "gemm", "rows": [{"case": "4x4x4", "tflops": 3, "avg_time_ms": 3, "half_width_pct": 1}, {"case": "x", "tflops": 1}]}' >h.json
echo 'model: {}' >a/config.yaml

# --- the store --------------------------------------------------------------------------------------------------------------

say results
say results import a b --label first
say results import c --json
say results import d g.json
say results import nowhere
say results --all
say results
say results --last 2
say results --last 0
say results --last 5
say results --kind bench
say results --json
say results --name 'LLAMA*' --verdict valid -o list.csv
say results -o list.doc
say results show last
say results show last --document metrics
say results show 1 --document configuration
say results show 4 --document configuration
say results show 4 --document metrics
say results show '#9'
say results show last~5
say results show last~x
say results export 1 --out exported
say results export 1 --out exported
say results export 2 --out other --json
say results delete 2 9
say results delete 2 3 --json
say results delete 4
TRAINMARK_STORE=none say results
TRAINMARK_STORE=none say results show 1
(
    unset HOME XDG_DATA_HOME TRAINMARK_STORE
    say results
)
say results --store none
as made_store.txt
cp list.csv "$out"
code=0
expected made_list.csv
for file in result.json metrics.jsonl config.yaml; do check "exported: $file" cmp -s a/$file exported/$file; done
for file in result.json metrics.jsonl; do check "exported: $file" cmp -s b/$file other/$file; done
check_not "what was not stored is not made" [ -e other/config.yaml ]
# More than fifty are cut to the newest fifty for people, not for programs.
for _ in 1 2 3 4 5 6 7 8 9 10; do trainmark results import a a a a a; done
trainmark results
check "fifty for people" has "$out" '^the newest 50; --last 0 lists all$'
check "no more" [ "$(grep -c '^| *[0-9]' "$out")" -eq 50 ]
trainmark results --json
check "all for programs" [ "$(grep -c '"id"' "$out")" -eq 52 ]
trainmark results -o all.csv
check "and in files" [ "$(wc -l <all.csv)" -eq 53 ]

# --- compared ---------------------------------------------------------------------------------------------------------------

rm "$TRAINMARK_STORE"
for name in a b c d; do trainmark results import $name; done
say compare a b
say compare b a --top 2
say compare a b --top 0 --json
say compare a a
say compare g.json h.json
say compare a g.json
say compare a
say compare a nowhere
say compare 2 1 --top 1
as made_compared.txt
say compare d --baseline # one start of each tells nothing
say compare a --baseline
say compare c --baseline
TRAINMARK_STORE=none say compare b --baseline
# series FOLDER HOUR MINUTE RATE...: starts of one side, two minutes apart; a rate that ends in "n" is that of a noisy run, in "i" of an invalid one.
series()
{
    series_folder=$1 series_hour=$2 series_minute=$3 series_k=0
    shift 3
    for rate; do
        case $rate in *n) verdict=noisy ;; *i) verdict=invalid ;; *) verdict=valid ;; esac
        rate=${rate%[ni]} series_k=$((series_k + 1))
        made "$series_folder/$series_k" "$(printf '2026-02-28T%02d:%02d:00Z' "$series_hour" "$series_minute")" \
            -e "s/\"median\": 4096/\"median\": $rate/; s/\"verdict\": \"noisy\"/\"verdict\": \"$verdict\"/"
        series_minute=$((series_minute + 2))
    done
}
series old 12 0 4000 4040 4020 3990 4010
series new 12 1 3800 3850 3830 3790 3810
series same 12 1 3990 4030 4010 4000 4020
series later 14 1 3800 3850 3830 3790 3810
series wild 12 1 3600 4400 4000 3700 4300
series mixed 12 1 3800 3850n 3830 3790i 3810 3820
say compare new --baseline old
say compare old --baseline new
say compare new --baseline old --max-slowdown 5
say compare same --baseline old --json
say compare later --baseline old
say compare same/1 same/2 same/3 same/4 same/5 --baseline old/1 old/2
say compare wild --baseline old
say compare mixed --baseline old
for i in 1 2 3 4 5; do trainmark results import old/$i; done
say compare later --baseline # of the store
say compare new/1 new/1 --baseline old
made other 2026-02-28T12:03:00Z -e 's/"batch_tokens": 4096/"batch_tokens": 64/'
say compare new other --baseline old
say compare g.json --baseline old
say compare new --baseline nowhere
say compare --baseline old
say compare new --baseline old --thresholds limits.json
say compare new old --write-thresholds limits.json
say compare a b c
as made_baseline.txt
say compare a --write-thresholds limits.json
cat limits.json >>said
say compare a --thresholds limits.json
say compare b --thresholds limits.json --json
say compare b --write-thresholds own.json --cell mine
cell=MBS=9,GBS=9,PRECISION=mine
say compare b --write-thresholds own.json --cell $cell
cat own.json >>said
say compare b --thresholds own.json
say compare b --thresholds own.json --cell mine
say compare a --thresholds own.json --cell $cell
say compare b --thresholds nowhere.json
say compare g.json --thresholds limits.json
as made_limits.txt
# Figures of a published table beside those of a run.
cat >published.csv <<'END'
workload,row,device,devices,scope,dtype,batch,seq,column,value,unit,convention,source,date,note
run,llama-small,Example,1,device,float32,2,2048,tokens_per_second,2048,tokens/s,,a report,2026,
gemm,4x4x4,Example,1,device,float32,,,tflops,5,TFLOP/s,2 M N K per product,a report,2026,
END
say compare a published.csv
say compare a published.csv --json
say compare g.json published.csv
say compare h.json published.csv
say compare a reference
as made_published.txt

# --- verified and reported --------------------------------------------------------------------------------------------------

say verify a
say verify a --all
say verify 2 --json
say verify a b
say verify g.json
as made_verified.txt
say report a -o report.pdf
say report a --plot x.jpg
say report a --plot .png
say report a --plot a.svg --chart pie
say report a --plot a.svg --fleet
say report a --chart loss
say report a --tolerance 3
say report a --cell x
say report g.json
say report nowhere
say report a -o page.html
say report a b -o both.csv
cat both.csv >>said
say report a --json -o page.md
say report a --plot loss.svg --json
say report a b c d --fleet
say report a b c d --fleet --tolerance 20 --json
say report a b c d --fleet -o fleet.csv
cat fleet.csv >>said
say report a b d --fleet --thresholds limits.json --cell mine
say report a b d --fleet --thresholds own.json --cell $cell
as made_reports.txt
trainmark report a
cp "$out" page
trainmark report a -o same.md
check "the same in a file" cmp -s page same.md
check "and beside JSON" cmp -s page page.md
trainmark report a b c d --fleet -o fleet.html
check "a page of all" [ "$(grep -c '^<tr>' fleet.html)" -gt 16 ]
check "is as it was" [ "$(head -n 1 loss.svg | cut -c 1-4)" = '<svg' ]

finish
