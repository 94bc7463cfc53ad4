#!/usr/bin/python3
r"""Trains a model in PyTorch as ddpbatch does, and prints its losses as JSON.

The golden files beside it are made by

  B=../../data/builtin
  python3 torch_reference.py --model mlp --data $B > mlp_golden.json
  python3 torch_reference.py --model mlp --hidden 32 16 --activation tanh --batch 20 --world-size 3 \
      --weight-decay 0.001 --nesterov --seed 7 --data $B > mlp_tanh_golden.json
  python3 torch_reference.py --model linear --data synthetic --samples 1000 --lr 0.001 --momentum 0 > linear_golden.json

Data are a folder with MNIST's four files, plain or .gz, or "synthetic": the
regression pairs (torch.rand(inputs), torch.rand(1)) of the beginner's DDP guide,
drawn after torch.manual_seed(seed). Samples come in the order of
DistributedSampler. With --world-size the ranks' batches are taken one after the
other in this process and their gradients averaged, as DistributedDataParallel
does; the loss of a step is the mean over the ranks.

Set OMP_NUM_THREADS=1 for the same additions in every run.
"""
import argparse
import gzip
import hashlib
import json
import os
import struct
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data.distributed import DistributedSampler


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=["mlp", "linear"], default="mlp")
    p.add_argument("--hidden", type=int, nargs="*", default=[128], help="widths of hidden layers (mlp)")
    p.add_argument("--activation", choices=["relu", "tanh"], default="relu")
    p.add_argument("--data", default="synthetic", help='folder with IDX files, or "synthetic"')
    p.add_argument("--samples", type=int, default=32000, help="of synthetic data")
    p.add_argument("--inputs", type=int, default=20, help="of synthetic data")
    p.add_argument("--batch", type=int, default=32, help="per rank")
    p.add_argument("--world-size", type=int, default=1)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--weight-decay", type=float, default=0.0)
    p.add_argument("--nesterov", action="store_true")
    return p.parse_args()


def read_idx(folder, name):
    """Returns the values of an IDX file of unsigned bytes as a tensor."""
    path = os.path.join(folder, name)
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz", "rb") as f:
        raw = f.read()
    kind, dims = raw[2], raw[3]
    if kind != 8:
        sys.exit(f"{path}: values of type {kind}, want 8")
    shape = struct.unpack(f">{dims}I", raw[4:4 + 4 * dims])
    return torch.frombuffer(bytearray(raw[4 + 4 * dims:]), dtype=torch.uint8).reshape(shape)


def load(folder, part):
    """Returns images as rows between 0 and 1, and labels."""
    x = read_idx(folder, part + "-images-idx3-ubyte").to(torch.float32).div(255).flatten(1)
    return x, read_idx(folder, part + "-labels-idx1-ubyte").to(torch.int64)


def make_model(a, inputs, outputs):
    torch.manual_seed(a.seed)
    if a.model == "linear":
        return nn.Linear(inputs, outputs)
    layers, width = [], inputs
    for h in a.hidden:
        layers += [nn.Linear(width, h), nn.ReLU() if a.activation == "relu" else nn.Tanh()]
        width = h
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def digest(model):
    """SHA-256 of all parameters in order, little-endian float32."""
    h = hashlib.sha256()
    for p in model.parameters():
        h.update(p.detach().numpy().astype("<f4").tobytes())
    return h.hexdigest()


def batches(a, n):
    """Yields for every step the list of the ranks' batches of indices."""
    samplers = [DistributedSampler(range(n), num_replicas=a.world_size, rank=r, shuffle=True, seed=a.seed)
                for r in range(a.world_size)]
    epoch = 0
    while True:
        orders = []
        for s in samplers:
            s.set_epoch(epoch)
            orders.append(list(s))
        for at in range(0, len(orders[0]), a.batch):
            yield [o[at:at + a.batch] for o in orders]
        epoch += 1


def main():
    a = arguments()
    torch.set_num_threads(1)
    held_out = None
    if a.data == "synthetic":
        torch.manual_seed(a.seed)
        pairs = [(torch.rand(a.inputs), torch.rand(1)) for _ in range(a.samples)]
        x, y = (torch.stack(t) for t in zip(*pairs))
        outputs, loss_of = 1, F.mse_loss
    else:
        x, y = load(a.data, "train")
        held_out = load(a.data, "t10k")
        outputs, loss_of = int(y.max()) + 1, F.cross_entropy

    model = make_model(a, x.shape[1], outputs)
    first = digest(model)
    opt = torch.optim.SGD(model.parameters(), lr=a.lr, momentum=a.momentum,
                          weight_decay=a.weight_decay, nesterov=a.nesterov)
    losses = []
    source = batches(a, len(x))
    for _ in range(a.steps):
        opt.zero_grad()
        total = 0.0
        for indices in next(source):
            loss = loss_of(model(x[indices]), y[indices])
            (loss / a.world_size).backward()
            total += loss.item()
        opt.step()
        losses.append(total / a.world_size)

    result = dict(vars(a), data=os.path.basename(os.path.normpath(a.data)), torch=torch.__version__,
                  init_sha256=first, losses=losses)
    if held_out is not None:
        with torch.no_grad():
            logits = model(held_out[0])
            result["eval_loss"] = F.cross_entropy(logits, held_out[1]).item()
            result["eval_correct"] = int((logits.argmax(1) == held_out[1]).sum())
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
