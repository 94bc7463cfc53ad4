"""Trains an MLP on Fashion-MNIST with PyTorch, once for each seed, and prints the
accuracies on the test images as JSON. Weights at the start, order of the samples and
rule are those that ddpbatch has for the same seeds."""

import argparse
import gzip
import json
import os

import torch
from torch import nn
from torch.utils.data import DistributedSampler


def read(folder, name):
    """The bytes behind the header of an IDX file, gzip or not."""
    path = os.path.join(folder, name)
    with (gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb")) as f:
        content = f.read()
    dims = content[3]
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=4 + 4 * dims)


def images(folder, part):
    labels = read(folder, part + "-labels-idx1-ubyte").long()
    return read(folder, part + "-images-idx3-ubyte").view(len(labels), -1).float() / 255, labels


parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--seeds", type=int, nargs="+", required=True)
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--lr", type=float, required=True)
options = parser.parse_args()
torch.set_num_threads(1)
train, held_out = images(options.data, "train"), images(options.data, "t10k")
accuracies = []
for seed in options.seeds:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    rule = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    order = list(DistributedSampler(range(len(train[1])), num_replicas=1, rank=0, seed=seed))
    for indices in torch.tensor(order).split(options.batch):
        rule.zero_grad()
        nn.functional.cross_entropy(model(train[0][indices]), train[1][indices]).backward()
        rule.step()
    with torch.no_grad():
        accuracies.append((model(held_out[0]).argmax(1) == held_out[1]).float().mean().item())
print(json.dumps({"accuracies": accuracies}))
