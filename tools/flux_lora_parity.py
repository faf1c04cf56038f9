#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What diffusers and PEFT compute for LoRA of a tiny FLUX.1 model: fixtures and live comparison.

    tools/flux_lora_parity.py write            writes tests/hf/flux_loras/NAME.json
    tools/flux_lora_parity.py check TRAINMARK  adapters trained and exported by trainmark, loaded by FluxPipeline without a
                                               warning: the same outputs, and the same of the model that `trainmark merge` makes;
                                               files of sd-scripts, merged: the same outputs

The model and its inputs are those of tests/hf/flux.json (tools/flux_parity.py). A fixture is a JSON object:

    shapes              name of the tensor in the file: its shape; element i is 0.25 unit(name, i), of lora_magnitude_vector 1 +
                        that
    alphas              name of a tensor of one number: that number
    metadata            of the file, or null
    loss, gradient_norm, gradients     of the adapter's tensors by PEFT's names
    losses              before each of the 20 steps of AdamW on the adapter: see ADAMW; gradients clipped to norm 1

Files with the names of sd-scripts are converted by diffusers, whose outputs must be those of the fixture's adapter; its
converter knows one width of model, which is replaced. It folds the factor alpha / rank into A, the fixture does not.
"""
import inspect
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from diffusers.loaders import lora_conversion_utils as conversion
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import load_file, save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import flux_parity as flux

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "tests", "hf", "flux_loras")
ADAMW = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
STEPS = 20
FILE = "pytorch_lora_weights.safetensors"
ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]
ALL = ATTENTION + ["add_q_proj", "add_k_proj", "add_v_proj", "to_add_out", "ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj",
                   "ff_context.net.2", "norm1.linear", "norm1_context.linear", "proj_mlp", "norm.linear",
                   "single_transformer_blocks.0.proj_out"]
# arguments of LoraConfig, and whether diffusers writes the metadata
OURS = {
    "attention": (dict(r=4, lora_alpha=8, target_modules=ATTENTION), True),
    "all": (dict(r=3, lora_alpha=3, target_modules=ALL), False),
    "ranks": (dict(r=4, lora_alpha=2, target_modules=ALL, rank_pattern={"to_k": 2, "proj_mlp": 1}, alpha_pattern={"to_v": 5}), True),
    "rslora": (dict(r=4, lora_alpha=8, use_rslora=True, target_modules=["to_q", "add_q_proj", "proj_mlp"]), True),
    "dora": (dict(r=2, lora_alpha=2, use_dora=True, target_modules=["to_q", "to_v", "proj_mlp", "ff.net.2"]), False),
}
# module of the first release: rank, alpha (None: none in the file)
FUSED = {
    "double_blocks.0.img_attn.qkv": (4, 2.0), "double_blocks.0.txt_attn.qkv": (3, 3.0), "double_blocks.0.img_attn.proj": (2, 1.0),
    "double_blocks.0.txt_attn.proj": (2, 4.0), "double_blocks.0.img_mlp.0": (3, 6.0), "double_blocks.0.img_mlp.2": (3, 1.5),
    "double_blocks.0.txt_mlp.0": (2, 2.0), "double_blocks.0.txt_mlp.2": (4, 1.0), "double_blocks.0.img_mod.lin": (2, 1.0),
    "double_blocks.0.txt_mod.lin": (1, 1.0), "single_blocks.0.linear1": (4, 3.0), "single_blocks.0.linear2": (4, 8.0),
    "single_blocks.0.modulation.lin": (2, 2.0),
}
SOME = {k: (r, None) for k, (r, _) in FUSED.items() if "txt" not in k}


def fixture():
    with open(os.path.join(HERE, "..", "tests", "hf", "flux.json")) as f:
        return json.load(f)


def value(name, shape):
    return (0.25 * flux.unit(name, *shape) + ("lora_magnitude" in name)).float()


def base():
    f = fixture()
    model = FluxTransformer2DModel.from_config({k: v for k, v in f["config"].items() if not k.startswith("_")})
    for name, p in model.named_parameters():
        p.data = (0.25 * flux.unit(name, *p.shape) + (1 if "norm" in name and "weight" in name else 0)).float()
    return model


def inputs_of():
    f = fixture()
    c = f["config"]
    rows, columns, channels = f["rows"], f["columns"], c["in_channels"]
    return dict(noisy=flux.unit("noisy", rows, columns, channels), velocity=flux.unit("velocity", rows, columns, channels),
                time=torch.tensor([f["time"]]), text=flux.unit("text", f["text"], c["joint_attention_dim"]),
                pooled=flux.unit("pooled", c["pooled_projection_dim"]), guidance=torch.tensor([f["guidance"]]))


def pipeline(model):
    return FluxPipeline(scheduler=FlowMatchEulerDiscreteScheduler(), vae=None, text_encoder=None, tokenizer=None,
                        text_encoder_2=None, tokenizer_2=None, transformer=model)


class Strict(logging.Handler):
    """What diffusers warns of is an error."""

    def emit(self, record):
        text_encoder = "NoneType" in record.getMessage()  # of which there is none
        if record.levelno >= logging.WARNING and not text_encoder:
            sys.exit(f"diffusers: {record.getMessage()}")


def adapted(path, what=None):
    """The model with the adapter of a file, in float64; its parameters alone are trained."""
    model = base()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline(model).load_lora_weights(what or os.path.dirname(path), weight_name=None if what else os.path.basename(path))
    model = model.double()
    for n, p in model.named_parameters():
        p.requires_grad = "lora_" in n
    return model


def peft_name(name):
    name = name.replace(".default_0", "")
    return "base_model.model." + (name[: -len(".weight")] if name.endswith("lora_magnitude_vector.weight") else name)


def compute(model):
    inputs = inputs_of()
    wanted = inputs["velocity"].reshape(-1, inputs["velocity"].shape[-1])
    loss_of = lambda: ((flux.run(model, inputs) - wanted) ** 2).mean()
    own = {n: p for n, p in model.named_parameters() if p.requires_grad}
    loss = loss_of()
    loss.backward()
    norms = {peft_name(n): float(p.grad.norm()) for n, p in own.items()}
    result = dict(loss=float(loss.detach()), gradient_norm=sum(v * v for v in norms.values()) ** 0.5, gradients=norms)
    optimizer, losses = torch.optim.AdamW(own.values(), **ADAMW), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of()
        losses.append(float(loss.detach()))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(own.values(), 1.0)
        optimizer.step()
    return dict(result, losses=losses)


def save(name, tensors, alphas, metadata, result):
    with open(os.path.join(FOLDER, f"{name}.json"), "w") as f:
        json.dump(dict(shapes={k: list(v.shape) for k, v in tensors.items()}, alphas=alphas, metadata=metadata, **result), f,
                  indent=1)
        f.write("\n")
    print(f"{name}: {len(tensors)} tensors, loss {result['loss']:.9f} -> {result['losses'][-1]:.9f}")


def write_ours(name, arguments, with_metadata):
    model = base()
    model.add_adapter(LoraConfig(**arguments))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, FILE)
        metadata = model.peft_config["default"].to_dict() if with_metadata else None
        for k, v in (metadata or {}).items():
            if isinstance(v, set):
                metadata[k] = sorted(v)
        FluxPipeline.save_lora_weights(folder, transformer_lora_layers=get_peft_model_state_dict(model),
                                       transformer_lora_adapter_metadata=metadata)
        with safe_open(path, "pt") as f:
            metadata = f.metadata()
        tensors = {k: value(k, tuple(v.shape)) for k, v in load_file(path).items()}
        save_file(tensors, path, metadata)
        save(name, tensors, {}, metadata, compute(adapted(path)))


def shapes_of(module):
    """(outputs, inputs) of a module of the first release."""
    own = dict(base().named_parameters())
    parts = [own[p] for p in flux.parts(module + ".weight")]
    return sum(p.shape[0] for p in parts), parts[0].shape[1]


def converter(width):
    """That of diffusers for a model of another width."""
    text = inspect.getsource(conversion._convert_kohya_flux_lora_to_diffusers)
    assert text.count("[3072, 3072, 3072, 12288]") == 1
    scope = dict(vars(conversion))
    exec(text.replace("[3072, 3072, 3072, 12288]", str([width, width, width, 4 * width])), scope)
    return scope["_convert_kohya_flux_lora_to_diffusers"]


def fused_file(modules, prefix, joined, words):
    tensors, alphas = {}, {}
    for module, (rank, alpha) in modules.items():
        outputs, inputs = shapes_of(module)
        name = prefix + (module.replace(".", "_") if joined else module)
        for word, shape in zip(words, ((rank, inputs), (outputs, rank))):
            tensors[f"{name}.{word}.weight"] = value(f"{name}.{word}.weight", shape)
        if alpha is not None:
            alphas[f"{name}.alpha"] = alpha
    return tensors, alphas


def parted(modules, tensors, words, prefix, joined):
    """The same adapter by the names of diffusers, its factors as alphas."""
    own, out = dict(base().named_parameters()), {}
    for module, (rank, alpha) in modules.items():
        name = prefix + (module.replace(".", "_") if joined else module)
        down, up = (tensors[f"{name}.{w}.weight"] for w in words)
        parts = flux.parts(module + ".weight")
        for part, rows in zip(parts, up.split([own[p].shape[0] for p in parts])):
            m = "transformer." + part[: -len(".weight")]
            out[m + ".lora_A.weight"], out[m + ".lora_B.weight"] = down.clone(), rows.clone()
            out[m + ".alpha"] = torch.tensor(float(rank if alpha is None else alpha))
    return out


def write_fused(name, modules, prefix, joined, words):
    tensors, alphas = fused_file(modules, prefix, joined, words)
    model = adapted(None, parted(modules, tensors, words, prefix, joined))
    whole = {**tensors, **{k: torch.tensor(v) for k, v in alphas.items()}}
    theirs = adapted(None, converter(shapes_of("single_blocks.0.linear2")[0])(dict(whole)))
    inputs = inputs_of()
    with torch.no_grad():
        flux.near(f"{name}: converted", flux.run(theirs, inputs).numpy(), flux.run(model, inputs).numpy(), 1e-6)
    save(name, tensors, alphas, None, compute(model))


def write():
    os.makedirs(FOLDER, exist_ok=True)
    for name, (arguments, with_metadata) in OURS.items():
        write_ours(name, arguments, with_metadata)
    write_fused("sd_scripts", FUSED, "lora_unet_", True, ("lora_down", "lora_up"))
    write_fused("comfy", SOME, "diffusion_model.", False, ("lora_down", "lora_up"))


def run(*words):
    out = subprocess.run(words, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(words)}\n{out.stderr}")
    return out.stdout


def output(model, inputs):
    with torch.no_grad():
        return flux.run(model, inputs).numpy()


def check_merged(program, what, folder, adapter, wanted, inputs):
    """The model that trainmark makes of the two, in diffusers."""
    merged = adapter + "-merged"
    run(program, "merge", folder, adapter, "-o", merged, "--dtype", "float32")
    flux.near(f"{what}: merged", output(flux.load(merged), inputs), wanted, 1e-5)


def random_model(folder):
    torch.manual_seed(1)
    model = base()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn(p.shape)
    model.save_pretrained(folder)


def with_adapter(folder, adapter, weight_name=None):
    model = FluxTransformer2DModel.from_pretrained(folder)
    pipeline(model).load_lora_weights(adapter, weight_name=weight_name)
    return model.double()


def check_trained(program, work, name, words, inputs):
    folder, file = os.path.join(work, "model"), os.path.join(work, "inputs.safetensors")
    trained, adapter = os.path.join(work, name), os.path.join(work, name + "-adapter")
    again = os.path.join(work, name + "-again")
    common = [program, "run", "--model.hf_assets_path", folder, "--model.image_size", "32", "--model.text_len", "3", "--data.source",
              "gaussians", "--training.local_batch_size", "2", "--optimizer.lr", "0.01", "--checkpoint.enable", "true", *words]
    run(*common, "--training.steps", "20", "--out", trained)
    run(program, "export", trained, "-o", adapter)
    model = with_adapter(folder, adapter)
    found = output(model, inputs)
    start = output(FluxTransformer2DModel.from_pretrained(folder).double(), inputs)
    assert np.linalg.norm(found - start) > 1e-3 * np.linalg.norm(start), "nothing was trained"
    loss = float(((found - inputs["velocity"].double().reshape(found.shape).numpy()) ** 2).mean())
    ours = json.loads(run(program, "numerics", folder, "--inputs", file, "--adapter", adapter, "--json"))
    flux.near(f"{name}: loss", ours["loss"], loss, 1e-5)
    other = FluxTransformer2DModel.from_pretrained(folder)
    other.load_lora_adapter(adapter, weight_name=FILE, use_safetensors=True)
    flux.near(f"{name}: load_lora_adapter", output(other.double(), inputs), found, 1e-6)
    check_merged(program, name, folder, adapter, found, inputs)
    for key in "--lora.alpha", "--lora.alpha_pattern":  # the factor is in the file
        if key in common:
            del common[common.index(key):common.index(key) + 2]
    if "--lora.rank_pattern" in common:
        common += ["--lora.alpha_pattern", common[common.index("--lora.rank_pattern") + 1]]
    run(*common, "--lora.adapter_path", adapter, "--training.steps", "2", "--out", again)


def check(program):
    inputs = {k: v.float() for k, v in inputs_of().items()}
    with tempfile.TemporaryDirectory() as work:
        os.environ["TRAINMARK_STORE"] = os.path.join(work, "store")
        folder = os.path.join(work, "model")
        random_model(folder)
        save_file({k: v.contiguous() for k, v in inputs.items()}, os.path.join(work, "inputs.safetensors"))
        for name, words in {
            "attention": ["--lora.rank", "4", "--lora.alpha", "8", "--lora.targets", ",".join(ATTENTION)],
            "all": ["--lora.rank", "3"],
            "fused": ["--lora.rank", "4", "--lora.alpha", "2", "--lora.targets", "img_attn.qkv,txt_attn.qkv"],
            "dora": ["--lora.rank", "2", "--lora.dora", "true", "--lora.targets", "to_q,proj_mlp,ff.net.2"],
            "ranks": ["--lora.rank", "4", "--lora.rank_pattern", "to_k=2,proj_mlp=1", "--lora.alpha_pattern", "to_v=5"],
        }.items():
            check_trained(program, work, name, words, inputs)
        for name, modules, prefix, joined, words in (  # diffusers leaves out alphas of the final layer
            ("sd_scripts", {**FUSED, "final_layer.linear": (2, 2.0), "img_in": (2, 1.0),
                            "final_layer.adaLN_modulation.1": (2, 2.0)}, "lora_unet_", True, ("lora_down", "lora_up")),
            ("comfy", SOME, "diffusion_model.", False, ("lora_down", "lora_up")),
        ):
            tensors, alphas = fused_file(modules, prefix, joined, words)
            whole = {**tensors, **{k: torch.tensor(v) for k, v in alphas.items()}}
            save_file(whole, os.path.join(work, name + ".safetensors"))
            converted = converter(shapes_of("single_blocks.0.linear2")[0])(dict(whole))
            converted = {k if k.startswith("transformer.") else "transformer." + k: v for k, v in converted.items()}
            wanted = output(with_adapter(folder, converted), inputs)
            check_merged(program, name, folder, os.path.join(work, name + ".safetensors"), wanted, inputs)


def main():
    logging.getLogger("diffusers").handlers = [Strict()]
    if sys.argv[1:] == ["write"]:
        return write()
    if len(sys.argv) == 3 and sys.argv[1] == "check":
        return check(os.path.abspath(sys.argv[2]))
    sys.exit(__doc__)


if __name__ == "__main__":
    main()
