"""Time a training step of GPT-2 124M in PyTorch: peer.py flash|cudnn. Print one JSON object.

The step is equal to that of `ddpbatch bench step`: 64 sequences of 1,024 tokens, a vocabulary of
50,304, bf16, gradient clipping, and fused AdamW, with torch.compile.
"""
import json
import sys

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as e:
    print(json.dumps({"error": "PyTorch 2.3 or later is required: %s" % e}))
    sys.exit(1)
if not torch.cuda.is_available():
    print(json.dumps({"error": "PyTorch %s finds no GPU" % torch.__version__}))
    sys.exit(1)

BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 64, 1024, 768, 12, 12, 50304


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (t.view(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(WIDTH, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions(torch.arange(LENGTH, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCABULARY), labels.view(-1))


def main(attention):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    backend = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[attention]
    model = GPT().cuda()
    # Initial weights of GPT-2, so that the first loss is comparable.
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens, labels = (torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16), sdpa_kernel(backend):
            loss = compiled(tokens, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        return loss

    first = step().item()
    for _ in range(7):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(20):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        loss = step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    times.sort()
    median = times[len(times) // 2]
    print(json.dumps({"torch": torch.__version__, "attention": attention, "median_ms": median, "best_ms": times[0], "tokens_per_s": BATCH * LENGTH / median * 1e3,
                      "first_loss": first, "loss": loss.item(), "memory_GiB": torch.cuda.max_memory_allocated() / 2**30}))


if __name__ == "__main__":
    main(sys.argv[1])
