#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the public package mlperf-logging says of the logs of tests/mlperf/example, which this project made itself.

Writes tests/mlperf/example/expected.json; tests/mlperf/test_published.c wants trainmark to agree to the last digit.
Needs: pip install mlperf-logging. Run in the repository: python3 tools/make_mllog_expected.py
"""
import contextlib
import glob
import gzip
import importlib.metadata
import io
import json
import logging
import os
import tempfile

import numpy
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.package_checker import seed_checker
from mlperf_logging.rcp_checker import rcp_checker
from mlperf_logging.result_summarizer import result_summarizer

ROOT = "tests/mlperf/example"
CASE = "results/BOX/llama2_70b_lora"
RULESET = "5.1.0"


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(f"{record.levelname} - {record.getMessage()}")


def heard(call):
    """The result of a call, and the lines that it logs."""
    handler = Lines()
    log = logging.getLogger()
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    with contextlib.redirect_stdout(io.StringIO()):
        result = call()
    return result, [line for line in handler.lines if "---" not in line]


def complies(path, ruleset):
    checker = mlp_compliance.make_checker("training", ruleset, True, False)
    valid, _, _, _ = heard(lambda: mlp_compliance.main(path, f"training_{ruleset}/common.yaml", checker))[0]
    return "SUCCESS" if valid else "FAILED"


def run_of(path, name):
    missed, samples, batch, _ = rcp_checker.read_submission_file(path, RULESET, False)
    run = {"file": name, "compliance_5.1.0": complies(path, RULESET), "rcp_converged": not missed,
           "rcp_samples": None if missed else samples, "global_batch_size": batch}
    if not missed:
        start, stop = result_summarizer._query_run_start_stop(
            result_summarizer._read_result_file(path, "training", RULESET))
        run.update({"run_start_ms": start, "run_stop_ms": stop, "minutes": (stop - start) / 60 / 1000})
    return run


def rcp_of(folder, which):
    (passed, message, factor), lines = heard(lambda: rcp_checker.check_directory(
        folder, "training", RULESET, False, False, rcp_pass=which, set_scaling=which == "pruned_rcps"))
    lines = [line for line in lines if "scaling set" not in line and line.startswith("INFO")]
    return {"verdict": "PASSED" if passed else "FAILED", "message": message, "norm_factor": float(factor), "log": lines}


def main():
    numpy.set_printoptions(legacy="1.25")  # 1.07, not np.float64(1.07)
    with tempfile.TemporaryDirectory() as folder:
        names = sorted(os.path.basename(p) for p in glob.glob(f"{ROOT}/{CASE}/result_*.txt.gz"))
        paths = []
        for name in names:
            paths.append(os.path.join(folder, name[:-3]))
            with gzip.open(f"{ROOT}/{CASE}/{name}") as packed, open(paths[-1], "wb") as out:
                out.write(packed.read())
        pruned, full = rcp_of(folder, "pruned_rcps"), rcp_of(folder, "full_rcps")
        seeds, seed_lines = heard(lambda: seed_checker.SeedChecker(RULESET).check_seeds(paths))
        runs = [run_of(path, name[:-3]) for path, name in zip(paths, names)]
        minutes = [run["minutes"] for run in runs if run["rcp_converged"]]
        dropped = len(runs) - len(minutes)
        samples = sorted(run["rcp_samples"] or float("inf") for run in runs)
        score, _, scaling = heard(lambda: result_summarizer._compute_strong_score_standalone(
            "llama2_70b_lora", "BOX", False, folder, "training", RULESET))[0]
        result = {
            "case": CASE, "made_by": f"mlperf-logging {importlib.metadata.version('mlperf-logging')}",
            "benchmark": "llama2_70b_lora", "runs": runs, "rcp_pruned_rcps": pruned, "rcp_full_rcps": full,
            "seed_checker": "PASSED" if seeds else "FAILED",
            "seed_checker_log": [line for line in seed_lines if "Running" not in line],
            "olympic_mean_minutes_unscaled": result_summarizer._compute_olympic_average(minutes, dropped, 1),
            "scaling_factor_written_by_package_checker": scaling,
            "summarizer_5.1.0": {"time_to_train": score, "GBS": float(runs[0]["global_batch_size"]),
                                 "samples_to_converge": float(numpy.mean(samples[1:-1])),
                                 "RCP": "Pass" if pruned["verdict"] == "PASSED" else "Fail"},
        }
    with open(f"{ROOT}/expected.json", "w") as out:
        json.dump([result], out, indent=1)
        out.write("\n")


main()
