package main

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// TestSameWork compares the losses of both sides. GPT-2 is the same program as the small GPT, with
// other sizes.
func TestSameWork(t *testing.T) {
	r := torchRunner(t)
	m, err := r.describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var c comparison
	for _, w := range workloads() {
		w := few(w)
		if w.name == "gpt2 in fp32" || w.name == "gpt2 in bf16" {
			continue
		}
		if err := r.round(t.Context(), w, &c); err != nil {
			t.Fatal(err)
		}
	}
	if want := 4 + len(bench.Shapes()); len(c.Rows) != want {
		t.Errorf("%d rows, want %d", len(c.Rows), want)
	}
	for _, row := range c.Rows {
		if why := row.otherWork(); row.Kind == "step" && why != "" {
			t.Errorf("%s in %s: %s", row.Model, row.Precision, why)
		}
		if row.Kind == "step" && (row.Ours.FirstLoss == 0 || row.Ours.Loss >= row.Ours.FirstLoss) {
			t.Errorf("%s in %s: losses of %s", row.Model, row.Precision, row.Ours.losses())
		}
	}
	if m.CPU == "" || m.Memory < 1<<20 || !strings.HasPrefix(m.Program, "ddpbatch ") || m.Torch == "" || m.BLAS == "" || r.core == "" {
		t.Errorf("the machine is %+v, its last core %q", m, r.core)
	}
}

// torchRunner starts this program and PyTorch, if it is installed.
func torchRunner(t *testing.T) runner {
	t.Helper()
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), python, "-c", "import torch").Run(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("PyTorch: %v", err)
		}
		t.Skip("PyTorch is missing: run tests/setup.sh")
	}
	r := runner{program: filepath.Join(t.TempDir(), "ddpbatch"), python: python, scripts: "."}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", r.program, "../../cmd/ddpbatch").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// few returns a workload with one step each, and short matrix multiplications.
func few(w workload) workload {
	w.ours, w.theirs = slices.Clone(w.ours), slices.Clone(w.theirs)
	for i, arg := range w.ours {
		switch arg {
		case "--steps":
			w.ours[i+1], w.theirs[len(w.theirs)-1] = "1", "1"
		case "--time":
			w.ours[i+1], w.theirs[1] = "1us", "0"
		}
	}
	return w
}

// TestOtherWork checks that results of different work are rejected.
func TestOtherWork(t *testing.T) {
	one := bench.Result{Kind: "step", Model: "mlp", Precision: "fp32", Threads: 1, Runs: 1, Params: 7}
	for name, change := range map[string]func(*bench.Result){
		"kind":       func(r *bench.Result) { r.Kind = "gemm" },
		"model":      func(r *bench.Result) { r.Model = "gpt" },
		"precision":  func(r *bench.Result) { r.Precision = "bf16" },
		"threads":    func(r *bench.Result) { r.Threads = 2 },
		"no runs":    func(r *bench.Result) { r.Runs = 0 },
		"parameters": func(r *bench.Result) { r.Params = 8 },
	} {
		other := one
		change(&other)
		if err := new(comparison).add(one, other); err == nil {
			t.Errorf("%s: added", name)
		}
	}
	for _, l := range [][2]float64{{4, math.NaN()}, {math.NaN(), 4}, {4, math.Inf(1)}, {4, 4.1}, {0, 4}} {
		ours, theirs := one, one
		ours.FirstLoss, ours.Loss = metrics.NewNumber(4), metrics.NewNumber(l[0])
		theirs.FirstLoss, theirs.Loss = metrics.NewNumber(4), metrics.NewNumber(l[1])
		var c comparison
		if err := c.add(ours, theirs); err != nil {
			t.Fatal(err)
		}
		if c.Rows[0].otherWork() == "" {
			t.Errorf("losses of %v are the same work", l)
		}
		if _, err := json.Marshal(c); err != nil {
			t.Errorf("losses of %v: %v", l, err)
		}
	}
}

// TestEnvironment checks that a measurement does not inherit variables that change the speed of
// libraries.
func TestEnvironment(t *testing.T) {
	got := environment([]string{"PATH=/bin", "OPENBLAS_CORETYPE=Haswell", "OMP_NUM_THREADS=8", "GOMAXPROCS=2", "OPENBLAS_L2_SIZE=512", "GOROOT=/go"})
	if want := []string{"PATH=/bin", "GOROOT=/go", "OMP_NUM_THREADS=1", "TORCHINDUCTOR_COMPILE_THREADS=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRunErrors checks that an error names the program that failed, with its message.
func TestRunErrors(t *testing.T) {
	var r runner
	_, err := r.run(t.Context(), "/bin/sh", []string{"-c", "echo no such model >&2; exit 3"})
	if err == nil || !strings.Contains(err.Error(), `"/bin/sh"`) || !strings.Contains(err.Error(), "exit status 3: no such model") {
		t.Errorf("a program that fails: %v", err)
	}
	if _, err := results([]byte("{\"bench\":\"step\"}\nWarning\n"), nil); err == nil || !strings.Contains(err.Error(), "Warning") {
		t.Errorf("a line that is no JSON: %v", err)
	}
}
