#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Our matrix product beside PyTorch's (torch.utils.benchmark), the same shapes, threads and rotation of operands, process
# by process in turn. Prints a markdown table: medians over the rounds, and the median of the rounds' ratios.
#
#   SHAPES="2048x2048x2048:nn,..."   ROUNDS=5   SECONDS_EACH=1   THREADS=n (all cores)   DTYPE=float32|bfloat16
#   PYTHON= with torch (python3)     TRAINMARK=./trainmark
set -eu
here=$(cd "$(dirname "$0")" && pwd)
trainmark=${TRAINMARK:-./trainmark} python=${PYTHON:-python3}
# A square, then the products of a layer of GPT-2 124M (forward, input gradient, weight gradient) and one of Llama 8B.
shapes=${SHAPES:-2048x2048x2048:nn,2048x3072x768:nt,2048x768x3072:nn,3072x768x2048:tn,1024x4096x4096:nt}
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-1} threads=${THREADS:-$(nproc)} dtype=${DTYPE:-float32}
[ -x "$trainmark" ] || { echo "$trainmark is not there; build it with: make trainmark" >&2; exit 2; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
"$python" -c 'import torch' 2>"$work/why" ||
    { tail -n 1 "$work/why"; echo "$python has no torch; name one that has: PYTHON=venv/bin/python"; exit 2; } >&2
cache=$(getconf LEVEL3_CACHE_SIZE 2>/dev/null || echo 0)
[ "${cache:-0}" -gt 0 ] 2>/dev/null || cache=67108864
round=1
while [ "$round" -le "$rounds" ]; do
    echo "round $round of $rounds" >&2
    "$trainmark" bench gemm --shapes "$shapes" --duration "$seconds" --threads "$threads" --dtype "$dtype" \
        --budget 600 --output-file "$work/ours.$round.json" >/dev/null
    "$python" "$here/peers/gemm_torch.py" --shapes "$shapes" --seconds "$seconds" --threads "$threads" \
        --dtype "$dtype" --cache-bytes "$cache" >"$work/torch.$round.jsonl"
    round=$((round + 1))
done
"$python" - "$work" "$rounds" "$dtype" "$threads" <<'END'
import json, statistics, sys
work, rounds, dtype, threads = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
ours = [json.load(open(f"{work}/ours.{r}.json"))["rows"] for r in range(1, rounds + 1)]
theirs = [[json.loads(line) for line in open(f"{work}/torch.{r}.jsonl")] for r in range(1, rounds + 1)]
print(f"{dtype}, {threads} threads, PyTorch {theirs[0][0]['torch']}, {rounds} rounds\n")
print("| shape | trainmark GFLOP/s | PyTorch GFLOP/s | ratio, median of rounds | lowest .. highest |\n|---|---:|---:|---:|---|")
for i, row in enumerate(theirs[0]):
    a = [r[i]["tflop"] / r[i]["median_ms"] * 1e6 for r in ours]
    b = [r[i]["tflops"] * 1e3 for r in theirs]
    ratios = sorted(x / y for x, y in zip(a, b))
    print(f"| {row['shape']} | {statistics.median(a):.1f} | {statistics.median(b):.1f} | "
          f"{statistics.median(ratios):.2f} | {ratios[0]:.2f} .. {ratios[-1]:.2f} |")
END
