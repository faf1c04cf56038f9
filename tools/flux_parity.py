#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What diffusers computes for tiny FLUX.1 models: writes tests/golden/flux.txt, compares folders.

    tools/flux_parity.py > tests/golden/flux.txt
    tools/flux_parity.py write
        tests/hf/flux.json, a folder: weights by the names of diffusers as in tools/hf_parity.py, inputs unit("noisy") and so on
    tools/flux_parity.py check TRAINMARK
        random weights: `trainmark numerics` of a folder that diffusers saved (loss, every gradient), and a folder that
        `trainmark export` wrote loaded by diffusers: no tensor missing or unexpected, the same outputs

Needs torch and diffusers of the Python registry. The form is that of tests/golden/golden.txt, with a line `losses` per
model: before each of 20 steps of AdamW (lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1, gradients clipped to
norm 1), and a line `drawn`: the latents that FluxPipeline has after 4 steps from unit("drawn"). Names are those of the first release, whose fused tensors (qkv, linear1, both halves of the last modulation) are
put together from diffusers' parts; values follow from name and index as in golden.txt, and so do the image, the noise and
the texts. The configurations are those of tests/golden/test_flux_parity.c.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from safetensors.torch import save_file

STEPS = 20
# Of each model: what its scheduler is, and the scale of guidance against a negative prompt (None: there is none).
DRAWN = [
    (dict(use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15, base_image_seq_len=256, max_image_seq_len=4096), None),
    (dict(shift=3.0), 2.5),
    (dict(shift=1.0), None),
]
# layers, single layers, heads, axes, channels, text tokens, width, pooled, rows, columns, guidance or None, time
MODELS = [
    (1, 1, 2, (2, 2, 4), 8, 3, 12, 6, 2, 3, 3.5, 0.75),
    (2, 1, 3, (4, 2, 2), 4, 5, 7, 9, 3, 3, None, 0.5),
    (1, 3, 1, (4, 6, 6), 12, 2, 16, 4, 1, 4, 1.0, 0.125),
]


def fmix32(h):
    h = h & 0xFFFFFFFF
    h ^= h >> 16
    h = h * 0x85EBCA6B & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def fnv1a(text):
    h = 2166136261
    for c in text.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    return h


def unit(name, *shape):
    n = int(np.prod(shape))
    i = np.arange(n, dtype=np.uint64)
    v = (fmix32(np.uint64(fnv1a(name)) + i * np.uint64(2654435769)) >> np.uint64(16)).astype(np.int64) - 32768
    return torch.tensor(v.reshape(shape) / 32768.0, dtype=torch.float64)


def parts(name):
    """diffusers' tensors, one under the other, that make a tensor of the first release."""
    m = re.fullmatch(r"double_blocks\.(\d+)\.(img|txt)_(.*)", name)
    if m:
        block, img = f"transformer_blocks.{m[1]}.", m[2] == "img"
        rest = re.sub(r"\.(weight|bias)$", "", m[3])
        kind = m[3][len(rest):]
        q = ("attn.to_q", "attn.to_k", "attn.to_v") if img else ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj")
        names = {"mod.lin": ["norm1.linear" if img else "norm1_context.linear"], "attn.qkv": q,
                 "attn.proj": ["attn.to_out.0" if img else "attn.to_add_out"],
                 "mlp.0": ["ff.net.0.proj" if img else "ff_context.net.0.proj"],
                 "mlp.2": ["ff.net.2" if img else "ff_context.net.2"],
                 "attn.norm.query_norm.scale": ["attn.norm_q.weight" if img else "attn.norm_added_q.weight"],
                 "attn.norm.key_norm.scale": ["attn.norm_k.weight" if img else "attn.norm_added_k.weight"]}[rest]
        return [block + n + kind for n in names]
    m = re.fullmatch(r"single_blocks\.(\d+)\.(.*)", name)
    if m:
        rest = re.sub(r"\.(weight|bias)$", "", m[2])
        names = {"modulation.lin": ["norm.linear"], "linear2": ["proj_out"],
                 "linear1": ["attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"],
                 "norm.query_norm.scale": ["attn.norm_q.weight"], "norm.key_norm.scale": ["attn.norm_k.weight"]}[rest]
        return [f"single_transformer_blocks.{m[1]}.{n}{m[2][len(rest):]}" for n in names]
    rest, kind = name.rsplit(".", 1)
    embed = "time_text_embed."
    outer = {"img_in": "x_embedder", "txt_in": "context_embedder", "final_layer.linear": "proj_out",
             "final_layer.adaLN_modulation.1": "norm_out.linear"}
    for ours, theirs in ("time_in", "timestep_embedder"), ("guidance_in", "guidance_embedder"), ("vector_in", "text_embedder"):
        outer[ours + ".in_layer"], outer[ours + ".out_layer"] = embed + theirs + ".linear_1", embed + theirs + ".linear_2"
    return [f"{outer[rest]}.{kind}"]


def names(layers, singles, guidance):
    linear = ["img_in", "txt_in"]
    for e in ["time_in"] + (["guidance_in"] if guidance is not None else []) + ["vector_in"]:
        linear += [e + ".in_layer", e + ".out_layer"]
    scales = []
    for i in range(layers):
        for s in "img", "txt":
            b = f"double_blocks.{i}.{s}_"
            linear += [b + n for n in ("mod.lin", "attn.qkv", "attn.proj", "mlp.0", "mlp.2")]
            scales += [b + f"attn.norm.{n}_norm.scale" for n in ("query", "key")]
    for i in range(singles):
        b = f"single_blocks.{i}."
        linear += [b + n for n in ("linear1", "linear2", "modulation.lin")]
        scales += [b + f"norm.{n}_norm.scale" for n in ("query", "key")]
    linear += ["final_layer.linear", "final_layer.adaLN_modulation.1"]
    return [f"{n}.{k}" for n in linear for k in ("weight", "bias")] + scales


def swapped(name, value):
    """The last modulation is (shift, scale) in the first release, (scale, shift) here."""
    return torch.cat(value.chunk(2)[::-1]) if "adaLN" in name else value


def build(layers, singles, heads, axes, channels, nt, width, vector, guidance):
    model = FluxTransformer2DModel(patch_size=1, in_channels=channels, num_layers=layers, num_single_layers=singles,
                                   attention_head_dim=sum(axes), num_attention_heads=heads, joint_attention_dim=width,
                                   pooled_projection_dim=vector, guidance_embeds=guidance is not None,
                                   axes_dims_rope=axes).double()
    own = dict(model.named_parameters())
    for name in names(layers, singles, guidance):
        into = [own.pop(p) for p in parts(name)]
        shape = (sum(p.shape[0] for p in into), *into[0].shape[1:])
        value = swapped(name, 0.25 * unit(name, *shape) + (1 if name.endswith("_norm.scale") else 0))
        for p, v in zip(into, value.split([p.shape[0] for p in into])):
            p.data = v.clone()
    assert not own, sorted(own)
    return model


def run(model, inputs):
    """The velocity of one image."""
    rows, columns, channels = inputs["noisy"].shape
    ids = torch.tensor([[0, r, c] for r in range(rows) for c in range(columns)], dtype=torch.float64)
    return model(hidden_states=inputs["noisy"].double().reshape(1, -1, channels), encoder_hidden_states=inputs["text"][None].double(),
                 pooled_projections=inputs["pooled"][None].double(), timestep=inputs["time"].double(),
                 guidance=inputs["guidance"].double() if model.config.guidance_embeds else None, img_ids=ids,
                 txt_ids=torch.zeros(len(inputs["text"]), 3, dtype=torch.float64)).sample[0]


def near(what, found, wanted, relative):
    error = np.linalg.norm(np.subtract(found, wanted)) / np.linalg.norm(wanted)
    print(f"    {what:<24} {error:.2e}")
    if not error <= relative:
        sys.exit(f"{what}: relative error {error:.3g} > {relative:g}")


def load(folder):
    model, info = FluxTransformer2DModel.from_pretrained(folder, output_loading_info=True)
    wrong = {k: v for k, v in info.items() if v}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    return model.double()


def loss_and_gradients(model, inputs, velocity):
    loss = ((velocity - inputs["velocity"].double().reshape(velocity.shape)) ** 2).mean()
    loss.backward()
    return float(loss.detach()), {n: float(p.grad.norm()) for n, p in model.named_parameters()}


def write():
    layers, singles, heads, axes, channels, nt, width, vector, rows, columns, _, _ = MODELS[0]
    guidance, t = 0.0625, 0.03125  # small angles: their sinusoids are float32
    model = FluxTransformer2DModel(patch_size=1, in_channels=channels, num_layers=layers, num_single_layers=singles,
                                   attention_head_dim=sum(axes), num_attention_heads=heads, joint_attention_dim=width,
                                   pooled_projection_dim=vector, guidance_embeds=True, axes_dims_rope=axes).double()
    for name, p in model.named_parameters():
        p.data = 0.25 * unit(name, *p.shape) + (1 if "norm" in name and "weight" in name else 0)
    inputs = dict(noisy=unit("noisy", rows, columns, channels), velocity=unit("velocity", rows, columns, channels),
                  time=torch.tensor([t]), text=unit("text", nt, width), pooled=unit("pooled", vector),
                  guidance=torch.tensor([guidance]))
    loss, norms = loss_and_gradients(model, inputs, run(model, inputs))
    with tempfile.TemporaryDirectory() as folder:
        model.save_config(folder)
        with open(os.path.join(folder, "config.json")) as f:
            config = json.load(f)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "hf", "flux.json"), "w") as f:
        json.dump(dict(config=config, rows=rows, columns=columns, text=nt, time=t, guidance=guidance, loss=loss,
                       parameters=sum(p.numel() for p in model.parameters()), gradients=norms), f, indent=1)
        f.write("\n")


def check(program):
    for k, (layers, singles, heads, axes, channels, nt, width, vector, rows, columns, guidance, t) in enumerate(MODELS):
        print(f"flux-{k}")
        torch.manual_seed(k)
        model = FluxTransformer2DModel(patch_size=1, in_channels=channels, num_layers=layers, num_single_layers=singles,
                                       attention_head_dim=sum(axes), num_attention_heads=heads, joint_attention_dim=width,
                                       pooled_projection_dim=vector, guidance_embeds=guidance is not None,
                                       axes_dims_rope=axes)
        with torch.no_grad():
            for p in model.parameters():
                p += 0.1 * torch.randn(p.shape)
        inputs = dict(noisy=torch.randn(rows, columns, channels), velocity=torch.randn(rows, columns, channels),
                      time=torch.tensor([t]), text=torch.randn(nt, width), pooled=torch.randn(vector),
                      guidance=torch.tensor([guidance or 1.0]))
        with tempfile.TemporaryDirectory() as pipeline:
            folder, file = os.path.join(pipeline, "transformer"), os.path.join(pipeline, "inputs.safetensors")
            model.save_pretrained(folder)
            save_file(inputs, file)
            out = subprocess.run([program, "numerics", pipeline, "--inputs", file, "--json"], capture_output=True, text=True)
            if out.returncode:
                sys.exit(out.stderr)
            ours = json.loads(out.stdout)
            model = load(folder)
            velocity = run(model, inputs)
            loss, theirs = loss_and_gradients(model, inputs, velocity)
            if sorted(theirs) != sorted(ours["gradients"]):
                sys.exit(f"tensors differ: {sorted(set(theirs) ^ set(ours['gradients']))}")
            if ours["parameters"] != sum(p.numel() for p in model.parameters()):
                sys.exit(f"{ours['parameters']} parameters")
            near("loss", ours["loss"], loss, 1e-5)
            near("gradient_norm", ours["gradient_norm"], np.linalg.norm(list(theirs.values())), 1e-4)
            for n in theirs:
                if not abs(ours["gradients"][n] - theirs[n]) <= 1e-4 * theirs[n] + 1e-9:
                    sys.exit(f"gradient of {n}: {ours['gradients'][n]}, wanted {theirs[n]}")
            for dtype in "float32", "bfloat16":
                other = os.path.join(pipeline, dtype)
                subprocess.run([program, "export", pipeline, "-o", other, "--dtype", dtype, "--max_shard_size", "0.00002"],
                               check=True, stdout=subprocess.DEVNULL)
                with torch.no_grad():
                    for p in model.parameters():
                        p.data = p.data.to(getattr(torch, dtype)).double()
                    near(f"export {dtype}", run(load(other), inputs).numpy(), run(model, inputs).numpy(), 1e-5)


def drawn(model, scheduler, scale, rows, columns, channels, nt, width, vector, guidance):
    """What the pipeline makes of unit("drawn") in 4 steps, before the decoder."""
    pipeline = FluxPipeline(scheduler=FlowMatchEulerDiscreteScheduler(**scheduler), vae=None, text_encoder=None, tokenizer=None,
                            text_encoder_2=None, tokenizer_2=None, transformer=model)
    pipeline.set_progress_bar_config(disable=True)
    negative = {} if scale is None else dict(negative_prompt_embeds=unit("untxt", nt, width)[None], true_cfg_scale=scale,
                                             negative_pooled_prompt_embeds=unit("unpooled", 1, vector))
    return pipeline(prompt_embeds=unit("txt", nt, width)[None], pooled_prompt_embeds=unit("pooled", 1, vector), **negative,
                    latents=unit("drawn", 1, rows * columns, channels), num_inference_steps=4, height=16 * rows,
                    width=16 * columns, guidance_scale=guidance or 1.0, output_type="latent").images[0]


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "check":
        return check(os.path.abspath(sys.argv[2]))
    if sys.argv[1:] == ["write"]:
        return write()
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    print("# What diffusers computes for tiny FLUX.1 models (tools/flux_parity.py), in the form of golden.txt.")
    for k, (layers, singles, heads, axes, channels, nt, width, vector, rows, columns, guidance, t) in enumerate(MODELS):
        model = build(layers, singles, heads, axes, channels, nt, width, vector, guidance)
        n = rows * columns
        x0, noise = unit("x0", n, channels), 2 * unit("noise", n, channels)
        ids = torch.tensor([[0, r, c] for r in range(rows) for c in range(columns)], dtype=torch.float64)

        def loss_of():
            out = model(hidden_states=((1 - t) * x0 + t * noise)[None], encoder_hidden_states=unit("txt", nt, width)[None],
                        pooled_projections=unit("pooled", 1, vector), timestep=torch.tensor([t], dtype=torch.float64),
                        guidance=None if guidance is None else torch.tensor([guidance], dtype=torch.float64),
                        img_ids=ids, txt_ids=torch.zeros(nt, 3, dtype=torch.float64)).sample[0]
            return ((out - (noise - x0)) ** 2).mean()

        latents = drawn(model, *DRAWN[k], rows, columns, channels, nt, width, vector, guidance)
        loss = loss_of()
        loss.backward()
        own = dict(model.named_parameters())
        norms = {m: float(torch.cat([own[p].grad.flatten() for p in parts(m)]).norm()) for m in names(layers, singles, guidance)}
        total = float(np.sqrt(sum(v * v for v in norms.values())))
        print(f"\nmodel flux-{k} {sum(p.numel() for p in own.values())} {float(loss):.12f} {total:.12f}")
        print("shape", layers, singles, heads, *axes, channels, nt, width, vector, rows, columns, guidance or 0, t)
        for m, v in norms.items():
            print(f"    {m} {v:.9e}")
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1), []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of()
            losses.append(float(loss.detach()))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print("drawn " + " ".join(f"{v:.9g}" for v in latents.flatten().tolist()))
        print("losses " + " ".join(f"{v:.9g}" for v in losses))


if __name__ == "__main__":
    main()
