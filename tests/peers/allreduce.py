"""Time all-reduces of float32 in PyTorch over Gloo, as one of two ranks.

usage: allreduce.py RANK ADDRESS PORT BYTES...     ADDRESS and PORT of rank 0

Rank 0 prints a line of JSON for each size, with the field names of "ddpbatch bench allreduce".
"""
import json
import sys
import time

import torch
import torch.distributed as dist

SETTLE, WORK, MOST, LEAST = 0.25, 400 << 20, 2000, 8  # as in ddpbatch


def main():
    rank, address, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}:{port}", rank=rank, world_size=2)
    for size in (int(text) for text in sys.argv[4:]):
        values = torch.zeros(size // 4)
        runs = min(max(WORK // size, LEAST), MOST)
        settle(values)
        seconds = sorted(timed(values) for _ in range(runs))
        if rank == 0:
            print(json.dumps({
                "bench": "allreduce", "ranks": 2, "bytes": size, "runs": runs,
                "median_ms": 1e3 * seconds[runs // 2], "best_ms": 1e3 * seconds[0], "transport": "gloo",
            }), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def settle(values):
    """Run all-reduces until the system has placed the ranks. All ranks stop together."""
    start, spent, done = time.perf_counter(), torch.zeros(1), 0
    while spent < SETTLE * 2:
        for _ in range(max(done, 1)):
            dist.all_reduce(values)
            done += 1
        spent[0] = time.perf_counter() - start
        dist.all_reduce(spent)


def timed(values):
    """Return the seconds of one all-reduce."""
    start = time.perf_counter()
    dist.all_reduce(values)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
