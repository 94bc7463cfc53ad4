"""A DDP script as PyTorch's tutorials have it. It knows torch.distributed and nothing of
Slurm or ddpbatch: the same file runs under torchrun.

A linear model on random samples, with a snapshot every few epochs that a restarted run
goes on from.
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
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--save-every", type=int, default=2)
    p.add_argument("--snapshot", default="snapshot.pt")
    p.add_argument("--batch-size", type=int, default=32)
    a = p.parse_args()

    gpus = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpus else "gloo")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if gpus else torch.device("cpu")

    torch.manual_seed(0)
    data = TensorDataset(torch.rand(2048, 20), torch.rand(2048, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=a.batch_size, sampler=sampler)
    model = torch.nn.Linear(20, 1).to(device)
    first = 0
    if os.path.exists(a.snapshot):
        snapshot = torch.load(a.snapshot, map_location=device)
        model.load_state_dict(snapshot["model"])
        first = snapshot["epochs"]
    model = DistributedDataParallel(model, device_ids=[local] if gpus else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(first, a.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1} of {a.epochs}: loss {loss.item():.4f}")
            if (epoch + 1) % a.save_every == 0:
                torch.save({"model": model.module.state_dict(), "epochs": epoch + 1}, a.snapshot + ".new")
                os.replace(a.snapshot + ".new", a.snapshot)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
