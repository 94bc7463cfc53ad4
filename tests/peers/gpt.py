"""Time training steps of a GPT-2 in PyTorch, with AdamW on random tokens.

usage: gpt.py MODEL PRECISION STEPS MODE
  MODEL      gpt: 4 layers of 256, 4 heads, 65 tokens, 8 sequences of 128, clipping
             gpt2: 12 layers of 768, 12 heads, 50304 tokens, 4 sequences of 64
  PRECISION  fp32, or bf16 (autocast)
  MODE       eager or compile (torch.compile)

It prints a line of JSON. Weights are initialized as in Hugging Face's GPT2LMHeadModel.
GELU is exact: PyTorch's tanh approximation, which GPT-2 uses, is slower here.
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import skip_init

import timing

MODELS = {
    "gpt": dict(layers=4, width=256, heads=4, context=128, vocabulary=65, batch=8, length=128,
                betas=(0.9, 0.95), decay=0.1, clip=1.0),
    "gpt2": dict(layers=12, width=768, heads=12, context=1024, vocabulary=50304, batch=4, length=64,
                 betas=(0.9, 0.999), decay=0.01, clip=None),
}

FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")  # since PyTorch 2.0


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.attn_proj = skip_init(nn.Linear, width, 3 * width), skip_init(nn.Linear, width, width)
        self.fc, self.fc_proj = skip_init(nn.Linear, width, 4 * width), skip_init(nn.Linear, 4 * width, width)
        self.register_buffer("future", torch.tril(torch.ones(context, context)).view(1, 1, context, context) == 0)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for z in self.attn(self.ln_1(x)).split(c, 2))
        if FUSED_ATTENTION:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            weights = q @ k.transpose(-2, -1) * (1 / math.sqrt(c // self.heads))
            y = F.softmax(weights.masked_fill(self.future[:, :, :t, :t], float("-inf")), -1) @ v
        x = x + self.attn_proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.wte, self.wpe = skip_init(nn.Embedding, vocabulary, width), skip_init(nn.Embedding, context, width)
        self.blocks = nn.ModuleList(Block(width, heads, context) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = skip_init(nn.Linear, width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def draw(self):
        """Initialize the weights, in the order of _init_weights."""
        narrow = 0.02 / math.sqrt(2 * len(self.blocks))
        nn.init.normal_(self.wte.weight, 0, 0.02)
        nn.init.normal_(self.wpe.weight, 0, 0.02)
        for b in self.blocks:
            for layer, deviations in ((b.attn, [0.02]), (b.attn_proj, [0.02, narrow]),
                                      (b.fc, [0.02]), (b.fc_proj, [0.02, narrow])):
                nn.init.zeros_(layer.bias)
                for deviation in deviations:
                    drawn = torch.empty(layer.weight.t().shape).normal_(0, deviation)
                    layer.weight.data.copy_(drawn.t())

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def work(name, rank=0):
    """Return the workload of a rank: the same weights on all ranks, different samples."""
    m = MODELS[name]
    model = GPT(m["layers"], m["width"], m["heads"], m["context"], m["vocabulary"])
    torch.manual_seed(0)
    model.draw()
    if rank > 0:
        torch.manual_seed(rank)
    shape = m["batch"], m["length"]
    tokens, labels = torch.randint(0, m["vocabulary"], shape), torch.randint(0, m["vocabulary"], shape)
    return timing.Work(name, "tokens", m["batch"] * m["length"], model,
                       lambda params: torch.optim.AdamW(params, lr=3e-4, betas=m["betas"], weight_decay=m["decay"], **timing.FUSED),
                       lambda net: net(tokens, labels), m["clip"])


if __name__ == "__main__":
    timing.run(work(sys.argv[1]), precision=sys.argv[2], steps=int(sys.argv[3]), mode=sys.argv[4])
