"""A PyTorch DDP script that can be stopped and resumed after any epoch.

It uses torch.distributed only, so the same file runs under ddpbatch and torchrun.
The model is a small MLP on synthetic data.
"""
import argparse
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

stop_requested = False


def request_stop(signum, frame):
    global stop_requested
    stop_requested = True


def stop_agreed(device):
    """Return whether any rank was asked to stop. All ranks get the same answer."""
    flag = torch.tensor(float(stop_requested), device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return flag.item() > 0


def save(path, state):
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)  # an interrupted save leaves the old file intact


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=32)
    # ddpbatch has one directory per run. Without ddpbatch, it is the working directory.
    directory = os.environ.get("DDPBATCH_CHECKPOINT_DIR", "")
    p.add_argument("--checkpoint", default=os.path.join(directory, "checkpoint.pt"))
    a = p.parse_args()

    # Slurm, ddpbatch, and torchrun send one of these before they stop a rank.
    signal.signal(signal.SIGTERM, request_stop)
    signal.signal(signal.SIGUSR1, request_stop)

    use_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_gpu else "gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if use_gpu else torch.device("cpu")

    torch.manual_seed(0)
    x = torch.randn(2048, 64)
    data = TensorDataset(x, (x[:, :8] ** 2).sum(1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=a.batch_size, sampler=sampler)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[local_rank] if use_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    done = 0
    if os.path.exists(a.checkpoint):
        # A pickle can run code. PyTorch 1 cannot load the state of an optimizer without pickle.
        state = torch.load(a.checkpoint, map_location=device, weights_only=not torch.__version__.startswith("1."))
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epochs"]
        if rank == 0:
            print(f"resuming after epoch {done}")

    for epoch in range(done, a.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
        done = epoch + 1
        stop = stop_agreed(device)
        if rank == 0:
            print(f"epoch {done}/{a.epochs}  loss {loss.item():.4f}")
            save(a.checkpoint, {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epochs": done})
        if stop:  # after the save
            break

    dist.barrier()  # rank 0 has saved
    code = 0 if done >= a.epochs else 3  # 3: stopped early, can be resumed
    # End at once: PyTorch 1.13 can hang while it closes Gloo's connections.
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
