"""Measure the limits of a GPU with PyTorch: copy bandwidth, and the rate of bf16 matrix
multiplications with the shapes of a GPT-2 step. Print one JSON object."""
import json
import sys

try:
    import torch
except ImportError as e:
    print(json.dumps({"error": "PyTorch is required: %s" % e}))
    sys.exit(1)
if not torch.cuda.is_available():
    print(json.dumps({"error": "PyTorch %s finds no GPU" % torch.__version__}))
    sys.exit(1)

# Rows, columns, inner size, and whether the operands are transposed.
SHAPES = {
    "8192": (8192, 8192, 8192, False, False),
    "qkv": (65536, 2304, 768, False, False),
    "proj": (65536, 768, 768, False, False),
    "fc": (65536, 3072, 768, False, False),
    "proj2": (65536, 768, 3072, False, False),
    "qkv gradient": (65536, 768, 2304, False, True),
    "qkv weights": (768, 2304, 65536, True, False),
    "proj weights": (768, 768, 65536, True, False),
    "fc weights": (768, 3072, 65536, True, False),
    "proj2 weights": (3072, 768, 65536, True, False),
    "logits of 2668": (2668, 50304, 768, False, True),
    "logits of 16384": (16384, 50304, 768, False, True),
    "logits gradient of 2668": (2668, 768, 50304, False, False),
    "logits gradient of 16384": (16384, 768, 50304, False, False),
    "head weights of 2668": (50304, 768, 2668, True, False),
    "head weights of 16384": (50304, 768, 16384, True, False),
}


def seconds(function, n=20):
    for _ in range(3):
        function()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(n):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / n * 1e-3


def matrix(rows, cols, transposed):
    shape = (cols, rows) if transposed else (rows, cols)
    m = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    return m.T if transposed else m


def main():
    x = torch.empty(1 << 30, dtype=torch.float32, device="cuda").normal_()
    y = torch.empty_like(x)
    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "copy_GBps": 2 * x.numel() * 4 / seconds(lambda: y.copy_(x)) / 1e9}
    del x, y
    for name, (m, n, k, ta, tb) in SHAPES.items():
        a, b = matrix(m, k, ta), matrix(k, n, tb)
        result["TFLOPs " + name] = 2 * m * n * k / seconds(lambda: a @ b) / 1e12
        if name in ("qkv", "fc", "proj"):
            bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
            result["TFLOPs %s with bias" % name] = 2 * m * n * k / seconds(lambda: torch.addmm(bias, a, b)) / 1e12
    print(json.dumps(result))


if __name__ == "__main__":
    main()
