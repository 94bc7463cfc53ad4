"""Time training steps of a model on several ranks with PyTorch's DistributedDataParallel
over Gloo, with one thread and one core for each rank.

usage: ddp.py MODEL PRECISION STEPS RANKS MODE     MODEL is mlp, gpt or gpt2; MODE is eager or compile

Each rank has its own samples. Rank 0 prints a line of JSON: rates are totals of all ranks,
losses are means over ranks.
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import gpt
import mlp
import timing


def mean(loss):
    total = loss.float() / dist.get_world_size()
    dist.all_reduce(total)
    return total


def averaged(model):
    # Gloo does not support the boolean masks, which are equal on all ranks.
    masks = [name for name, _ in model.named_buffers()]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, masks)
    return DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)


def rank_of(rank, ranks, store, model, precision, steps, mode):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    work = mlp.work(rank=rank) if model == "mlp" else gpt.work(model, rank)
    timing.run(work, precision, steps, mode, ranks, wrap=averaged, mean=mean, tell=rank == 0)
    dist.destroy_process_group()


def main():
    model, precision, steps, ranks, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_of, (ranks, os.path.join(folder, "store"), model, precision, steps, mode), nprocs=ranks)


if __name__ == "__main__":
    main()
