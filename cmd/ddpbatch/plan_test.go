package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/predict"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

var update = flag.Bool("update", false, "write the speed model of GPT-2 into docs/plan.md")

// explainGPT2 returns the output of plan --explain for GPT-2 124M with 65,536 tokens on an H200.
func explainGPT2(t *testing.T, env []string, more ...string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	p := &program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Dir: root, Env: env}
	args := append([]string{"plan", filepath.Join(root, "jobs/examples/gpt2-tokens.toml"), "--gpu", "H200", "--explain", "--set", "train.batch=64", "--set", "train.accumulate=1", "--set", "train.data.vocabulary_size=50304"}, more...)
	if code := p.run(t.Context(), args); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &errs)
	}
	return out.String()
}

// TestGPUStepInPlan checks that docs/plan.md shows the speed model that plan prints.
func TestGPUStepInPlan(t *testing.T) {
	const path, begin, end = "../../docs/plan.md", "TestGPUStepInPlan -update -->\n", "<!-- end -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, closed := strings.Cut(rest, end)
	_, table, found := strings.Cut(explainGPT2(t, nil), "\nKERNEL ")
	if !ok || !closed || !found {
		t.Fatal("docs/plan.md has no place for the speed model, or plan does not print it")
	}
	want := "```\nKERNEL " + table + "```\n"
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old != want {
		t.Errorf("docs/plan.md does not show the output of plan: run go test ./cmd/ddpbatch -run TestGPUStepInPlan -update\n%s", want)
	}
}

// TestGPUStepAsJSON checks the speed model in JSON against its own sums, and that the environment
// selects the instructions of attention.
func TestGPUStepAsJSON(t *testing.T) {
	var a predict.Prediction
	if err := json.Unmarshal([]byte(explainGPT2(t, nil, "--json")), &a); err != nil {
		t.Fatal(err)
	}
	s := a.GPUStep
	if s == nil || s.GPU != "H200" || s.Attention != "wgmma" {
		t.Fatalf("speed model %+v", s)
	}
	var kernels, classes plan.Launches
	sum := func(to *plan.Launches, l plan.Launches) {
		to.Launches += l.Launches
		to.FLOP += l.FLOP
		to.Seconds += l.Seconds
	}
	for _, k := range s.Kernels {
		sum(&kernels, k)
	}
	for _, c := range s.Classes {
		sum(&classes, c)
	}
	near := func(a, b float64) bool { return a > 0.999999*b && a < 1.000001*b }
	for _, got := range []plan.Launches{kernels, classes} {
		if got.Launches != s.Step.Launches || !near(got.FLOP, s.Step.FLOP) || !near(got.Seconds, s.Step.Seconds) {
			t.Errorf("sums %+v, want %+v", got, s.Step)
		}
	}
	if want := 65536 / s.Step.Seconds; !near(s.TokensPerSecond, want) {
		t.Errorf("%v tokens/s, want %v", s.TokensPerSecond, want)
	}
	if mma := explainGPT2(t, []string{"DDPBATCH_ATTENTION=mma"}); !strings.Contains(mma, "\nattention_forward_64 ") || !strings.Contains(mma, "attention (mma)") {
		t.Errorf("attention is not by mma:\n%s", mma)
	}
}

// TestPlanExampleIsCurrent checks that docs/plan.md shows what its example prints, apart from the
// width of lines.
func TestPlanExampleIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```\n$ ddpbatch ")
	example, _, _ = strings.Cut(example, "```")
	command, want, ok := strings.Cut(strings.ReplaceAll(example, "\\\n", ""), "\n")
	if !ok {
		t.Fatal("docs/plan.md has no example")
	}
	args := strings.Fields(command)
	args[1] = "../../" + args[1] // the job file
	var out, errs bytes.Buffer
	p := &program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Dir: t.TempDir()}
	if code := p.run(t.Context(), args); code != exitDone || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if !slices.Equal(strings.Fields(out.String()), strings.Fields(want)) {
		t.Errorf("docs/plan.md shows\n%s\nbut %q prints\n%s", want, command, out.String())
	}
}
