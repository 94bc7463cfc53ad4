"""Writes torch_golden.json: what PyTorch's random_split and BatchSampler give."""

import json
import pathlib

import torch
from torch.utils.data import BatchSampler, DistributedSampler, random_split

splits = []
for n, share, seed in [(10, 0.1, 0), (100, 0.29, 1), (101, 0.5, 42), (7, 0.3, 2**31 + 7), (1000, 0.999, 3)]:
    train, held = random_split(range(n), [1 - share, share], torch.Generator().manual_seed(seed))
    splits.append({"n": n, "share": share, "seed": seed, "train": list(train.indices), "eval": list(held.indices)})

batches = []
for n in (1, 9, 10, 31):
    for replicas in (1, 3):
        for drop_samples in (False, True):
            for drop_last in (False, True):
                for size in (1, 4):
                    case = {"n": n, "replicas": replicas, "drop_samples": drop_samples, "drop_last": drop_last, "batch": size, "len": 0, "ranks": []}
                    for rank in range(replicas):
                        sampler = DistributedSampler(range(n), replicas, rank, shuffle=True, seed=5, drop_last=drop_samples)
                        sampler.set_epoch(2)
                        b = BatchSampler(sampler, size, drop_last)
                        case["len"] = len(b)
                        case["ranks"].append(list(b))
                    batches.append(case)

out = pathlib.Path(__file__).with_name("torch_golden.json")
out.write_text(json.dumps({"splits": splits, "batches": batches}) + "\n")
