"""Counts with a snapshot of its own: what a program of [command] has to do to be stopped
and go on. It saves when it is told to stop, and ends with code 0, as many programs do.
It counts until it is told, and 40 more when it has been started again."""
import os
import signal
import time

stop = False


def told(number, frame):
    global stop
    stop = True


for s in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(s, told)

rank = os.environ["RANK"]
path = "snapshot-%s.txt" % rank
count, end = 0, 1000000
if os.path.exists(path):
    count = int(open(path).read())
    end = count + 40
print("rank %s: from %d" % (rank, count), flush=True)
while count < end and not stop:
    time.sleep(0.05)
    count += 1
    with open("counted-%s.txt" % rank, "a") as f:
        f.write("%d\n" % count)
with open(path + ".new", "w") as f:
    f.write(str(count))
os.replace(path + ".new", path)
print("rank %s: %s at %d" % (rank, "stopped" if stop else "done", count), flush=True)
