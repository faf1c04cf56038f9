#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/quantize.txt: losses of 20 steps of a tiny Llama with products in low precision, and the scales of
its first step.

    tools/make_quantize_fixture.py > tests/golden/quantize.txt

fp8_*: torchao's Float8Linear on the CPU, emulated. mxfp8, mxfp4, mxfp4_turbo, nvfp4: a model in numpy of the published
descriptions (docs/low-precision.md), put in front of the same linears; nothing of trainmark is in it. All in float32.
Plain SGD with small rates: sums
in another order differ in the last digit, and where that pushes one number over the edge between two codes the runs part; at
these rates none does in 20 steps. The output head stays as it is. Weights and tokens come from names and indices (tools/make_parity_fixture.py).
Needs torch, torchao, transformers, numpy."""
import sys

import numpy as np
import torch

import make_parity_fixture as parity

STEPS, BATCHES, BATCH = 20, 4, 2
SHAPE = dict(family=0, vocab=96, dim=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn=96, positions=64, seq=32,
             norm_eps=1e-5, rope_theta=10000.0, max_norm=1.0)


# --- a numpy model of block recipes ---------------------------------------------------------------------------------------

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def to_e2m1(x):
    """To nearest, ties to the even code, saturated."""
    size = np.minimum(np.abs(x.astype(np.float64)), 6)
    low = np.clip(np.searchsorted(E2M1, size, side="right") - 1, 0, 6)
    middle = (E2M1[low] + E2M1[low + 1]) / 2
    code = np.where(size > middle, low + 1, np.where(size < middle, low, low + low % 2))
    return np.copysign(E2M1[code], x)


def to_e4m3(x):
    size = np.minimum(np.abs(x.astype(np.float64)), 448)
    exponent = np.maximum(np.floor(np.log2(np.maximum(size, 1e-300))), -6)
    return np.copysign(np.round(size / 2.0 ** (exponent - 3)) * 2.0 ** (exponent - 3), x)


def exponent_even(amax):
    bits = amax.astype(np.float32).view(np.uint32) + np.uint32(0x200000)
    return (bits >> np.uint32(23)).astype(np.int64) - 127 - 2


def exponent_up(amax):
    bits = (amax.astype(np.float32) / np.float32(448)).astype(np.float32).view(np.uint32)
    return (bits >> np.uint32(23)).astype(np.int64) - 127 + ((bits & np.uint32(0x7FFFFF)) != 0)


def hadamard16():
    h = np.array([[1.0]])
    for _ in range(4):
        h = np.block([[h, h], [h, -h]])
    return (h / 4).astype(np.float32)


H16 = hadamard16()
SIGNS = np.array([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1], dtype=np.float32)


def rotate(x, signed):
    """Lines along the last axis."""
    parts = x.reshape(-1, 16).astype(np.float64)
    if signed:
        parts = parts * SIGNS
    return (parts @ H16.astype(np.float64)).astype(np.float32).reshape(x.shape)


def microscaled(x, size, square, exponent, element):
    lines, length = x.shape
    high = size if square else 1
    blocks = x.reshape(lines // high, high, length // size, size)
    amax = np.abs(blocks).max(axis=(1, 3), keepdims=True)
    e = np.where(amax == 0, -127, np.clip(exponent(amax), -127, 127)).astype(np.float64)
    q = element((blocks.astype(np.float64) * 2.0 ** -e).astype(np.float32))
    return (q * 2.0 ** e).astype(np.float32).reshape(x.shape)


def two_level(x, size, square):
    lines, length = x.shape
    high = size if square else 1
    blocks = x.reshape(lines // high, high, length // size, size)
    whole = np.float32(np.abs(x).max())
    encode = np.float32(2688) / whole if whole > 0 else np.float32(1)
    amax = np.abs(blocks).max(axis=(1, 3), keepdims=True)
    block = to_e4m3((amax / np.float32(6)) * encode).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.where(block > 0, np.float32(1) / (block * (np.float32(1) / encode)), 0).astype(np.float32)
    q = to_e2m1(blocks * s)
    return ((q * block).astype(np.float32) * (whole / np.float32(2688))).astype(np.float32).reshape(x.shape)


def mxfp8(x, factor):
    return microscaled(x, 32, False, exponent_up, to_e4m3)


def mxfp4(x, factor):
    return microscaled(rotate(x, False), 32, False, exponent_even, to_e2m1)


def mxfp4_turbo(x, factor):
    if factor in ("dy.dw", "x.dw"):
        x = rotate(x, False)
    return microscaled(x, 32, factor in ("w", "w.dx"), exponent_even, to_e2m1)


def nvfp4(x, factor):
    """Without stochastic rounding, which has no numbers to compare."""
    if factor in ("dy.dw", "x.dw"):
        x = rotate(x, True)
    return two_level(x, 16, factor in ("w", "w.dx"))


class Product(torch.autograd.Function):
    """y = x w^T, with each factor of each of the three products through `recipe`, lines along what is summed over."""
    @staticmethod
    def forward(ctx, x, w, recipe):
        ctx.save_for_backward(x, w)
        ctx.recipe = recipe
        return through(recipe, x, "x") @ through(recipe, w, "w").T

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx = through(ctx.recipe, dy, "dy") @ through(ctx.recipe, w.T, "w.dx").T
        dw = through(ctx.recipe, dy.T, "dy.dw") @ through(ctx.recipe, x.T, "x.dw").T
        return dx, dw, None


def through(recipe, matrix, factor):
    return torch.from_numpy(recipe(np.ascontiguousarray(matrix.detach().numpy()), factor))


class Quantized(torch.nn.Module):
    def __init__(self, linear, recipe):
        super().__init__()
        self.weight, self.recipe = linear.weight, recipe

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        return Product.apply(rows, self.weight, self.recipe).reshape(*x.shape[:-1], -1)


def put_in(model, recipe):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear) and name != "lm_head":
                setattr(module, name, Quantized(child, recipe))


# --- torchao --------------------------------------------------------------------------------------------------------------

def put_in_torchao(model, name):
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    import dataclasses
    config = dataclasses.replace(Float8LinearConfig.from_recipe_name(name), emulate=True)
    convert_to_float8_training(model, config=config, module_filter_fn=lambda m, fqn: fqn != "lm_head")


def scales_of(model, name):
    """Of x and w of every linear of the first step, torchao's tensorwise rule on what the linear is given."""
    from torchao.float8.float8_utils import tensor_to_scale
    found = []

    def look(fqn):
        def hook(module, inputs):
            for factor, t in (("x", inputs[0]), ("w", module.weight)):
                found.append((fqn, factor, float(tensor_to_scale(t.detach(), torch.float8_e4m3fn))))
        return hook
    hooks = [m.register_forward_pre_hook(look(fqn)) for fqn, m in model.named_modules()
             if type(m).__name__ == "Float8Linear"]
    return found, hooks


# --- training -------------------------------------------------------------------------------------------------------------

def train(prepare, rate, look=None):
    model = parity.load(SHAPE, False)
    prepare(model)
    tokens = parity.stream("tokens", BATCHES * BATCH * (SHAPE["seq"] + 1)) % np.uint32(SHAPE["vocab"])
    windows = torch.from_numpy(tokens.astype(np.int64).reshape(BATCHES, BATCH, SHAPE["seq"] + 1))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=rate, foreach=False)
    losses, scales, hooks = [], [], []
    if look:
        scales, hooks = look(model)
    for step in range(STEPS):
        window = windows[step % BATCHES]
        optimizer.zero_grad(set_to_none=True)
        logits = model(input_ids=window[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        loss.backward()
        for hook in hooks:
            hook.remove()
        torch.nn.utils.clip_grad_norm_(parameters, SHAPE["max_norm"], foreach=False)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, scales


def main():
    torch.set_num_threads(1)
    plain = None
    runs = [("none", lambda m: None, None)]
    for recipe in (mxfp8, mxfp4, mxfp4_turbo, nvfp4):
        runs.append((recipe.__name__, lambda m, r=recipe: put_in(m, r), None))
    for name in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
        look = (lambda m: scales_of(m, "tensorwise")) if name == "tensorwise" else None
        runs.append(("fp8_" + name, lambda m, n=name: put_in_torchao(m, n), look))
    for name, prepare, look in runs:
        rate = 1e-3 if name == "nvfp4" else 1e-4
        losses, scales = train(prepare, rate, look)
        print("losses", name, rate, *[f"{x:.9g}" for x in losses])
        for fqn, factor, scale in scales:
            print("scale", name, fqn, factor, f"{scale:.9g}")
        if plain is None:
            plain = losses
        print(f"{name}: last {losses[-1]:.6f}, most off float32 "
              f"{max(abs(a - b) for a, b in zip(losses, plain)):.2e}", file=sys.stderr)


main()
