#!/usr/bin/python3
"""GPT-2 in PyTorch, with Hugging Face's parameters; writes gpt_golden.json.

  usage: python3 torch_gpt.py > gpt_golden.json

Names, shapes and order of the parameters are those of transformers' GPT2Model
("transformer." left out), with the head tied to wte: attention and mlp are
Conv1D, whose weight is [inputs, outputs] and y = x W + b.

Initial weights are those of GPT2PreTrainedModel._init_weights, applied by
Module.apply to every module after its children. After torch.manual_seed(seed)
that draws, with deviations 0.02 and residual = 0.02/sqrt(2*layers):

  wte.weight, wpe.weight                 normal(0, 0.02)
  for each layer:
    attn.c_attn.weight                   normal(0, 0.02)
    attn.c_proj.weight                   normal(0, 0.02), thrown away
    attn.c_proj.weight                   normal(0, residual), by the attention module
    mlp.c_fc.weight                      normal(0, 0.02)
    mlp.c_proj.weight                    normal(0, 0.02), thrown away
    mlp.c_proj.weight                    normal(0, residual), by the mlp module

Each is one Tensor.normal_ on the whole parameter. Biases are zero, layer norms
one and zero, and draw nothing. The tied head has no weights of its own (where it
does draw, in some versions of transformers, it is the last and overwritten).

"tiny" has all initial parameters, and loss and all gradients of one batch; also
the loss where the rows are shorter than the context. "training" is 100 steps of
AdamW, gradients clipped to norm 1 before each; norms are those before clipping.
"generation" continues prompts with the trained model: each time the token of the
largest logit, computed from the last tokens, as many as the context has; gaps
are the differences to the second largest.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

from torch_golden import named, short, summary, tensor, write

TINY = dict(vocabulary=11, context=8, width=12, heads=3, layers=2)
SMALL = dict(vocabulary=65, context=32, width=64, heads=4, layers=2)
SEED, STEPS, BATCH = 7, 100, 4
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
MAX_NORM = 1.0
PROMPTS = [([1, 2, 3], 20), (list(range(0, 60, 3)), 20)]


class Conv1D(nn.Module):
    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(3 * width, width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (t.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
                   for t in self.c_attn(x).split(width, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, -math.inf).softmax(dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(rows, length, width))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(4 * width, width)
        self.c_proj = Conv1D(width, 4 * width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))  # "gelu_new"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-5)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width, eps=1e-5)
        self.mlp = MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, width, heads, layers, seed):
        super().__init__()
        self.context, self.layers = context, layers
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, eps=1e-5)
        torch.manual_seed(seed)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, Conv1D):
            module.weight.data.normal_(0.0, 0.02)
            module.bias.data.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.data.normal_(0.0, 0.02)
        elif isinstance(module, nn.LayerNorm):
            module.weight.data.fill_(1.0)
            module.bias.data.zero_()
        for name, p in module.named_parameters():
            if name == "c_proj.weight":
                p.data.normal_(0.0, 0.02 / math.sqrt(2 * self.layers))

    def forward(self, tokens):
        """Logits of the token that follows each of tokens [rows, length]."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)

    def loss(self, tokens, targets):
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())


RULE = "token(step, row, i) = (3*i*i + 5*i*(row+1) + 7*(step mod 4) + 11*row) mod vocabulary; the target of i is token i+1"


def batch(step, rows, length, vocabulary):
    """Returns the inputs and targets, [rows, length], of RULE."""
    i, row = torch.arange(length + 1), torch.arange(rows)[:, None]
    tokens = (3 * i * i + 5 * i * (row + 1) + 7 * (step % 4) + 11 * row) % vocabulary
    return tokens[:, :-1], tokens[:, 1:]


def tiny():
    model = GPT(**TINY, seed=SEED)
    params = named(model.named_parameters(), tensor)
    tokens, targets = batch(0, 3, TINY["context"], TINY["vocabulary"])
    logits = model(tokens)
    loss = model.loss(tokens, targets)
    loss.backward()
    grads = named(((name, p.grad) for name, p in model.named_parameters()), tensor)
    less = model.loss(tokens[:, :5], targets[:, :5])
    return {"config": TINY, "params": params, "tokens": tensor(tokens), "targets": tensor(targets),
            "logits": tensor(logits), "loss": short(loss.item()), "grads": grads, "loss_of_first_5": short(less.item())}


def train(dtype=torch.float32):
    """Returns the model trained for STEPS, the record of it, and initial values."""
    model = GPT(**SMALL, seed=SEED)
    first = named(model.named_parameters(), summary)
    model.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model.loss(*batch(step, BATCH, SMALL["context"], SMALL["vocabulary"]))
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM).item())
        optimizer.step()
        losses.append(loss.item())
    record = {"config": SMALL, "batch": BATCH, "steps": STEPS, "lr": ADAMW["lr"], "beta1": ADAMW["betas"][0],
              "beta2": ADAMW["betas"][1], "eps": ADAMW["eps"], "weight_decay": ADAMW["weight_decay"],
              "max_norm": MAX_NORM, "params": first, "losses": [short(v) for v in losses],
              "norms": [short(v) for v in norms], "trained": named(model.named_parameters(), summary)}
    return model, record


def generate(model, prompt, count):
    tokens, gaps = list(prompt), []
    with torch.no_grad():
        for _ in range(count):
            top = model(torch.tensor([tokens[-model.context:]]))[0, -1].topk(2)
            tokens.append(top.indices[0].item())
            gaps.append((top.values[0] - top.values[1]).item())
    return {"prompt": prompt, "tokens": tokens[len(prompt):], "gaps": [short(v) for v in gaps]}


def main():
    model, training = train()
    write({"torch": torch.__version__, "seed": SEED, "rule": RULE, "tiny": tiny(), "training": training,
           "generation": [generate(model, prompt, count) for prompt, count in PROMPTS]})


if __name__ == "__main__":
    main()
