#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/quantize.txt: losses of 20 steps of a tiny Llama with products in low precision, and the scales of
its first step.

    tools/make_quantize_fixture.py > tests/golden/quantize.txt

fp8_*, mxfp8: torchao on the CPU, emulated. mxfp4, mxfp4_turbo, nvfp4: a model in numpy of the published descriptions
(docs/low-precision.md), put in front of the same linears; nothing of trainmark is in it. All in float32.
Plain SGD with small rates: sums
in another order differ in the last digit, and where that pushes one number over the edge between two codes the runs part; at
these rates none does in 20 steps. "losses" quantizes the linears of the blocks, "output" the output head, "experts" the
products of the experts of a Mixtral of one layer, each of them a product of torchao's by itself with its tokens in their order;
for blocks of 32 they are filled up with zeros. Weights and tokens come from names and indices
(tools/make_parity_fixture.py).
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
    """The linear with its product, `product(x, w)`."""
    def __init__(self, linear, product):
        super().__init__()
        self.weight, self.product = linear.weight, product

    def forward(self, x):
        return self.product(x.reshape(-1, x.shape[-1]), self.weight).reshape(*x.shape[:-1], -1)


def put_in(model, product):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear) and name != "lm_head":
                setattr(module, name, Quantized(child, product))


def of_numpy(recipe):
    return lambda x, w: Product.apply(x, w, recipe)


# --- torchao --------------------------------------------------------------------------------------------------------------

def torchao_fp8(name):
    """The product of a recipe of float8."""
    import dataclasses
    from torchao.float8 import Float8LinearConfig
    from torchao.float8.float8_linear import Float8Linear
    config = dataclasses.replace(Float8LinearConfig.from_recipe_name(name), emulate=True)
    linear = Float8Linear.from_float(torch.nn.Linear(16, 16, bias=False), config)
    from torchao.float8.float8_linear import matmul_with_hp_or_float8_args
    return lambda x, w: matmul_with_hp_or_float8_args.apply(x, w.t(), linear.linear_mm_config, config)


def torchao_mxfp8(x, w):
    from torchao.prototype.moe_training.mxfp8_linear import mx_mm
    from torchao.prototype.mx_formats.config import (MXFP8Dim0CastKernelChoice, MXFP8Dim1CastKernelChoice,
                                                     ScaleCalculationMode)
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference
    e4m3 = torch.float8_e4m3fn
    return mx_mm.apply(x, w, e4m3, e4m3, e4m3, 32, KernelPreference.EMULATED, MXFP8Dim0CastKernelChoice.TORCH,
                       MXFP8Dim1CastKernelChoice.TORCH, ScaleCalculationMode.RCEIL, False)


def mx_scale(t):
    """The least number that the blocks of t are multiplied with."""
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx
    exponents, _ = to_mx(t.detach().contiguous(), torch.float8_e4m3fn, 32, ScaleCalculationMode.RCEIL)
    return 2.0 ** (127 - int(exponents.view(torch.uint8).max()))


def fp8_scale(t):
    """By torchao's tensorwise rule."""
    from torchao.float8.float8_utils import tensor_to_scale
    return float(tensor_to_scale(t.detach(), torch.float8_e4m3fn))


def scales_of(model, rule):
    """Of x and w of every linear of the first step."""
    found = []

    def look(fqn):
        def hook(module, inputs):
            for factor, t in (("x", inputs[0]), ("w", module.weight)):
                found.append((fqn, factor, rule(t)))
        return hook
    hooks = [m.register_forward_pre_hook(look(fqn)) for fqn, m in model.named_modules()
             if isinstance(m, Quantized)]
    return found, hooks


# --- experts --------------------------------------------------------------------------------------------------------------

EXPERTS, CHOSEN, EXPERT_FFN = 4, 2, 64


def by_experts(product):
    """The forward of MixtralExperts with the products of each expert by themselves."""
    def filled_up(x, w):
        rows = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[0] % 32))
        return product(rows, w)[:x.shape[0]]

    def forward(self, hidden, chosen, weights):
        out = torch.zeros_like(hidden)
        for e in range(EXPERTS):
            token, place = torch.where(chosen == e)
            if token.numel() == 0:
                continue
            gate, up = self.gate_up_proj[e].chunk(2)
            x = hidden[token]
            y = filled_up(self.act_fn(filled_up(x, gate)) * filled_up(x, up), self.down_proj[e])
            out = out.index_add(0, token, y * weights[token, place, None])
        return out
    return forward


def load_mixtral(product):
    from transformers import MixtralConfig, MixtralForCausalLM
    import types
    config = MixtralConfig(
        vocab_size=SHAPE["vocab"], hidden_size=SHAPE["dim"], intermediate_size=EXPERT_FFN,
        num_hidden_layers=1, num_attention_heads=SHAPE["heads"], num_key_value_heads=SHAPE["kv_heads"],
        head_dim=SHAPE["head_dim"], hidden_act="silu", max_position_embeddings=SHAPE["positions"],
        rms_norm_eps=SHAPE["norm_eps"], tie_word_embeddings=False, num_local_experts=EXPERTS,
        num_experts_per_tok=CHOSEN, sliding_window=None, router_jitter_noise=0.0, output_router_logits=False,
        rope_parameters={"rope_type": "default", "rope_theta": SHAPE["rope_theta"]}, attention_dropout=0.0,
        use_cache=False, bos_token_id=None, eos_token_id=None)
    model = MixtralForCausalLM(config)
    model.train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parts = name.split(".")
            ours = f"layers.{parts[2]}.moe" if parts[1] == "layers" else ""
            if name.endswith("mlp.gate.weight"):
                parameter.copy_(parity.initial(f"{ours}.router.gate.weight", parameter.shape))
            elif "experts" in name:
                for e in range(EXPERTS):
                    linears = ("w1", "w3") if "gate_up" in name else ("w2",)
                    for linear, rows in zip(linears, parameter[e].chunk(len(linears))):
                        rows.copy_(parity.initial(f"{ours}.experts.{e}.{linear}.weight", rows.shape))
            else:
                parameter.copy_(parity.initial(name, parameter.shape))
    for module in model.modules():
        if type(module).__name__ == "MixtralExperts":
            module.forward = types.MethodType(by_experts(product), module)
    return model


# --- training -------------------------------------------------------------------------------------------------------------

def train(model, rate, look=None):
    tokens = parity.stream("tokens", BATCHES * BATCH * (SHAPE["seq"] + 1)) % np.uint32(SHAPE["vocab"])
    windows = torch.from_numpy(tokens.astype(np.int64).reshape(BATCHES, BATCH, SHAPE["seq"] + 1))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=rate, foreach=False)
    losses, scales, hooks = [], [], []
    if look:
        scales, hooks = scales_of(model, look)
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


def linears(product):
    model = parity.load(SHAPE, False)
    put_in(model, product)
    return model


def head(product):
    model = parity.load(SHAPE, False)
    model.lm_head = Quantized(model.lm_head, product)
    return model


def main():
    torch.set_num_threads(1)
    plain = {}
    products = {"mxfp8": torchao_mxfp8}
    for recipe in (mxfp4, mxfp4_turbo, nvfp4):
        products[recipe.__name__] = of_numpy(recipe)
    for name in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
        products["fp8_" + name] = torchao_fp8(name)
    runs = [("losses", "none", linears)] + [("losses", name, linears) for name in products]
    runs += [("output", "none", head)] + [("output", name, head) for name in ("fp8_rowwise", "mxfp8", "nvfp4")]
    runs += [("experts", "none", load_mixtral)]
    runs += [("experts", name, load_mixtral) for name in ("fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_with_gw_hp", "mxfp8")]
    for kind, name, load in runs:
        rate = 1e-3 if name == "nvfp4" else 1e-4
        rule = {"mxfp8": mx_scale, "fp8_tensorwise": fp8_scale}.get(name)
        model = load(products.get(name, torch.nn.functional.linear))
        losses, scales = train(model, rate, rule if kind == "losses" else None)
        print(kind, name, rate, *[f"{x:.9g}" for x in losses])
        for fqn, factor, scale in scales:
            print("scale", name, fqn, factor, f"{scale:.9g}")
        plain.setdefault(kind, losses)
        print(f"{kind} {name}: last {losses[-1]:.6f}, most off float32 "
              f"{max(abs(a - b) for a, b in zip(losses, plain[kind])):.2e}", file=sys.stderr)


main()
