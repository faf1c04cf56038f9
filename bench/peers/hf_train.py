#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face implementation (transformers, diffusers) as the peer of a speed comparison.

    hf_train.py --case qwen3-0.6b --layers 2 --vocab 151936 --batch 2 --seq 512 --threads 2 --steps 8 [--compile] [--dtype bfloat16] [--device cuda]

The published width of the model, so many of its layers, random weights and data: next-token loss over all positions, or
for flux-535m the velocity's mean square error at random times. Fused AdamW, gradients clipped at 1.0, torch's fused
attention. bfloat16: autocast over float32 weights. --experts names transformers' way of running experts. Output as that
of torch_train.py: one line a step, then one JSON line.
"""
import time
T_START = time.perf_counter()
import argparse
import json
import resource
import statistics

import torch
import torch.nn.functional as F


def resident_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def options():
    a = argparse.ArgumentParser()
    a.add_argument("--case", choices=list(CASES), required=True)
    for name, default in dict(layers=2, vocab=32000, batch=1, seq=512, steps=8, warmup=2, accumulate=1, threads=0).items():
        a.add_argument("--" + name, type=int, default=default)
    a.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    a.add_argument("--compile", action="store_true")
    a.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    a.add_argument("--experts", choices=["eager", "grouped_mm", "batched_mm"])
    return a.parse_args()


class Decoder(torch.nn.Module):
    """A causal language model of transformers with the loss of trainmark: mean over all positions."""

    def __init__(self, config, o, attention="sdpa"):
        super().__init__()
        from transformers import AutoModelForCausalLM
        more = dict(experts_implementation=o.experts) if o.experts else {}
        self.inner = AutoModelForCausalLM.from_config(config, attn_implementation=attention, **more)
        self.vocab = o.vocab

    def batch(self, o):
        tokens = torch.randint(0, o.vocab, (o.batch, o.seq + 1))
        return tokens[:, :-1], tokens[:, 1:]

    def forward(self, tokens, labels):
        logits = self.inner(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Flux(torch.nn.Module):
    """FluxTransformer2DModel, 256 pixels and 256 text tokens: --seq is their sum."""
    SIDE, TEXT = 16, 256

    def __init__(self, o):
        super().__init__()
        from diffusers import FluxTransformer2DModel
        if o.seq != self.SIDE * self.SIDE + self.TEXT:
            raise SystemExit(f"--seq must be {self.SIDE * self.SIDE + self.TEXT}")
        self.inner = FluxTransformer2DModel(num_layers=1, num_single_layers=1, guidance_embeds=False)
        ids = torch.zeros(self.SIDE, self.SIDE, 3)
        ids[..., 1] = torch.arange(self.SIDE)[:, None]
        ids[..., 2] = torch.arange(self.SIDE)[None]
        self.register_buffer("image_ids", ids.reshape(-1, 3))
        self.register_buffer("text_ids", torch.zeros(self.TEXT, 3))

    def batch(self, o):
        image = torch.randn(o.batch, self.SIDE * self.SIDE, 64)
        return image, torch.randn_like(image), torch.rand(o.batch), torch.randn(o.batch, self.TEXT, 4096), torch.randn(o.batch, 768)

    def forward(self, image, noise, times, text, pooled):
        t = times[:, None, None]
        said = self.inner(hidden_states=(1 - t) * image + t * noise, timestep=times, encoder_hidden_states=text,
                          pooled_projections=pooled, img_ids=self.image_ids, txt_ids=self.text_ids).sample
        return F.mse_loss(said.float(), noise - image)


def qwen3(o):
    from transformers import Qwen3Config
    return Decoder(Qwen3Config(vocab_size=o.vocab, hidden_size=1024, intermediate_size=3072, num_hidden_layers=o.layers,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-6, tie_word_embeddings=True,
        max_position_embeddings=40960, rope_parameters=dict(rope_type="default", rope_theta=1e6)), o)


def deepseek(o):
    from transformers import DeepseekV2Config
    return Decoder(DeepseekV2Config(vocab_size=o.vocab, hidden_size=2048, intermediate_size=10944, num_hidden_layers=o.layers,
        num_attention_heads=16, num_key_value_heads=16, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=64, num_experts_per_tok=6, moe_intermediate_size=1408,
        n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=False, routed_scaling_factor=1.0, rms_norm_eps=1e-6,
        max_position_embeddings=163840, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, beta_fast=32.0,
            beta_slow=1.0, mscale=0.707, mscale_all_dim=0.707, original_max_position_embeddings=4096)), o)


def mixtral(o):
    from transformers import MixtralConfig
    return Decoder(MixtralConfig(vocab_size=o.vocab, hidden_size=4096, intermediate_size=14336, num_hidden_layers=o.layers,
        num_attention_heads=32, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2, rms_norm_eps=1e-5,
        max_position_embeddings=32768, rope_parameters=dict(rope_type="default", rope_theta=1e6)), o)


def qwen3_moe(o):
    from transformers import Qwen3MoeConfig
    return Decoder(Qwen3MoeConfig(vocab_size=o.vocab, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768,
        num_hidden_layers=o.layers, num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=128,
        num_experts_per_tok=8, norm_topk_prob=True, rms_norm_eps=1e-6, tie_word_embeddings=False, max_position_embeddings=40960,
        rope_parameters=dict(rope_type="default", rope_theta=1e6)), o)


def gpt_oss(o):
    from transformers import GptOssConfig
    return Decoder(GptOssConfig(vocab_size=o.vocab, num_hidden_layers=o.layers, num_local_experts=32), o, "eager")


CASES = {"qwen3-0.6b": qwen3, "deepseek-v2-lite": deepseek, "mixtral-8x7b": mixtral, "qwen3-30b-a3b": qwen3_moe,
         "gpt-oss-20b": gpt_oss, "flux-535m": Flux}


def main():
    o = options()
    if o.threads:
        torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    import diffusers, transformers  # noqa: F401, E401 - what the library costs before there is a model
    imported = resident_mib()
    model = CASES[o.case](o).to(o.device)
    params = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    stepped = torch.compile(model) if o.compile else model
    sync = torch.cuda.synchronize if o.device == "cuda" else (lambda: None)
    times, first = [], None
    for step in range(o.steps):
        began = time.perf_counter()
        for _ in range(o.accumulate):
            batch = [x.to(o.device) for x in model.batch(o)]
            with torch.autocast(o.device, torch.bfloat16, enabled=o.dtype == "bfloat16"):
                loss = stepped(*batch) / o.accumulate
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = float(loss.detach()) * o.accumulate
        sync()
        times.append(time.perf_counter() - began)
        if first is None:
            first = time.perf_counter() - T_START
        print(f"step {step} loss {value:.5f} seconds {times[-1]:.4f}", flush=True)
    counted = times[o.warmup:] or times
    print(json.dumps(dict(step_seconds_median=statistics.median(counted), step_seconds=times, params=params,
        peak_rss_mib=resident_mib(), imported_rss_mib=imported,
        peak_device_mib=torch.cuda.max_memory_allocated() / 2**20 if o.device == "cuda" else None,
        first_step_seconds=first, threads=torch.get_num_threads(),
        torch=torch.__version__, compile=o.compile, options=vars(o))))


if __name__ == "__main__":
    main()
