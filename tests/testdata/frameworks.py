# Connects ranks with the variables that a framework reads, and prints the sum over all ranks.
import argparse
import os
import sys

import torch
import torch.distributed as dist

env = os.environ


def accelerate():
    # accelerate.state.PartialState without accelerate's launcher
    assert env["ACCELERATE_USE_CPU"] == "true"
    assert int(env["WORLD_SIZE"]) > 1 and int(env["LOCAL_RANK"]) >= 0
    return int(env["RANK"]), int(env["WORLD_SIZE"]), env["MASTER_ADDR"], env["MASTER_PORT"]


def deepspeed():
    # deepspeed.comm.init_distributed, and the script's own --local_rank
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("framework")
    args = parser.parse_args()
    assert args.local_rank == int(env["LOCAL_RANK"])
    assert int(env["CROSS_RANK"]) * int(env["LOCAL_SIZE"]) + args.local_rank == int(env["RANK"])
    assert int(env["CROSS_SIZE"]) * int(env["LOCAL_SIZE"]) == int(env["WORLD_SIZE"])
    return int(env["RANK"]), int(env["WORLD_SIZE"]), env["MASTER_ADDR"], env["MASTER_PORT"]


def lightning():
    # The order of Lightning 2 (torchelastic, Slurm) and the order before 1.7 (Slurm, torchelastic)
    slurm = "SLURM_NTASKS" in env
    torchelastic = dist.is_torchelastic_launched()
    assert torchelastic and not slurm
    assert int(env["GROUP_RANK"]) == int(env["NODE_RANK"])
    return int(env["RANK"]), int(env["WORLD_SIZE"]), env["MASTER_ADDR"], env["MASTER_PORT"]


name = sys.argv[-1]
rank, world, addr, port = {"accelerate": accelerate, "deepspeed": deepspeed, "lightning": lightning}[name]()
dist.init_process_group("gloo", init_method=f"tcp://{addr}:{port}", rank=rank, world_size=world)
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
print(f"{name}: rank {rank} of {world}, sum {total.item():.0f}", flush=True)
dist.barrier()
os._exit(0)
