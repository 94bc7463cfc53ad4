#!/usr/bin/python3
"""Writes optim_golden.json: what PyTorch makes of known gradients.

  usage: python3 torch_optim.py > optim_golden.json

After torch.manual_seed(5) two parameters of 19 and 3x2 elements, and for Muon one of 2x5, are drawn from
[-1, 1), then both gradients of each step likewise. Where nothing is clipped, the
first gradients of the first parameter are multiplied by SCALES: nothing, almost
nothing, and a lot. Values are written as the shortest decimal numbers that name
the float32, or the float64 of rates.
"""
import json
import warnings

import numpy
import torch
from torch.optim import lr_scheduler as schedules

warnings.simplefilter("ignore")
torch.set_num_threads(1)


class Lion(torch.optim.Optimizer):
    """Lion as in the authors' lion_pytorch.py (google/automl)."""

    def __init__(self, params, **options):
        options.pop("eps")
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            (b1, b2), rate = g["betas"], g["lr"]
            for p in g["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - rate * g["weight_decay"])
                p.add_(torch.sign(m * b1 + p.grad * (1 - b1)), alpha=-rate)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon of PyTorch 2.9 with adjust_lr_fn="match_rms_adamw", in float32, for matrices,
    and AdamW for the other parameters."""

    def __init__(self, params, momentum, **options):
        super().__init__([p for p in params if p.dim() >= 2], dict(options, momentum=momentum))
        self.others = torch.optim.AdamW([p for p in params if p.dim() < 2], **options)

    @torch.no_grad()
    def step(self):
        self.others.step()
        g = self.param_groups[0]
        for p in g["params"]:
            buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
            buffer.lerp_(p.grad, 1 - g["momentum"])
            update = orthogonal(p.grad.lerp(buffer, g["momentum"]))
            p.mul_(1 - g["lr"] * g["weight_decay"])
            p.add_(update, alpha=-g["lr"] * 0.2 * max(p.shape) ** 0.5)


def orthogonal(x):
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.size(0) > x.size(1)
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


STEPS = 50
SCALES = [0.0, 1e-12, 1e-6, 1e6, 1e12]
RULES = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD, "lion": Lion}
ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
RUNS = [
    dict(ADAM, kind=kind, **more)
    for kind in ("adam", "adamw")
    for more in (
        {},
        {"weight_decay": 0.1},
        {"lr": 0.05, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.01},
        {"beta1": 0.0, "beta2": 0.0},
        {"clip": 2.9, "weight_decay": 0.01, "schedule": {"lr": 0.01, "kind": "cosine", "floor": 1e-3, "steps": 40, "warmup": 10, "from": 0.1}},
    )
]
RUNS.append({"kind": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "clip": 2.9})
# Two parameter groups, as in nanoGPT: only matrices decay.
RUNS.append({"kind": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "matrices": True})
RUNS += [dict(ADAM, kind=kind, lr=0.05, weight_decay=0.1, matrices=True) for kind in ("adam", "adamw")]
LION = dict(ADAM, kind="lion", beta2=0.99)
RUNS += [LION, dict(LION, lr=0.01, weight_decay=0.5, clip=2.9), dict(LION, weight_decay=0.1, matrices=True)]
MUON = dict(ADAM, kind="muon", momentum=0.95, beta2=0.95)
RUNS += [MUON, dict(MUON, lr=0.02, momentum=0.8, weight_decay=0.1, clip=2.9)]
for run in RUNS:
    if "schedule" in run:
        run["lr"] = run["schedule"]["lr"]
SCHEDULES = [
    {"lr": 0.1, "kind": "constant"},
    {"lr": 0.1, "kind": "constant", "warmup": 7, "from": 0.25},
    {"lr": 0.1, "kind": "constant", "warmup": 1, "from": 0.5},
    {"lr": 6e-4, "kind": "cosine", "floor": 0.0, "steps": 60},
    {"lr": 6e-4, "kind": "cosine", "floor": 6e-5, "steps": 45, "warmup": 15, "from": 0.001},
    {"lr": 0.1, "kind": "cosine", "floor": 0.1, "steps": 60},
    {"lr": 0.1, "kind": "step", "gamma": 0.1, "every": 20},
    {"lr": 0.1, "kind": "step", "gamma": 0.9, "every": 1, "warmup": 5, "from": 1.0},
]


def schedule(optimizer, s):
    """The schedule s, and PyTorch's own warm-up before it."""
    if s["kind"] == "cosine":
        then = schedules.CosineAnnealingLR(optimizer, s["steps"], s["floor"])
    elif s["kind"] == "step":
        then = schedules.StepLR(optimizer, s["every"], s["gamma"])
    else:
        then = schedules.ConstantLR(optimizer, factor=1.0)
    if not s.get("warmup"):
        return then
    first = schedules.LinearLR(optimizer, s["from"], 1.0, s["warmup"])
    return schedules.SequentialLR(optimizer, [first, then], [s["warmup"]])


def make(r, params):
    if r.get("matrices"):
        params = [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": r["weight_decay"]},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ]
    if r["kind"] == "sgd":
        return torch.optim.SGD(params, lr=r["lr"], momentum=r["momentum"], weight_decay=r["weight_decay"])
    if r["kind"] == "muon":
        return Muon(params, r["momentum"], lr=r["lr"], betas=(r["beta1"], r["beta2"]), eps=r["eps"], weight_decay=r["weight_decay"])
    return RULES[r["kind"]](params, lr=r["lr"], betas=(r["beta1"], r["beta2"]), eps=r["eps"], weight_decay=r["weight_decay"])


def short(v):
    return float(str(numpy.float32(v)))


def flat(tensors):
    return [short(v) for v in torch.cat([t.detach().reshape(-1) for t in tensors]).numpy()]


def run(r):
    torch.manual_seed(5)
    params = [torch.nn.Parameter(torch.empty(shape).uniform_(-1, 1)) for shape in ((19,), (3, 2), (2, 5))[: 3 if r["kind"] == "muon" else 2]]
    scale = torch.ones(19)
    if "clip" not in r:
        scale[: len(SCALES)] = torch.tensor(SCALES)
    optimizer = make(r, params)
    rate = schedule(optimizer, r["schedule"]) if "schedule" in r else None
    out = dict(r, rates=[], norms=[], values=[])
    for _ in range(STEPS):
        for p in params:
            p.grad = torch.empty_like(p).uniform_(-1, 1)
        params[0].grad.mul_(scale)
        if "clip" in r:
            out["norms"].append(short(torch.nn.utils.clip_grad_norm_(params, r["clip"])))
        out["rates"].append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if rate:
            rate.step()
        out["values"].append(flat(params))
    states = [optimizer.state[p] for p in params]
    for name in ("exp_avg", "exp_avg_sq"):
        if name in states[0]:
            out[name] = flat(s[name] for s in states)
            out["step"] = states[0].get("step", torch.zeros(())).item()
    if r["kind"] == "muon":
        out["momenta"] = flat(s["momentum"] for s in states[1:])
    return out


def rates(s):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=s["lr"])
    rate = schedule(optimizer, s)
    out = []
    for _ in range(61):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        rate.step()
    return dict(s, rates=out)


def lines(items):
    return "[\n  " + ",\n  ".join(json.dumps(i) for i in items) + "\n ]"


print('{\n "runs": ' + lines(map(run, RUNS)) + ',\n "schedules": ' + lines(map(rates, SCHEDULES)) + "\n}")
