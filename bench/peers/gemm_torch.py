#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's matrix product with torch.utils.benchmark; prints one JSON object a shape.

    gemm_torch.py --shapes 2048x2048x2048:nn,1024x768x3072:nt --seconds 1 --threads 2 --dtype float32 --cache-bytes N

The letters say how A and B are stored, n as (M, K) and (K, N), t transposed. Standard normal operands, several sets of
them in turns, so that together they are more than twice the cache.
"""
import argparse
import json

import torch
import torch.utils.benchmark


def operands(m, n, k, letters, dtype, count):
    def stored(rows, columns, transposed):
        return torch.randn(columns, rows, dtype=dtype).t() if transposed else torch.randn(rows, columns, dtype=dtype)

    return [(stored(m, k, letters[0] == "t"), stored(k, n, letters[1] == "t"), torch.empty(m, n, dtype=dtype))
            for _ in range(count)]


def measure(shape, options):
    size, _, letters = shape.partition(":")
    m, n, k = (int(x) for x in size.split("x"))
    dtype = getattr(torch, options.dtype)
    one = (m * k + k * n + m * n) * dtype.itemsize
    sets = operands(m, n, k, letters or "nn", dtype, max(2, 2 * options.cache_bytes // one + 1))
    state = {"at": 0}

    def multiply():
        a, b, c = sets[state["at"]]
        state["at"] = (state["at"] + 1) % len(sets)
        torch.mm(a, b, out=c)

    timer = torch.utils.benchmark.Timer(stmt="multiply()", globals={"multiply": multiply},
                                        num_threads=options.threads)
    result = timer.blocked_autorange(min_run_time=options.seconds)
    return dict(shape=shape, median_ms=result.median * 1e3, n=len(result.times), loops=result.number_per_run,
                tflops=2e-12 * m * n * k / result.median, threads=options.threads, dtype=options.dtype,
                torch=torch.__version__)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--cache-bytes", type=int, default=64 << 20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    for shape in options.shapes.split(","):
        print(json.dumps(measure(shape, options)), flush=True)


if __name__ == "__main__":
    main()
