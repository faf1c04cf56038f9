#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/hf/rope.json: what transformers makes of the rotary positions in a config.json.

    python3 tools/make_rope_fixture.py                         writes it
    python3 tools/make_rope_fixture.py TRAINMARK [FAMILY ...]  `trainmark export` of each model, loaded by transformers: the
                                                               same logits

Needs what tools/hf_parity.py needs. Three lists; `config` is a config.json as files have it, not as the library saves it:

    frequencies   config, length of the sequence, inverse_frequencies, attention_factor: of the rotary module after it has
                  seen that sequence. The library computes in float32; recorded is the same code with float64 in its place,
                  and the script stops where the two differ by more than FLOAT32.
    models        config, sequence, loss, logits of the last token: of a small model with the weights of hf_parity.py,
                  float64 as far as the library lets it
    growing       the same where the first `prompt` tokens come at once and the others one by one, with a cache
"""
import json
import os
import sys
import tempfile

import torch
import transformers as T

import hf_parity

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "hf", "rope.json")
FLOAT32 = 4e-6  # of a power of a base of 1e8 with a rounded exponent

# --- settings ---------------------------------------------------------------------------------------------------------

LLAMA = dict(model_type="llama", vocab_size=64, hidden_size=64, intermediate_size=48, num_hidden_layers=1,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
DEEPSEEK = dict(model_type="deepseek_v3", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=640, q_lora_rank=None,
                kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=16, v_head_dim=12, n_routed_experts=8,
                num_experts_per_tok=3, moe_intermediate_size=12, n_group=1, topk_group=1, first_k_dense_replace=0)
GPT_OSS = dict(LLAMA, model_type="gpt_oss", head_dim=64, num_local_experts=4, num_experts_per_tok=2)
QWEN2 = dict(LLAMA, model_type="qwen2", hidden_size=96, num_attention_heads=3, num_key_value_heads=1, rope_theta=1e6)


def of(base, scaling=None, **more):
    return dict(base, **({} if scaling is None else dict(rope_scaling=scaling)), **more)


FREQUENCIES = [  # config, length
    (of(LLAMA), 8),
    (of(LLAMA, rope_theta=500000.0, head_dim=128), 100),
    (of(LLAMA, dict(rope_type="default"), rope_theta=1e8, head_dim=96), 8),
    (of(LLAMA, rope_parameters=dict(rope_type="default", rope_theta=123.5)), 8),
    (of(LLAMA, dict(type="linear", factor=4.0)), 8),
    (of(LLAMA, dict(rope_type="linear", factor=2.5), rope_theta=1e6), 200),
    (of(LLAMA, dict(rope_type="linear", factor=1.0)), 8),
    (of(LLAMA, dict(rope_type="linear", factor=3, rope_theta=77.0)), 8),
    (of(LLAMA, dict(rope_type="linear", factor=8.0, original_max_position_embeddings=16, beta_fast=3.0)), 8),
    (of(LLAMA, rope_parameters=dict(rope_type="linear", factor=3.0, rope_theta=5e5)), 8),
    (of(LLAMA, dict(type="dynamic", factor=2.0)), 8),
    (of(LLAMA, dict(type="dynamic", factor=2.0)), 64),
    (of(LLAMA, dict(type="dynamic", factor=2.0)), 65),
    (of(LLAMA, dict(type="dynamic", factor=2.0)), 256),
    (of(LLAMA, dict(rope_type="dynamic", factor=1.0), rope_theta=1e6), 128),
    (of(LLAMA, dict(rope_type="dynamic", factor=6.5), head_dim=96), 1000),
    (of(QWEN2, dict(rope_type="dynamic", factor=4.0), max_position_embeddings=32), 100),
    (of(LLAMA, rope_parameters=dict(rope_type="dynamic", factor=3.0, rope_theta=1e5)), 96),
    (of(LLAMA, LLAMA3), 8),
    (of(LLAMA, dict(LLAMA3, factor=32.0, high_freq_factor=2.0), rope_theta=500000.0, head_dim=128), 8),
    (of(LLAMA, {k: v for k, v in LLAMA3.items() if not k.startswith("original")}), 8),
    (of(LLAMA, dict(LLAMA3, attention_factor=3.0)), 8),
    (of(LLAMA, dict(type="yarn", factor=4.0)), 8),
    (of(LLAMA, YARN), 8),
    (of(LLAMA, dict(YARN, factor=None)), 8),
    (of(LLAMA, dict(YARN, factor=1.0)), 8),
    (of(LLAMA, dict(YARN, factor=40.0, beta_fast=16, beta_slow=2)), 8),
    (of(LLAMA, dict(YARN, beta_fast=None, beta_slow=None, truncate=None, attention_factor=None)), 8),
    (of(LLAMA, dict(YARN, truncate=False)), 8),
    (of(LLAMA, dict(YARN, truncate=None), rope_theta=150000.0, head_dim=128), 8),
    (of(LLAMA, dict(YARN, truncate=False), rope_theta=150000.0, head_dim=128), 8),
    (of(LLAMA, dict(YARN, attention_factor=0.75)), 8),
    (of(LLAMA, dict(YARN, attention_factor=1.0, mscale=2.0, mscale_all_dim=1.0)), 8),
    (of(LLAMA, dict(YARN, mscale=2.0, mscale_all_dim=0.5)), 8),
    (of(LLAMA, dict(YARN, mscale=2.0)), 8),
    (of(LLAMA, dict(YARN, mscale_all_dim=0.5)), 8),
    (of(LLAMA, dict(YARN, mscale=0.707, mscale_all_dim=0)), 8),
    (of(LLAMA, dict(YARN, original_max_position_embeddings=1)), 8),
    (of(LLAMA, dict(YARN, original_max_position_embeddings=4096), max_position_embeddings=16384, head_dim=128), 8),
    (of(QWEN2, dict(YARN, original_max_position_embeddings=32768), max_position_embeddings=131072), 8),
    (of(LLAMA, rope_parameters=dict(YARN, rope_theta=5e5)), 8),
    (of(dict(LLAMA, model_type="mistral"), YARN), 8),
    (of(dict(LLAMA, model_type="mixtral", num_local_experts=4, head_dim=16), YARN), 8),
    (of(dict(LLAMA, model_type="qwen3"), YARN, rope_theta=1e6), 8),
    (of(dict(LLAMA, model_type="qwen3_moe", num_experts=4, num_experts_per_tok=2), YARN, rope_theta=1e6), 8),
    (of(GPT_OSS), 8),
    (of(GPT_OSS, None, rope_theta=1000.0), 8),
    (of(GPT_OSS, dict(YARN)), 8),
    (of(GPT_OSS, rope_parameters=dict(rope_theta=5000.0)), 8),
    (of(DEEPSEEK, dict(YARN, factor=40.0, mscale=1.0, mscale_all_dim=1.0)), 8),
    (of(DEEPSEEK, dict(YARN, factor=40.0, mscale=1.0, mscale_all_dim=0.5)), 8),
    (of(DEEPSEEK, dict(YARN, truncate=False, attention_factor=1.25)), 8),
    (of(DEEPSEEK, dict(type="dynamic", factor=2.0), max_position_embeddings=16), 40),
]

SCALINGS = {  # name: (of rope_scaling, positions the model was made for); sequences have 20 tokens
    "linear": (dict(type="linear", factor=4.0), 64),
    "within": (dict(type="dynamic", factor=2.0), 64),
    "dynamic": (dict(rope_type="dynamic", factor=2.0), 10),
    "llama3": (dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=2.0,
                    original_max_position_embeddings=16), 64),
    "yarn": (dict(type="yarn", factor=4.0, original_max_position_embeddings=16), 64),
    "mscale": (dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=0.5,
                    truncate=False), 64),
    "attention": (dict(rope_type="yarn", factor=4.0, beta_fast=8.0, beta_slow=0.5, attention_factor=1.5), 16),
}
SEQUENCE, GROWING = 21, [("dynamic", 5), ("dynamic", 10), ("dynamic", 15), ("linear", 5), ("yarn", 5)]


def configs():
    """A small model of every family with rotary positions, and of every scaling."""
    for family, (config_class, model_class, variants) in hf_parity.FAMILIES.items():
        if family == "gpt2":
            continue
        _, arguments = hf_parity.split(variants[0])
        if family == "mixtral":  # whose class cannot scale with a head_dim of null
            arguments["head_dim"] = arguments["hidden_size"] // arguments["num_attention_heads"]
        for name, (scaling, positions) in SCALINGS.items():
            yield family, name, dict(arguments, model_type=family, rope_scaling=dict(scaling), num_hidden_layers=2,
                                     max_position_embeddings=positions)


# --- transformers -----------------------------------------------------------------------------------------------------


class Wide:
    """torch with float64 where a module asks for float32."""
    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def read(config):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        return T.AutoConfig.from_pretrained(folder)


def rotary(config, length, wide):
    model_class = hf_parity.FAMILIES[config["model_type"]][1]
    modules = sys.modules[model_class.__module__], sys.modules["transformers.modeling_rope_utils"]
    rotary_class = next(v for k, v in vars(modules[0]).items() if k.endswith("RotaryEmbedding"))
    for module in modules:
        module.torch = Wide() if wide else torch
    torch.set_default_dtype(torch.float64 if wide else torch.float32)
    try:
        module = rotary_class(read(config))
        module(torch.zeros(1, length, 1, dtype=torch.float64), torch.arange(length)[None])
    finally:
        for m in modules:
            m.torch = torch
        torch.set_default_dtype(torch.float32)
    return module.inv_freq.double().tolist(), float(module.attention_scaling)


def lacking():
    """Of every family: a file without one of the members that a rope_scaling may have."""
    full = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=8, beta_fast=16.0, beta_slow=0.5,
                mscale=1.0, mscale_all_dim=0.5, truncate=False, attention_factor=1.5)
    for family, name, config in configs():
        if name != "yarn":
            continue
        for member in [None, *full]:
            scaling = {k: v for k, v in full.items() if k != member}
            if member in ("mscale", "mscale_all_dim"):
                del scaling["attention_factor"]
            if member not in ("rope_type", "factor"):
                yield dict(config, rope_scaling=scaling), 8
        llama3 = {k: v for k, v in LLAMA3.items() if not k.startswith("original")}
        for scaling in None, llama3:
            yield {k: v for k, v in dict(config, rope_scaling=scaling).items() if k != "rope_theta"}, 8


def frequencies():
    for config, length in [*FREQUENCIES, *lacking()]:
        values, factor = rotary(config, length, True)
        stock, stock_factor = rotary(config, length, False)
        worst = max(abs(a / b - 1) for a, b in zip(stock + [stock_factor], values + [factor]))
        if not worst <= FLOAT32:
            sys.exit(f"{config}: float32 and float64 differ by {worst:.2e}")
        yield dict(config=config, length=length, inverse_frequencies=values, attention_factor=factor)


def model_of(config, folder):
    """A folder with that config.json, and the model that the library loads from it."""
    arguments = {k: v for k, v in config.items() if k != "model_type"}
    config_class, model_class, _ = hf_parity.FAMILIES[config["model_type"]]
    hf_parity.build(config_class, model_class, json.loads(json.dumps(arguments)), folder,
                    lambda k, v: hf_parity.weight(k, tuple(v.shape)))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return hf_parity.load(model_class, folder, torch.float64).eval().requires_grad_(False)


def models():
    for family, name, config in configs():
        with tempfile.TemporaryDirectory() as folder:
            model = model_of(config, folder)
            loss, logits = hf_parity.forward(model, hf_parity.tokens(SEQUENCE, config["vocab_size"]))
        print(f"{family} {name}: loss {loss.item():.9f}")
        yield dict(config=config, sequence=SEQUENCE, loss=loss.item(), last_logits=logits[-1].tolist())


def growing():
    for wanted, prompt in GROWING:
        for family, name, config in configs():
            if family not in ("llama", "mistral", "deepseek_v3") or name != wanted:
                continue
            with tempfile.TemporaryDirectory() as folder:
                model, ids = model_of(config, folder), hf_parity.tokens(SEQUENCE, config["vocab_size"])[:-1]
                out = model(input_ids=torch.tensor([ids[:prompt]]), use_cache=True)
                for token in ids[prompt:]:
                    out = model(input_ids=torch.tensor([[token]]), past_key_values=out.past_key_values, use_cache=True)
            yield dict(config=config, sequence=SEQUENCE - 1, prompt=prompt, last_logits=out.logits[0, -1].tolist())


def digits(value, n):
    if isinstance(value, float):
        return float(f"{value:.{n}g}")
    if isinstance(value, dict):
        return {k: v if k == "config" else digits(v, n) for k, v in value.items()}
    return [digits(v, n) for v in value] if isinstance(value, list) else value


def check(program, families):
    for family, name, config in configs():
        if families and family not in families:
            continue
        print(f"{family} {name}")
        with tempfile.TemporaryDirectory() as folder:
            model_of(config, folder)
            hf_parity.export(program, hf_parity.FAMILIES[family][1], folder,
                             hf_parity.tokens(SEQUENCE, config["vocab_size"]))


def main():
    T.utils.logging.set_verbosity_error()
    T.utils.logging.disable_progress_bar()
    if len(sys.argv) > 1:
        check(os.path.abspath(sys.argv[1]), sys.argv[2:])
        return
    about = f"made by tools/make_rope_fixture.py with transformers {T.__version__}"
    lists = dict(frequencies=digits(list(frequencies()), 15), models=digits(list(models()), 10),
                 growing=digits(list(growing()), 10))
    with open(PATH, "w") as f:
        f.write(f'{{\n"about": "{about}"')
        for name, rows in lists.items():
            f.write(f',\n"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]")
        f.write("\n}\n")
    print(f"{PATH}: " + ", ".join(f"{len(rows)} {name}" for name, rows in lists.items()))


if __name__ == "__main__":
    main()
