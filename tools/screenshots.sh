#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/screenshots.sh - the pictures of docs/report.md and docs/tutorial.md. Trains on docs/ for a minute in a terminal
# of 108 columns, takes the panel halfway and a plan, measures the machine, and takes the report page 1280 and 400 pixels
# wide. They are in images/, because runs train on docs/, which holds text alone.
# By hand, on a calm machine; needs tmux, chromium and python3.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
program=${TRAINMARK:-$root/build/release/trainmark}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
work=$(mktemp -d)
trap '[ -z "$socket" ] || tmux -S "$socket" kill-server 2>/dev/null; rm -rf "$work"' EXIT
socket=

export TRAINMARK_STORE=none HOME="$work" LC_ALL=C.UTF-8
cd "$work"
mkdir -p "$root/images" bin
ln -s "$program" bin/trainmark
ln -s "$root/docs" docs

# terminal ROWS COMMAND: runs the command in a terminal of its own.
terminal()
{
    socket=$work/tmux-$1
    tmux -S "$socket" new-session -d -x 108 -y "$1" "PATH=$work/bin:\$PATH; $2; touch '$work/done'; sleep 600"
}

# capture FILE TITLE: the terminal's text, as a picture.
capture()
{
    tmux -S "$socket" capture-pane -e -p | python3 "$root/tools/terminal_svg.py" "$2" >"$root/images/$1"
}

# Waits until the terminal's command has ended.
ended()
{
    while [ ! -e "$work/done" ]; do sleep 0.2; done
    rm "$work/done"
}

terminal 26 "trainmark run --data.path docs --training.steps ${STEPS:-150} --training.local_batch_size 4 --out run"
until [ -e run/metrics.jsonl ] && [ "$(wc -l <run/metrics.jsonl)" -ge "$((${STEPS:-150} * 2 / 3))" ]; do sleep 0.2; done
capture panel.svg "The panel of a training"
ended
tmux -S "$socket" kill-server

terminal 24 "clear; trainmark run llama3.1_70B --platform 8xMI300X --dry-run --training.dtype bfloat16 \
--training.seq_len 8192 --training.local_batch_size auto --activation_checkpoint.mode full"
ended
capture plan.svg "The plan of Llama 3.1 70B on eight MI300X"

"$program" bench stream --output-file machine.json
"$program" report run machine.json -o page.html

# picture WIDTH HEIGHT
picture()
{
    "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars "--window-size=$1,$2" \
        "--screenshot=$work/$1.png" "file://$work/page.html" 2>"$work/browser.log"
    python3 "$root/tools/small_png.py" "$work/$1.png" "$root/images/report-$1.png"
}
picture 1280 1720
picture 400 1900
ls -l "$root"/images
