#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small autoencoders with random weights, as diffusers saves them, and what diffusers computes with them.

    python3 tools/vae_parity.py tests/encoder/data

writes a folder for each case: config.json, the weights (one file, or shards), and expected.safetensors with pixels
(batch, height, width, 3), mean and logvar, latents and the decoded pixels, in float32. tests/encoder/test_vae.c computes
the same. Needs torch, diffusers and safetensors.
"""
import os
import shutil
import sys

import torch
from diffusers import AutoencoderKL
from safetensors.torch import load_file, save_file


def randomise(model, seed):
    """Every parameter away from what it begins with, norms around one, values of about one throughout."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 1:
                p.copy_((1 if "norm" in name and name.endswith("weight") else 0) + 0.2 * noise)
            else:
                p.copy_(noise / (p[0].numel() ** 0.5))
    return model.eval()


def write(folder, model, height, width, batch, seed, dtype=torch.float32, **options):
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder, **options)
    model.float()
    generator = torch.Generator().manual_seed(seed)
    factor = 2 ** (len(model.config.block_out_channels) - 1)
    pixels = torch.rand((batch, 3, height, width), generator=generator) * 2 - 1
    latents = torch.randn((batch, model.config.latent_channels, height // factor, width // factor), generator=generator)
    with torch.no_grad():
        posterior = model.encode(pixels).latent_dist
        decoded = model.decode(latents).sample
    last = lambda x: x.permute(0, 2, 3, 1).contiguous()
    save_file({"pixels": last(pixels), "mean": posterior.mean.contiguous(), "logvar": posterior.logvar.contiguous(),
               "latents": latents, "decoded": last(decoded)}, os.path.join(folder, "expected.safetensors"))


def vae(channels, seed, **options):
    return randomise(AutoencoderKL(
        block_out_channels=channels, down_block_types=["DownEncoderBlock2D"] * len(channels),
        up_block_types=["UpDecoderBlock2D"] * len(channels), **options), seed)


def rename(folder):
    """As diffusers before version 0.17 saved the attention."""
    path = os.path.join(folder, "diffusion_pytorch_model.safetensors")
    tensors = {}
    for name, value in load_file(path).items():
        for now, before in (("to_q", "query"), ("to_k", "key"), ("to_v", "value"), ("to_out.0", "proj_attn")):
            name = name.replace(f"attentions.0.{now}.", f"attentions.0.{before}.")
        tensors[name] = value
    save_file(tensors, path, metadata={"format": "pt"})


def main():
    data = sys.argv[1]
    # as FLUX.1 has it: four resolutions, no convolution of the latents
    folder = os.path.join(data, "vae_four")
    model = vae([4, 8, 8, 16], 1, layers_per_block=1, latent_channels=4, norm_num_groups=4, use_quant_conv=False,
                use_post_quant_conv=False, scaling_factor=0.3611, shift_factor=0.1159)
    write(folder, model, 24, 24, 2, 2, dtype=torch.bfloat16)
    # two resolutions, shards, convolutions of the latents, as most others have them
    folder = os.path.join(data, "vae_two")
    write(folder, vae([4, 12], 3, layers_per_block=2, latent_channels=3, norm_num_groups=2), 16, 24, 2, 4,
          dtype=torch.float16, max_shard_size="30KB")
    # one resolution, and the names of old files
    folder = os.path.join(data, "vae_old")
    write(folder, vae([4], 5, layers_per_block=1, latent_channels=2, norm_num_groups=2), 6, 10, 1, 6)
    rename(folder)


main()
