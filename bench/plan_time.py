#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long planning takes, against the number of layers: one line of a table each.

    plan_time.py [TRAINMARK [MODEL [LAYERS ...]]]     default: ./trainmark llama3.1_405B 16 126 512 1024 2048 4096

Times are processor time of the whole process, least of three: `dry-run` makes the graph and the plan, `explain` prints
it, too. `over` is what is planned above the largest sum of live bytes, which no placement can go below.
"""
import json
import os
import sys


def seconds(command, log):
    """Processor time of one process; its output goes to a file. The time is the child's own."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    child = os.posix_spawnp(command[0], command, os.environ,
                            file_actions=[(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)])
    os.close(out)
    _, status, usage = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"plan_time: {' '.join(command)} failed:\n{open(log, encoding='utf-8').read()[-500:]}")
    return usage.ru_utime + usage.ru_stime


def tensors(programs):
    """Number of tensors of all programs; those that outlive a program (first: -1) are counted once."""
    seen = set()
    for index, program in enumerate(programs):
        for instruction in program["instructions"]:
            for tensor in instruction["inputs"] + instruction["outputs"]:
                seen.add((index if tensor["first"] >= 0 else -1, tensor["name"], tensor["offset"], tensor["first"]))
    return len(seen)


def main():
    trainmark = sys.argv[1] if len(sys.argv) > 1 else "./trainmark"
    model = sys.argv[2] if len(sys.argv) > 2 else "llama3.1_405B"
    log = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"plan_time.{os.getpid()}")
    print("| layers | instructions | tensors | dry-run | explain | over |")
    print("|---|---|---|---|---|---|")
    for layers in sys.argv[3:] or ["16", "126", "512", "1024", "2048", "4096"]:
        words = [model, "--model.n_layers", layers]
        plan = min(seconds([trainmark, "run", *words, "--dry-run", "--memory", "10000TiB"], log) for _ in range(3))
        text = min(seconds([trainmark, "explain", *words], log) for _ in range(3))
        seconds([trainmark, "explain", *words, "--json"], log)
        with open(log, encoding="utf-8") as file:
            explained = json.load(file)
        over = explained["arena_bytes"] / explained["live_peak_bytes"] - 1
        print(f"| {layers} | {sum(len(p['instructions']) for p in explained['programs']):,} | "
              f"{tensors(explained['programs']):,} | {plan:.2f} s | {text:.2f} s | {100 * over:.3f} % |", flush=True)
    os.remove(log)


main()
