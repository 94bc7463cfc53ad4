"""Time matrix multiplications in PyTorch, which uses its BLAS for float32.

usage: gemm.py SECONDS SHAPE...     SHAPE is MxNxK/LAYOUT; LAYOUT is NN, NT, or TN

It prints a line of JSON for each shape.
"""
import json
import statistics
import sys
import time

import torch

SHORTEST = 200e-6  # seconds of a run, as in ddpbatch


def main():
    torch.set_num_threads(1)
    for shape in sys.argv[2:]:
        sizes, layout = shape.split("/")
        m, n, k = (int(side) for side in sizes.split("x"))
        a = torch.randn(k, m).t() if layout[0] == "T" else torch.randn(m, k)
        b = torch.randn(n, k).t() if layout[1] == "T" else torch.randn(k, n)
        c = torch.empty(m, n)
        timed(a, b, c, 1)
        calls = 1 + int(SHORTEST / timed(a, b, c, 1))
        runs = max(3, int(float(sys.argv[1]) / (calls * timed(a, b, c, calls))))
        seconds = [timed(a, b, c, calls) for _ in range(runs)]
        gflop = 2e-9 * m * n * k
        print(json.dumps({
            "bench": "gemm", "shape": shape, "precision": "fp32", "threads": 1, "runs": runs,
            "median_s": statistics.median(seconds), "best_s": min(seconds),
            "gflop": gflop, "gflops": gflop / min(seconds),
        }), flush=True)


def timed(a, b, c, calls):
    """Return the seconds of one call."""
    start = time.perf_counter()
    for _ in range(calls):
        torch.mm(a, b, out=c)
    return (time.perf_counter() - start) / calls


if __name__ == "__main__":
    main()
