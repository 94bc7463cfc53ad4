#!/usr/bin/python3
"""Trains small image models in PyTorch and writes their losses.

  usage: python3 torch_images.py cnn > cnn_golden.json
         python3 torch_images.py mlp > mlp100_golden.json

Both train for 100 steps of SGD(lr 0.05, momentum 0.9) on 16 images of 28x28
that an integer rule makes: with sample = 16*step + n,

  label = 7*sample mod 10
  pixel at row r and column c = ((label+1)*r + (5*(label mod 3)+3)*c + 11*sample) mod 256 / 255

"norms" are the Euclidean norms of all gradients of a step together.
"""
import sys

import torch
from torch import nn
from torch.nn import functional as F

from torch_golden import named, short, summary, write

SEED, STEPS, BATCH, SIDE, LR, MOMENTUM = 0, 100, 16, 28, 0.05, 0.9
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": lambda: nn.GELU(approximate="tanh")}


def batch(step):
    """Returns images as rows of pixels, and labels."""
    sample = BATCH * step + torch.arange(BATCH)
    label = 7 * sample % 10
    l, s = label[:, None, None], sample[:, None, None]
    r, c = torch.arange(SIDE)[:, None], torch.arange(SIDE)
    pixels = ((l + 1) * r + (5 * (l % 3) + 3) * c + 11 * s) % 256
    return pixels.flatten(1).float() / 255, label


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def mlp(activation):
    return nn.Sequential(nn.Linear(784, 64), activation(), nn.Linear(64, 64), activation(), nn.Linear(64, 10))


def train(name, make, shape, dtype=torch.float32):
    """Trains make()'s model from its default weights on inputs of that shape."""
    torch.manual_seed(SEED)
    model = make()
    first = named(model.named_parameters(), summary)
    model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    losses, norms = [], []
    for step in range(STEPS):
        x, labels = batch(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(dtype).reshape(BATCH, *shape)), labels)
        loss.backward()
        norms.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]).double().norm().item())
        optimizer.step()
        losses.append(loss.item())
    return {"name": name, "params": first, "losses": [short(v) for v in losses], "norms": [short(v) for v in norms],
            "trained": named(model.named_parameters(), summary)}


def runs(kind, dtype=torch.float32):
    if kind == "cnn":
        return [train("cnn", cnn, (1, SIDE, SIDE), dtype)]
    return [train(name, lambda: mlp(a), (SIDE * SIDE,), dtype) for name, a in ACTIVATIONS.items()]


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("cnn", "mlp"):
        sys.exit(__doc__)
    x, labels = batch(99)
    write({"torch": torch.__version__, "seed": SEED, "steps": STEPS, "batch": BATCH, "lr": LR, "momentum": MOMENTUM,
           "rule": "sample = 16*step + n; label = 7*sample mod 10; "
                   "pixel(r, c) = ((label+1)*r + (5*(label mod 3)+3)*c + 11*sample) mod 256 / 255",
           "labels_of_step_99": labels.tolist(), "pixels_of_step_99": summary(x),
           "runs": runs(sys.argv[1])})


if __name__ == "__main__":
    main()
