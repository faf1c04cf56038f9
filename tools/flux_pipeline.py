#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What diffusers does with a whole FLUX.1 folder, from pictures to pictures: writes tests/encoder/pipeline.

    tools/flux_pipeline.py TOKENIZERS OUT
        TOKENIZERS: a folder with clip/ and t5/ (tests/token/prompts)
        OUT/model: a tiny folder of random weights as FLUX.1 ships it; OUT/pictures: a few pictures with captions
        OUT/noise.safetensors, drawn.safetensors: what FluxPipeline draws from that noise for PROMPT, as pixels in [0, 1]
        OUT/expected.json: the losses of 20 steps of training from the pictures, with AdamW

Needs torch, transformers, diffusers and Pillow of the Python registry. Training: latents, times and noise are drawn as the
project documents it (Philox-4x32-10 of seed, stream and index: src/base/random.h, src/data/flow.h), the rest is theirs.
"""
import json
import os
import shutil
import sys

import numpy as np
import torch
from PIL import Image
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from safetensors.torch import save_file
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, T5Config, T5EncoderModel, T5Tokenizer

SIZE, TEXT, STEPS, BATCH, SEED = 32, 12, 20, 2, 7
PROMPT, NEGATIVE = "a photo of a cat", "a dog"
CAPTIONS = ["a photo of a cat", "an astronaut riding a horse on mars", "blue sky", "A red square, 4k", "two dogs", "a house"]
M64 = (1 << 64) - 1


def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & M64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def philox(seed, stream, index):
    """Four words for each index (n): (4, n)."""
    key = mix64((seed + 0x9E3779B97F4A7C15) & M64)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    index = np.asarray(index, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    c = [index & low, index >> np.uint64(32), np.full_like(index, stream & 0xFFFFFFFF), np.full_like(index, stream >> 32)]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        n0 = (p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0)
        n2 = (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1)
        c = [n0 & low, p1 & low, n2 & low, p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def stream_of(name, index=0):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 & M64
    return (h + index) & M64


def uniform(seed, stream, index):
    r = philox(seed, stream, [index])
    return ((int(r[1][0]) << 32 | int(r[0][0])) >> 11) * 2.0**-53


def normal(seed, stream, n):
    r = philox(seed, stream, np.arange(n))
    u = (((r[1] << np.uint64(32) | r[0]) >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53
    v = ((r[3] << np.uint64(32) | r[2]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


def normal4(seed, stream, n):
    r = philox(seed, stream, np.arange((n + 3) // 4))
    out = np.zeros((len(r[0]), 4), dtype=np.float32)
    for pair in range(2):
        u = ((r[2 * pair] >> np.uint64(8)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24)
        angle = (r[2 * pair + 1] >> np.uint64(8)).astype(np.float32) * np.float32(6.2831853 * 2.0**-24)
        radius = np.sqrt(np.float32(-2) * np.log(u))
        out[:, 2 * pair], out[:, 2 * pair + 1] = radius * np.cos(angle), radius * np.sin(angle)
    return out.reshape(-1)[:n]


def permute(seed, stream, i, n):
    half = 1
    while half < 32 and 1 << (2 * half) < n:
        half += 1
    mask, key = (1 << half) - 1, mix64(seed ^ mix64(stream))
    while True:
        left, right = i >> half, i & mask
        for step in range(6):
            left, right = right, left ^ (mix64((right + mix64((key + step) & M64)) & M64) & mask)
        i = left << half | right
        if i < n:
            return i


def make_model(tokenizers, folder):
    torch.manual_seed(3)
    clip_tokens = CLIPTokenizer.from_pretrained(os.path.join(tokenizers, "clip"))
    t5_tokens = T5Tokenizer.from_pretrained(os.path.join(tokenizers, "t5"))
    end = clip_tokens.eos_token_id
    clip = CLIPTextModel(CLIPTextConfig(vocab_size=len(clip_tokens), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                        num_attention_heads=2, max_position_embeddings=77, hidden_act="quick_gelu",
                                        eos_token_id=end, bos_token_id=clip_tokens.bos_token_id,
                                        pad_token_id=clip_tokens.pad_token_id))
    t5 = T5EncoderModel(T5Config(vocab_size=len(t5_tokens), d_model=24, d_kv=8, d_ff=32, num_layers=2, num_heads=3,
                                 feed_forward_proj="gated-gelu"))
    vae = AutoencoderKL(in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(8, 8, 8, 8),
                        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
                        layers_per_block=1, norm_num_groups=4, use_quant_conv=False, use_post_quant_conv=False,
                        scaling_factor=0.6, shift_factor=0.1, sample_size=SIZE)
    transformer = FluxTransformer2DModel(patch_size=1, in_channels=16, num_layers=1, num_single_layers=1,
                                         attention_head_dim=16, num_attention_heads=2, joint_attention_dim=24,
                                         pooled_projection_dim=16, guidance_embeds=True, axes_dims_rope=(4, 6, 6))
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, shift=3.0, base_shift=0.5, max_shift=1.15,
                                                base_image_seq_len=256, max_image_seq_len=4096)
    with torch.no_grad():
        for model in (clip, t5, vae, transformer):
            for name, p in model.named_parameters():
                if p.ndim == 1 and "norm" in name and name.endswith("weight"):
                    p.copy_(1 + 0.2 * torch.randn_like(p))
                else:
                    p.copy_(torch.randn_like(p) / max(1.0, float(np.prod(p.shape[1:])) ** 0.5))
    pipe = FluxPipeline(scheduler=scheduler, vae=vae, text_encoder=clip, tokenizer=clip_tokens, text_encoder_2=t5,
                        tokenizer_2=t5_tokens, transformer=transformer)
    for model in (clip, t5, vae, transformer):
        model.to(torch.bfloat16)
    pipe.save_pretrained(folder)


def make_pictures(folder):
    os.makedirs(folder)
    rng = np.random.default_rng(5)
    rows = []
    for i, caption in enumerate(CAPTIONS):
        small = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(small).resize((SIZE, SIZE), Image.BICUBIC).save(f"{folder}/{i}.png")
        rows.append(json.dumps({"file_name": f"{i}.png", "text": caption}))
    with open(f"{folder}/metadata.jsonl", "w") as out:
        out.write("\n".join(rows) + "\n")


def draw(pipe, out):
    vae_channels = pipe.vae.config.latent_channels
    tokens = (SIZE // 16) ** 2
    noise = torch.tensor(normal(SEED, stream_of("generate.noise"), tokens * 4 * vae_channels), dtype=torch.float32)
    noise = noise.reshape(1, tokens, 4 * vae_channels)
    save_file({"latents": noise.contiguous()}, f"{out}/noise.safetensors")
    common = dict(prompt=PROMPT, height=SIZE, width=SIZE, num_inference_steps=4, guidance_scale=3.5, max_sequence_length=TEXT,
                  latents=noise, output_type="pt")
    plain = pipe(**common).images
    against = pipe(**common, negative_prompt=NEGATIVE, true_cfg_scale=2.5).images
    save_file({"plain": plain[0].permute(1, 2, 0).contiguous(), "against": against[0].permute(1, 2, 0).contiguous()},
              f"{out}/drawn.safetensors")


def encode(pipe, folder):
    """Of each picture mean, logvar, text, pooled."""
    items = []
    for line in open(f"{folder}/metadata.jsonl"):
        row = json.loads(line)
        pixels = torch.tensor(np.asarray(Image.open(f"{folder}/{row['file_name']}").convert("RGB"))).permute(2, 0, 1)
        with torch.no_grad():
            moments = pipe.vae.encode(pixels[None].float() / 127.5 - 1).latent_dist
            text, pooled, _ = pipe.encode_prompt(row["text"], row["text"], max_sequence_length=TEXT)
        items.append((moments.mean[0].double().numpy(), moments.logvar[0].double().numpy(), text[0], pooled[0]))
    return items


def train(pipe, items):
    """data.source latents of all pictures, protocol torchtitan with data.text_dropout 0, data.seed SEED."""
    model = pipe.transformer.train()
    vae, side, n = pipe.vae.config, SIZE // 16, len(items)
    ids = FluxPipeline._prepare_latent_image_ids(1, side, side, "cpu", torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, index = [], 0
    for _ in range(STEPS):
        batch = []
        for _ in range(BATCH):
            mean, logvar, text, pooled = items[permute(SEED, stream_of("latents.order", index // n), index % n, n)]
            drawn = mean + np.exp(logvar / 2) * normal(SEED, stream_of("latents.train", index), mean.size).reshape(mean.shape)
            drawn = torch.tensor(vae.scaling_factor * (drawn - vae.shift_factor), dtype=torch.float32)
            x0 = FluxPipeline._pack_latents(drawn[None], 1, drawn.shape[0], 2 * side, 2 * side)[0]
            t = np.float32(uniform(SEED, stream_of("flow.time", index), 0))
            noise = torch.tensor(normal4(SEED, stream_of("flow.noise.train", index), x0.numel())).reshape(x0.shape)
            batch.append((float(t) * noise + (1 - float(t)) * x0, noise - x0, t, text, pooled))
            index += 1
        noisy, target, t, text, pooled = (torch.stack([torch.as_tensor(b[k]) for b in batch]) for k in range(5))
        out = model(noisy, encoder_hidden_states=text, pooled_projections=pooled, timestep=t, img_ids=ids,
                    txt_ids=torch.zeros(TEXT, 3), guidance=torch.full((BATCH,), 1.0), return_dict=False)[0]
        loss = torch.mean((out - target) ** 2)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    tokenizers, out = sys.argv[1:3]
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    make_model(tokenizers, f"{out}/model")
    make_pictures(f"{out}/pictures")
    pipe = FluxPipeline.from_pretrained(f"{out}/model", torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    draw(pipe, out)
    items = encode(pipe, f"{out}/pictures")
    expected = {"prompt": PROMPT, "negative": NEGATIVE, "seed": SEED, "losses": train(pipe, items),
                "mean": [float(np.linalg.norm(i[0])) for i in items], "text": [float(i[2].norm()) for i in items],
                "pooled": [float(i[3].norm()) for i in items]}
    with open(f"{out}/expected.json", "w") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


main()
