#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PEFT computes for adapters of tiny random models: fixtures and live comparison.

    tools/peft_parity.py write [NAME ...]      writes tests/hf/adapters/NAME.json
    tools/peft_parity.py check TRAINMARK       an adapter trained and exported by trainmark, loaded by PEFT without a warning:
                                               the same logits; the same of the model merged by `trainmark merge`

Needs peft beside what tools/hf_parity.py needs, whose models, weights and tokens these are. A fixture is a JSON object:

    config, sequence    of the model, see tools/hf_parity.py
    adapter             adapter_config.json as PEFT saves it
    shapes              name of the tensor in adapter_model.safetensors: its shape; element i is 0.25 unit(name, i), of
                        lora_magnitude_vector 1 + that
    loss, gradient_norm, gradients, first_logits, last_logits
    losses              before each of the steps of AdamW on the adapter: see ADAMW; gradients clipped to norm 1
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_parity as hf

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "hf", "adapters")
STEPS = 50
ADAMW = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# name: (family, number of the configuration, arguments of LoraConfig)
ADAPTERS = {
    "llama": ("llama", 0, dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "qwen3": ("qwen3", 1, dict(r=3, lora_alpha=5, use_rslora=True, target_modules=ALL)),
    "deepseek": ("deepseek_v2", 1, dict(r=4, lora_alpha=4, target_modules=[
        "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"])),
    "gpt2": ("gpt2", 0, dict(r=2, lora_alpha=8, fan_in_fan_out=True, target_modules=["c_attn", "c_fc", "c_proj"])),
    "llama_head": ("llama", 2, dict(r=4, lora_alpha=8, target_modules=["q_proj", "lm_head"])),
    "qwen3_moe": ("qwen3_moe", 0, dict(r=2, lora_alpha=4, target_modules=["q_proj"], target_parameters=[
        "mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "mixtral": ("mixtral", 1, dict(r=3, lora_alpha=5, target_modules=[], target_parameters=["mlp.experts.down_proj"])),
    "llama_dora": ("llama", 0, dict(r=4, lora_alpha=8, use_dora=True, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"])),
    "llama_dora_head": ("llama", 2, dict(r=3, lora_alpha=6, use_dora=True, target_modules=["q_proj", "down_proj", "lm_head"])),
    "qwen3_dora": ("qwen3", 1, dict(r=3, lora_alpha=5, use_rslora=True, use_dora=True, target_modules=ALL)),
    "gpt2_dora": ("gpt2", 0, dict(r=2, lora_alpha=8, use_dora=True, fan_in_fan_out=True, target_modules=[
        "c_attn", "c_fc", "c_proj"])),
    # ranks and alphas by pattern, of which the first that fits counts
    "llama_ranks": ("llama", 0, dict(r=4, lora_alpha=8, target_modules=ALL, alpha_pattern={"v_proj": 5, "mlp.*": 3},
                    rank_pattern={"q_proj": 2, r"layers\.1\.self_attn\.(k|v)_proj": 6, r".*mlp\.(gate|up)_proj": 3, "v_proj": 1})),
    # some blocks; a module in full, which has an adapter whatever its block; modules left out
    "llama_layers": ("llama", 0, dict(r=4, lora_alpha=8, target_modules=ALL + ["model.layers.0.mlp.up_proj"],
                     layers_to_transform=[1], layers_pattern="layers", exclude_modules=["o_proj", "mlp.gate_proj"])),
    # regular expressions; lengths of rows beside ranks of each row's own
    "llama_regex": ("llama", 0, dict(r=4, lora_alpha=8, use_dora=True, use_rslora=True, target_modules=r".*\.(q|k|v|down)_proj",
                    exclude_modules=r".*layers\.0\.mlp.*", rank_pattern={"q_proj": 3}, alpha_pattern={r"layers\.0.*k_proj": 2})),
    "gpt2_layers": ("gpt2", 0, dict(r=2, lora_alpha=8, fan_in_fan_out=True, target_modules="all-linear", rank_pattern={"c_fc": 3})),
}
WEIGHTS = "adapter_model.safetensors"


def value(name, shape):
    mean = 1.0 if "lora_magnitude" in name else 0.0
    return (mean + torch.tensor(0.25 * hf.unit(name, int(torch.Size(shape).numel())).reshape(shape) / 32768.0)).float()


def build(model_class, base, folder, arguments):
    """An adapter's folder as PEFT saves it, with our values."""
    model = get_peft_model(hf.load(model_class, base, torch.float32), LoraConfig(task_type="CAUSAL_LM", **arguments))
    model.save_pretrained(folder, save_embedding_layers=False)  # else the output layer's own weight is saved, too
    names = load_file(os.path.join(folder, WEIGHTS))
    save_file({k: value(k, tuple(v.shape)) for k, v in names.items()}, os.path.join(folder, WEIGHTS), {"format": "pt"})
    return {k: list(v.shape) for k, v in names.items()}


def load(model_class, base, folder, trainable=True):
    model = PeftModel.from_pretrained(hf.load(model_class, base, torch.float64), folder, is_trainable=trainable,
                                      autocast_adapter_dtype=False)
    for p in model.parameters():
        p.data = p.data.double()
    return model


def file_name(name):
    return name.replace(".default.", ".").replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


def compute(model_class, base, folder, ids):
    model = load(model_class, base, folder)
    adapter = [p for p in model.parameters() if p.requires_grad]
    optimizer, losses = torch.optim.AdamW(adapter, **ADAMW), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss, _ = hf.forward(model, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapter, 1.0)
        optimizer.step()
        losses.append(loss.item())
    model = load(model_class, base, folder)
    loss, logits = hf.forward(model, ids)
    loss.backward()
    norms = {file_name(k): float(p.grad.norm()) for k, p in model.named_parameters() if p.requires_grad}
    return dict(loss=loss.item(), gradient_norm=sum(v * v for v in norms.values()) ** 0.5, gradients=norms,
                first_logits=logits[0].tolist(), last_logits=logits[-1].tolist(), losses=losses)


def write(chosen):
    os.makedirs(FOLDER, exist_ok=True)
    for name in chosen:
        family, variant, arguments = ADAPTERS[name]
        config_class, model_class, variants = hf.FAMILIES[family]
        sequence, model_arguments = hf.split(variants[variant])
        with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as folder:
            hf.build(config_class, model_class, model_arguments, base, lambda k, v: hf.weight(k, tuple(v.shape)))
            shapes = build(model_class, base, folder, arguments)
            with open(os.path.join(base, "config.json")) as f:
                config = json.load(f)
            with open(os.path.join(folder, "adapter_config.json")) as f:
                adapter = json.load(f)
            adapter["base_model_name_or_path"] = "base"
            if not isinstance(adapter["target_modules"], str):
                adapter["target_modules"] = sorted(adapter["target_modules"])
            if isinstance(adapter["exclude_modules"], list):
                adapter["exclude_modules"] = sorted(adapter["exclude_modules"])
            adapter["target_parameters"] = sorted(adapter["target_parameters"] or [])
            result = compute(model_class, base, folder, hf.tokens(sequence, config["vocab_size"]))
        path = os.path.join(FOLDER, f"{name}.json")
        with open(path, "w") as f:
            json.dump(dict(config=config, sequence=sequence, adapter=adapter, shapes=shapes, **hf.digits(result)), f,
                      indent=1)
            f.write("\n")
        print(f"{path}: loss {result['loss']:.9f} -> {result['losses'][-1]:.9f}")


def run(*words):
    out = subprocess.run(words, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(words)}\n{out.stderr}")
    return out.stdout


def keys(arguments):
    """The keys of a run that mean the arguments of LoraConfig."""
    words, targets = [], arguments["target_modules"]
    if isinstance(targets, str) and targets != "all-linear":
        words += ["--lora.target_pattern", targets]
    else:
        listed = [targets] if isinstance(targets, str) else list(targets)
        if "layers_to_transform" in arguments:  # PEFT adapts a module that is named in full whatever its block; a run does not
            listed = [name for name in listed if "layers." not in name]
        words += ["--lora.targets", ",".join(listed + arguments.get("target_parameters", []))]
    for key, name in (("rank_pattern", "--lora.rank_pattern"), ("alpha_pattern", "--lora.alpha_pattern")):
        if key in arguments:
            words += [name, ",".join(f"{k}={v}" for k, v in arguments[key].items())]
    if "layers_to_transform" in arguments:
        words += ["--lora.layers", ",".join(str(k) for k in arguments["layers_to_transform"])]
    if isinstance(arguments.get("exclude_modules"), list):
        words += ["--lora.exclude", ",".join(arguments["exclude_modules"])]
    return words


def check(program):
    for name, (family, variant, arguments) in ADAPTERS.items():
        config_class, model_class, variants = hf.FAMILIES[family]
        sequence, model_arguments = hf.split(variants[variant])
        with tempfile.TemporaryDirectory() as top:
            base, adapter, merged, ids_file = (os.path.join(top, n) for n in ("base", "adapter", "merged", "ids.json"))
            torch.manual_seed(1)
            hf.build(config_class, model_class, model_arguments, base, lambda k, v: hf.weight(k, tuple(v.shape)))
            vocab = json.load(open(os.path.join(base, "config.json")))["vocab_size"]
            ids = hf.tokens(sequence, vocab)
            json.dump(ids, open(ids_file, "w"))
            run(program, "run", "--model.hf_assets_path", base, "--model.dropout", "0", "--lora.rank", str(arguments["r"]),
                "--lora.alpha", str(arguments["lora_alpha"]), *keys(arguments),
                "--lora.rslora", str(arguments.get("use_rslora", False)).lower(),
                "--lora.dora", str(arguments.get("use_dora", False)).lower(), "--training.steps", "5",
                "--training.seq_len", "12", "--training.local_batch_size", "2", "--checkpoint.enable", "true",
                "--lr_scheduler.warmup_steps", "0", "--optimizer.lr", "1e-2", "--out", os.path.join(top, "run"),
                "--data.source", "mock", "-q")
            run(program, "export", os.path.join(top, "run"), "-o", adapter)
            ours = json.loads(run(program, "numerics", base, "--adapter", adapter, "--tokens", ids_file, "--json"))
            run(program, "merge", base, adapter, "-o", merged)
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                model = load(model_class, base, adapter)
            about = [str(w.message) for w in heard if os.sep + "peft" + os.sep in w.filename or "adapter" in str(w.message)]
            if about:
                sys.exit(f"{name}: PEFT warns: {about}")
            loss, logits = hf.forward(model, ids)
            loss.backward()
            norms = {file_name(k): float(p.grad.norm()) for k, p in model.named_parameters() if p.requires_grad}
            print(f"{name}:")
            if sorted(norms) != sorted(ours["gradients"]):
                sys.exit(f"tensors differ: {sorted(set(norms) ^ set(ours['gradients']))}")
            hf.near("loss", [ours["loss"]], [loss.item()], 1e-5)
            hf.near("first_logits", ours["first_logits"], logits[0].tolist(), 1e-5)
            hf.near("gradients", [ours["gradients"][n] for n in sorted(norms)], [norms[n] for n in sorted(norms)], 1e-4)
            other = hf.load(model_class, merged, torch.float64)
            hf.near("merged by trainmark", hf.forward(other, ids)[1].tolist(), logits.tolist(), 1e-5)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2:] or ADAPTERS)
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        check(os.path.abspath(sys.argv[2]))
    else:
        sys.exit(__doc__)
