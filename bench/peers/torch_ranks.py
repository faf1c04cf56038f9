#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch on several processes of this machine, over gloo: the training step of torch_train.py under DistributedDataParallel
or FSDP2 (fully_shard on every block and on the model).

    python3 torch_ranks.py --mode ddp|fsdp2 --ranks 2 [options of torch_train.py; --batch and --threads: of each process]

bfloat16: autocast with ddp; with fsdp2 bfloat16 parameters of float32 shards, gradients summed in float32.
Prints one line a step, then a JSON line as torch_train.py does; its batch is that of all processes.
"""
import json, os, socket, statistics, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as processes
import torch_train


def take(name, default):
    if name not in sys.argv:
        return default
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return value


def spread(model, mode, ranks, dtype):
    if mode == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    mesh = init_device_mesh("cpu", (ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    how = dict(mesh=mesh, mp_policy=policy) if dtype == "bfloat16" else dict(mesh=mesh)
    for block in model.blocks:
        fully_shard(block, **how)
    return fully_shard(model, **how)


def work(rank, mode, ranks, port, o):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if o.threads:
        torch.set_num_threads(o.threads)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(o.seed)
    model = torch_train.Model(o)
    params = sum(p.numel() for p in model.parameters())
    model = spread(model, mode, ranks, o.dtype)
    autocast = o.dtype == "bfloat16" and mode == "ddp"
    step_model = torch.compile(model) if o.compile else model
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    torch.manual_seed(o.seed + 1 + rank)
    times, first, batch = [], None, o.batch * ranks
    for step in range(o.steps):
        t0 = time.perf_counter()
        tokens = torch.randint(0, o.vocab, (o.batch, o.seq + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = step_model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        value = loss.detach().clone()
        dist.all_reduce(value)
        times.append(time.perf_counter() - t0)
        if first is None:
            first = torch_train.since_start()
        if rank == 0:
            print(f"step {step} loss {float(value) / ranks:.5f} seconds {times[-1]:.4f} tokens/s {batch * o.seq / times[-1]:.1f}",
                  flush=True)
    if rank == 0:
        said = dict(vars(o), batch=batch)
        counted = times[o.warmup:] or times
        print(json.dumps(dict(step_seconds=times, step_seconds_median=statistics.median(counted), params=params,
                              first_step_seconds=first, threads=ranks * torch.get_num_threads(), torch=torch.__version__,
                              imported_rss_mib=torch_train.resident_mib(), options=said)), flush=True)
    dist.destroy_process_group()


def main():
    mode, ranks = take("--mode", "ddp"), int(take("--ranks", "2"))
    o = torch_train.options()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(work, (mode, ranks, port, o), nprocs=ranks)


if __name__ == "__main__":
    main()
