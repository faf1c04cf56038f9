#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of every speed comparison: the same training step, tuned as a PyTorch user would tune it.

One process, one device. Fused attention (scaled_dot_product_attention), fused QKV and gate/up products, fused AdamW where the
build has it, optional torch.compile. Random tokens, next-token loss over all positions, gradient clipping at 1.0, AdamW.

    python3 torch_train.py --arch gpt   --dim 768 --layers 12 --heads 12 --ffn 3072 --vocab 50304 --batch 4 --seq 512 --steps 8
    python3 torch_train.py --arch llama --dim 1024 --layers 4 --heads 16 --kv-heads 4 --ffn 3584 --vocab 32000 --batch 2 --seq 1024

Prints one line a step, then one JSON line: tokens_per_second (ratio of sums over the steps after --warmup), median step seconds,
every raw step time, peak resident MiB (and peak device MiB), seconds from process start to the end of the first step, parameters,
versions.
Needs torch >= 2.0 (1.13 runs without fused attention and compile).
"""
import time
T_START = time.perf_counter()
import argparse, json, math, os, resource, statistics, sys
import torch, torch.nn as nn, torch.nn.functional as F
import torch.utils.checkpoint

def since_start():
    """Seconds since the process began, by the kernel's books where it keeps them (the interpreter's own start counts)."""
    try:
        with open("/proc/self/stat") as stat:
            started = int(stat.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, ValueError):
        return time.perf_counter() - T_START

def resident_mib():
    """Peak so far. Right after the imports: what the library costs before there is a model."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

# Keys and values of grouped heads are not repeated in memory where the build knows how.
GROUPED = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5)

def options():
    a = argparse.ArgumentParser()
    a.add_argument("--arch", choices=["gpt", "llama"], default="gpt")
    for name, default in dict(dim=768, layers=12, heads=12, kv_heads=0, ffn=3072, vocab=50304, batch=4, seq=512,
                              steps=8, warmup=2, accumulate=1, threads=0, seed=1).items():
        a.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    a.add_argument("--tied", action="store_true", help="output head shares the token embedding")
    a.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="bfloat16: autocast, float32 weights")
    a.add_argument("--pure-bf16", action="store_true", help="weights, gradients and optimizer state in bfloat16 as well")
    a.add_argument("--float8", choices=["tensorwise", "rowwise", "rowwise_with_gw_hp"],
                   help="linears of the blocks by torchao's recipe; the output head stays in bfloat16")
    a.add_argument("--compile", action="store_true")
    a.add_argument("--checkpoint", action="store_true", help="recompute every block in the backward pass")
    a.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return a.parse_args()

def attend(q, k, v, groups):
    if groups > 1 and GROUPED:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    n = q.shape[-2]
    mask = torch.full((n, n), float("-inf"), device=q.device, dtype=q.dtype).triu(1)
    return ((q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1]) + mask).softmax(-1) @ v

class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps
    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps).to(x.dtype) * self.weight

class GPTBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.h, d = o.heads, o.dim
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, o.ffn), nn.Linear(o.ffn, d)
    def forward(self, x, rope):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.h, d // self.h).transpose(1, 2) for z in self.qkv(self.n1(x)).split(d, 2))
        x = x + self.out(attend(q, k, v, 1).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))

class LlamaBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.h, self.k, d = o.heads, o.kv_heads or o.heads, o.dim
        self.hd = d // o.heads
        self.n1, self.n2 = RMSNorm(d), RMSNorm(d)
        self.qkv = nn.Linear(d, (self.h + 2 * self.k) * self.hd, bias=False)
        self.out = nn.Linear(self.h * self.hd, d, bias=False)
        self.gate_up, self.down = nn.Linear(d, 2 * o.ffn, bias=False), nn.Linear(o.ffn, d, bias=False)
    def forward(self, x, rope):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).split([self.h * self.hd, self.k * self.hd, self.k * self.hd], 2)
        q, k, v = (z.view(b, t, -1, self.hd).transpose(1, 2) for z in (q, k, v))
        cos, sin = rope
        turn = lambda z: z * cos.to(z.dtype) + torch.cat((-z[..., self.hd // 2:], z[..., :self.hd // 2]), -1) * sin.to(z.dtype)
        y = attend(turn(q), turn(k), v, self.h // self.k)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, self.h * self.hd))
        gate, up = self.gate_up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o = o
        self.embed = nn.Embedding(o.vocab, o.dim)
        self.position = nn.Embedding(o.seq, o.dim) if o.arch == "gpt" else None
        self.blocks = nn.ModuleList((GPTBlock if o.arch == "gpt" else LlamaBlock)(o) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.dim) if o.arch == "gpt" else RMSNorm(o.dim)
        self.head = nn.Linear(o.dim, o.vocab, bias=False)
        if o.tied:
            self.head.weight = self.embed.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        if o.arch == "llama":
            hd = o.dim // o.heads
            angle = torch.arange(o.seq)[:, None] / 500000.0 ** (torch.arange(0, hd, 2) / hd)[None]
            angle = torch.cat((angle, angle), -1)
            self.register_buffer("cos", angle.cos()); self.register_buffer("sin", angle.sin())
    def forward(self, tokens, labels):
        x = self.embed(tokens)
        if self.position is not None:
            x = x + self.position.weight[: tokens.shape[1]]
        rope = (self.cos, self.sin) if self.o.arch == "llama" else None
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, rope, use_reentrant=False) if self.o.checkpoint else block(x, rope)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())

def main():
    o = options()
    imported = resident_mib()
    if o.threads:
        torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    model = Model(o)
    if o.pure_bf16:
        model = model.bfloat16()
    model = model.to(o.device)
    if o.float8:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
        convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(o.float8),
                                   module_filter_fn=lambda module, name: name != "head")
    params = sum(p.numel() for p in model.parameters())
    fused = dict(fused=True) if (o.device == "cuda" or tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)) else {}
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, **fused)
    step_model = torch.compile(model) if o.compile else model
    autocast = o.dtype == "bfloat16" and not o.pure_bf16
    sync = torch.cuda.synchronize if o.device == "cuda" else (lambda: None)
    times, first = [], None
    for step in range(o.steps):
        t0 = time.perf_counter()
        for _ in range(o.accumulate):
            tokens = torch.randint(0, o.vocab, (o.batch, o.seq + 1))
            tokens = tokens.to(o.device)
            with torch.autocast(o.device, torch.bfloat16, enabled=autocast):
                loss = step_model(tokens[:, :-1], tokens[:, 1:]) / o.accumulate
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        value = float(loss.detach()) * o.accumulate
        sync()
        times.append(time.perf_counter() - t0)
        if first is None:
            first = since_start()
        print(f"step {step} loss {value:.5f} seconds {times[-1]:.4f} tokens/s {o.batch * o.seq * o.accumulate / times[-1]:.1f}", flush=True)
    counted = times[o.warmup:] or times
    print(json.dumps(dict(tokens_per_second=o.batch * o.seq * o.accumulate * len(counted) / sum(counted),
        step_seconds_median=statistics.median(counted), step_seconds=times, steps_counted=len(counted), params=params,
        peak_rss_mib=resident_mib(), imported_rss_mib=imported,
        peak_device_mib=torch.cuda.max_memory_allocated() / 2**20 if o.device == "cuda" else None,
        first_step_seconds=first, threads=torch.get_num_threads(), torch=torch.__version__, device=o.device,
        compile=o.compile, options=vars(o))))

if __name__ == "__main__":
    main()
