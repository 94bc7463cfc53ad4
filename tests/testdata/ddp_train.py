"""A beginner's DDP script: it knows torch.distributed and nothing of Slurm.

usage: ddp_train.py TOTAL_EPOCHS SAVE_EVERY SNAPSHOT [--batch_size N]

Linear(20, 1) on random samples, DistributedSampler, a snapshot every few epochs
that a restarted run goes on from.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    p = argparse.ArgumentParser()
    p.add_argument("total_epochs", type=int)
    p.add_argument("save_every", type=int)
    p.add_argument("snapshot")
    p.add_argument("--batch_size", type=int, default=32)
    a = p.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(2048, 20), torch.rand(2048, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=a.batch_size, sampler=sampler)
    model = torch.nn.Linear(20, 1)
    first = 0
    if os.path.exists(a.snapshot):
        snapshot = torch.load(a.snapshot)
        model.load_state_dict(snapshot["model"])
        first = snapshot["epochs_run"]
        print(f"rank {rank}: resuming at epoch {first}")
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(first, a.total_epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / world / len(loader):.6f}")
            if (epoch + 1) % a.save_every == 0:
                torch.save({"model": model.module.state_dict(), "epochs_run": epoch + 1}, a.snapshot + ".tmp")
                os.rename(a.snapshot + ".tmp", a.snapshot)
    print(f"rank {rank} of {world}, local rank {os.environ['LOCAL_RANK']}: done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
