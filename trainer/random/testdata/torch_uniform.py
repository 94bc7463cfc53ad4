#!/usr/bin/python3
"""Writes uniform_golden.json: what PyTorch's CPU generator draws.

  usage: python3 torch_uniform.py > uniform_golden.json

Each case is a seed (negative ones as Python allows them), the bounds of
Tensor.uniform_ and the length; the result as the bits of the first numbers and
the SHA-256 of all of them in little-endian float32.
"""
import hashlib
import json

import torch

CASES = [
    (0, 0.0, 1.0, 1000),
    (0, -1 / 28, 1 / 28, 100352),  # the bounds of Linear(784, .)
    (1, -0.22360679774997896, 0.22360679774997896, 5000),
    (42, -0.3779644730092272, 0.3779644730092272, 5000),
    (7, 1000.0, 1001.0, 5000),
    (7, -3.0, 1e6, 5000),
    (9, 1e-7, 3e-7, 5000),
    (2**40 + 5, -0.1, 0.7, 100),
    (-1, -0.1, 0.7, 100),
    (-123456789, -5.0, -4.9, 100),
]

out = []
for seed, lo, hi, n in CASES:
    torch.manual_seed(seed)
    x = torch.empty(n).uniform_(lo, hi).numpy().astype("<f4")
    out.append({
        "seed": seed, "lo": lo, "hi": hi, "n": n,
        "first_bits": x[:4].view("<u4").tolist(),
        "sha256": hashlib.sha256(x.tobytes()).hexdigest(),
    })
print("[\n" + ",\n".join("  " + json.dumps(c) for c in out) + "\n]")
