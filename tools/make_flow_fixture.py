#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of training as diffusers has them, the fixture of tests/data/test_flow_times.c:
tools/make_flow_fixture.py >tests/data/flow/times.txt

    shift TOKENS A               factor of an image of so many tokens (calculate_shift, FLUX.1-dev's scheduler)
    time A U T                   sigma T that the scheduler makes of U, shifted by a number
    dynamic TOKENS U T           the same, shifted by the number of tokens
    quantile MEAN STD P T        P of the sigmas that diffusers' scripts for FLUX.1-dev draw with --logit_mean -MEAN are
                                 below T: entry 1000 u of the scheduler's, which fall from 1"""
import math

import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from diffusers.training_utils import compute_density_for_timestep_sampling

POINTS = [0.001, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0]
TOKENS = [16, 256, 1024, 2304, 4096, 8192]
DRAWS = 2_000_000


def main():
    dev = FlowMatchEulerDiscreteScheduler(
        shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15, base_image_seq_len=256, max_image_seq_len=4096
    )
    c = dev.config
    for tokens in TOKENS:
        mu = calculate_shift(tokens, c.base_image_seq_len, c.max_image_seq_len, c.base_shift, c.max_shift)
        print(f"shift {tokens} {math.exp(mu):.15g}")
        dev.set_timesteps(sigmas=POINTS, mu=mu)
        for u, t in zip(POINTS, dev.sigmas.double().tolist()):
            print(f"dynamic {tokens} {u} {t:.9g}")
    for shift in [0.5, 1.0, 3.0, 7.0]:
        scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
        scheduler.set_timesteps(sigmas=POINTS)
        for u, t in zip(POINTS, scheduler.sigmas.double().tolist()):
            print(f"time {shift} {u} {t:.9g}")
    for mean, std in [(0.0, 1.0), (0.5, 1.0), (-1.0, 0.6), (0.0, 2.0)]:
        u = compute_density_for_timestep_sampling("logit_normal", DRAWS, -mean, std, generator=torch.Generator().manual_seed(5))
        fresh = FlowMatchEulerDiscreteScheduler.from_config(dev.config)
        sigma = fresh.sigmas[(u * fresh.config.num_train_timesteps).long()].double().sort().values
        for p in [0.05, 0.25, 0.5, 0.75, 0.95]:
            print(f"quantile {mean} {std} {p} {sigma[int(p * DRAWS)]:.5g}")


main()
