#!/usr/bin/python3
"""Writes layers_golden.json: single layers forward and backward in PyTorch.

  usage: python3 torch_layers.py > layers_golden.json

Each case has a kind, a name, the settings of the layer, its inputs, parameters
and output, and the gradients of all of them when the output's gradient is dy.
The output of cross_entropy is the mean loss, and dy is 1.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

from torch_golden import tensor, write


def uniform(*shape):
    return torch.empty(*shape).uniform_(-1, 1)


def case(kind, name, settings, inputs, params, forward):
    """Runs forward(inputs..., params...) and backward from a random gradient."""
    tensors = dict(inputs, **params)
    for t in tensors.values():
        if t.is_floating_point():
            t.requires_grad_()
    y = forward(*tensors.values())
    dy = uniform(*y.shape) if y.dim() else torch.tensor(1.0)
    y.backward(dy)
    written = lambda group: {k: tensor(t) for k, t in group.items()}
    return {"kind": kind, "name": name, "settings": settings, "inputs": written(inputs), "params": written(params),
            "output": tensor(y), "dy": tensor(dy),
            "grads": {k: tensor(t.grad) for k, t in tensors.items() if t.grad is not None}}


def layer_norm(name, x):
    n = x.shape[1]
    return case("layer_norm", name, {"eps": 1e-5}, {"x": x}, {"weight": 1 + uniform(n), "bias": uniform(n)},
                lambda x, w, b: F.layer_norm(x, (n,), w, b, 1e-5))


def gelu(name, x):
    return case("gelu", name, {}, {"x": x}, {}, lambda x: F.gelu(x, approximate="tanh"))


def embedding(name, vocabulary, context, width, tokens):
    """A row of the tokens' table plus a row of the positions'."""
    positions = torch.arange(tokens.shape[1])
    return case("embedding", name, {"vocabulary": vocabulary, "context": context, "width": width},
                {"tokens": tokens}, {"wte": uniform(vocabulary, width), "wpe": uniform(context, width)},
                lambda t, wte, wpe: F.embedding(t, wte) + F.embedding(positions, wpe))


def conv2d(name, x, outputs, kernel, padding):
    params = {"weight": uniform(outputs, x.shape[1], kernel, kernel), "bias": uniform(outputs)}
    return case("conv2d", name, {"kernel": kernel, "padding": padding}, {"x": x}, params,
                lambda x, w, b: F.conv2d(x, w, b, padding=padding))


def max_pool2d(name, x):
    return case("max_pool2d", name, {"kernel": 2}, {"x": x}, {}, lambda x: F.max_pool2d(x, 2))


def attention(name, batch, context, width, heads, scale=1.0):
    """Causal self-attention; rows of qkv are q, k and v one after the other, each
    of them its heads one after the other."""
    def forward(qkv):
        q, k, v = (t.reshape(batch, context, heads, width // heads).transpose(1, 2)
                   for t in qkv.split(width, dim=1))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
        later = torch.ones(context, context, dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, -math.inf).softmax(dim=-1) @ v
        return y.transpose(1, 2).reshape(batch * context, width)
    return case("attention", name, {"batch": batch, "context": context, "width": width, "heads": heads},
                {"qkv": uniform(batch * context, 3 * width) * scale}, {}, forward)


def cross_entropy(name, logits, targets):
    return case("cross_entropy", name, {}, {"logits": logits, "targets": targets}, {}, F.cross_entropy)


def main():
    torch.manual_seed(3)
    images = uniform(2, 3, 7, 6)
    level_row = torch.cat([uniform(4, 7), torch.full((1, 7), 0.5)])
    tokens = torch.tensor([[3, 0, 10, 3, 7], [10, 10, 1, 0, 3]])
    write({"torch": torch.__version__, "cases": [
        layer_norm("5x7", uniform(5, 7)),
        layer_norm("off centre", 10 + 3 * uniform(5, 7)),
        layer_norm("last row constant", level_row),
        layer_norm("wide", uniform(3, 130)),
        gelu("tanh", torch.cat([torch.linspace(-6, 6, 41), torch.tensor([0.0, -0.0, 1e-4, -1e-4, 30, -30])])),
        embedding("tokens and positions", 11, 6, 4, tokens),
        conv2d("kernel 3 padding 1", images.clone(), 4, 3, 1),
        conv2d("kernel 5 padding 2", images.clone(), 4, 5, 2),
        conv2d("kernel 3 padding 0", images.clone(), 4, 3, 0),
        max_pool2d("even", uniform(2, 3, 6, 8)),
        max_pool2d("odd", images.clone()),
        max_pool2d("ties", torch.randint(-1, 2, (2, 2, 7, 9)).float()),
        attention("B=2 T=5 C=8 H=2", 2, 5, 8, 2),
        attention("B=1 T=1 C=4 H=1", 1, 1, 4, 1),
        attention("B=2 T=9 C=15 H=3, steep", 2, 9, 15, 3, scale=6.0),
        cross_entropy("tokens", 3 * uniform(10, 11), tokens.reshape(-1)),
        cross_entropy("large logits", 200 * uniform(10, 11), tokens.reshape(-1)),
    ]})


if __name__ == "__main__":
    main()
