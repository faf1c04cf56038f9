#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one training process and appends what it did to a file, one JSON object a line.

    measure.py RECORDS CASE SIDE ROUND WARMUP OUT -- command ...

SIDE begins with `trainmark` (the command writes OUT/result.json) or the name of a peer (its last line of output is a JSON
object). Recorded the same way for every side: batch tokens, raw step times, peak resident memory of the process,
seconds from exec to the end of the first step. A process that fails is recorded as failed, with the last line that
names an error.

Peak memory is the kernel's ru_maxrss: never less than the 10 MiB of this script, which starts the process, and without
the helper processes that a compiler starts.
"""
import json
import os
import sys


def run(command, log):
    """Exit status and peak resident bytes. The child is waited for alone, so that the peak is its own."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    actions = [(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)]
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=actions)
    os.close(out)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024


def trainmark_record(out):
    with open(os.path.join(out, "result.json")) as file:
        result = json.load(file)
    return dict(parameters=result["parameters"], batch_tokens=result["batch_tokens"] * result["devices"],
                step_seconds=result["step_seconds"], first_step_seconds=result["first_step_seconds"],
                threads=result["threads"], loss=result["loss"]["last"], version=result["environment"]["build"]["commit"])


def peer_record(lines):
    result = json.loads(lines[-1])
    options = result["options"]
    losses = [line.split()[3] for line in lines if line.startswith("step ")]
    return dict(parameters=result["params"],
                batch_tokens=options["batch"] * options["seq"] * options["accumulate"],
                step_seconds=result["step_seconds"], first_step_seconds=result["first_step_seconds"],
                threads=result["threads"], loss=float(losses[-1]), version=result["torch"],
                imported_bytes=int(result["imported_rss_mib"] * 2**20))


def main():
    records, case, side, turn, warmup, out = sys.argv[1:7]
    command = sys.argv[8:]
    os.makedirs(out, exist_ok=True)
    log = os.path.join(out, "log")
    status, peak = run(command, log)
    with open(log, errors="replace") as file:
        lines = [line for line in file.read().splitlines() if line.strip()]
    record = dict(case=case, side=side, round=int(turn), warmup=int(warmup), peak_bytes=peak)
    if status == 0:
        record.update(trainmark_record(out) if side.startswith("trainmark") else peer_record(lines))
    else:
        named = [line for line in lines if "rror" in line] or lines or ["no output"]
        record.update(failed=status, why=named[-1])
        print(f"{side}: exit status {status}: {record['why']}", file=sys.stderr)
    with open(records, "a") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
