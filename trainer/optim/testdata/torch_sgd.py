#!/usr/bin/python3
"""Writes sgd_golden.json: what torch.optim.SGD makes of known gradients.

  usage: python3 torch_sgd.py > sgd_golden.json

After torch.manual_seed(5) a parameter of 7 elements is drawn from [-1, 1), then
one gradient per step likewise. Values are written as the decimal numbers that
name the float32 exactly.
"""
import itertools
import json

import torch

STEPS = 8
CASES = [
    {"lr": lr, "momentum": m, "weight_decay": wd, "nesterov": n}
    for lr, m, wd, n in itertools.product([0.05], [0.0, 0.9], [0.0, 0.01], [False, True])
    if m != 0 or not n
]

out = []
for c in CASES:
    torch.manual_seed(5)
    p = torch.nn.Parameter(torch.empty(7).uniform_(-1, 1))
    opt = torch.optim.SGD([p], **c)
    values = []
    for _ in range(STEPS):
        p.grad = torch.empty(7).uniform_(-1, 1)
        opt.step()
        values.append(p.detach().tolist())
    buf = opt.state[p].get("momentum_buffer")
    out.append(dict(c, values=values, buffer=None if buf is None else buf.tolist()))
print("[\n" + ",\n".join("  " + json.dumps(c) for c in out) + "\n]")
