#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encoding speed beside the `tokenizers` library: the same documents of about 16 KiB, both sides in turns on one machine.

    bench/tokenizer.py TOKENIZER.json TEXT [--threads 1] [--turns 7] [--cpu-time] [--trainmark ./trainmark]

One thread: the library encodes document after document, with several it gets them as a batch. Loading is not timed. Prints each
side's MB/s (middle and range) and the ratio of each turn. For figures the machine must be quiet: `trainmark check`; where others run,
--cpu-time counts the processor time of all threads instead (of trainmark: four rounds less one, a third of that).
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import time


def documents(data):
    at = 0
    while at < len(data):
        end = data.find(b"\n", at + 16384) + 1 if len(data) - at > 16384 else 0
        end = end or len(data)
        yield data[at:end].decode("utf-8", "replace")
        at = end


def our_processor_time(command, rounds):
    """Of a process that encodes the text so many times, loading included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(command + ["--rounds", str(rounds)], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.loads(out.stdout)


def our_round(command, cpu_time):
    if not cpu_time:
        result = json.loads(subprocess.run(command + ["--rounds", "1"], capture_output=True, text=True, check=True).stdout)
        return result["seconds"][0], result
    (one, result), (four, _) = our_processor_time(command, 1), our_processor_time(command, 4)
    return (four - one) / 3, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--trainmark", default="./trainmark")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if args.threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(args.tokenizer)
    data = args.text.read_bytes()
    texts = list(documents(data))
    ours, theirs, ids = [], [], (0, 0)
    clock = time.process_time if args.cpu_time else time.perf_counter
    for _ in range(args.turns):
        seconds, result = our_round([args.trainmark, "tokenizer", "speed", "--tokenizer", args.tokenizer, "--threads",
                                     str(args.threads), str(args.text)], args.cpu_time)
        before = clock()
        if args.threads > 1:
            count = sum(len(e.ids) for e in tokenizer.encode_batch(texts, add_special_tokens=False))
        else:
            count = sum(len(tokenizer.encode(t, add_special_tokens=False).ids) for t in texts)
        theirs.append(clock() - before)
        ours.append(seconds)
        ids = (result["ids"], count)
    if ids[0] != ids[1]:
        raise SystemExit(f"different ids: {ids[0]:,} and {ids[1]:,}")
    for name, seconds in (("trainmark", ours), ("tokenizers", theirs)):
        rates = sorted(len(data) / 1e6 / s for s in seconds)
        print(f"{name:<10} {statistics.median(rates):8.1f} MB/s   {rates[0]:.1f} to {rates[-1]:.1f}")
    ratios = sorted(b / a for a, b in zip(ours, theirs))
    print(f"{'ratio':<10} {statistics.median(ratios):8.2f}        {ratios[0]:.2f} to {ratios[-1]:.2f}   ({args.threads} threads, "
          f"{args.turns} turns, {ids[0]:,} ids{', processor time' if args.cpu_time else ''})")


main()
