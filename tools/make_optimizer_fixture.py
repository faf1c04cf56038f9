#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/fixtures/optimizers.bin: weights and states after some steps of published optimizers.

    python3 tools/make_optimizer_fixture.py            write the file
    python3 tools/make_optimizer_fixture.py --check    compute again, compare with the file, write nothing

Needs torch, torchao and bitsandbytes from the Python registry; runs on the processor.

  torchao        torchao.optim.AdamW8bit, its step not compiled
  bitsandbytes   bitsandbytes.optim.AdamW8bit: its update of blocks in plain PyTorch, which is what it publishes for
                 processors without kernels of its own
  torch          torch.optim.Muon, its iterations in bfloat16 as they are
  torch32        the same with iterations in float32
  megatron       Muon as Megatron-LM's emerging optimizers describe it: no Nesterov, momentum b = mu b + (1 - mu) g, weights
                 decay before, five steps of the coefficients called quintic in float32, factor sqrt(max(rows, columns))

Weights and gradients come from names and indices by integer arithmetic, so no random number generator matters.
The file: records of a name (32 bytes, filled up with zeros), a count of bytes (uint32) and the bytes.
"""
import argparse
import math
import os
import struct
import sys

import numpy as np
import torch

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "fixtures", "optimizers.bin")
STEPS = 8
ADAM = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
MUON = dict(lr=1e-3, weight_decay=0.1, momentum=0.95)
CODED, SHORT = (48, 128), (30,)
SHAPES = {"wide": (24, 56), "tall": (56, 24), "square": (32, 32)}


def mix(x):
    """Finalizer of MurmurHash3, on an array of uint32."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x85EBCA6B)
    x = x ^ (x >> np.uint32(13))
    x = x * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def values(name, shape, size):
    """Numbers in [-size, size); they depend on the name and the index only."""
    h = 2166136261
    for byte in name.encode():
        h = ((h ^ byte) * 16777619) & 0xFFFFFFFF
    n = int(np.prod(shape))
    words = mix(np.uint32(h) + np.arange(n, dtype=np.uint32) * np.uint32(2654435769))
    unit = ((words.astype(np.int64) >> 16) - 32768) / 32768.0
    return torch.from_numpy((unit * size).astype(np.float32).reshape(shape))


def gradient(name, shape, step):
    """Of sizes that differ from step to step and, by up to a thousand, from column to column."""
    spread = torch.from_numpy(np.float32(2.0) ** -(np.arange(shape[-1]) % 11).astype(np.float32))
    return values(f"{name} gradient {step}", shape, 1.0 / (1 + step)) * spread


def train(name, shape, make):
    p = torch.nn.Parameter(values(name, shape, 0.25))
    optimizer = make([p])
    for step in range(STEPS):
        p.grad = gradient(name, shape, step)
        optimizer.step()
    return p, optimizer


def torchao_records(out):
    import torchao.optim.adam as adam

    torch.compile, kept = (lambda f, **_: f), torch.compile
    try:
        for name, shape in (("coded", CODED), ("short", SHORT)):
            p, optimizer = train(name, shape, lambda ps: adam.AdamW8bit(ps, **ADAM))
            out[f"torchao {name}"] = p.detach().numpy()
            if name == "coded":
                for key in ("exp_avg", "exp_avg_sq"):
                    state = optimizer.state[p][key]
                    out[f"torchao {key}"] = state.codes.numpy()
                    out[f"torchao {key}_absmax"] = state.scale.numpy()
                    out[f"map {key}"] = state.qmap.numpy().astype(np.float32)
    finally:
        torch.compile = kept


def bitsandbytes_records(out):
    """The optimizer's own step wants a GPU or kernels of its own; its rule for blocks, undecorated, is called here."""
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    import bitsandbytes.functional as functional
    from bitsandbytes.backends.triton.kernels_optim import optimizer_update_8bit_blockwise_pytorch as update

    p = values("coded", CODED, 0.25)
    qmap1 = functional.create_dynamic_map(signed=True)
    qmap2 = functional.create_dynamic_map(signed=False)
    n, blocks = p.numel(), (p.numel() + 255) // 256
    state1, state2 = torch.zeros(CODED, dtype=torch.uint8), torch.zeros(CODED, dtype=torch.uint8)
    absmax1, absmax2 = torch.zeros(blocks), torch.zeros(blocks)
    assert n == blocks * 256
    for step in range(STEPS):
        g = gradient("coded", CODED, step)
        update(p, g, state1, state2, ADAM["betas"][0], ADAM["betas"][1], 0.0, 0.0, ADAM["eps"], step + 1, ADAM["lr"],
               qmap1, qmap2, absmax1, absmax2, ADAM["weight_decay"], 1.0, False, optimizer_name="adam")
    out["bitsandbytes coded"] = p.numpy()
    out["bitsandbytes exp_avg"], out["bitsandbytes exp_avg_sq"] = state1.numpy(), state2.numpy()
    out["bitsandbytes exp_avg_absmax"], out["bitsandbytes exp_avg_sq_absmax"] = absmax1.numpy(), absmax2.numpy()


def muon_records(out):
    for name, shape in SHAPES.items():
        for rule in ("original", "match_rms_adamw"):
            p, _ = train(name, shape, lambda ps: torch.optim.Muon(ps, adjust_lr_fn=rule, **MUON))
            out[f"torch {name} {rule}"] = p.detach().numpy()
        kept = torch.bfloat16
        torch.bfloat16 = torch.float32
        try:
            p, _ = train(name, shape, lambda ps: torch.optim.Muon(ps, adjust_lr_fn="original", **MUON))
        finally:
            torch.bfloat16 = kept
        out[f"torch32 {name}"] = p.detach().numpy()


QUINTIC = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
           (2.8366, -3.0525, 1.2012)]


class Megatron(torch.optim.Optimizer):
    """The description of recipes: see the head of this file."""

    def __init__(self, params, lr, weight_decay, momentum):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                buffer.lerp_(p.grad, 1 - group["momentum"])
                x = buffer.T if p.shape[0] > p.shape[1] else buffer
                x = x / x.norm().clamp_min(1e-15)
                for a, b, c in QUINTIC:
                    gram = x @ x.T
                    x = a * x + (b * gram + c * gram @ gram) @ x
                x = x.T if p.shape[0] > p.shape[1] else x
                p.sub_(group["lr"] * math.sqrt(max(p.shape)) * x)


def megatron_records(out):
    for name, shape in SHAPES.items():
        p, _ = train(name, shape, lambda ps: Megatron(ps, **MUON))
        out[f"megatron {name}"] = p.detach().numpy()


def main():
    parser = argparse.ArgumentParser(description="Fixtures of published optimizers.")
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    check = parser.parse_args().check
    torch.manual_seed(0)
    torch.set_num_threads(1)
    out = {}
    torchao_records(out)
    bitsandbytes_records(out)
    muon_records(out)
    megatron_records(out)
    data = b"".join(name.encode().ljust(32, b"\0") + struct.pack("<I", values.nbytes) + np.ascontiguousarray(values).tobytes()
                    for name, values in out.items())
    if check:
        same = open(PATH, "rb").read() == data
        print("same" if same else "different")
        return 0 if same else 1
    open(PATH, "wb").write(data)
    for name, array in out.items():
        print(f"{name:36} {array.shape} {array.dtype}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
