#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The encoders of FLUX.1 (random weights) beside transformers and diffusers on the CPU, call by call in turns.

    make build/release/bench/encoder_probe
    PYTHON bench/encoder.py [--kind t5|clip|encode|decode] [--size 256] [--layers 2] [--batch 1] [--dtype float32]
                            [--threads 1] [--turns 5]

T5 has the width of T5-XXL, and as many of its 24 layers as --layers says; CLIP has all 12, and 77 tokens. encode and decode:
the autoencoder (84M parameters); --size is tokens, or pixels of an edge. Needs torch, and transformers or diffusers. Prints
each side's seconds (median and range), by the clock and by processor time, the ratio of each turn, and how far the results
are apart. For figures the machine must be quiet: `trainmark check`.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # of both: threads that spin count where other work runs

import numpy
import torch


def text(args, dtype):
    """The model, what goes in (for us, for them), and a call that returns a function of its result."""
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel
    if args.kind == "clip":
        model = CLIPTextModel(CLIPTextConfig(
            vocab_size=49408, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
            eos_token_id=2))
    else:
        model = T5EncoderModel(T5Config(
            vocab_size=32128, d_model=4096, d_kv=64, d_ff=10240, num_layers=args.layers, num_heads=64,
            feed_forward_proj="gated-gelu"))
    ids = torch.randint(0, 32000, (args.batch, args.size))
    model = model.eval().to(dtype)
    return (model, ids.int(), lambda: model(input_ids=ids),
            lambda result: result.pooler_output if args.kind == "clip" else result.last_hidden_state)


def pictures(args, dtype):
    from diffusers import AutoencoderKL
    model = AutoencoderKL(
        block_out_channels=[128, 256, 512, 512], down_block_types=["DownEncoderBlock2D"] * 4,
        up_block_types=["UpDecoderBlock2D"] * 4, layers_per_block=2, latent_channels=16, norm_num_groups=32,
        use_quant_conv=False, use_post_quant_conv=False, scaling_factor=0.3611, shift_factor=0.1159).eval().to(dtype)
    if args.kind == "encode":
        given = torch.rand(args.batch, 3, args.size, args.size) * 2 - 1
        as_type = given.to(dtype)
        return (model, given.permute(0, 2, 3, 1).contiguous(), lambda: model.encode(as_type).latent_dist,
                lambda result: torch.cat([result.mean.flatten(), result.logvar.flatten()]))
    given = torch.randn(args.batch, 16, args.size // 8, args.size // 8)
    as_type = given.to(dtype)
    return model, given, lambda: model.decode(as_type).sample, lambda result: result.permute(0, 2, 3, 1)


def timed(call):
    cpu, clock = time.process_time(), time.perf_counter()
    result = call()
    return time.perf_counter() - clock, time.process_time() - cpu, result


def said(name, seconds):
    return f"{name} {statistics.median(seconds):.3f} s ({min(seconds):.3f} .. {max(seconds):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["clip", "t5", "encode", "decode"], default="t5")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--probe", default="build/release/bench/encoder_probe")
    args = parser.parse_args()
    if args.kind == "clip":
        args.size = 77
    theirs_is = "transformers" if args.kind in ("clip", "t5") else "diffusers"
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        make = text if theirs_is == "transformers" else pictures
        model, given, call, taken = make(args, getattr(torch, args.dtype))
        model.save_pretrained(work)
        given.numpy().tofile(work / "in")
        probe = subprocess.Popen(
            [args.probe, str(work), args.kind, args.dtype, str(args.threads), str(args.batch), str(args.size),
             str(work / "in"), str(work / "out")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready, planned, opened = probe.stdout.readline().split()
        ours, theirs = [], []
        with torch.inference_mode():
            for turn in range(args.turns + 1):  # the first one is not counted
                probe.stdin.write("\n")
                probe.stdin.flush()
                ours.append([float(x) for x in probe.stdout.readline().split()])
                *seconds, result = timed(call)
                theirs.append(seconds)
        probe.stdin.close()
        if probe.wait():
            raise SystemExit("the probe failed")
        got = torch.from_numpy(numpy.fromfile(work / "out", dtype=numpy.float32))
        wanted = taken(result).float().flatten()
    layers = f", {args.layers} layers" if args.kind == "t5" else ""
    print(f"{args.kind}{layers}, batch {args.batch}, size {args.size}, {args.dtype}, {args.threads} threads, n {args.turns}, "
          f"PyTorch {torch.__version__}, {int(planned) / 2**20:.0f} MiB planned, opened in {opened} s")
    for k, clock in enumerate(("clock", "processor time")):
        a, b = [x[k] for x in ours[1:]], [x[k] for x in theirs[1:]]
        ratios = [y / x for x, y in zip(a, b)]
        print(f"{clock}: {said('trainmark', a)}, {said(theirs_is, b)}, "
              f"{theirs_is} / trainmark {statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})")
    print(f"apart by {((got - wanted).abs().max() / wanted.abs().max()).item():.2g} of the largest value")


main()
