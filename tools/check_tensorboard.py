#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a run's TensorBoard event file with TensorBoard's own reader and compares it with metrics.jsonl.

    tools/check_tensorboard.py RUN_DIRECTORY      (needs the package tensorboard)
"""
import json
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder = sys.argv[1]
events = EventAccumulator(folder + "/tb", size_guidance={"scalars": 0})
events.Reload()
tags = {"loss_metrics/global_avg_loss": "loss", "grad_norm": "grad_norm", "lr": "learning_rate",
        "time_metrics/end_to_end(s)": "seconds"}
steps = [record for record in map(json.loads, open(folder + "/metrics.jsonl")) if "event" not in record]
for tag, member in tags.items():
    found = [(e.step, e.value) for e in events.Scalars(tag)]
    wanted = [(s["step"], struct.unpack("f", struct.pack("f", s[member]))[0]) for s in steps]
    if found != wanted:
        sys.exit(f"{tag}: {found[:3]} ... instead of {wanted[:3]} ...")
    print(f"{tag}: {len(found)} values are equal")
