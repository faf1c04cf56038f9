#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Markdown tables from measured runs.

    report.py compare RECORDS TITLE                  trainmark beside its peers (records of measure.py)
    report.py sides RECORDS TITLE                    any number of sides beside the first
    report.py profile RESULT_JSON [PROBE_OUTPUT]     where one run's step went, against the yardsticks of the probes
    report.py startup RECORDS RESULT_JSON            exec to first step against the step itself; sizes
"""
import json
import re
import statistics
import sys

MIB = 1 << 20


def read_records(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def rate(record):
    return record["batch_tokens"] / statistics.median(record["step_seconds"][record["warmup"]:])


def compare(path, title):
    records = read_records(path)
    sides = list(dict.fromkeys(record["side"] for record in records))
    good = {side: [r for r in records if r["side"] == side and "failed" not in r] for side in sides}
    failed = [r for r in records if "failed" in r]
    alive = [side for side in sides if good[side]]
    print(f"\n### {title}\n")
    for r in failed:
        print(f"{r['side']}, round {r['round']}, failed with status {r['failed']}: {r['why']}\n")
    peers = [side for side in alive if side != "trainmark"]
    if "trainmark" not in alive or not peers:
        sys.exit("nothing to compare: a side has no run that ended well")
    parameters = {r["parameters"] for side in alive for r in good[side]}
    threads = {r["threads"] for side in alive for r in good[side]}
    if len(parameters) != 1 or len(threads) != 1:
        sys.exit(f"the sides did not do the same: parameters {sorted(parameters)}, threads {sorted(threads)}")
    weights = 16 * parameters.pop()
    rates = {side: [rate(r) for r in good[side]] for side in alive}
    medians = {side: statistics.median(rates[side]) for side in alive}
    peaks = {side: max(r["peak_bytes"] for r in good[side]) for side in alive}
    best = max(peers, key=lambda side: medians[side])

    row("", *(f"{side} {good[side][0]['version']}" for side in alive))
    row("---", *("---:" for _ in alive))
    for turn in sorted({r["round"] for r in records}):
        cells = [[f"{rate(r):.1f}" for r in good[side] if r["round"] == turn] for side in alive]
        row(f"tokens/s, round {turn}", *(cell[0] if cell else "failed" for cell in cells))
    row("tokens/s, median", *(f"**{medians[side]:.1f}**" for side in alive))
    row("spread, min .. max", *(f"{min(rates[side]):.1f} .. {max(rates[side]):.1f}" for side in alive))
    row("n, processes x steps", *(f"{len(good[side])} x {len(good[side][0]['step_seconds']) - good[side][0]['warmup']}"
                                  for side in alive))
    row("trainmark as a multiple of it", *("" if side == "trainmark" else f"{medians['trainmark'] / medians[side]:.3f}x"
                                    for side in alive))
    row("peak resident MiB", *(f"{peaks[side] / MIB:.1f}" for side in alive))
    row("beyond 16 bytes per parameter, MiB", *(f"{(peaks[side] - weights) / MIB:.1f}" for side in alive))
    row("of which the import of the library", *(f"{good[side][0]['imported_bytes'] / MIB:.1f}" if side in peers else ""
                                                for side in alive))
    row("first step after exec, s", *(f"{statistics.median(r['first_step_seconds'] for r in good[side]):.2f}"
                                      for side in alive))
    row("last loss", *(f"{good[side][0]['loss']:.3f}" for side in alive))
    beyond = {side: peaks[side] - weights for side in alive}
    lean = {side: beyond[side] - good[side][0]["imported_bytes"] for side in peers}
    least = min(peers, key=lambda side: peaks[side])
    print(f"\n{weights // 16:,} parameters, {threads.pop()} threads. Against the better count ({best}): "
          f"**{medians['trainmark'] / medians[best]:.3f}x** tokens/s. Memory beyond 16 bytes per parameter against the "
          f"smaller one ({least}): **{beyond['trainmark'] / beyond[least]:.3f}x**"
          + (f", {beyond['trainmark'] / lean[least]:.3f}x when its import is not counted." if lean[least] > 0 else "."))


def sides(path, title):
    """Any number of sides, each as a multiple of the first."""
    records = read_records(path)
    print(f"\n### {title}\n")
    row("", "tokens/s, median", "min .. max", "n", "multiple of the first", "last loss")
    row("---", "---:", "---:", "---:", "---:", "---:")
    first = None
    for side in dict.fromkeys(record["side"] for record in records):
        good = [r for r in records if r["side"] == side and "failed" not in r]
        if not good:
            row(side, "failed: " + next(r["why"] for r in records if r["side"] == side), "", "", "", "")
            continue
        rates = [rate(r) for r in good]
        median = statistics.median(rates)
        first = first or median
        row(side, f"{median:.1f}", f"{min(rates):.1f} .. {max(rates):.1f}",
            f"{len(good)} x {len(good[0]['step_seconds']) - good[0]['warmup']}", f"{median / first:.3f}x",
            f"{good[0]['loss']:.4f}")


def yardsticks(path):
    """Best rate per kind: the product in GFLOP/s ('dnnl' the library's, 'own' ours), triad in GB/s; over all probe runs."""
    best = {}
    with open(path) as file:
        for name, value in re.findall(r"\b(own|dnnl|triad) +([0-9.]+)", file.read()):
            best[name] = max(best.get(name, 0.0), float(value))
    return best


def profile(path, probes=None):
    with open(path) as file:
        result = json.load(file)
    phases, step = result["phases"]["mean_seconds"], result["phases"]["step_seconds"]
    row("phase", "mean ms", "share")
    row("---", "---:", "---:")
    for name, seconds in sorted(phases.items(), key=lambda item: -item[1]):
        row(name, f"{1e3 * seconds:.3f}", f"{100 * seconds / step:.2f} %")
    row(f"whole step, mean of {result['phases']['steps']}", f"{1e3 * step:.3f}", "100.00 %")
    passes = sum(s for name, s in phases.items() if name.split()[0] in ("forward", "backward", "loss"))
    update = sum(s for name, s in phases.items() if name in ("optimizer", "clip"))
    per_token = {f["convention"]: f["per_token"] for f in result["flops"]}["exact-causal"]
    gflops = per_token * result["batch_tokens"] / passes / 1e9
    # float32: AdamW reads weight, gradient and two moments and writes three of them; the norm reads the gradient
    gbytes = (28 + 4) * result["parameters"] / update / 1e9
    marks = yardsticks(probes) if probes else {}
    product = marks.get("dnnl", marks.get("own"))
    ledger = sum(phases.values())
    print(f"\nThe lines add up to {1e3 * ledger:.3f} ms of {1e3 * step:.3f} ms; unaccounted "
          f"{100 * phases.get('unaccounted', 0.0) / step:.3f} %.")
    print(f"Forward and backward with loss: {1e3 * passes:.1f} ms, {gflops:.1f} GFLOP/s by exact-causal "
          f"({per_token / 1e9:.4f} GFLOP per token).")
    if product:
        which = "oneDNN" if "dnnl" in marks else "own, no oneDNN found"
        print(f"Product of {result['precision']} at 2048^3 ({which}, better of before and after): {product:.1f} GFLOP/s; own "
              f"{marks.get('own', 0.0):.1f}. Forward and backward: **{100 * gflops / product:.1f} %** of it.")
    else:
        print("No product to compare with: make build/release/bench/gemm_probe.")
    if result["precision"] == "float32":
        print(f"Optimizer and clipping: {1e3 * update:.2f} ms, {gbytes:.2f} GB/s counting 32 bytes per parameter.")
        if "triad" in marks:
            print(f"Triad (better of before and after): {marks['triad']:.2f} GB/s. Optimizer and clipping: "
                  f"**{100 * gbytes / marks['triad']:.1f} %** of it.")
        else:
            print("No triad yardstick: make build/release/bench/triad_probe.")
    if product and "triad" in marks and result["precision"] == "float32":
        passes_floor = per_token * result["batch_tokens"] / (0.85e9 * product)
        floor = passes_floor + 32 * result["parameters"] / (0.8e9 * marks["triad"])
        print(f"A step at 85 % of the product and 80 % of triad takes {1e3 * floor:.1f} ms; this one took "
              f"{1e3 * step:.1f} ms ({step / floor:.3f}x).")


def startup(path, result_path):
    records = [r for r in read_records(path) if "failed" not in r]
    if not records:
        sys.exit("no run ended well")
    row("run", "exec to end of first step, s", "first step, s", "median later step, s", "more than the later step, s")
    row("---", "---:", "---:", "---:", "---:")
    extra = []
    for r in records:
        later = statistics.median(r["step_seconds"][1:])
        extra.append(r["first_step_seconds"] - later)
        row(r["round"], f"{r['first_step_seconds']:.3f}", f"{r['step_seconds'][0]:.3f}", f"{later:.3f}",
            f"{extra[-1]:.3f}")
    print(f"\nMedian of {len(extra)}: **{statistics.median(extra):.3f} s** beyond the step, "
          f"{min(extra):.3f} .. {max(extra):.3f}.\n")
    with open(result_path) as file:
        environment = json.load(file)["environment"]
    row("file", "bytes")
    row("---", "---:")
    row("executable", f"{environment['build']['executable_bytes']:,}")
    for name, library in sorted(environment["libraries"].items(), key=lambda item: -(item[1]["bytes"] or 0)):
        row(name, f"{library['bytes']:,}" if library["bytes"] else "unknown")
    row("all loaded libraries", f"{environment['libraries_total']['bytes']:,}")


def main():
    actions = dict(compare=compare, sides=sides, profile=profile, startup=startup)
    if len(sys.argv) < 3 or sys.argv[1] not in actions:
        sys.exit(__doc__)
    actions[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
