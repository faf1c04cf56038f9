#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/fixtures/{llama,gpt2}.bin: what PyTorch computes for a tiny Llama and a tiny GPT-2.

    python3 tools/make_parity_fixture.py            write both files
    python3 tools/make_parity_fixture.py --check    compute again, compare with the files, write nothing

Needs torch, transformers and numpy from the Python registry. The models are LlamaForCausalLM and GPT2LMHeadModel of
transformers; the optimizer is torch.optim.AdamW after torch.nn.utils.clip_grad_norm_.

Two passes over the same 100 steps:

  stock    the library's model in float32 with its own loss. Recorded: losses.
  double   the same model with float64 weights. The library computes RMSNorm, the rotary angles and the loss in float32
           whatever the weights are, which would hide errors below 1e-7; these three are given the same formulas in
           float64 here. Recorded: first loss, all gradients, losses, gradient norms.

The script stops when the two disagree: by more than 2e-6 on the first loss, 2e-5 on a gradient (relative norm), 5e-5
on a loss of the 100 steps. So the double numbers are those of the library's own model.

Weights and tokens are made from names and indices by integer arithmetic, so no random number generator matters.
File layout: docs/parity.md.
"""
import argparse
import os
import struct
import sys
import types

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "fixtures")
MAGIC, VERSION = b"TMPARITY", 1
STEPS, BATCHES, BATCH = 100, 8, 2
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)

# max_norm: every step of the Llama is clipped, most of the GPT-2's are
LLAMA = dict(family=0, vocab=96, dim=32, layers=2, heads=4, kv_heads=2, head_dim=12, ffn=44, positions=64, seq=20,
             norm_eps=1e-5, rope_theta=10000.0, max_norm=1.0)
GPT2 = dict(family=1, vocab=80, dim=28, layers=2, heads=4, kv_heads=4, head_dim=7, ffn=112, positions=18, seq=17,
            norm_eps=1e-5, rope_theta=0.0, max_norm=2.25)


def mix(x):
    """Finalizer of MurmurHash3, on an array of uint32."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x85EBCA6B)
    x = x ^ (x >> np.uint32(13))
    x = x * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def stream(name, n):
    """n numbers of 32 bits; they depend on the name and the index only."""
    h = 2166136261
    for byte in name.encode():
        h = ((h ^ byte) * 16777619) & 0xFFFFFFFF
    return mix(np.uint32(h) + np.arange(n, dtype=np.uint32) * np.uint32(2654435769))


def initial(name, shape):
    """Multiples of 2^-17 (exact in float32): norm weights around 1, all else around 0."""
    unit = (stream(name, int(np.prod(shape))).astype(np.int64) >> 16) - 32768
    norm = ("norm" in name or "ln_" in name) and name.endswith("weight")
    values = unit / 32768.0 * 0.25 + (1.0 if norm else 0.0)
    assert np.array_equal(values, values.astype(np.float32).astype(np.float64))
    return torch.from_numpy(values.reshape(shape))


def build(shape):
    if shape["family"] == 0:
        config = LlamaConfig(
            vocab_size=shape["vocab"], hidden_size=shape["dim"], intermediate_size=shape["ffn"],
            num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"],
            num_key_value_heads=shape["kv_heads"], head_dim=shape["head_dim"], hidden_act="silu",
            max_position_embeddings=shape["positions"], rms_norm_eps=shape["norm_eps"], tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": shape["rope_theta"]}, attention_bias=False,
            mlp_bias=False, attention_dropout=0.0, use_cache=False, bos_token_id=None, eos_token_id=None)
        return LlamaForCausalLM(config)
    config = GPT2Config(
        vocab_size=shape["vocab"], n_positions=shape["positions"], n_embd=shape["dim"], n_layer=shape["layers"],
        n_head=shape["heads"], n_inner=shape["ffn"], activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, layer_norm_epsilon=shape["norm_eps"], tie_word_embeddings=True, use_cache=False,
        bos_token_id=None, eos_token_id=None)
    return GPT2LMHeadModel(config)


def rmsnorm_double(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def rotary_double(shape):
    def forward(self, x, position_ids):
        half = torch.arange(0, shape["head_dim"], 2, dtype=torch.float64) / shape["head_dim"]
        angle = position_ids[..., None].double() * (1.0 / shape["rope_theta"] ** half)
        angle = torch.cat((angle, angle), -1)
        return angle.cos(), angle.sin()
    return forward


def load(shape, double):
    model = build(shape)
    model.train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial(name, parameter.shape))
    if double:
        model.double()
        for module in model.modules():
            if type(module).__name__ == "LlamaRMSNorm":
                module.forward = types.MethodType(rmsnorm_double, module)
            if type(module).__name__ == "LlamaRotaryEmbedding":
                module.forward = types.MethodType(rotary_double(shape), module)
    return model


def loss_of(model, window, double):
    """window (B, T + 1): T predictions a row. The library drops the last position's logits."""
    if not double:
        return model(input_ids=window, labels=window).loss
    logits = model(input_ids=window).logits
    assert logits.dtype == torch.float64
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), window[:, 1:].flatten())


def train(shape, windows, double):
    model = load(shape, double)
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(list(parameters.values()), foreach=False, **ADAMW)
    weights = {name: p.detach().clone() for name, p in parameters.items()}
    losses, norms, gradients = [], [], None
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, windows[step % BATCHES], double)
        loss.backward()
        if step == 0:
            gradients = {name: p.grad.detach().clone() for name, p in parameters.items()}
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(parameters.values()), shape["max_norm"])))
        optimizer.step()
        losses.append(float(loss.detach()))
    return weights, gradients, losses, norms


def relative(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def agree(what, error, limit):
    print(f"  {what}: {error:.2e} (limit {limit:.0e})")
    if not error <= limit:
        sys.exit(f"{what}: float32 and float64 disagree by {error:.3e}, allowed {limit:.0e}")


def make(name, shape):
    print(f"{name}: transformers {transformers.__version__}, torch {torch.__version__}")
    n = BATCHES * BATCH * (shape["seq"] + 1)
    tokens = (stream("tokens", n) % np.uint32(shape["vocab"])).astype(np.int32)
    windows = torch.from_numpy(tokens.astype(np.int64)).view(BATCHES, BATCH, shape["seq"] + 1)
    _, stock_gradients, stock_losses, _ = train(shape, windows, False)
    weights, gradients, losses, norms = train(shape, windows, True)
    agree("first loss, stock against double", abs(stock_losses[0] / losses[0] - 1), 2e-6)
    agree("gradients, worst tensor", max(relative(stock_gradients[k], gradients[k]) for k in gradients), 2e-5)
    agree("100 losses, worst step", max(abs(a / b - 1) for a, b in zip(stock_losses, losses)), 5e-5)
    clipped = sum(x > shape["max_norm"] for x in norms)
    print(f"  {sum(w.numel() for w in weights.values())} parameters, loss {losses[0]:.6f} -> {losses[-1]:.6f}, "
          f"gradient norm {norms[0]:.4f} -> {norms[-1]:.4f}, clipped in {clipped} of {STEPS} steps")

    out = [MAGIC, struct.pack("<8I", VERSION, len(weights), STEPS, BATCHES, BATCH, shape["seq"], shape["family"], 0)]
    out.append(struct.pack("<8I", shape["vocab"], shape["dim"], shape["layers"], shape["heads"], shape["kv_heads"],
                           shape["head_dim"], shape["ffn"], shape["positions"]))
    out.append(struct.pack("<8d", shape["norm_eps"], shape["rope_theta"], ADAMW["lr"], *ADAMW["betas"], ADAMW["eps"],
                           ADAMW["weight_decay"], shape["max_norm"]))
    out += [np.array(values, "<f8").tobytes() for values in (losses, norms, stock_losses)]
    out.append(tokens.astype("<i4").tobytes())
    for key, weight in weights.items():
        text, gradient = key.encode(), gradients[key]
        assert len(text) < 64 and 1 <= weight.dim() <= 2
        rows, columns = weight.shape if weight.dim() == 2 else (weight.shape[0], 1)
        out.append(text.ljust(64, b"\0") + struct.pack("<2Id", rows, columns, float(gradient.norm())))
        out += [t.contiguous().numpy().astype("<f4").tobytes() for t in (weight, gradient)]
    return b"".join(out)


def values_of(data):
    """All numbers of a file in two groups: (float64 ones, float32 ones); the rest must be equal."""
    count, steps, batches, batch, seq = struct.unpack_from("<5I", data, 12)
    at = 8 + 32 + 32 + 64
    doubles, floats, at = [np.frombuffer(data, "<f8", 3 * steps, at)], [], at + 24 * steps
    at += 4 * batches * batch * (seq + 1)
    for _ in range(count):
        rows, columns = struct.unpack_from("<2I", data, at + 64)
        doubles.append(np.frombuffer(data, "<f8", 1, at + 72))
        floats.append(np.frombuffer(data, "<f4", 2 * rows * columns, at + 80))
        at += 80 + 8 * rows * columns
    assert at == len(data)
    return np.concatenate(doubles), np.concatenate(floats)


def check(path, data):
    with open(path, "rb") as file:
        old = file.read()
    if old == data:
        print(f"  {path}: the same bytes")
        return True
    if len(old) != len(data):
        print(f"  {path}: {len(old)} bytes, made again {len(data)}")
        return False
    worst = [float(np.max(np.abs(a - b) / np.maximum(np.abs(a), 1e-30))) if group == 0 else float(np.max(np.abs(a - b)))
             for group, (a, b) in enumerate(zip(values_of(old), values_of(data)))]
    print(f"  {path}: other bytes; float64 numbers differ by {worst[0]:.2e} relative, float32 ones by {worst[1]:.2e}")
    return worst[0] < 1e-6 and worst[1] < 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    good = True
    for name, shape in (("llama", LLAMA), ("gpt2", GPT2)):
        data, path = make(name, shape), os.path.normpath(os.path.join(FOLDER, name + ".bin"))
        if options.check:
            good &= check(path, data)
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        print(f"  {path}: {len(data)} bytes")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
