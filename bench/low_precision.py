#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recipes of low precision do to learning: a small model learns the built-in language, whose entropy is known.

    bench/low_precision.py [--trainmark PATH] [--seeds N] [--steps N] [--jobs N] [--only "NAME;NAME"] [--out FOLDER]

Rows "with outliers" begin with two channels of the embedding at OUTLIER, as trained models have them: the model can do
without, so float32 is as good with them, but each block of 32 numbers has a large one in it.

Every row is trained with the same seeds, so with the same weights and samples; its loss in the validation set minus the
entropy of the language is the excess, in nats. A table in markdown on stdout: the mean of the excess over seeds, and of
the difference to float32 seed by seed, each with its 95 % interval (Student's t); and the percentage of the numbers of x, of
the weights, of dy and of dy as a factor of dw that rounding made 0, over the linears and the steps that are recorded. Some rows are planted mistakes.
With --out results that are there already are not made again."""
import argparse
import array
import concurrent.futures
import json
import math
import os
import statistics
import struct
import subprocess
import sys
import tempfile

MODEL = ["tiny-llama", "--model.n_layers", "2", "--model.dim", "64", "--model.n_heads", "2", "--model.n_kv_heads", "2",
         "--model.ffn_dim", "192", "--model.vocab_size", "16", "--training.seq_len", "64", "--training.local_batch_size",
         "16", "--optimizer.lr", "3e-3", "--lr_scheduler.warmup_steps", "20", "--training.stop_at_target", "false",
         "--validation.steps", "64", "--training.threads", "1", "--store.path", "none", "--debug.certificate", "false"]
BF16 = ["--training.dtype", "bfloat16"]
FACTORS = ("x", "w", "dy", "dy.dw")
OUTLIER, CHANNELS = 20.0, (5, 41)


def recipe(name, *more):
    return BF16 + ["--quantize.recipe", name, *more]


def pure(*more):
    return BF16 + ["--training.regime", "pure", *more]


def defect(name):
    return ["--debug.quantize_defect", name]


ROWS = [
    ("float32", []),
    ("bfloat16", BF16),
    ("pure bfloat16, to the nearest", pure()),
    ("pure bfloat16, stochastic", pure("--optimizer.bf16_stochastic_round", "true")),
    ("pure bfloat16, compensated", pure("--optimizer.kahan_sum", "true")),
    ("fp8_tensorwise", recipe("fp8_tensorwise")),
    ("fp8_rowwise", recipe("fp8_rowwise")),
    ("fp8_delayed", recipe("fp8_delayed", "--fp8_amax_history_len", "16")),
    ("fp8_blockwise", recipe("fp8_blockwise")),
    ("mxfp8", recipe("mxfp8")),
    ("mxfp6_e3m2", recipe("mxfp6_e3m2")),
    ("mxfp6_e2m3", recipe("mxfp6_e2m3")),
    ("mxfp4", recipe("mxfp4")),
    ("mxfp4_turbo", recipe("mxfp4_turbo")),
    ("nvfp4", recipe("nvfp4")),
    ("mxfp4, then fp8_delayed", recipe("mxfp4", "--quantize.switch_recipe", "fp8_delayed", "--quantize.switch_step", "{late}")),
    ("mxfp4, no rotation", recipe("mxfp4", *defect("no_rotation"))),
    ("mxfp4_turbo, no rotation", recipe("mxfp4_turbo", *defect("no_rotation"))),
    ("fp8_delayed, scales of the first step", recipe("fp8_delayed", *defect("stale_scale"))),
    ("fp8_tensorwise, formats swapped", recipe("fp8_tensorwise", *defect("swapped_formats"))),
    ("float32, with outliers", []),
    ("fp8_rowwise, with outliers", recipe("fp8_rowwise")),
    ("fp8_tensorwise, with outliers", recipe("fp8_tensorwise")),
    ("fp8_tensorwise, formats swapped, with outliers", recipe("fp8_tensorwise", *defect("swapped_formats"))),
    ("mxfp8, with outliers", recipe("mxfp8")),
    ("mxfp4, with outliers", recipe("mxfp4")),
    ("mxfp4, no rotation, with outliers", recipe("mxfp4", *defect("no_rotation"))),
]

# Two-sided 95 %, by degrees of freedom.
STUDENT = [0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]


def plant_outliers(options, folder, seed):
    """A Hugging Face folder of the model's initial weights (one step that moves nothing), with the outliers."""
    quiet = dict(check=True, capture_output=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    run, hf = os.path.join(folder, "run"), os.path.join(folder, "hf")
    if not os.path.exists(hf):
        subprocess.run([options.trainmark, "run", *MODEL, "--training.steps", "1", "--optimizer.lr", "1e-30", "--debug.seed",
                        str(seed), "--checkpoint.enable", "true", "--out", run, "-q"], capture_output=True, env=quiet["env"])
        subprocess.run([options.trainmark, "export", run, "--out", hf, "--dtype", "float32", "-q"], **quiet)
        path = os.path.join(hf, "model.safetensors")
        with open(path, "r+b") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            tensor = json.loads(file.read(size))["model.embed_tokens.weight"]
            start, end = tensor["data_offsets"]
            file.seek(8 + size + start)
            rows = array.array("f", file.read(end - start))
            for row in range(tensor["shape"][0]):
                for channel in CHANNELS:
                    rows[row * tensor["shape"][1] + channel] = OUTLIER
            file.seek(8 + size + start)
            file.write(rows.tobytes())
    return hf


def excess(options, folder, keys, seed):
    out = os.path.join(folder, f"seed-{seed}")
    path = os.path.join(out, "result.json")
    if not os.path.exists(path):
        late = str(options.steps * 3 // 4)
        planted = []
        if "outliers" in folder:
            planted = ["--model.hf_assets_path", plant_outliers(options, os.path.join(folder, f"initial-{seed}"), seed)]
        command = [options.trainmark, "run", *MODEL, *planted, *[key.format(late=late) for key in keys], "--training.steps",
                   str(options.steps), "--debug.seed", str(seed), "--out", out, "-q"]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
        if done.returncode not in (0, 3) or not os.path.exists(path):
            return math.nan, (done.stderr.strip().splitlines() or ["no message"])[-1]
    with open(path) as file:
        loss = json.load(file)["loss"]
    value = loss["validation"] if loss["validation"] is not None else math.nan
    return value - loss["floor"], None


def flushed(folder, seed):
    """Percent of x, w, dy and dy as a factor of dw that became 0, in the mean over linears and recorded steps; None without
    a recipe."""
    shares = {factor: [] for factor in FACTORS}
    with open(os.path.join(folder, f"seed-{seed}", "metrics.jsonl")) as file:
        for record in map(json.loads, file):
            for factor in record["factors"] if record.get("event") == "quantized" else []:
                if factor["factor"] in shares:
                    shares[factor["factor"]].append(100 * factor["flushed"])
    return [statistics.mean(values) for values in shares.values()] if shares["dy"] else None


def lost(folder, seeds):
    found = [flushed(folder, seed) for seed in seeds]
    if None in found:
        return ""
    return ", ".join(f"{name} {statistics.mean(values):.2f} +- {interval(values):.2f}"
                     for name, values in zip(FACTORS, zip(*found)))


def interval(values):
    if len(values) < 2:
        return math.nan
    return STUDENT[min(len(values) - 1, len(STUDENT) - 1)] * statistics.stdev(values) / math.sqrt(len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainmark", default="./trainmark")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="rows whose name is one of these, besides those of float32")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    wanted = [name.strip() for name in options.only.split(";")] if options.only else None
    rows = [row for row in ROWS if wanted is None or row[0] in wanted or row[0].startswith("float32")]
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        base = options.out or temporary
        place = {name: os.path.join(base, name.replace(" ", "-").replace(",", "")) for name, _ in rows}
        work = {(name, seed): pool.submit(excess, options, place[name], keys, seed)
                for name, keys in rows for seed in range(1, options.seeds + 1)}
        found = {name: [] for name, _ in rows}
        for (name, seed), job in work.items():
            value, why = job.result()
            if why:
                sys.exit(f"{name}, seed {seed}: {why}")
            found[name].append(value)
        zeros = {name: lost(place[name], range(1, options.seeds + 1)) for name, _ in rows}
    print(f"{options.seeds} seeds, {options.steps} steps\n")
    print("| recipe | excess loss, nats | more than float32 (with the same outliers, if any), seed by seed | became 0, % |")
    print("|---|---|---|---|")
    for name, _ in rows:
        plain = "float32, with outliers" if "outliers" in name else "float32"
        values, apart = found[name], [a - b for a, b in zip(found[name], found[plain])]
        if not all(math.isfinite(v) for v in values):
            print(f"| {name} | no number | | {zeros[name]} |")
            continue
        print(f"| {name} | {statistics.mean(values):.4f} +- {interval(values):.4f} | "
              f"{statistics.mean(apart):+.4f} +- {interval(apart):.4f} | {zeros[name]} |")


main()
