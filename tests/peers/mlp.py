"""Time training steps of an MLP in PyTorch: 784-512-512-10, ReLU, batch 128, SGD
with a learning rate of 0.01 and a momentum of 0.9, on normally distributed inputs.

usage: mlp.py PRECISION STEPS MODE     fp32 or bf16 (autocast), eager or compile; prints a line of JSON
"""
import sys

import torch
from torch import nn

import timing


def work(name="mlp", rank=0):
    """Return the workload of a rank: the same weights on all ranks, different samples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    if rank > 0:
        torch.manual_seed(rank)
    x, y = torch.randn(128, 784), torch.randint(0, 10, (128,))
    return timing.Work(name, "samples", 128, model,
                       lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9, **timing.FUSED),
                       lambda net: nn.functional.cross_entropy(net(x), y))


if __name__ == "__main__":
    timing.run(work(), precision=sys.argv[1], steps=int(sys.argv[2]), mode=sys.argv[3])
