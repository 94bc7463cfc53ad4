"""What the peers share: the timed loop, and the line of JSON that it ends in."""
import json
import statistics
import time

import torch
from torch import nn

WARM_UP = 2  # steps before those that are timed, as ours


def run(name, unit, units, precision, steps, model, optimizer, loss_of, clip=None):
    """Trains on one batch, whose loss is loss_of()."""
    torch.set_num_threads(1)
    losses, seconds = [], []
    for _ in range(WARM_UP + steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
    seconds = seconds[WARM_UP:]
    median = statistics.median(seconds)
    print(json.dumps({
        "bench": "step", "model": name, "precision": precision, "threads": 1, "runs": steps,
        "median_s": median, "best_s": min(seconds), "unit": unit, "per_s": units / median,
        "params": sum(p.numel() for p in model.parameters()),
        "first_loss": losses[0], "loss": losses[-1], "peak_rss": peak_rss(),
    }))


def peak_rss():
    """The most memory that this process has held, in bytes."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
