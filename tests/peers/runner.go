package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
)

// runner starts the programs of both sides.
type runner struct {
	program, python string
	scripts         string // directory of the Python programs
	rounds          int
	compile         bool   // torch.compile works
	core            string // the core for all programs
}

// workload is the work that both sides do in turn, each in one process.
type workload struct {
	name         string
	ours, theirs []string // arguments; PyTorch's start with the script's name
	hasModes     bool     // PyTorch's script has the mode as an additional argument
}

// The modes of PyTorch's scripts.
const (
	eager    = "eager"
	compiled = "compile"
)

// workloads lists steps of each model in each precision, and all matrix multiplications together.
func workloads() []workload {
	var list []workload
	for _, m := range bench.Models() {
		for _, precision := range []string{"fp32", "bf16"} {
			// Enough steps for the median, and few enough for many rounds.
			steps := strconv.Itoa(max(3, m.Steps()/3))
			theirs := []string{"gpt.py", m.Name(), precision, steps}
			if m.Name() == "mlp" {
				theirs = []string{"mlp.py", precision, steps}
			}
			list = append(list, workload{
				name:   m.Name() + " in " + precision,
				ours:   []string{"bench", "step", "--model", m.Name(), "--precision", precision, "--steps", steps, "--json"},
				theirs: theirs, hasModes: true,
			})
		}
	}
	products := workload{
		name:   "products",
		ours:   []string{"bench", "gemm", "--precision", "fp32", "--time", "50ms", "--json"},
		theirs: []string{"gemm.py", "0.05"},
	}
	for _, s := range bench.Shapes() {
		products.theirs = append(products.theirs, s.String())
	}
	return append(list, products)
}

// round runs the work once on both sides and adds the results.
func (r *runner) round(ctx context.Context, w workload, into *comparison) error {
	ours, err := results(r.run(ctx, r.program, w.ours))
	if err != nil {
		return err
	}
	script := w.theirs
	if w.hasModes {
		script = append(slices.Clone(script), eager)
	}
	theirs, err := results(r.runScript(ctx, script))
	if err != nil {
		return err
	}
	if len(ours) != len(theirs) {
		return fmt.Errorf("%s: %d results of ddpbatch, %d of PyTorch", w.name, len(ours), len(theirs))
	}
	for i := range ours {
		if err := into.add(ours[i], theirs[i]); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	if !w.hasModes || !r.compile {
		return nil
	}
	theirs, err = results(r.runScript(ctx, append(slices.Clone(w.theirs), compiled)))
	if err == nil && len(theirs) != 1 {
		err = fmt.Errorf("%d results of torch.compile, want 1", len(theirs))
	}
	if err == nil {
		err = into.addCompiled(ours[0], theirs[0])
	}
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return nil
}

func (r *runner) runScript(ctx context.Context, args []string) ([]byte, error) {
	script := filepath.Join(r.scripts, args[0])
	return r.run(ctx, r.python, append([]string{"-B", script}, args[1:]...)) // -B: write no cache files
}

// run runs a program on the core and returns its output.
func (r *runner) run(ctx context.Context, program string, args []string) ([]byte, error) {
	if r.core != "" {
		program, args = "taskset", append([]string{"-c", r.core, program}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = environment(os.Environ())
	out, err := cmd.Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return nil, fmt.Errorf("run %q: %w: %s", cmd.Args, err, bytes.TrimSpace(ended.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("run %q: %w", cmd.Args, err)
	}
	return out, nil
}

// environment removes variables that would change the speed of either side, and sets one thread for
// each, also for PyTorch's compiler.
func environment(of []string) []string {
	var kept []string
	for _, v := range of {
		strange := false
		for _, prefix := range []string{"OPENBLAS_", "OMP_", "GOTO_", "MKL_", "DNNL_", "ONEDNN_", "ATEN_", "KMP_", "GOMP_", "MALLOC_", "LD_PRELOAD=", "GOMAXPROCS=", "GOGC=", "GOMEMLIMIT=", "GODEBUG="} {
			strange = strange || strings.HasPrefix(v, prefix)
		}
		if !strange {
			kept = append(kept, v)
		}
	}
	// The processes of PyTorch's compiler would stay during the measurement.
	return append(kept, "OMP_NUM_THREADS=1", "TORCHINDUCTOR_COMPILE_THREADS=1")
}

// results parses lines of JSON.
func results(out []byte, err error) ([]bench.Result, error) {
	var list []bench.Result
	for line := range bytes.Lines(out) {
		var r bench.Result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("read result %q: %w", line, err)
		}
		list = append(list, r)
	}
	return list, err
}
