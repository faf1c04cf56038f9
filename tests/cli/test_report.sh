#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page of one or several runs: its figures are those of result.json, it loads nothing, and nothing in it is obeyed.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

trainmark run $tiny --training.steps 60 --out a
trainmark run $tiny --training.steps 60 --training.local_batch_size 4 --out b
says 0 '' report a b -o page.html
check "five charts" [ "$(grep -c '<svg class="chart"' page.html)" -eq 5 ]
# figure PATH: the cells of a row of the page, digit for digit: of a rounded one its title.
figure() {
    sed -n "s|^<tr data-path=\"$1\"><th>[^<]*</th>||p" page.html |
        sed 's|<td class="number" title="\([^"]*\)">[^<]*</td>|\1 |g; s|<td class="number">\([^<]*\)</td>|\1 |g; s|</tr>||; s| $||'
}
for path in verdict weights_hash steps/done tokens_per_second_per_device/median memory/planned_bytes first_step_seconds; do
    name=${path##*/}
    check "the page has $path of result.json" [ "$(figure $path)" = "$(value a/result.json $name) $(value b/result.json $name)" ]
done
check_not "nothing is loaded from elsewhere" sh -c "sed 's|http://www.w3.org/2000/svg||g' page.html | grep -qE '(src|href|url|import)[=(]|https?://'"
check "nor may it be" grep -q "Content-Security-Policy\" content=\"default-src 'none'" page.html

# --- strings from outside ---

mkdir evil
sed 's|"model": "[^"]*"|"model": "<script>alert(1)</script>\\u001b]8;;http://x\\u0007"|' a/result.json >evil/result.json
cp a/metrics.jsonl evil
trainmark report evil -o evil.html
check "a name that is a script is text" [ "$(grep -ci '<script' evil.html)" -eq 1 ]
check_not "and no escape reaches the file" grep -q "$(printf '\033')" evil.html
trainmark report evil
check_not "nor the terminal" grep -q "$(printf '\033')" "$out"

trainmark report a --plot loss.png
if [ "$code" -eq 4 ]; then
    skip "a chart as PNG" "librsvg2-2 is not installed"
else
    trainmark report a --plot loss.svg
    box=$(sed -n 's/.*viewBox="0 0 \([0-9]* [0-9]*\)".*/\1/p' loss.svg | head -n 1)
    header=$(od -An -tx1 -N 24 loss.png | tr -d ' \n')
    check "a chart as PNG, two pixels to a unit" [ "$header" = \
        "89504e470d0a1a0a0000000d49484452$(printf '%08x%08x' $((2 * ${box% *})) $((2 * ${box#* })))" ]
    check "with something on it" [ "$(wc -c <loss.png)" -gt 5000 ]
fi

finish
