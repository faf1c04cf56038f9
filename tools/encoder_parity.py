#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small encoders with random weights, as transformers saves them, and what transformers computes with them.

    python3 tools/encoder_parity.py tests/encoder/data

writes a folder for each case: config.json, the weights (one file, or shards), and expected.safetensors with the ids and
the output in float32. tests/encoder/test_text.c computes the same. Needs torch, transformers and safetensors.
"""
import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel


def randomise(model, seed):
    """Every parameter away from what it begins with, norms around one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name and name.endswith("weight"):
                p.copy_(1 + 0.2 * noise)
            elif p.dim() == 1:
                p.copy_(0.1 * noise)
            elif "relative_attention_bias" in name or "embed" in name or "shared" in name:
                p.copy_(noise)
            else:
                p.copy_(noise / p.shape[-1] ** 0.5)
    return model.eval()


def write(folder, model, ids, output, dtype=torch.float32, **options):
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder, **options)
    ids = torch.tensor(ids, dtype=torch.int64)
    with torch.no_grad():
        out = output(model.float()(input_ids=ids))
    save_file({"ids": ids.int(), "out": out.float().contiguous()}, os.path.join(folder, "expected.safetensors"))


def clip(eos, seed):
    config = CLIPTextConfig(
        vocab_size=60, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=12, eos_token_id=eos, bos_token_id=58, projection_dim=24)
    return randomise(CLIPTextModel(config), seed)


def rename(folder, prefix):
    """As transformers before version 5 saved it."""
    path = os.path.join(folder, "model.safetensors")
    tensors = {prefix + name: value for name, value in load_file(path).items()}
    tensors[prefix + "embeddings.position_ids"] = torch.arange(12)[None]
    save_file(tensors, path, metadata={"format": "pt"})


def main():
    data = sys.argv[1]
    # the end is the largest id, which is its first place; then the first of several ends
    ids = [[58, 3, 7, 41, 59, 59, 59, 59, 59, 59, 59, 59], [58, 12, 2, 30, 5, 22, 8, 57, 59, 2, 2, 2]]
    folder = os.path.join(data, "clip_largest")
    write(folder, clip(2, 1), ids, lambda o: o.pooler_output)
    folder = os.path.join(data, "clip_first")
    ids = [[58, 3, 7, 41, 20, 59, 1, 20, 20, 20], [20, 12, 2, 30, 5, 22, 8, 57, 59, 2], [58, 1, 2, 3, 4, 5, 6, 7, 8, 9]]
    write(folder, clip(20, 2), ids, lambda o: o.pooler_output, dtype=torch.bfloat16)
    rename(folder, "text_model.")
    for name, kind, options in (("t5_gated", "gated-gelu", {"max_shard_size": "20KB"}), ("t5_relu", "relu", {})):
        config = T5Config(
            vocab_size=60, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3, feed_forward_proj=kind,
            relative_attention_num_buckets=32 if kind == "relu" else 8,
            relative_attention_max_distance=128 if kind == "relu" else 20)
        length = 150 if kind == "relu" else 33  # past the distance from which on all are one bucket
        ids = torch.randint(0, 60, (2, length), generator=torch.Generator().manual_seed(3)).tolist()
        folder = os.path.join(data, name)
        model = randomise(T5EncoderModel(config), 4)
        write(folder, model, ids, lambda o: o.last_hidden_state, **options)
        with open(os.path.join(folder, "config.json")) as f:  # as version 4 wrote it
            described = json.load(f)
        described.update({"is_encoder_decoder": True, "n_positions": 512, "output_past": True})
        with open(os.path.join(folder, "config.json"), "w") as f:
            f.write(json.dumps(described, indent=2) + "\n")


main()
