#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/screenshots.sh - the pictures of docs/report.md: trains on docs/ for a minute, measures the machine, and takes
# pictures of the page, 1280 and 400 pixels wide. They lie in images/, because runs train on docs/, which holds text alone.
# By hand, on a calm machine; needs chromium and python3.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
program=${TRAINMARK:-$root/build/release/trainmark}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export TRAINMARK_STORE=none HOME="$work"
cd "$work"
"$program" run tiny-llama --data.path "$root/docs" --training.steps "${STEPS:-120}" --out run
"$program" bench stream --output-file machine.json
"$program" report run machine.json -o page.html

# picture WIDTH HEIGHT
picture() {
    "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars "--window-size=$1,$2" \
        "--screenshot=$work/$1.png" "file://$work/page.html" 2>"$work/browser.log"
    python3 "$root/tools/small_png.py" "$work/$1.png" "$root/images/report-$1.png"
}
mkdir -p "$root/images"
picture 1280 1720
picture 400 1900
ls -l "$root"/images/report-*.png
