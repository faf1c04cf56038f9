#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers computes for tiny random models of each Hugging Face class: fixtures and live comparison.

    tools/hf_parity.py write [FAMILY ...]          writes tests/hf/fixtures/FAMILY-N.json, one for each configuration
    tools/hf_parity.py check TRAINMARK [FAMILY ...]
        random weights: `trainmark numerics` of a folder that transformers saved, and a folder that `trainmark export`
        wrote loaded by transformers: no tensor missing or unexpected, the same logits; the tokens of `trainmark generate`

Needs torch, transformers and safetensors of the Python registry. A family is a row of FAMILIES: the class of its
configuration and of its model, and the arguments of at least three configurations.

A fixture is a JSON object:

    config           config.json as transformers saves it
    sequence         tokens of the one sequence: token(0) ... (15.1 of the generator below), inputs all but the last
    parameters, loss, gradient_norm
    gradients        name of the tensor in the file: L2 norm
    first_logits, last_logits
    losses           before each of the steps of AdamW on that sequence: see ADAMW; gradients clipped to norm 1

Weights follow from the names of the tensors in the file and the index of an element, so no random number generator
matters: 0.25 unit(name, i), sinks unit(name, i), norm weights 1 + 0.25 unit(name, i); a prefix "transformer." does not count.
Everything is computed in float64 as far as the library lets it: some classes compute norms and angles in float32.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "hf", "fixtures")
STEPS = 20
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
T = transformers

# --- the families -----------------------------------------------------------------------------------------------------

LLAMA = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0)
GPT2 = dict(vocab_size=48, n_embd=32, n_layer=2, n_head=4, n_positions=24, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0)

# name: (class of the configuration, class of the model, [arguments, ...]); "sequence" is the number of tokens, 13 if absent
FAMILIES = {
    "llama": (T.LlamaConfig, T.LlamaForCausalLM, [
        dict(LLAMA, sequence=17),
        dict(LLAMA, hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=16, num_hidden_layers=3,
             tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=500000.0),
        dict(LLAMA, vocab_size=96, num_key_value_heads=4, sequence=20,
             rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=2.0,
                               original_max_position_embeddings=16)),
    ]),
    "gpt2": (T.GPT2Config, T.GPT2LMHeadModel, [
        dict(GPT2, sequence=17),
        dict(GPT2, n_embd=24, n_head=3, n_layer=3, n_inner=40, layer_norm_epsilon=1e-6),
        dict(GPT2, n_positions=13, n_head=2, tie_word_embeddings=False, activation_function="gelu_pytorch_tanh"),
    ]),
}

MISTRAL = dict(LLAMA, head_dim=8)
FAMILIES.update({
    "mistral": (T.MistralConfig, T.MistralForCausalLM, [
        dict(MISTRAL, sliding_window=4, sequence=17),
        dict(MISTRAL, head_dim=12, num_key_value_heads=4, sliding_window=7, rope_theta=1e6, sequence=20),
        dict(MISTRAL, num_key_value_heads=1, num_hidden_layers=3, sliding_window=None, tie_word_embeddings=True),
    ]),
    "qwen2": (T.Qwen2Config, T.Qwen2ForCausalLM, [
        dict(LLAMA, sequence=17),
        dict(LLAMA, hidden_size=24, num_attention_heads=3, num_key_value_heads=3, rms_norm_eps=1e-6, rope_theta=1e6,
             tie_word_embeddings=True),
        dict(LLAMA, vocab_size=96, num_key_value_heads=1, num_hidden_layers=3, sequence=20),
    ]),
    "qwen3": (T.Qwen3Config, T.Qwen3ForCausalLM, [
        dict(LLAMA, head_dim=8, sequence=17),
        dict(LLAMA, hidden_size=24, num_attention_heads=4, head_dim=16, rms_norm_eps=1e-6, rope_theta=1e6,
             tie_word_embeddings=True),
        dict(LLAMA, vocab_size=96, head_dim=6, num_key_value_heads=1, num_hidden_layers=3, sequence=20),
    ]),
})

EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
QWEN3_MOE = dict(LLAMA, head_dim=8, moe_intermediate_size=24, num_experts=8, num_experts_per_tok=2)
GPT_OSS = dict(LLAMA, head_dim=8, intermediate_size=16, rope_theta=150000.0, sliding_window=4, **EXPERTS,
               rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                 original_max_position_embeddings=16))
YARN = dict(rope_type="yarn", factor=40.0, beta_fast=32.0, beta_slow=1.0, mscale=0.707, mscale_all_dim=0.707,
            original_max_position_embeddings=16)
DEEPSEEK = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=2, max_position_embeddings=640, rms_norm_eps=1e-6, q_lora_rank=None, kv_lora_rank=16,
                qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=12, n_routed_experts=8, num_experts_per_tok=3,
                moe_intermediate_size=12, n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=False,
                routed_scaling_factor=1.0, rope_scaling=YARN)
DEEPSEEK_V3 = dict(DEEPSEEK, q_lora_rank=20, n_shared_experts=1, n_group=4, topk_group=2, norm_topk_prob=True,
                   routed_scaling_factor=2.5, rope_scaling=dict(YARN, mscale=1.0, mscale_all_dim=1.0))
FAMILIES.update({
    "mixtral": (T.MixtralConfig, T.MixtralForCausalLM, [
        dict(LLAMA, **EXPERTS, sequence=17),
        dict(LLAMA, num_local_experts=6, num_experts_per_tok=3, head_dim=12, num_key_value_heads=1, rope_theta=1e6),
        dict(LLAMA, vocab_size=96, num_local_experts=3, num_experts_per_tok=2, num_hidden_layers=3,
             tie_word_embeddings=True, sequence=20),
    ]),
    "qwen3_moe": (T.Qwen3MoeConfig, T.Qwen3MoeForCausalLM, [
        dict(QWEN3_MOE, norm_topk_prob=True, sequence=17),
        dict(QWEN3_MOE, norm_topk_prob=False, num_experts=5, num_experts_per_tok=3, head_dim=12, rope_theta=1e6),
        dict(QWEN3_MOE, norm_topk_prob=True, vocab_size=96, num_key_value_heads=1, num_hidden_layers=3,
             tie_word_embeddings=True, sequence=20),
    ]),
    "gpt_oss": (T.GptOssConfig, T.GptOssForCausalLM, [
        dict(GPT_OSS, sequence=17),
        dict(GPT_OSS, num_local_experts=6, num_experts_per_tok=3, num_key_value_heads=4, head_dim=12, sliding_window=7),
        dict(GPT_OSS, vocab_size=96, num_key_value_heads=1, num_hidden_layers=3, intermediate_size=24, sequence=20),
    ]),
    "deepseek_v2": (T.DeepseekV2Config, T.DeepseekV2ForCausalLM, [
        dict(DEEPSEEK, sequence=17),
        dict(DEEPSEEK, q_lora_rank=20, n_group=4, topk_group=2, topk_method="group_limited_greedy",
             routed_scaling_factor=4.0, num_hidden_layers=3),
        dict(DEEPSEEK, vocab_size=96, num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1,
             num_experts_per_tok=2, rope_scaling=None, sequence=20),
    ]),
    "deepseek_v3": (T.DeepseekV3Config, T.DeepseekV3ForCausalLM, [
        dict(DEEPSEEK_V3, sequence=17),
        dict(DEEPSEEK_V3, q_lora_rank=None, n_group=1, topk_group=1, norm_topk_prob=False, routed_scaling_factor=1.0,
             num_hidden_layers=3),
        dict(DEEPSEEK_V3, vocab_size=96, num_attention_heads=4, num_key_value_heads=4, n_shared_experts=2, n_group=2,
             topk_group=1, num_experts_per_tok=2, num_hidden_layers=3, first_k_dense_replace=2, rope_scaling=None,
             sequence=20),
    ]),
})

# --- weights ----------------------------------------------------------------------------------------------------------


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


def unit(name, n):
    i = np.arange(n, dtype=np.uint64)
    return (fmix32(np.uint64(fnv1a(name)) + i * np.uint64(2654435769)) >> np.uint64(16)).astype(np.int64) - 32768


def weight(name, shape):
    name = name.removeprefix("transformer.")
    norm = ("norm" in name or "ln_" in name) and "weight" in name
    scale = 1.0 if "sinks" in name else 0.25
    values = scale * unit(name, int(np.prod(shape))) / 32768.0 + (1.0 if norm else 0.0)
    return torch.tensor(values.reshape(shape), dtype=torch.float32).contiguous()


def tokens(n, vocab):
    return [int(fmix32(fnv1a("tokens") + i * 2654435769) % vocab) for i in range(n)]


# --- models -----------------------------------------------------------------------------------------------------------


def split(arguments):
    arguments = dict(arguments)
    return arguments.pop("sequence", 13), arguments


def load(model_class, folder, dtype):
    model, info = model_class.from_pretrained(folder, dtype=dtype, attn_implementation="eager",
                                              experts_implementation="eager", output_loading_info=True)
    wrong = {k: sorted(v) for k, v in info.items() if v}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    return model.train()


def saved(model, folder):
    """The tensors of a model under the names and in the layout of its file."""
    model.save_pretrained(folder, safe_serialization=True)
    return load_file(os.path.join(folder, "model.safetensors"))


def build(config_class, model_class, arguments, folder, values):
    """A folder as the library saves it, with our values in its file."""
    torch.manual_seed(0)
    model = model_class(config_class(**arguments))
    names = saved(model, folder)
    save_file({k: values(k, v) for k, v in names.items()}, os.path.join(folder, "model.safetensors"), {"format": "pt"})


def forward(model, ids):
    x = torch.tensor([ids])
    logits = model(input_ids=x[:, :-1]).logits[0].double()
    return torch.nn.functional.cross_entropy(logits, x[0, 1:]), logits


def state(model):
    """Names of what a file holds beside the parameters."""
    return {name for name, _ in model.named_buffers()}


def gradients(model, folder):
    """Gradients by the names of the file: saved as if they were weights."""
    for p in model.parameters():
        p.data = p.grad if p.grad is not None else torch.zeros_like(p)
    return {k: float(v.double().norm()) for k, v in saved(model, folder).items() if k not in state(model)}


def train(model, ids):
    optimizer, losses = torch.optim.AdamW(model.parameters(), **ADAMW), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss, _ = forward(model, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def compute(model_class, folder, ids):
    losses = train(load(model_class, folder, torch.float64), ids)
    model = load(model_class, folder, torch.float64)
    loss, logits = forward(model, ids)
    loss.backward()
    with tempfile.TemporaryDirectory() as other:
        norms = gradients(model, other)
    file = load_file(os.path.join(folder, "model.safetensors"))
    return dict(parameters=sum(v.numel() for k, v in file.items() if k not in state(model)),
                loss=loss.item(), gradient_norm=float(np.sqrt(sum(v * v for v in norms.values()))), gradients=norms,
                first_logits=logits[0].tolist(), last_logits=logits[-1].tolist(), losses=losses)


def digits(value):
    """Ten significant digits are more than float32 can be wrong by."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {k: digits(v) for k, v in value.items()}
    return [digits(v) for v in value] if isinstance(value, list) else value


def write(families):
    os.makedirs(FOLDER, exist_ok=True)
    for name in families:
        config_class, model_class, variants = FAMILIES[name]
        for i, arguments in enumerate(variants):
            sequence, arguments = split(arguments)
            with tempfile.TemporaryDirectory() as folder:
                build(config_class, model_class, arguments, folder, lambda k, v: weight(k, tuple(v.shape)))
                with open(os.path.join(folder, "config.json")) as f:
                    config = json.load(f)
                result = compute(model_class, folder, tokens(sequence, config["vocab_size"]))
            path = os.path.join(FOLDER, f"{name}-{i}.json")
            with open(path, "w") as f:
                json.dump(dict(config=config, sequence=sequence, **digits(result)), f, indent=1)
                f.write("\n")
            print(f"{path}: loss {result['loss']:.9f} -> {result['losses'][-1]:.9f}")


# --- comparing --------------------------------------------------------------------------------------------------------


def near(what, found, wanted, relative):
    error = np.linalg.norm(np.subtract(found, wanted)) / max(np.linalg.norm(wanted), 1e-30)
    print(f"    {what:<24} {error:.2e}")
    if not error <= relative:
        sys.exit(f"{what}: relative error {error:.3g} > {relative:g}")


def compare(program, model_class, folder, ids):
    path = os.path.join(folder, "tokens.json")
    with open(path, "w") as f:
        json.dump(ids, f)
    out = subprocess.run([program, "numerics", folder, "--tokens", path, "--json"], capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    ours, theirs = json.loads(out.stdout), compute(model_class, folder, ids)
    if sorted(ours["gradients"]) != sorted(theirs["gradients"]):
        sys.exit(f"tensors differ: {sorted(set(ours['gradients']) ^ set(theirs['gradients']))}")
    if ours["parameters"] != theirs["parameters"]:
        sys.exit(f"parameters: {ours['parameters']}, wanted {theirs['parameters']}")
    for key in "loss", "gradient_norm", "first_logits", "last_logits":
        near(key, ours[key], theirs[key], 1e-5 if key != "gradient_norm" else 1e-4)
    names = sorted(theirs["gradients"])
    near("gradients", [ours["gradients"][n] for n in names], [theirs["gradients"][n] for n in names], 1e-4)


def routes(model, ids):
    """Logits, and the experts that every router chose: (layer, token, k), sorted; none where there are no routers."""
    chosen = []
    hooks = [m.register_forward_hook(lambda m, i, out: chosen.append(out[-1].sort(-1)[0].flatten(0, -2)))
             for m in model.modules() if m.__class__.__name__.lower().endswith("topkrouter")]
    logits = forward(model, ids)[1]
    for hook in hooks:
        hook.remove()
    return logits.tolist(), chosen


def export(program, model_class, folder, ids):
    """The same logits as the library's own rounding of the weights gives, also where rounding changes a route."""
    for dtype in "float32", "bfloat16":
        other = os.path.join(folder, dtype)
        subprocess.run([program, "export", folder, "-o", other, "--dtype", dtype, "--max_shard_size", "0.00002"],
                       check=True, stdout=subprocess.DEVNULL)
        plain, rounded, there = (load(model_class, f, torch.float64) for f in (folder, folder, other))
        for p in rounded.parameters():
            p.data = p.data.to(getattr(torch, dtype)).double()
        (_, before), (wanted, after) = routes(plain, ids), routes(rounded, ids)
        near(f"export {dtype}", routes(there, ids)[0], wanted, 1e-5)
        changed = sum(int((a != b).any(-1).sum()) for a, b in zip(before, after))
        if changed:
            print(f"    {changed} of {sum(len(a) for a in after)} routes are others than those of the unrounded weights")
        if load(model_class, other, "auto").dtype != getattr(torch, dtype):
            sys.exit(f"the exported config.json does not say {dtype}")


def generate(program, model_class, folder, ids):
    """The most likely tokens, up to the longest sequence: one after the other with what is kept of the earlier ones."""
    path, prompt = os.path.join(folder, "tokens.json"), ids[:5]
    with open(path, "w") as f:
        json.dump(prompt, f)
    out = subprocess.run([program, "generate", folder, "--prompt-ids", path, "--max_tokens", "8", "--json"],
                         capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    model, ours = load(model_class, folder, torch.float64).eval().requires_grad_(False), json.loads(out.stdout)["tokens"]
    for token in ours:
        logits = forward(model, prompt + [token])[1][-1]
        if float(logits.max() - logits[token]) > 1e-5:
            sys.exit(f"generate: token {token} behind {prompt}, wanted {int(logits.argmax())}")
        prompt.append(token)
    print(f"    generate                 {len(ours)} tokens")


def check(program, families):
    for name in families:
        config_class, model_class, variants = FAMILIES[name]
        for i, arguments in enumerate(variants):
            sequence, arguments = split(arguments)
            generator = torch.Generator().manual_seed(i + 1)
            print(f"{name}-{i}")
            with tempfile.TemporaryDirectory() as folder:
                build(config_class, model_class, arguments, folder,
                      lambda k, v: v.float() + 0.1 * torch.randn(v.shape, generator=generator))
                with open(os.path.join(folder, "config.json")) as f:
                    vocab = json.load(f)["vocab_size"]
                compare(program, model_class, folder, tokens(sequence, vocab))
                export(program, model_class, folder, tokens(sequence, vocab))
                generate(program, model_class, folder, tokens(sequence, vocab))


def main():
    T.utils.logging.set_verbosity_error()
    T.utils.logging.disable_progress_bar()
    words = sys.argv[1:]
    known = all(w in FAMILIES for w in words[1 if words[:1] == ["write"] else 2:])
    if words[:1] == ["write"] and known:
        write(words[1:] or FAMILIES)
    elif words[:1] == ["check"] and len(words) > 1 and known:
        check(os.path.abspath(words[1]), words[2:] or FAMILIES)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
