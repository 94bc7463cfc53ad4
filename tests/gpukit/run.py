#!/usr/bin/env python3
"""Run ddpbatch's checks and benchmarks on one GPU, in parts of less than 570 s.

    python3 run.py 1 --out DIR    # correctness
    python3 run.py 2 --out DIR    # limits of the GPU; a training step next to PyTorch's
    python3 run.py 3 --out DIR    # time per kernel; races and memory errors

The machine needs an NVIDIA driver and a python3 with PyTorch and its NVIDIA packages. It needs no
network, no Go, and no CUDA toolkit. Each stage has a time limit, and its processes are killed at the
limit. After each stage, DIR/results-PART.json is replaced. A failed stage costs only its own time.
The exit code is 0 if all stages of the part succeeded.
"""
import argparse
import csv
import glob
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GPT2 = ["bench", "step", "--device", "cuda", "--model", "gpt2", "--precision", "bf16", "--batch", "64", "--length", "1024", "--json"]
# Tests of engine.test: stage, pattern, limit in seconds, environment. The first stage compiles the PTX.
SUITES = {
    "first": ("TestConformance/(Memory|Elementwise|Normalization|Losses|Updates|Rules)$|TestKeptRowsHaveTheSameBits", 120, {}),
    "products": ("TestConformance/(Dense|Stored)$", 150, {}),
    "products without fusion": ("TestConformance/(Dense|Stored)$", 100, {"DDPBATCH_FUSION": "none"}),
    "attention": ("TestConformance/Attention$|TestAttentionOfLargeHeads", 120, {"DDPBATCH_ATTENTION": "mma"}),
    "wgmma": ("TestConformance/(Attention|Repeat)$|TestAttentionOnWGMMA|TestTrainsAsOnTheCPU/gpt", 120, {"DDPBATCH_ATTENTION": "wgmma"}),
    "training": ("TestTrainsAsOnTheCPU|TestRoundedWeightsTrainTheSame", 100, {"DDPBATCH_ATTENTION": "mma"}),
    "training without fusion": ("TestTrainsAsOnTheCPU/gpt", 60, {"DDPBATCH_FUSION": "none"}),
    "memory": ("TestStepUsesPlannedMemory", 60, {}),
    "others": ("TestConformance/(Dropout|Embedding|AttentionDropout|Convolution|Pool|Steps|Misfits|Repeat)$|TestGroups|TestStepDecisions|TestReadingAndWriting|TestMoreValues|TestMemoryThatGrows|TestAsyncSteps|TestTimeRuns", 200, {}),
}
FIRST_KERNEL = "embed"  # of a training step
SANITIZED = "TestConformance/(Normalization|Losses)$|TestAttentionOfLargeHeads/(48|128)_precision_1"
JOB = '''name = "gpt2"
[train]
device = "cuda"
precision = "bf16"
epochs = 1
batch = 64
seed = 1
log_every = "20 steps"
[train.model]
kind = "gpt"
size = "gpt2"
[train.data]
kind = "tokens"
path = "tokens.bin"
dtype = "uint16"
vocabulary_size = 50304
[train.optimizer]
kind = "adamw"
lr = 6e-4
beta2 = 0.95
weight_decay = 0.1
clip_norm = 1.0
[checkpoint]
every = "100 steps"
async = true
'''


class Part:
    """Part runs stages and stores their results."""

    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.stages, self.notes = {}, {}
        self.out = os.path.abspath(options.out)
        os.makedirs(self.out, exist_ok=True)
        self.work = tempfile.mkdtemp(prefix="ddpbatch-gpu-")  # belongs to this user only
        self.logs = []
        self.blocked = None  # reason why no further stage can succeed
        cache = self.cache()
        self.env = dict(os.environ, DDPBATCH_TEST_GPU="1", CUDA_CACHE_PATH=os.path.join(cache, "ptx"), CUDA_CACHE_MAXSIZE=str(1 << 30), TORCHINDUCTOR_CACHE_DIR=os.path.join(cache, "inductor"))
        self.env.setdefault("HOME", self.work)
        # ddpbatch searches next to the python3 in PATH, which must be this one.
        self.env["PATH"] = os.path.dirname(sys.executable) + os.pathsep + self.env.get("PATH", "")
        self.exe, self.tests = self.program("ddpbatch"), self.program("engine.test")

    def cache(self):
        """Return a directory for compiled kernels that the next part finds again, if possible."""
        path = os.path.join(os.path.expanduser("~"), ".cache", "ddpbatch-gpu-kit")
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError:
            return self.work
        return path if os.access(path, os.W_OK) else self.work

    def program(self, name):
        """Return the path of a program of the kit, as a copy if it lost its x bit on the way."""
        path = os.path.join(os.path.abspath(self.options.bin), name)
        if os.path.exists(path) and not os.access(path, os.X_OK):
            copy = os.path.join(self.work, name)
            shutil.copy(path, copy)
            os.chmod(copy, 0o700)
            return copy
        return path

    def left(self):
        return self.options.budget - (time.monotonic() - self.began)

    def save(self):
        name = os.path.join(self.out, "results-%d.json" % self.options.part)
        with open(name + ".new", "w") as f:
            json.dump({"part": self.options.part, "seconds": round(time.monotonic() - self.began, 1), "notes": self.notes, "stages": self.stages}, f, indent=1)
        os.replace(name + ".new", name)

    def put(self, stage, **values):
        self.stages.setdefault(stage, {}).update(values)
        self.save()

    def skip(self, stage, why):
        self.put(stage, ok=False, why=why)

    def run(self, stage, argv, limit, env=None):
        """Run a command in its own process group and return its output, or None if it did not run."""
        if self.options.only and stage not in self.options.only:
            return None
        if self.blocked:
            self.skip(stage, self.blocked)
            return None
        margin = self.options.budget / 100
        limit = min(limit, self.options.limit, self.left() - margin)
        if self.left() < 2 * margin:
            self.skip(stage, "no time left")
            return None
        log = os.path.join(self.work, "%s.log" % re.sub(r"\W", "-", stage))
        self.logs.append((stage, log))
        began = time.monotonic()
        with open(log, "wb") as f:
            try:
                c = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, env=dict(self.env, **(env or {})), start_new_session=True, cwd=self.work)
            except OSError as e:
                self.skip(stage, "start %s: %s" % (argv[0], e.strerror))
                return None
            try:
                code = c.wait(limit)
            except subprocess.TimeoutExpired:
                code = "timeout"
            finally:
                try:
                    os.killpg(c.pid, signal.SIGKILL)  # also processes that the command left
                except ProcessLookupError:
                    pass
                c.wait()
        with open(log, errors="replace") as f:
            text = f.read()
        self.put(stage, ok=code == 0, code=code, seconds=round(time.monotonic() - began, 1), tail=text[-1500:] if code else text[-300:])
        if code == "timeout":
            self.put(stage, why="killed after %.0f s" % limit)
        return text

    def suite(self, stage):
        pattern, limit, env = SUITES[stage]
        text = self.run(stage, [self.tests, "-test.v", "-test.run", pattern], limit, env)
        if text is None:
            return
        failed = re.findall(r"^\s*--- FAIL: (\S+)", text, re.M)
        passed = len(re.findall(r"^\s*--- PASS", text, re.M))
        self.put(stage, passed=passed, skipped=len(re.findall(r"^\s*--- SKIP", text, re.M)), failed=failed[:60],
                 said=re.findall(r"^\s+\w+_test\.go:\d+: .*|^panic: .*", text, re.M)[:40])
        if not passed:
            self.put(stage, ok=False)

    def json(self, stage, argv, limit, env=None):
        """Run a command that prints a JSON object, and store the object."""
        text = self.run(stage, argv, limit, env)
        if text is None:
            return None
        result = last_object(text)
        self.put(stage, result=result)
        if result is None or "error" in result:
            self.put(stage, ok=False, why=(result or {}).get("error", self.stages[stage].get("why", "no result")))
        return result

    def step(self, stage, attention, limit):
        self.json(stage, [self.exe] + GPT2, limit, {"DDPBATCH_ATTENTION": attention})

    def script(self, stage, name, limit, *args):
        self.json(stage, [sys.executable, os.path.join(HERE, name), *args], limit)

    def find_libraries(self):
        """Run doctor. Without a driver, no stage can succeed. Help if cuBLASLt is not found."""
        text = self.run("doctor", [self.exe, "doctor", "--json", "--dir", self.work], 60)
        if text is None:
            return
        try:
            findings = {f["part"]: f for f in json.loads(text[text.index("["):text.rindex("]") + 1])}
        except ValueError:
            self.blocked = "doctor printed no findings"
            self.put("doctor", ok=False, why=self.blocked)
            return
        parts = [p for p in findings if p in ("driver", "cublaslt", "nccl") or p.startswith("gpu")]
        gpus = [p for p in parts if p.startswith("gpu ")]
        # Other findings, such as limits of the machine, do not matter here.
        wrong = [p for p in parts if findings[p]["verdict"] == "bad"] + ([] if gpus else ["gpu"])
        self.put("doctor", ok=not wrong, findings=[findings[p] for p in parts])
        if not gpus:
            self.blocked = "no GPU: " + findings.get("driver", {}).get("detail", "doctor lists none")
        elif findings.get("cublaslt", {}).get("verdict") != "ok":
            folders = library_folders()
            self.notes["LD_LIBRARY_PATH"] = folders
            self.env["LD_LIBRARY_PATH"] = os.pathsep.join(folders + [self.env.get("LD_LIBRARY_PATH", "")])

    def describe(self):
        self.notes["python"] = sys.version.split()[0]
        for name, argv in {"gpu": ["--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit,mig.mode.current", "--format=csv,noheader"], "list": ["-L"]}.items():
            try:
                self.notes[name] = subprocess.run(["nvidia-smi"] + argv, capture_output=True, text=True, timeout=30).stdout.strip()
            except (OSError, subprocess.SubprocessError) as e:
                self.notes[name] = repr(e)
        self.save()

    def launch(self, stage, limit, *options):
        """Train GPT-2 with checkpoints, and watch the GPU's memory."""
        if self.options.only and stage not in self.options.only:
            return
        if not self.blocked and not os.path.exists(os.path.join(self.work, "gpt2.toml")):
            write_tokens(os.path.join(self.work, "tokens.bin"), self.options.tokens)
            with open(os.path.join(self.work, "gpt2.toml"), "w") as f:
                f.write(JOB)
        runs, samples, stop = os.path.join(self.work, re.sub(r"\W", "-", stage)), [], threading.Event()

        def watch():
            while not stop.wait(1):
                try:
                    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used,utilization.gpu,clocks.sm,power.draw", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10).stdout
                    samples.append([float(v) for v in text.splitlines()[0].split(",")])
                except (OSError, subprocess.SubprocessError, ValueError, IndexError):
                    continue

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        text = self.run(stage, [self.exe, "launch", "gpt2.toml", "-n", "1", "--run-dir", runs, *options], limit)
        stop.set()
        watcher.join(15)
        if text is not None:
            self.put(stage, memory_MiB=max([s[0] for s in samples], default=0), utilization=max([s[1] for s in samples], default=0), last_clock_and_power=samples[-1][2:] if samples else [],
                     metrics=read_metrics(runs), saved=re.findall(r"saved .*", text)[-4:], timed=re.findall(r"timed the algorithms .*", text), algorithms=read_algorithms(runs))
        shutil.rmtree(runs, ignore_errors=True)  # checkpoints

    def kernels(self, stage, attention, limit):
        """Measure each kernel of a training step with Nsight Compute."""
        ncu = find_tool("ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda/bin/ncu")
        if ncu is None:
            if not self.options.only or stage in self.options.only:
                self.skip(stage, self.blocked or "ncu not found")
            return
        # Launches in a graph count, too. A step has about 430, and up to 160 more if cuBLASLt splits sums.
        # So 1,200 contain a whole step, after two others, in which cuBLASLt and the graph start.
        text = self.run(stage, [ncu, "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--csv", "--graph-profiling", "node", "--launch-skip", "900", "--launch-count", "1200",
                                self.exe] + GPT2 + ["--steps", "2"], limit, {"DDPBATCH_ATTENTION": attention})
        if text is not None:
            measured = kernel_times(text)
            step = one_step(measured)
            if step is None:
                why = "ncu printed %d times, which do not contain a whole step: two launches of %s are required" % (len(measured), FIRST_KERNEL)
                self.put(stage, ok=False, measured=len(measured), why=self.stages[stage].get("why", why))
                return
            sums = sum_by_kernel(step)
            self.put(stage, measured=len(measured), rows_of_step=len(step), kernels=sums[:60], total_ms=round(sum(r["ms"] for r in sums), 3))

    def benchmarks(self, stage, limit):
        text = self.run(stage, [self.tests, "-test.run", "^$", "-test.bench", ".", "-test.benchtime", "300ms"], limit)
        if text is not None:
            self.put(stage, rows=re.findall(r"^Benchmark\S+.*", text, re.M))

    def sanitize(self, stage, argv, limit, env=None):
        tool = find_tool("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
        if tool is None:
            if not self.options.only or stage in self.options.only:
                self.skip(stage, self.blocked or "compute-sanitizer not found")
            return
        self.run(stage, [tool] + argv + ["--error-exitcode", "9", "--print-limit", "20", self.tests, "-test.run", SANITIZED], limit, env)

    def correctness(self):
        for stage in ("first", "products", "attention"):
            self.suite(stage)
        self.step("step mma", "mma", 60)
        self.suite("wgmma")
        self.step("step wgmma", "wgmma", 60)
        self.suite("training")
        for stage, alternative in (("products", "products without fusion"), ("training", "training without fusion")):
            if self.stages.get(stage, {}).get("failed"):  # does cuBLASLt's GELU cause it?
                self.suite(alternative)
        self.suite("memory")
        self.suite("others")

    def speed(self):
        self.script("limits", "limits.py", 70)
        for round in ("1", "2"):
            for attention in ("mma", "wgmma"):
                self.step("step %s %s" % (attention, round), attention, 45)
            for attention in ("flash", "cudnn"):
                self.script("torch %s %s" % (attention, round), "peer.py", 100, attention)
            if round == "1":
                self.launch("launch", 90)
                self.launch("launch tuned", 60, "--set", "train.tune_matmul=true")

    def detail(self):
        for attention in ("mma", "wgmma"):
            self.kernels("kernels " + attention, attention, 150)
        self.benchmarks("benchmarks", 120)
        self.sanitize("races", ["--tool", "racecheck"], 90, {"DDPBATCH_ATTENTION": "mma"})
        self.sanitize("memory errors", ["--tool", "memcheck"], 90, {"DDPBATCH_TEST_APART": "1", "DDPBATCH_ATTENTION": "mma"})

    def finish(self):
        self.save()
        with open(os.path.join(self.out, "logs-%d.txt" % self.options.part), "w") as all_logs:
            for stage, log in self.logs:
                with open(log, errors="replace") as f:
                    all_logs.write("==== %s\n%s\n" % (stage, f.read()[-60000:]))
        shutil.rmtree(self.work, ignore_errors=True)
        print("%-24s %-5s %7s  %s" % ("STAGE", "OK", "SECONDS", "RESULT"))
        for name, s in self.stages.items():
            print("%-24s %-5s %7s  %s" % (name, "yes" if s.get("ok") else "NO", s.get("seconds", "-"), summarize(s)))
        return 0 if self.stages and all(s.get("ok") for s in self.stages.values()) else 1


def summarize(stage):
    if stage.get("why"):
        return stage["why"]
    if "passed" in stage:
        return "%d passed, %d skipped, failed: %s" % (stage["passed"], stage["skipped"], " ".join(stage["failed"]) or "none")
    if "total_ms" in stage:
        return "%.2f ms; %s" % (stage["total_ms"], ", ".join("%s %.2f" % (r["kernel"], r["ms"]) for r in stage["kernels"][:3]))
    result = stage.get("result") or {}
    rate = result.get("per_s") or result.get("tokens_per_s")
    if rate:
        return "{:,.0f} tokens/s".format(rate)
    return str(result or stage.get("metrics", stage.get("rows", "")))[:160] or stage.get("tail", "")[-120:].replace("\n", " | ")


def last_object(text):
    """Return the last JSON object in a text: one line, or all lines from the first brace."""
    for line in reversed(text.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    try:
        value = json.loads(text[text.index("{"):text.rindex("}") + 1])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def kernel_times(text):
    """Return name and milliseconds of each launch in ncu's CSV output, in order."""
    unit = {"ns": 1e-6, "nsecond": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1, "msecond": 1, "s": 1e3, "second": 1e3}
    times = []
    for row in csv.DictReader(io.StringIO("\n".join(line for line in text.splitlines() if line.startswith('"')))):
        try:
            name = re.sub(r"[<(].*", "", row["Kernel Name"])[:90]
            ms = float(row["Metric Value"].replace(",", "")) * unit[row["Metric Unit"]]
        except (KeyError, ValueError, AttributeError, TypeError):
            continue
        times.append((name, ms))
    return times


def one_step(times):
    """Return the launches from the first kernel of a step to that of the next one, or None."""
    first = [i for i, (name, _) in enumerate(times) if name == FIRST_KERNEL]
    return times[first[0]:first[1]] if len(first) > 1 else None


def sum_by_kernel(times):
    """Return the number of launches of each kernel and the sum of their times, the longest first."""
    sums = {}
    for name, ms in times:
        count, total = sums.get(name, (0, 0.0))
        sums[name] = count + 1, total + ms
    return [{"kernel": k, "count": n, "ms": round(t, 4)} for k, (n, t) in sorted(sums.items(), key=lambda item: -item[1][1])]


def library_folders():
    """Return the directories of NVIDIA's packages for this Python."""
    found = []
    for root in sys.path:
        for f in sorted(glob.glob(os.path.join(glob.escape(root or "."), "nvidia", "*", "lib", "lib*.so.*"))):
            folder = os.path.abspath(os.path.dirname(f))
            if re.match(r"lib(cublasLt|nccl)\.so", os.path.basename(f)) and folder not in found:
                found.append(folder)
    return found


def find_tool(name, *patterns):
    for path in [shutil.which(name)] + [p for pattern in patterns for p in sorted(glob.glob(pattern), reverse=True)]:
        if path and os.access(path, os.X_OK):
            return path
    return None


def read_metrics(run):
    try:
        with open(os.path.join(run, "metrics.jsonl")) as f:
            rows = [json.loads(line) for line in f if line.strip()]
    except (OSError, ValueError):
        return []
    return [{k: r.get(k) for k in ("step", "loss", "tokens_per_s")} for r in rows]


def read_algorithms(run):
    """Return the times of the algorithms of cuBLASLt that a run recorded."""
    try:
        with open(os.path.join(run, "algorithms.json")) as f:
            return {name: {k: p.get(k) for k in ("seconds", "default_seconds", "algorithms")} for gpu in json.load(f)["gpus"] for name, p in gpu["products"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_tokens(name, n):
    """Write random tokens with a distribution that a model can learn."""
    import array
    import random
    random.seed(1)
    words = random.sample(range(50304), k=1000)
    with open(name, "wb") as f:
        array.array("H", random.choices(words, weights=[0.99 ** i for i in range(len(words))], k=n)).tofile(f)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", type=int, choices=(1, 2, 3))
    parser.add_argument("--out", default=os.environ.get("OUT", "gpu-results"), metavar="DIR", help="directory of the results (default: $OUT, or gpu-results)")
    parser.add_argument("--budget", type=float, default=570, metavar="SECONDS", help="time of the part (default: 570)")
    parser.add_argument("--limit", type=float, default=570, metavar="SECONDS", help="maximum time of a stage (default: 570)")
    parser.add_argument("--bin", default=os.path.join(HERE, "bin"), metavar="DIR", help="directory of ddpbatch and engine.test (default: bin)")
    parser.add_argument("--tokens", type=int, default=1 << 23, metavar="N", help="tokens of the data set for the stage launch (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="STAGE", help="run only this stage; repeatable")
    options = parser.parse_args()
    part = Part(options)
    try:
        part.describe()
        part.find_libraries()
        {1: part.correctness, 2: part.speed, 3: part.detail}[options.part]()
    finally:
        code = part.finish()
    return code


if __name__ == "__main__":
    sys.exit(main())
