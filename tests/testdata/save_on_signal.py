"""Counts until it is told to stop, saves slowly, and ends with code 3. Started again, it
resumes from what it saved and counts 20 more. It has a child process that inherits the
signal handlers, as the workers of PyTorch's DataLoader do: a signal that reaches the child
adds its name to a file. With OUTLIVE_PARENT, it waits after a save until the process that
started it has ended. Arguments: the prefix of its files."""
import os
import signal
import sys
import time

prefix, rank, main = sys.argv[1], os.environ["RANK"], os.getpid()
parent = os.getppid()
path = "%s-saved-%s.txt" % (prefix, rank)
stop = None


def say(text):
    # One write call, because all ranks write to one file.
    os.write(1, ("rank %s: %s\n" % (rank, text)).encode())


def request(number, frame):
    global stop
    # The first signal counts: the torchrun agent sends another one to workers that still save.
    stop = stop or signal.Signals(number).name
    if os.getpid() != main:
        with open("%s-child-%s.txt" % (prefix, rank), "a") as f:
            f.write(signal.Signals(number).name + "\n")


for s in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(s, request)
child = os.fork()
if child == 0:
    while os.getppid() == main:
        time.sleep(0.05)
    os._exit(0)

count, end = 0, 1000000
if os.path.exists(path):
    count = int(open(path).read())
    end = count + 20
say("from %d" % count)
while count < end and not stop:
    time.sleep(0.05)
    count += 1
    with open("%s-counted-%s.txt" % (prefix, rank), "a") as f:
        f.write("%d\n" % count)
if stop:
    time.sleep(1)
with open(path + ".new", "w") as f:
    f.write(str(count))
os.replace(path + ".new", path)
say("%s at %d" % (stop or "done", count))
while stop and "OUTLIVE_PARENT" in os.environ and os.getppid() == parent:
    time.sleep(0.05)
sys.exit(3 if stop else 0)
