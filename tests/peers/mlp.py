"""Times training steps of an MLP in PyTorch: 784-512-512-10, ReLU, batch 128, SGD
with a rate of 0.01 and a momentum of 0.9, on normal inputs.

usage: mlp.py PRECISION STEPS     fp32 or bf16 (autocast); prints a line of JSON
"""
import sys

import torch
from torch import nn

import timing


def main():
    precision, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    x, y = torch.randn(128, 784), torch.randint(0, 10, (128,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    timing.run("mlp", "samples", 128, precision, steps, model, optimizer,
               lambda: nn.functional.cross_entropy(model(x), y))


if __name__ == "__main__":
    main()
