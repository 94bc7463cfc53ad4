"""The timed loop of all peers, and its line of JSON."""
import json
import statistics
import time
from typing import Callable, NamedTuple, Optional

import torch
from torch import nn

WARM_UP = 2  # steps before the timed steps, as in ddpbatch

# Optimizers that update all parameters in one kernel, which PyTorch has on CPUs since 2.4.
FUSED = {"fused": True} if tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 4) else {}


class Work(NamedTuple):
    """Training on one batch with the given number of units."""
    name: str
    unit: str
    units: int
    model: nn.Module
    optimise: Callable  # returns the optimizer for parameters
    loss_of: Callable  # returns the loss of a network, which is the model or contains it
    clip: Optional[float] = None


def run(work, precision, steps, mode="eager", ranks=1, wrap=lambda model: model, mean=lambda loss: loss, tell=True):
    """Train and return the results. Mode is eager or compile. With several ranks, wrap averages
    gradients, and mean averages over ranks."""
    torch.set_num_threads(1)
    net = wrap(work.model)
    loss_of = work.loss_of
    if mode == "compile" and ranks == 1:
        loss_of = torch.compile(loss_of)  # including the loss
    elif mode == "compile":
        net = torch.compile(net)
    optimizer = work.optimise(net.parameters())
    losses, seconds = [], []
    for _ in range(WARM_UP + steps):
        start = time.perf_counter()
        # Gradients in buckets must stay there.
        optimizer.zero_grad(set_to_none=ranks == 1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(net)
        loss.backward()
        if work.clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), work.clip)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.detach())
    first, last = mean(losses[0]).item(), mean(losses[-1]).item()
    seconds = seconds[WARM_UP:]
    median = statistics.median(seconds)
    found = {
        "bench": "step", "model": work.name, "precision": precision, "threads": 1, "runs": steps,
        "median_s": median, "best_s": min(seconds), "unit": work.unit, "per_s": ranks * work.units / median,
        "params": sum(p.numel() for p in work.model.parameters()),
        "mode": mode, "first_loss": first, "loss": last, "peak_rss": peak_rss(),
    }
    if ranks > 1:
        found["ranks"] = ranks
    if tell:
        print(json.dumps(found), flush=True)


def peak_rss():
    """Return the peak memory of this process in bytes."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
