"""A DDP program whose rank 3 hangs once for each word of HANGS, in a different attempt.

stop: SIGSTOP. loop: an endless loop. mismatch: a collective that the other ranks do not call.
"""
import faulthandler
import os
import signal
import tempfile
import time

import torch
import torch.distributed as dist

with tempfile.NamedTemporaryFile(prefix="ddpbatch-stacks-SIGUSR2-") as f:
    faulthandler.register(signal.SIGUSR2, os.dup(f.fileno()))


def step():
    dist.all_reduce(torch.ones(4))


def spin():
    while True:
        pass


def hang(kind):
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "loop":
        spin()
    else:
        dist.barrier()
    time.sleep(900)


torch.set_num_threads(1)
dist.init_process_group("gloo")
hangs = os.environ["HANGS"].split()
# The number of earlier hangs does not depend on the number of attempts.
done = len(open("hung").read().split()) if os.path.exists("hung") else 0
step()
with open(os.environ["DDPBATCH_HEARTBEAT"], "w") as beat:
    beat.write(str(done))
if dist.get_rank() == 0:
    print(f"step {done + 1} loss 1.0", flush=True)
step()
if done < len(hangs):
    if dist.get_rank() == 3:
        with open("hung", "a") as f:
            f.write(hangs[done] + "\n")
        hang(hangs[done])
    step()
print(f"rank {dist.get_rank()}: done", flush=True)
