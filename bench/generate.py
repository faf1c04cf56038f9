#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of `trainmark generate` beside `generate` of transformers, the same model directory, in turns.

    bench/generate.py [--shape 1b] [--dtype bfloat16] [--prompt 32] [--tokens 32] [--threads 2] [--turns 5] [--static] [--cpu-time]

Writes a Llama directory with random weights (no end token), then per turn: trainmark, transformers; greedy, keys and values cached.
A rate is that of tokens after the first one: for transformers (N tokens' time - 1 token's time) / (N - 1). Prints the
middle and range of both, the bytes of weights that each token reads times the rate, and the triad and dot of `trainmark bench
stream` before and after. --static: transformers with a static cache, its step compiled by torch.compile. --cpu-time, where other programs run: processor
time of all threads instead of the clock, of both sides (N tokens' - 1 token's) / (N - 1).
"""
import argparse
import csv
import json
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time

SHAPES = {
    "tiny": dict(vocab_size=2048, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
                 num_key_value_heads=2),
    "100m": dict(vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
                 num_key_value_heads=4),
    "1b": dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
               num_key_value_heads=8, head_dim=64),
}


def stream(trainmark, folder, threads):
    """GB/s of reading two arrays (dot) and of the triad."""
    table = pathlib.Path(folder) / "stream.csv"
    subprocess.run([trainmark, "bench", "stream", "--repetitions", "3", "--rep-ms", "50", "--threads", str(threads),
                    "--output-file", str(table)], capture_output=True, check=True)
    with open(table, newline="") as f:
        rows = list(csv.DictReader(f))
    best = {name: max(float(r["best_mbps"]) for r in rows if r["kernel"] == name) / 1000 for name in ("dot", "triad")}
    return f"{best['dot']:.1f} dot, {best['triad']:.1f} triad"


def middle(name, rates, bytes_):
    rates = sorted(rates)
    m = statistics.median(rates)
    print(f"{name:<12} {m:8.2f} tokens/s   {rates[0]:.2f} to {rates[-1]:.2f}   {m * bytes_ / 1e9:6.1f} GB/s of weights", flush=True)
    return m


def generated(n, folder, ids, args):
    """Processor time and what `trainmark generate` prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run([args.trainmark, "generate", folder, "--prompt-ids", str(ids), "--max-tokens", str(n), "--dtype", args.dtype,
                          "--threads", str(args.threads), "--json"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.loads(out.stdout)


def mine(n, folder, ids, args):
    """Tokens per second and the tokens."""
    whole, result = generated(n, folder, ids, args)
    if not args.cpu_time:
        return result["tokens_per_second"], result["tokens"]
    one, _ = generated(1, folder, ids, args)
    return (n - 1) / (whole - one), result["tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--trainmark", default="./trainmark")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import torch
    import transformers
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    dtype = getattr(torch, args.dtype)
    config = transformers.LlamaConfig(**SHAPES[args.shape], max_position_embeddings=4096, rope_theta=500000.0,
                                      tie_word_embeddings=True, bos_token_id=None, eos_token_id=None)
    torch.set_default_dtype(dtype)
    model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    prompt = [(7 * i + 3) % config.vocab_size for i in range(args.prompt)]
    options = dict(do_sample=False, use_cache=True, pad_token_id=0)
    if args.static:
        options["cache_implementation"] = "static"

    def theirs(n):
        ids = torch.tensor([prompt])
        clock = time.process_time if args.cpu_time else time.perf_counter
        before = clock()
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n, **options)
        return clock() - before, out[0, args.prompt:].tolist()

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        ids = pathlib.Path(folder) / "ids.json"
        ids.write_text(json.dumps(prompt))
        ours, peers, same = [], [], 0
        theirs(args.tokens)
        before = stream(args.trainmark, folder, args.threads)
        for _ in range(args.turns):
            ours.append(mine(args.tokens, folder, ids, args))
            one, _ = theirs(1)
            whole, tokens = theirs(args.tokens)
            peers.append((args.tokens - 1) / (whole - one))
            same = next((i for i, (a, b) in enumerate(zip(ours[-1][1], tokens)) if a != b), args.tokens)
        after = stream(args.trainmark, folder, args.threads)
    print(f"{args.shape} {args.dtype}: {weights / 1e6:,.1f} MB of weights, {args.prompt} + {args.tokens} tokens, "
          f"{args.threads} threads, {args.turns} turns; the first {same} tokens are the same")
    ours = [rate for rate, _ in ours]
    a, b = middle("trainmark", ours, weights), middle("transformers", peers, weights)
    ratios = sorted(x / y for x, y in zip(ours, peers))
    print(f"GB/s of bench stream, before and after: {before}; {after}")
    print(f"ratio        {a / b:8.2f}            {ratios[0]:.2f} to {ratios[-1]:.2f} in turns")


main()
