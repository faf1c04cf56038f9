#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page of one or several runs: its figures are those of result.json, it loads nothing, and nothing in it is obeyed.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

trainmark run $tiny --training.steps 60 --out a
trainmark run $tiny --training.steps 60 --training.local_batch_size 4 --out b
trainmark report a b -o page.html
check "a page of two runs" [ "$code" -eq 0 ]
check "five charts" [ "$(grep -c '<svg class="chart"' page.html)" -eq 5 ]
# figure PATH: the cells of a row of the page, digit for digit: of a rounded one its title.
figure() {
    sed -n "s|^<tr data-path=\"$1\"><th>[^<]*</th>||p" page.html |
        sed 's|<td class="number" title="\([^"]*\)">[^<]*</td>|\1 |g; s|<td class="number">\([^<]*\)</td>|\1 |g; s|</tr>||; s| $||'
}
# member FILE NAME: the first `"NAME": value`.
member() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" | head -n 1; }
for path in verdict weights_hash steps/done tokens_per_second_per_device/median memory/planned_bytes first_step_seconds; do
    name=${path##*/}
    check "the page has $path of result.json" [ "$(figure $path)" = "$(member a/result.json $name) $(member b/result.json $name)" ]
done
check_not "nothing is loaded from elsewhere" sh -c "sed 's|http://www.w3.org/2000/svg||g' page.html | grep -qE '(src|href|url|import)[=(]|https?://'"
check "nor may it be" grep -q "Content-Security-Policy\" content=\"default-src 'none'" page.html
check "the script is ours, and short" [ "$(sed -n '/<script>/,/<\/script>/p' page.html | wc -l)" -lt 60 ]
check_not "no raw figure" sh -c "sed 's|title=\"[^\"]*\"||g; s|data-[xy]=\"[^\"]*\"||g' page.html | grep -q '[1-9]\.[0-9]\{6,\}'"
check "light and dark" grep -q 'prefers-color-scheme:dark' page.html
trainmark report a b -o table.csv
check "as CSV: a row for each run" [ "$(wc -l <table.csv)" -eq 3 ]
check "with all digits" grep -q "$(member a/result.json median)" table.csv
trainmark report a b -o table.json
check "as JSON: the digits of result.json" grep -qF "\"tokens_per_second_per_device/median\": $(member a/result.json median)" table.json
trainmark report a b --json
check "or on standard output" cmp -s "$out" table.json
trainmark report a b -o page2.html --json
check "beside a page, too" cmp -s "$out" table.json
check "which is the same" cmp -s page.html page2.html
trainmark report a
check_not "markdown has no entities" has "$out" "&[#a-z0-9]+;"
check_not "and no raw figure" has "$out" "[1-9]\.[0-9]{6,}"
check "as markdown" has "$out" "^\| weights \| $(member a/result.json weights_hash) \|$"
for chart in loss speed ledger memory roofline; do
    trainmark report a --plot $chart.svg --chart $chart
    check "the chart $chart as SVG" [ "$(head -c 18 $chart.svg)$(tail -c 7 $chart.svg)" = '<svg class="chart"</svg>' ]
done
trainmark report a -o page.pdf
failed_with 2 "an unknown form" "wanted .html, .md, .csv or .json"
trainmark report nothing
failed_with 4 "no such run" "there is no file or directory 'nothing'"

# --- strings from outside ---

mkdir evil
sed 's|"model": "[^"]*"|"model": "<script>alert(1)</script>\\u001b]8;;http://x\\u0007"|' a/result.json >evil/result.json
cp a/metrics.jsonl evil
trainmark report evil -o evil.html
check "a name that is a script is text" [ "$(grep -ci '<script' evil.html)" -eq 1 ]
check_not "and no escape reaches the file" grep -q "$(printf '\033')" evil.html
trainmark report evil
check_not "nor the terminal" grep -q "$(printf '\033')" "$out"

# --- roofs that were measured ---

trainmark report a -o page1.html
check "without a benchmark the page says how to get one" grep -q 'trainmark bench stream --output-file machine.json' page1.html
trainmark bench stream --elements 65536 --rep-ms 1 --repetitions 3 --output-file machine.json
trainmark report a machine.json -o page3.html
check "with one the roofs are the machine's" [ "$code" -eq 0 ]
check "by the host that it names" grep -q 'Roofs: measured by trainmark bench on host' page3.html
trainmark report machine.json
failed_with 4 "a benchmark alone" "'machine.json' is a benchmark; a report takes runs"

# --- 10,000 steps ---

mkdir long
awk 'BEGIN { for (i = 1; i <= 10000; i++) printf "{\"step\": %d, \"loss\": %.15f, \"grad_norm\": 1, \"learning_rate\": 0.001, \"tokens\": 64, \"seconds\": %.9f, \"phases\": {}, \"used_bytes\": 1, \"resident_bytes\": 1}\n", i, 2 + 3 / i + (i % 7) / 100, 0.01 + (i % 13) / 1e4 }' >long/metrics.jsonl
awk '/^ *"step_seconds": \[/ { printf "  \"step_seconds\": ["; for (i = 1; i <= 10000; i++) printf "%s%.9f", (i > 1 ? ", " : ""), 0.01 + (i % 13) / 1e4; print "],"; next } { print }' a/result.json >long/result.json
trainmark report long -o long.html
check "the page of 10,000 steps" [ "$code" -eq 0 ]
check "is below 2 MB, and below 300 kB in fact" [ "$(wc -c <long.html)" -lt 300000 ]

# --- many hosts ---

for host in one two three slow; do
    mkdir -p fleet/$host
    sed "s/\"host\": \"[^\"]*\"/\"host\": \"$host\"/; s/\"verdict\": \"[a-z-]*\"/\"verdict\": \"valid\"/" a/result.json >fleet/$host/result.json
    cp a/metrics.jsonl fleet/$host
    echo "all is well" >fleet/$host/run.log
done
speed=$(member a/result.json median)
trainmark report fleet/one fleet/two fleet/three --fleet
check "a fleet that passes" [ "$code" -eq 0 ]
check "says so" has "$out" "^3 of 3 runs pass$"
awk -v s="$speed" '/"tokens_per_second_per_device": \{/ { inside = 1 } inside && /"median":/ { printf "    \"median\": %.6f,\n", s * 0.8; inside = 0; next } { print }' \
    fleet/slow/result.json >t && mv t fleet/slow/result.json
trainmark report fleet/one fleet/two fleet/three fleet/slow --fleet -o fleet.html --json
failed_with 5 "a host that is too slow fails" "1 of 4 runs do not pass"
check "the gate and the host are named" sh -c "grep -A5 '\"host\": \"slow\"' '$out' | grep -A4 '\"gate\": \"speed\"' | grep -q FAIL"
check "on the page" [ "$(grep -c '<td class="invalid">FAIL</td>' fleet.html)" -eq 1 ]
check "with two charts" [ "$(grep -c '<svg class="chart"' fleet.html)" -eq 2 ]
trainmark report fleet/one fleet/two fleet/three fleet/slow --fleet --tolerance 30
check "unless so much is allowed" [ "$code" -eq 0 ]
echo "kernel: amdgpu: GPU Hang" >>fleet/two/run.log
trainmark report fleet/one fleet/two fleet/three --fleet -o fleet.csv
failed_with 5 "a log with a failure" "1 of 3 runs do not pass"
check "its line is named" grep -q 'two,log,0,1,logs with a failure,FAIL,run.log:2: the device hung' fleet.csv
awk '/^\{"step"/ { n++; sub(/"loss": [0-9.e+-]*/, "\"loss\": " (2 + n / 100)) } { print }' a/metrics.jsonl >fleet/three/metrics.jsonl
sed 's/"loss": [0-9.e+-]*/"loss": null/' a/metrics.jsonl >fleet/one/metrics.jsonl
trainmark report fleet/one fleet/three --fleet -o fleet.csv
failed_with 5 "a loss that rises, a loss that is none" "2 of 2 runs do not pass"
check "rises" grep -q '^three,loss trend,<= 0,.*FAIL' fleet.csv
check "is none" grep -q '^one,numbers,0,60,.*FAIL' fleet.csv
check "two runs have no median" grep -q '^three,speed,.*RECORD' fleet.csv
trainmark compare a --write-thresholds limits.json
trainmark report a --fleet --thresholds limits.json -o fleet.csv
check "limits of a file are gates" grep -q 'training.tokens_per_sec_per_gpu,>= .*PASS' fleet.csv
trainmark report a --thresholds limits.json
failed_with 2 "limits are of --fleet" "are of --fleet"
trainmark report a --plot loss.jpg
failed_with 2 "a chart is SVG or PNG" "a chart is SVG or PNG; give a name that ends in .svg or .png"
trainmark report a --plot loss.png
if [ "$code" -eq 4 ]; then
    failed_with 4 "a PNG needs librsvg" "librsvg 2.46 or newer, which is not here; install librsvg2-2"
    skip "a chart as PNG" "librsvg2-2 is not installed"
else
    trainmark report a --plot loss.svg
    box=$(sed -n 's/.*viewBox="0 0 \([0-9]* [0-9]*\)".*/\1/p' loss.svg | head -n 1)
    header=$(od -An -tx1 -N 24 loss.png | tr -d ' \n')
    check "a chart as PNG, two pixels to a unit" [ "$header" = \
        "89504e470d0a1a0a0000000d49484452$(printf '%08x%08x' $((2 * ${box% *})) $((2 * ${box#* })))" ]
    check "with something on it" [ "$(wc -c <loss.png)" -gt 5000 ]
fi

# --- watch ---

trainmark watch a --once
# Of the last step alone, as its record has them.
rate=$(grep '^{"step": *60,' a/metrics.jsonl | sed 's/.*"tokens": *\([0-9]*\).*"seconds": *\([0-9.e+-]*\).*/\1 \2/' |
    awk '{ printf "%d", $1 / $2 }')
grep '^step 60 ' "$out" | tr -d , >stripped
check "watch: the last step" has stripped "^step 60  loss [0-9.]+  validation [0-9.]+  ${rate:-none} tokens/s \(last step\)$"
verdict=$(sed -n 's/^  "verdict": "\(.*\)",$/\1/p' a/result.json)
check "watch: it has ended, with the verdict of the result" has "$out" "^ended: ${verdict:-none}: "
mkdir going
head -n 5 a/metrics.jsonl >going/metrics.jsonl
printf '{"step": 6, "lo' >>going/metrics.jsonl
trainmark watch going --once
check "watch: a torn line waits for its end" has "$out" "^step 5 "
check_not "watch: it has not ended" has "$out" "ended"
(sleep 0.3; tail -n +6 a/metrics.jsonl >rest; head -n 5 a/metrics.jsonl >going/metrics.jsonl; cat rest >>going/metrics.jsonl
 sleep 0.3; cp a/result.json going/result.json) &
trainmark watch going --interval 0.05
wait
check "watch: follows until the run has ended" has "$out" "^step 60 "
check "watch: and then ends" has "$out" "^ended: "
mkdir slow
head -n 5 a/metrics.jsonl >slow/metrics.jsonl
: >"$out" # what stood there is not its output
"$TRAINMARK" watch slow --interval 100 >"$out" 2>"$err" </dev/null &
watcher=$!
until has "$out" "^step 5 "; do kill -0 $watcher || break; sleep 0.02; done
kill -TERM $watcher
wait $watcher
code=$?
check "watch: a signal ends it" [ "$code" -eq 0 ]

mkdir empty
trainmark watch empty --once --json
check "watch: no step yet" has "$out" "^{}$"
trainmark watch nothing
failed_with 4 "watch: no such folder" "there is no directory 'nothing'"

# --- in a browser ---

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -n "$browser" ]; then
    HOME=$work timeout 60 nice "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr --v=0 --dump-dom \
        "file://$work/page.html" >dom.html 2>browser.log
    check "headless Chromium shows the page" grep -q 'id="figures"' dom.html
    check "five charts are in it" [ "$(grep -o '<svg class="chart"' dom.html | wc -l)" -eq 5 ]
    check_not "no console error" grep -q 'CONSOLE' browser.log
else
    skip "in headless Chromium" "chromium is not installed"
fi

finish
