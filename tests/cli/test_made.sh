#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is said of results that were made up: listed, compared, judged, verified, reported. They are those of
# tests/support/told_runs.h with other figures.
# shellcheck disable=SC1091,SC2086,SC2154
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

# listed IDS WORD...: `results WORD...` has rows with these ids, in this order, as a table and as JSON.
listed()
{
    listed_ids=$1
    shift
    trainmark results "$@"
    check "results $*: $listed_ids" [ "$(sed -n 's/^| *\([0-9][0-9]*\) |.*/\1/p' "$out" | tr '\n' ' ')" = "$listed_ids " ]
    trainmark results "$@" --json
    check "results $*: the same as JSON" [ "$(members id)" = "$listed_ids" ]
}

table <<'END'
0 | results | no result; a run or a benchmark adds one
0 | results import a b --label first | 1 a | 2 b
0 | results import c --json | {"imported": 3, "path": "c"}
0 | results import d g.json | 4 d | 5 g.json
0 | results --all | 6 columns left out: loss, steps, host, seconds, configuration_hash, build; -v or --json has them
4 | results show last --document metrics | result 5 was stored without metrics.jsonl
4 | results show 4 --document configuration | result 4 was stored without config.yaml
4 | results show last~5 | there is no result 'last~5' in | .results.db'; `trainmark results` lists them
4 | results show last~x | 'last~x' is not a stored result: give its number, last, or last~N
END
listed "5 4 3 2 1"
listed "2 1" --label first
trainmark results --json
trainmark results show last
check "shown: the document that was stored" cmp -s "$out" g.json
trainmark results show 4 --document metrics
check "shown: its records" cmp -s "$out" d/metrics.jsonl
prints "model: {}" results show 1 --document configuration
prints "" results export 1 --out exported
table <<'END'
4 | results export 1 --out exported | 'exported/result.json' already exists; name another directory
0 | results export 2 --out other --json | {"exported": 2, "path": "other"}
4 | results delete 2 9 | there is no result '9' in
0 | results delete 2 3 --json | {"deleted": 2} | {"deleted": 3}
0 | results delete 4
4 | results --store none | the store is switched off (none); name a file with --store or TRAINMARK_STORE
4 | results show 1 --store none | the store is switched off (none)
END
listed "5 1"
# More than fifty are cut to the newest fifty for people, not for programs.
for _ in 1 2 3 4 5 6 7 8 9 10; do trainmark results import a a a a a; done
says 0 '^the newest 50; --last 0 lists all$' results
check "no more" [ "$(grep -c '^| *[0-9]' "$out")" -eq 50 ]
trainmark results --json
check "all for programs" [ "$(grep -c '"id"' "$out")" -eq 52 ]

# --- compared ---------------------------------------------------------------------------------------------------------------

# The figures themselves: tests/results/test_compare.c, test_baseline.c, tests/stats/test_starts.c.
rm "$TRAINMARK_STORE"
for name in a b c d; do trainmark results import $name; done
table <<'END'
0 | compare a b | tokens_per_second_per_device | tokens/s | 4096 | 3600 | -12.11 | -15.27 | -8.827 | a: a, b: b; intervals are of these starts, not of what another start would show
0 | compare a b | 1 | configuration/model.dim | 64 | 96 | 4 | seed | 18446744073709551614 | 3
0 | compare b a --top 2 | 13.78 | 9.682 | 18.03 | a: b, b: a; | 2 more; --top 0 lists all
0 | compare a a | nothing else differs that was recorded
0 | compare 2 1 --top 1 | a: 2, b: 1; | 3 more; --top 0 lists all
4 | compare a g.json | 'a' and 'g.json' have no figure in common: a run and a benchmark, or other cases
2 | compare a | compare 'a' with what? A second result, reference, --baseline or --thresholds
# One start of each tells nothing.
3 | compare d --baseline | a: 2, b: d; | 1 noisy | no verdict: 0 starts of A and 1 of the baseline count; 5 of each side are needed, in turns
4 | compare a --baseline | the store has no earlier result of this configuration (00ff00ff00ff00ff) on this host (box)
4 | compare c --baseline | on this host (other)
END
# series FOLDER HOUR MINUTE RATE...: starts of one side, two minutes apart; with these rates.
series()
{
    series_folder=$1 series_hour=$2 series_minute=$3 series_k=0
    shift 3
    for rate; do
        series_k=$((series_k + 1))
        made "$series_folder/$series_k" "$(printf '2026-02-28T%02d:%02d:00Z' "$series_hour" "$series_minute")" \
            -e "s/\"median\": 4096/\"median\": $rate/; s/\"verdict\": \"noisy\"/\"verdict\": \"valid\"/"
        series_minute=$((series_minute + 2))
    done
}
series old 12 0 4000 4040 4020 3990 4010
series new 12 1 3800 3850 3830 3790 3810
series later 14 1 3800 3850 3830 3790 3810
table <<'END'
5 | compare new --baseline old | slower | 4.84 % slower than the baseline (3.60 to 6.07); at most 2.5 % are allowed | A | 5 | 3815.94 | 4011.96
0 | compare old --baseline new | not slower | -5.09 | true
3 | compare later --baseline old | no verdict: not in turns | the starts of the two sides did not take turns | or use `trainmark ab` | false
4 | compare g.json --baseline old | 'g.json' is a benchmark; --baseline judges runs
END

# --- limits -----------------------------------------------------------------------------------------------------------------

# Metrics of runs: tests/results/test_causes.c. A limit is 10 % beside what was measured: below what shall be high, above what
# shall be low.
prints "" compare a --write-thresholds limits.json
check "limits are a tenth beside the figures" [ "$(tr -d ' \n' <limits.json | grep -o '"training.tokens_per_sec_per_gpu":{"kind":"min","value":3686.4' | wc -l)" -eq 1 ]
table <<'END'
0 | compare a --thresholds limits.json | cell MBS=2,GBS=6,PRECISION=fp32: 13 of 13 pass | PASS | RECORD
5 | compare b --thresholds limits.json | cell MBS=2,GBS=6,PRECISION=fp32: 10 of 13 pass | 3 of 13 limits are exceeded
END
# Figures of a published table beside those of a run.
cat >published.csv <<'END'
workload,row,device,devices,scope,dtype,batch,seq,column,value,unit,convention,source,date,note
run,llama-small,Example,1,device,float32,2,2048,tokens_per_second,2048,tokens/s,,a report,2026,
gemm,4x4x4,Example,1,device,float32,,,tflops,5,TFLOP/s,2 M N K per product,a report,2026,
END
table <<'END'
0 | compare a published.csv | llama-small | tokens_per_second | 4096 | 2048 | 2 | Same column, same convention. | `trainmark reference --verbose` has sources and notes.
END

# --- verified and reported --------------------------------------------------------------------------------------------------

# Which figure is what: tests/results/test_figures.c.
trainmark verify a --all --json
check "every verdict has its number" [ "$(members verdict | tr ' ' '\n' | sort | uniq -c | tr -s ' \n' ' ')" = ' 38 "differs" 69 "not 15 "ok" 69 verified" ' ]
trainmark verify a --all
check "and printed" [ "$(grep -c '| \(ok\|differs\|not verified\) *|$' "$out")" -eq 122 ]
table <<'END'
5 | verify a --all | a: 15 of 53 figures agree with the raw samples | not verified: 69 values that cannot be recomputed | its configuration is not followed: 3 problems | 38 figures are not what the raw samples say
5 | verify a b | a: 15 of 53 figures | b: 15 of 53 figures | 76 figures are not what the raw samples say
4 | verify g.json | 'g.json' is a table of a benchmark, which keeps no raw samples; verify takes runs
2 | report a -o report.pdf | 'report.pdf': the extension decides the format of the report; wanted .html, .md, .csv or .json
2 | report a --plot a.svg --fleet | --plot draws one chart, --fleet a page; leave one out
0 | report a -o page.html
0 | report a --plot loss.svg --json | "run": "a" | "tokens_per_second_per_device/median": 4096
5 | report a b c d --fleet | 4 of 4 runs do not pass | 0 of 4 runs pass | -12.1 % of the median of all | >= 3891.2
END
# Gates themselves: tests/results/test_fleets.c; all of a report: test_report.c.
trainmark report a b c d --fleet --tolerance 20 --json
check "a fleet: five gates a run" [ "$(grep -c '"gate"' "$out")" -eq 20 ]
check "a tolerance of 20 percent of the median" [ "$(members expected | grep -o '>= 3276.8' | wc -l)" -eq 4 ]
trainmark report a
cp "$out" page
trainmark report a -o same.md
check "the same in a file" cmp -s page same.md

trainmark report a --plot loss.png
if [ "$code" -eq 4 ]; then
    skip "a chart as PNG" "librsvg2-2 is not installed"
else
    size=$(sed -n 's/.*viewBox="0 0 \([0-9]*\) \([0-9]*\)".*/\1 \2/p' loss.svg | head -n 1)
    check "a chart as PNG, two pixels to a unit" [ "$(od -An -tx1 -N 24 loss.png | tr -d ' \n')" = \
        "89504e470d0a1a0a0000000d49484452$(printf '%08x%08x' $((2 * ${size% *})) $((2 * ${size#* })))" ]
    check "with something on it" [ "$(wc -c <loss.png)" -gt 5000 ]
fi

finish
