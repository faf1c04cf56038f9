#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Orders of pipelines as PyTorch writes them (torch.distributed.pipelining.schedules, format compute_only), the fixtures of
tests/train/test_pipeline_file.c: tools/make_schedule_fixtures.py FOLDER. Nothing is trained: the stages are stand-ins."""
import os
import sys
import types

import torch
from torch.distributed.pipelining import schedules

CASES = [  # class, ranks, stages of each, micro-batches
    ("ScheduleInterleaved1F1B", 2, 2, 4),
    ("ScheduleInterleaved1F1B", 4, 2, 8),
    ("ScheduleInterleavedZeroBubble", 2, 2, 4),
    ("ScheduleInterleavedZeroBubble", 4, 1, 8),
    ("ScheduleLoopedBFS", 2, 2, 4),
    ("ScheduleLoopedBFS", 3, 1, 5),
    ("ScheduleZBVZeroBubble", 2, 2, 4),
    ("ScheduleZBVZeroBubble", 4, 2, 8),
    ("ScheduleDualPipeV", 2, 2, 6),
    ("ScheduleDualPipeV", 3, 2, 7),
    ("ScheduleDualPipeV", 4, 2, 10),
]


def order(name, ranks, chunks, micro_batches):
    """Stages have the numbers that an order is computed from, and nothing else."""
    stages = [
        types.SimpleNamespace(group_size=ranks, num_stages=ranks * chunks, stage_index=ranks * c, group_rank=0, submod=None)
        for c in range(chunks)
    ]
    return getattr(schedules, name)(stages, micro_batches, loss_fn=lambda x, y: x)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name, ranks, chunks, micro_batches in CASES:
        path = os.path.join(folder, f"{name[8:]}-{ranks}x{chunks}-{micro_batches}.csv")
        order(name, ranks, chunks, micro_batches)._dump_csv(path, format="compute_only")
    print(f"torch {torch.__version__}: {len(CASES)} files in {folder}")


if __name__ == "__main__":
    main()
