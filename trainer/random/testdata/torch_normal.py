#!/usr/bin/python3
"""Writes normal_golden.json: Tensor.normal_ of PyTorch's CPU generator.

  usage: python3 torch_normal.py > normal_golden.json

Each case is a seed and the calls made after torch.manual_seed(seed), in order:
normal_(mean, std) or uniform_(lo, hi) on a tensor of n elements, randperm(n),
or the weight of nn.Embedding(n, 1). Of normal numbers the elements start,
start+step, start+2*step... are written, and the float64 sum of all; uniform
numbers and permutations are tested elsewhere and only move the generator here.
"next" are the three draws after the calls, torch.rand(3) times 2^24: the
generator's state is the same only where they are.
"""
import json

import numpy
import torch

torch.set_num_threads(1)


def normal(n, mean=0.0, std=1.0):
    return {"call": "normal", "n": n, "mean": mean, "std": std}


def uniform(n):
    return {"call": "uniform", "n": n}


def perm(n):
    return {"call": "perm", "n": n}


def embedding(n):
    return {"call": "embedding", "n": n, "mean": 0.0, "std": 1.0}


CASES = [(n, [normal(n, 0.0, 0.02)]) for n in range(1, 41)]
CASES += [
    (42, [normal(1000, 0.0, 0.02)]),
    (2**40 + 5, [normal(1000, 3.0, 0.5)]),
    (1337, [normal(12345)]),
    (-1, [normal(12345, -0.25, 2.0)]),
    (7, [normal(5, 1.0, 0.0), normal(20, 1.0, 0.0)]),
    (0, [embedding(11), embedding(96)]),
    # An odd short tensor leaves a number for the next short one, whatever
    # mean and deviation that has and whatever is drawn in between.
    (1, [normal(3), normal(4, 2.0, 3.0), normal(1, 0.0, 0.02), normal(15, -1.0, 0.02), normal(2)]),
    (2, [normal(1), normal(16), normal(1), normal(33, 0.5, 2.0), normal(1), normal(2)]),
    (3, [uniform(3), normal(7), uniform(5), normal(1), perm(10), normal(17), perm(33), normal(9)]),
    (4, [normal(5), perm(700), normal(640, 0.0, 0.02), uniform(1000), normal(2), normal(2)]),
    (5, [perm(624), normal(15), normal(15), normal(624), uniform(1), normal(11, 10.0, 0.1)]),
]


def short(v):
    return float(str(numpy.float32(v)))


def draw(c):
    if c["call"] == "perm":
        torch.randperm(c["n"])
        return c
    if c["call"] == "uniform":
        torch.empty(c["n"]).uniform_(0, 1)
        return c
    if c["call"] == "embedding":
        x = torch.nn.Embedding(c["n"], 1).weight.detach().reshape(-1).numpy()
    else:
        x = torch.empty(c["n"]).normal_(c["mean"], c["std"]).numpy()
    start, step = (0, 1) if c["n"] <= 64 else (c["n"] % 23, 23)
    return dict(c, start=start, step=step, values=[short(v) for v in x[start::step]],
                sum=float(x.astype("f8").sum()))


lines = []
for seed, calls in CASES:
    torch.manual_seed(seed)
    calls = [draw(c) for c in calls]
    after = [int(v) for v in (torch.rand(3) * 2**24).tolist()]
    lines.append("  " + json.dumps({"seed": seed, "calls": calls, "next": after}, separators=(",", ":")))
print("[\n" + ",\n".join(lines) + "\n]")
