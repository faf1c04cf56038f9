#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans all experiments, job files and recipes below folders, and counts how that ended.

    tools/count_plans.py [--trainmark BINARY] [--option OPTION ...] [--jobs N] [--list FILE] FOLDER ...

A file counts as planned if `run FILE --dry-run` ends with 0 or, without a limit, says how much memory it needs. What is
refused is counted by the first line of its message, in which names, numbers and paths are left out; --list writes one
line a file: outcome, file, first line. The folders are read, not changed, and nothing is fetched.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys


def files_below(folders):
    for folder in folders:
        if os.path.isfile(folder):
            yield folder
        for path, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                if name.endswith((".yaml", ".yml", ".toml")):
                    yield os.path.join(path, name)


def kind_of(message):
    """A message without what differs from file to file."""
    message = re.sub(r"^trainmark: (error: )?", "", message)
    message = re.sub(r"\([^()]*(?:yaml|toml|command line|variable)[^()]*\)", "", message)
    message = re.sub(r"(?:/[\w.+-]+)+", "PATH", message)
    return re.sub(r"\s+", " ", message).strip()[:150]


def plan(task):
    binary, options, path = task
    command = [binary, "run", path, "--dry-run", "--memory", "1000TiB"] + options
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
    except subprocess.TimeoutExpired:
        return path, "timeout", "", []
    lines = [line for line in done.stderr.splitlines() if line and not line.startswith(("note", "  "))]
    first = next((line for line in lines if "error" in line), lines[-1] if lines else "")
    if done.returncode == 0:
        return path, "planned", "", []
    outcome = "family" if "which is not built yet" in done.stderr and "of the family" in done.stderr else "refused"
    if "framework '" in done.stderr and "is not built" in done.stderr:
        outcome = "framework"
    if done.returncode not in (2, 3, 4):
        outcome = "exit %d" % done.returncode
    return path, outcome, first, lines


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folders", nargs="+")
    options.add_argument("--trainmark", default=os.environ.get("TRAINMARK", "build/release/trainmark"))
    options.add_argument("--option", action="append", default=[], help="a further option of run")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--list", help="a file for one line a file")
    given = options.parse_args()
    tasks = [(given.trainmark, given.option, path) for path in files_below(given.folders)]
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(plan, tasks))
    outcomes = collections.Counter(outcome for _, outcome, _, _ in results)
    kinds = collections.Counter((outcome, kind_of(first)) for _, outcome, first, _ in results if outcome != "planned")
    for (outcome, kind), n in kinds.most_common():
        print("%4d  %-9s  %s" % (n, outcome, kind))
    print("%d files: %s" % (len(results), ", ".join("%d %s" % (n, name) for name, n in outcomes.most_common())))
    if given.list:
        with open(given.list, "w", encoding="utf-8") as out:
            for path, outcome, _, lines in results:
                out.write("%s\t%s\t%s\n" % (outcome, path, " ;; ".join(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
