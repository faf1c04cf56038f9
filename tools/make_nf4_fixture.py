#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bitsandbytes makes of three matrices in NF4 with double quantization: tests/graph/nf4.json.

    tools/make_nf4_fixture.py

Needs torch and bitsandbytes. Element i of a matrix is 0.3 unit(name, i)^3 (tools/hf_parity.py). Floats are kept as their
bits; of the decoded values the first 256 and every 97th behind them.
"""
import json
import os

import bitsandbytes.functional as bnb
import numpy as np
import torch


def fnv1a(text):
    h = 2166136261
    for c in text.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    return h


def unit(name, n):
    h = (np.uint64(fnv1a(name)) + np.arange(n, dtype=np.uint64) * np.uint64(2654435769)) & np.uint64(0xFFFFFFFF)
    for shift, factor in (16, 0x85EBCA6B), (13, 0xC2B2AE35):
        h = (h ^ h >> np.uint64(shift)) * np.uint64(factor) & np.uint64(0xFFFFFFFF)
    return ((h ^ h >> np.uint64(16)) >> np.uint64(16)).astype(np.int64) - 32768


def bits(values):
    return np.asarray(values, dtype=np.float32).reshape(-1).view(np.uint32).tolist()


def matrix(name, rows, columns):
    u = unit(name, rows * columns) / 32768.0
    w = torch.tensor((0.3 * u * u * u).astype(np.float32).reshape(rows, columns))
    codes, state = bnb.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=True)
    decoded = bnb.dequantize_4bit(codes, state).float().reshape(-1).numpy()
    keep = np.concatenate([decoded[:256], decoded[256::97]])
    return dict(name=name, n=rows * columns, offset=bits(state.offset)[0], nested_absmax=bits(state.state2.absmax),
                absmax=state.absmax.numpy().tobytes().hex(), codes=codes.numpy().tobytes().hex(),
                decoded=keep.astype(np.float32).tobytes().hex())


matrices = [matrix("nf4.small", 8, 128), matrix("nf4.middle", 96, 192), matrix("nf4.large", 160, 256)]
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "graph", "nf4.json")
with open(path, "w") as f:
    json.dump(dict(map=bits(bnb.create_dynamic_map()), matrices=matrices), f, indent=0)
    f.write("\n")
print(path)
