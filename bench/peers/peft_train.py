#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PEFT over transformers as the peer of a speed comparison of adapters: a Llama of the given widths, random weights and tokens.

    peft_train.py --dim 2048 --layers 2 --heads 32 --kv-heads 8 --ffn 8192 --vocab 32000 --batch 1 --seq 512 --rank 8 [--nf4] [--compile] [--device cuda]

Every linear of a block has an adapter; next-token loss over all positions, fused AdamW on the adapters, clipped at 1.0. bfloat16: the
frozen model is held in bfloat16 (--nf4: its linears in 4 bits, bitsandbytes, double quantization), the adapters in float32 under
autocast. Output as that of hf_train.py: one line a step, then one JSON line.
"""
import time
T_START = time.perf_counter()
import argparse
import json
import resource
import statistics

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def resident_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def options():
    a = argparse.ArgumentParser()
    for name, default in dict(dim=2048, layers=2, heads=32, kv_heads=8, ffn=8192, vocab=32000, batch=1, seq=512, steps=8, warmup=2,
                              accumulate=1, threads=0, rank=8).items():
        a.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    a.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    a.add_argument("--nf4", action="store_true")
    a.add_argument("--compile", action="store_true")
    a.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    return a.parse_args()


def quantize(model, device):
    """The linears of the blocks in NF4."""
    import bitsandbytes as bnb
    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            for name, child in list(part.named_children()):
                if not isinstance(child, torch.nn.Linear):
                    continue
                small = bnb.nn.Linear4bit(child.in_features, child.out_features, bias=False, compute_dtype=torch.bfloat16,
                                          compress_statistics=True, quant_type="nf4")
                small.weight = bnb.nn.Params4bit(child.weight.data, requires_grad=False, compress_statistics=True,
                                                 quant_type="nf4")
                setattr(part, name, small.to(device))


def build(o):
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=o.vocab, hidden_size=o.dim, intermediate_size=o.ffn, num_hidden_layers=o.layers,
                         num_attention_heads=o.heads, num_key_value_heads=o.kv_heads, rms_norm_eps=1e-5, max_position_embeddings=o.seq)
    model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
    params = sum(p.numel() for p in model.parameters())
    if o.dtype == "bfloat16" or o.nf4:
        model = model.to(torch.bfloat16)
    if o.nf4:
        quantize(model, o.device)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=o.rank, lora_alpha=o.rank, target_modules=TARGETS))
    for p in model.parameters():
        if p.requires_grad:
            p.data = p.data.float()
    return model.to(o.device), params


def main():
    o = options()
    if o.threads:
        torch.set_num_threads(o.threads)
    imported = resident_mib()
    model, params = build(o)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    run = torch.compile(model) if o.compile else model
    seconds, first = [], 0.0
    sync = torch.cuda.synchronize if o.device == "cuda" else (lambda: None)
    for step in range(o.steps):
        tokens = torch.randint(0, o.vocab, (o.batch, o.seq + 1)).to(o.device)
        sync()
        begin = time.perf_counter()
        with torch.autocast(o.device, torch.bfloat16, enabled=o.dtype == "bfloat16" or o.nf4):
            logits = run(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        sync()
        seconds.append(time.perf_counter() - begin)
        first = first or time.perf_counter() - T_START
        print(f"step {step + 1} loss {loss.item():.4f} {seconds[-1]:.4f} s", flush=True)
    kept = seconds[o.warmup:]
    print(json.dumps(dict(options=vars(o), params=params, trained=sum(p.numel() for p in trained),
                          tokens_per_second=o.batch * o.seq * len(kept) / sum(kept), step_seconds=seconds,
                          median_step_seconds=statistics.median(kept), first_step_seconds=first, peak_rss_mib=resident_mib(),
                          imported_rss_mib=imported,
                          peak_device_mib=torch.cuda.max_memory_allocated() / 2**20 if o.device == "cuda" else None, threads=torch.get_num_threads(), torch=torch.__version__)))


main()
