package gpukit

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Findings of doctor on a machine with and without a GPU.
const (
	withGPU = `[{"part": "driver", "verdict": "ok"}, {"part": "gpu 0", "verdict": "ok"}, {"part": "cublaslt", "verdict": "ok", "path": "/x/libcublasLt.so.13"}, {"part": "nccl", "verdict": "look"}, {"part": "limits", "verdict": "bad"}]`
	noGPU   = `[{"part": "driver", "verdict": "look", "detail": "load the CUDA driver libcuda.so.1: not found"}, {"part": "cublaslt", "verdict": "look"}]`
)

// A kit is a kit whose programs are shell scripts.
type kit struct {
	dir string
	env []string
}

// newKit returns a kit. Scripts are by name; other names than those of the kit's programs are
// programs in PATH.
func newKit(t *testing.T, scripts map[string]string) *kit {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("skipped: python3 not found")
	}
	k := &kit{dir: t.TempDir()}
	k.env = append(os.Environ(), "HOME="+k.dir, "KIT="+k.dir, "PATH="+filepath.Join(k.dir, "path")+":"+os.Getenv("PATH"), "PYTHONPATH="+k.dir, "PYTHONDONTWRITEBYTECODE=1")
	if err := errors.Join(os.Mkdir(filepath.Join(k.dir, "bin"), 0o755), os.Mkdir(filepath.Join(k.dir, "path"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, text := range scripts {
		dir, mode := "path", fs.FileMode(0o755)
		switch {
		case name == "ddpbatch" || name == "engine.test":
			dir = "bin"
		case strings.HasSuffix(name, ".py"):
			dir = "."
		default:
			text = "#!/bin/sh\n" + text
		}
		if dir == "bin" {
			text, mode = "#!/bin/sh\n"+text, 0o644 // archives may lose the x bit
		}
		if err := os.WriteFile(filepath.Join(k.dir, dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// A stage is the result of a stage in results-PART.json.
type stage struct {
	OK      bool
	Code    any
	Why     string
	Tail    string
	Passed  int
	Failed  []string
	Said    []string
	Result  map[string]any
	Rows    []string
	Metrics []map[string]any
	Saved   []string
	Timed   []string

	Algorithms map[string]map[string]float64
	Memory     float64 `json:"memory_MiB"`
	TotalMS    float64 `json:"total_ms"`
	// Launches that ncu measured, and launches of the step.
	Measured   int
	RowsOfStep int `json:"rows_of_step"`
	Kernels    []struct {
		Kernel string
		Count  int
		MS     float64
	}
}

// run runs a part and returns its stages, its output, and its exit code.
func (k *kit) run(t *testing.T, part int, args ...string) (map[string]stage, string, int) {
	t.Helper()
	script, err := filepath.Abs("run.py")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(k.dir, "out")
	c := exec.CommandContext(t.Context(), "python3", append([]string{script, strconv.Itoa(part), "--out", out, "--bin", filepath.Join(k.dir, "bin"), "--tokens", "2048"}, args...)...)
	c.Env = k.env
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	results, err := os.ReadFile(filepath.Join(out, fmt.Sprintf("results-%d.json", part)))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var r struct{ Stages map[string]stage }
	if err := json.Unmarshal(results, &r); err != nil {
		t.Fatalf("%v\n%s", err, results)
	}
	if _, err := os.Stat(filepath.Join(out, fmt.Sprintf("logs-%d.txt", part))); err != nil {
		t.Error(err)
	}
	return r.Stages, string(text), c.ProcessState.ExitCode()
}

// TestWithoutDriver checks that each part ends without running anything but doctor, and that the
// results name the reason.
func TestWithoutDriver(t *testing.T) {
	for part := 1; part <= 3; part++ {
		k := newKit(t, map[string]string{"ddpbatch": "[ $1 = doctor ] || : >$KIT/ran\necho '" + noGPU + "'; exit 1", "engine.test": ": >$KIT/ran",
			"ncu": ": >$KIT/ran", "compute-sanitizer": ": >$KIT/ran", "torch.py": "raise ImportError('no torch')"})
		stages, text, code := k.run(t, part)
		if code == 0 || len(stages) < 5 {
			t.Errorf("part %d: exit code %d, %d stages\n%s", part, code, len(stages), text)
		}
		for name, s := range stages {
			if s.OK || name != "doctor" && s.Why != "no GPU: load the CUDA driver libcuda.so.1: not found" {
				t.Errorf("part %d: %s: %+v", part, name, s)
			}
		}
		if _, err := os.Stat(filepath.Join(k.dir, "ran")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("part %d: a program was run: %v", part, err)
		}
	}
}

// TestWithoutPrograms checks that missing programs are named.
func TestWithoutPrograms(t *testing.T) {
	stages, _, code := newKit(t, nil).run(t, 1)
	if s := stages["first"]; code == 0 || s.OK || !strings.Contains(s.Why, "engine.test: No such file") {
		t.Errorf("exit code %d, %+v", code, s)
	}
}

// step prints what `bench step --json` prints.
const step = `printf '{\n "bench": "step",\n "per_s": 500000,\n "attention": "%s"\n}\n' "$DDPBATCH_ATTENTION"`

// TestCorrectness checks part 1: all stages pass, or a test of matrix multiplications fails and is
// repeated without fusion.
func TestCorrectness(t *testing.T) {
	const ddpbatch = "case $1 in doctor) echo '" + withGPU + "'; exit 1;; bench) " + step + ";; esac"
	const pass = `echo "--- PASS: TestConformance (0.1s)"; echo "    --- PASS: TestConformance/Dense (0.1s)"; echo PASS`
	t.Run("all pass", func(t *testing.T) {
		stages, text, code := newKit(t, map[string]string{"ddpbatch": ddpbatch, "engine.test": pass}).run(t, 1)
		if code != 0 {
			t.Errorf("exit code %d\n%s", code, text)
		}
		for _, name := range []string{"doctor", "first", "products", "attention", "wgmma", "training", "memory", "others", "step mma", "step wgmma"} {
			if s, ok := stages[name]; !ok || !s.OK {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if s := stages["products"]; s.Passed != 2 || len(s.Failed) != 0 {
			t.Errorf("products: %+v", s)
		}
		if s := stages["step wgmma"]; s.Result["per_s"] != 500000.0 || s.Result["attention"] != "wgmma" {
			t.Errorf("step wgmma: %+v", s)
		}
		if _, ok := stages["products without fusion"]; ok {
			t.Error("products were repeated without fusion")
		}
	})
	t.Run("fusion fails", func(t *testing.T) {
		const engine = `case "$*" in *Stored*) [ "$DDPBATCH_FUSION" = none ] || { echo "    --- FAIL: TestConformance/Dense (0.1s)"; echo "        dense_test.go:7: off by 9"; exit 1; };; esac; ` + pass
		stages, _, code := newKit(t, map[string]string{"ddpbatch": ddpbatch, "engine.test": engine}).run(t, 1)
		if s := stages["products"]; code == 0 || s.OK || !slices.Equal(s.Failed, []string{"TestConformance/Dense"}) || len(s.Said) != 1 {
			t.Errorf("exit code %d, products: %+v", code, s)
		}
		if s := stages["products without fusion"]; !s.OK {
			t.Errorf("products without fusion: %+v", s)
		}
	})
	t.Run("no test matches", func(t *testing.T) {
		stages, _, _ := newKit(t, map[string]string{"ddpbatch": ddpbatch, "engine.test": "echo 'testing: warning: no tests to run'; echo PASS"}).run(t, 1, "--only", "first")
		if s := stages["first"]; s.OK {
			t.Errorf("first: %+v", s)
		}
	})
	t.Run("cuBLASLt not found", func(t *testing.T) {
		engine := "echo \"--- PASS: $LD_LIBRARY_PATH\""
		k := newKit(t, map[string]string{"ddpbatch": strings.Replace(ddpbatch, `"cublaslt", "verdict": "ok"`, `"cublaslt", "verdict": "bad"`, 1), "engine.test": engine})
		folder := filepath.Join(k.dir, "nvidia/cu13/lib") // PYTHONPATH has k.dir
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "libcublasLt.so.13"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		stages, _, _ := k.run(t, 1)
		if stages["doctor"].OK || !strings.Contains(stages["first"].Tail, folder) {
			t.Errorf("doctor: %+v, first: %+v", stages["doctor"], stages["first"])
		}
	})
}

// TestTimeout checks that a stage that hangs is killed with its processes, and that the results
// exist afterwards.
func TestTimeout(t *testing.T) {
	k := newKit(t, map[string]string{"engine.test": "sleep 1000 & echo $! >$KIT/child; wait"})
	stages, _, code := k.run(t, 1, "--only", "first", "--limit", "1")
	if s := stages["first"]; code == 0 || s.OK || s.Code != "timeout" || !strings.Contains(s.Why, "killed after") {
		t.Errorf("exit code %d, %+v", code, s)
	}
	text, err := os.ReadFile(filepath.Join(k.dir, "child"))
	if errors.Is(err, fs.ErrNotExist) {
		return // it was killed before it started a child
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Minute); alive(child); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the child of a killed stage still runs")
		}
	}
}

// alive reports whether a process runs and is not a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestNoTimeLeft checks that stages beyond the budget are recorded.
func TestNoTimeLeft(t *testing.T) {
	k := newKit(t, map[string]string{"ddpbatch": "echo '" + withGPU + "'", "engine.test": "exit 0"})
	stages, _, code := k.run(t, 1, "--budget", "0")
	if s := stages["first"]; code == 0 || s.Why != "no time left" {
		t.Errorf("exit code %d, %+v", code, s)
	}
}

// TestWithoutTorch checks that part 2 records the error, and runs the stages that do not need
// PyTorch.
func TestWithoutTorch(t *testing.T) {
	k := newKit(t, map[string]string{"torch.py": "raise ImportError('no torch')", "ddpbatch": step})
	stages, text, code := k.run(t, 2, "--only", "limits", "--only", "torch flash 1", "--only", "step mma 1")
	for name, want := range map[string]string{"limits": "PyTorch is required: no torch", "torch flash 1": "PyTorch 2.3 or later is required: no torch"} {
		if s := stages[name]; s.OK || s.Why != want {
			t.Errorf("%s: got %+v, want %q", name, s, want)
		}
	}
	if s := stages["step mma 1"]; code == 0 || !s.OK || !strings.Contains(text, "500,000 tokens/s") {
		t.Errorf("exit code %d, %+v\n%s", code, s, text)
	}
}

// TestLaunch checks the results of training runs, without and with train.tune_matmul.
func TestLaunch(t *testing.T) {
	const train = `case "$*" in *"--set train.tune_matmul=true"*) tuned=1;; esac
while [ "$1" != --run-dir ]; do shift; done
rm -f $KIT/asked; mkdir -p "$2"; ls -l tokens.bin; grep -q 'vocabulary_size = 50304' gpt2.toml || exit 3
printf '{"step": 20, "loss": 9.5, "tokens_per_s": 480000}\n{"step": 40, "loss": 8.5, "tokens_per_s": 490000}\n' >"$2/metrics.jsonl"
echo "saved checkpoint at step 40 (1.4 GiB, 40 ms)"
if [ "$tuned" ]; then
	echo "timed the algorithms of 1 matrix multiplications on this GPU"
	echo '{"gpus": [{"gpu": "H200", "products": {"8x8x8": {"algorithm": "ff", "seconds": 1e-3, "default_seconds": 2e-3, "algorithms": 8}}}]}' >"$2/algorithms.json"
fi
while [ ! -e $KIT/asked ]; do sleep 0.05; done`
	const smi = `case $1 in --query-gpu=memory.used*) echo "24000, 98, 1980, 650"; : >$KIT/asked;; *) echo "GPU 0";; esac`
	stages, _, code := newKit(t, map[string]string{"ddpbatch": train, "nvidia-smi": smi}).run(t, 2, "--only", "launch", "--only", "launch tuned")
	for name, timed := range map[string]int{"launch": 0, "launch tuned": 1} {
		s := stages[name]
		if code != 0 || !s.OK || len(s.Metrics) != 2 || s.Metrics[1]["tokens_per_s"] != 490000.0 || len(s.Saved) != 1 || s.Memory != 24000 {
			t.Errorf("exit code %d, %s: %+v", code, name, s)
		}
		if len(s.Timed) != timed || len(s.Algorithms) != timed || timed > 0 && s.Algorithms["8x8x8"]["default_seconds"] != 2e-3 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// ncuOutput returns a script that prints the times of launches as ncu does: name, unit, value.
func ncuOutput(launches ...[3]string) string {
	var text strings.Builder
	text.WriteString("cat <<'END'\n==PROF== Connected to process 7\n\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n")
	for i, l := range launches {
		fmt.Fprintf(&text, "\"%d\",\"%s\",\"gpu__time_duration.sum\",\"%s\",\"%s\"\n", i, l[0], l[1], l[2])
	}
	return text.String() + "END\n"
}

// TestDetail checks part 3: the times of the kernels of one step from ncu's CSV with two and a half
// steps, benchmarks, and a missing compute-sanitizer.
func TestDetail(t *testing.T) {
	step := [][3]string{{"embed", "us", "3"}, {"add", "ns", "2000"}, {"embed_grad(float *)", "us", "1"}, {"adam(float *, int)", "us", "1,500.5"}, {"adam(float *, int)", "ms", "1"}, {"broken", "us", "n/a"}}
	half := [][3]string{{"adam(float *, int)", "ms", "100"}, {"adam(float *, int)", "ms", "100"}} // the end of a step
	ncu := ncuOutput(slices.Concat(half, step, step, step[:2])...)
	k := newKit(t, map[string]string{"ddpbatch": "echo '" + withGPU + "'", "ncu": ncu, "engine.test": "echo 'BenchmarkGPT2/Add-16   100   12 ns/op   3900 GB/s'"})
	stages, text, code := k.run(t, 3)
	s := stages["kernels mma"]
	if !s.OK || len(s.Kernels) != 4 || s.Kernels[0].Kernel != "adam" || s.Kernels[0].Count != 2 || s.Kernels[0].MS != 2.5005 || math.Abs(s.TotalMS-2.5065) > 0.0006 || s.Measured != 14 || s.RowsOfStep != 5 {
		t.Errorf("%+v\n%s", s, text)
	}
	if b := stages["benchmarks"]; !b.OK || len(b.Rows) != 1 {
		t.Errorf("%+v", b)
	}
	if _, err := exec.LookPath("compute-sanitizer"); err != nil && (code == 0 || stages["races"].Why != "compute-sanitizer not found") {
		t.Errorf("exit code %d, %+v", code, stages["races"])
	}
}

// TestPartOfAStep checks the error if ncu did not measure a whole step.
func TestPartOfAStep(t *testing.T) {
	for name, c := range map[string]struct {
		launches [][3]string
		want     string
	}{
		"one embedding": {[][3]string{{"embed", "us", "3"}, {"add", "us", "2"}, {"embed_grad", "us", "2"}}, "ncu printed 3 times, which do not contain a whole step: two launches of embed are required"},
		"nothing":       {nil, "ncu printed 0 times, which do not contain a whole step: two launches of embed are required"},
	} {
		t.Run(name, func(t *testing.T) {
			stages, text, code := newKit(t, map[string]string{"ncu": ncuOutput(c.launches...)}).run(t, 3, "--only", "kernels mma")
			if s := stages["kernels mma"]; code == 0 || s.OK || s.Why != c.want || s.TotalMS != 0 {
				t.Errorf("exit code %d, %+v\n%s", code, s, text)
			}
		})
	}
}

// TestSuitesExist checks that each pattern of run.py matches a test of package engine, and that the
// patterns name all parts of the conformance suite, and no others.
func TestSuitesExist(t *testing.T) {
	k := newKit(t, nil)
	c := exec.CommandContext(t.Context(), "python3", "-c", "import json, run; print(json.dumps([s[0] for s in run.SUITES.values()] + [run.SANITIZED]))")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c.Env = append(k.env, "PYTHONPATH="+here)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	if err := json.Unmarshal(out, &patterns); err != nil {
		t.Fatal(err)
	}
	tests := namesIn(t, "../../trainer/cuda/engine/*_test.go", `func (Test\w+)`)
	groups := namesIn(t, "../../trainer/device/conformance/conformance.go", `{"(\w+)", check`)
	if len(patterns) < 5 || len(tests) < 10 || len(groups) < 10 {
		t.Fatalf("%d patterns, %d tests, %d groups", len(patterns), len(tests), len(groups))
	}
	named := map[string]bool{}
	list := regexp.MustCompile(`^(\w+)/\((.*)\)\$$`)
	for _, p := range patterns {
		// The alternatives of a pattern, without those in parentheses.
		for _, alternative := range regexp.MustCompile(`(?:[^|(]|\([^)]*\))+`).FindAllString(p, -1) {
			name, sub, _ := strings.Cut(alternative, "/")
			if !slices.ContainsFunc(slices.Collect(maps.Keys(tests)), func(n string) bool { return strings.HasPrefix(n, name) }) {
				t.Errorf("%q: no test begins with %q", p, name)
			}
			if name != "TestConformance" {
				continue
			}
			names := []string{strings.TrimSuffix(sub, "$")}
			if m := list.FindStringSubmatch(alternative); m != nil {
				names = strings.Split(m[2], "|")
			}
			for _, n := range names {
				named[n] = true
				if !groups[n] {
					t.Errorf("%q: the conformance suite has no part %q", p, n)
				}
			}
		}
	}
	for n := range groups {
		if !named[n] {
			t.Errorf("no pattern names %q of the conformance suite", n)
		}
	}
}

// TestLimitsOfEachProduct checks that limits.py measures each matrix multiplication of the step that
// docs/plan.md lists.
func TestLimitsOfEachProduct(t *testing.T) {
	measured := namesIn(t, "limits.py", `: \((\d+, \d+, \d+), `)
	products := namesIn(t, "../../docs/plan.md", `(?m)^matmul (\d+x\d+x\d+)`)
	if len(products) < 10 {
		t.Fatalf("docs/plan.md lists %d products", len(products))
	}
	for p := range products {
		if !measured[strings.ReplaceAll(p, "x", ", ")] {
			t.Errorf("limits.py does not measure %s", p)
		}
	}
}

// namesIn returns the first group of all matches in files.
func namesIn(t *testing.T, glob, pattern string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			all[string(m[1])] = true
		}
	}
	return all
}

// TestScriptsCompile checks the syntax of the scripts that need PyTorch.
func TestScriptsCompile(t *testing.T) {
	k := newKit(t, nil)
	for _, name := range []string{"run.py", "peer.py", "limits.py"} {
		c := exec.CommandContext(t.Context(), "python3", "-c", "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')", name)
		c.Env = k.env
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestArchive checks the files of the archive, and that an archive that is too large is an error.
func TestArchive(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes int
		fails bool
	}{
		{name: "small", bytes: 1 << 10},
		{name: "too large", bytes: 48 << 20, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bin := t.TempDir()
			random := make([]byte, tt.bytes)
			_, _ = rand.NewChaCha8([32]byte{}).Read(random) // returns no errors
			if err := errors.Join(os.WriteFile(filepath.Join(bin, "ddpbatch"), random, 0o755), os.WriteFile(filepath.Join(bin, "engine.test"), nil, 0o755)); err != nil {
				t.Fatal(err)
			}
			archive := filepath.Join(t.TempDir(), "dist", "kit.tar.gz")
			c := exec.CommandContext(t.Context(), "./build.sh", archive)
			c.Env = append(os.Environ(), "BIN="+bin)
			out, err := c.CombinedOutput()
			if tt.fails {
				if left, _ := filepath.Glob(archive + "*"); err == nil || !strings.Contains(string(out), "want less than 50331648") || len(left) > 0 {
					t.Errorf("%v, files %q\n%s", err, left, out)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			want := []string{"LICENSE", "bin/ddpbatch", "bin/engine.test", "limits.py", "peer.py", "run.py"}
			if got := filesIn(t, archive); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// filesIn returns the sorted names of the regular files in an archive, below its directory.
func filesIn(t *testing.T, archive string) []string {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		} else if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			names = append(names, strings.TrimPrefix(h.Name, "ddpbatch-gpu-kit/"))
		}
	}
}
