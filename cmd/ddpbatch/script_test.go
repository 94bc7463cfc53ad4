package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"ddpbatch": main,
		"sbatch":   func() { os.Exit(fakeSlurm("sbatch", fakeSbatch)) },
		"squeue":   func() { os.Exit(fakeSlurm("squeue", fakeSqueue)) },
		"sacct":    func() { os.Exit(fakeSlurm("sacct", fakeSacct)) },
		"scancel":  func() { os.Exit(fakeSlurm("scancel", fakeScancel)) },
	})
}

// TestScripts runs the program in scripts. Each script tests one behavior.
func TestScripts(t *testing.T) {
	program, err := exec.LookPath("ddpbatch")
	if err != nil {
		t.Fatal(err)
	}
	driver, err := filepath.Abs("../../trainer/cuda/driver/testdata/fakecuda.c")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("OLDPATH", e.Getenv("PATH"))
			e.Setenv("PROGRAM", program) // for scripts that change PATH
			e.Setenv("CORES", strconv.Itoa(runtime.GOMAXPROCS(0)))
			e.Setenv("FAKECUDA", driver)
			e.Setenv("FAKE_DIR", filepath.Join(e.WorkDir, "slurm"))
			return os.Mkdir(filepath.Join(e.WorkDir, "slurm"), 0o700)
		},
		Condition: func(name string) (bool, error) {
			if name != "cuda" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			_, err := cuda.Discover()
			return !errors.Is(err, cuda.ErrNotBuilt), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "checkpoint": saveCheckpoint, "alphabet": saveAlphabet, "metrics": writeMetrics, "live": writeLive,
			"timeline": checkTimeline, "hostile": hostile, "shown": shown, "distributed": saveDistributed,
		},
	})
}

// exits implements "exits CODE PROGRAM ARG...". It runs a program and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [arg...]")
	}
	code := 0
	var ended *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ended) {
		code = ended.ExitCode()
	} else if err != nil {
		ts.Fatalf("%s: %v", args[1], err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s ended with exit code %d, not %s", args[1], code, args[0])
	}
}

// saveCheckpoint implements "checkpoint DIR STEP [finished]". It saves a checkpoint after the
// first of two epochs, or after both.
func saveCheckpoint(ts *testscript.TestScript, neg bool, args []string) {
	step, err := strconv.Atoi(args[1])
	ts.Check(err)
	run := "r"
	if record, err := (rundir.Dir{Path: filepath.Dir(ts.MkAbs(args[0]))}).ReadRecord(); err == nil {
		run = record.Run
	}
	finished := len(args) > 2
	epoch := 1
	if finished {
		epoch = 2
	}
	m := &checkpoint.Manifest{Run: run, Created: time.Now(), Step: step, Epoch: epoch, WorldSize: 4, Finished: finished}
	tensor := safetensors.Tensor{Name: "w", Shape: []int{2}, Data: []float32{1, 2}}
	_, err = checkpoint.Save(ts.MkAbs(args[0]), m, checkpoint.Files{"model.safetensors": {tensor}})
	ts.Check(err)
}

// saveDistributed implements "distributed DIR". It writes a distributed checkpoint of PyTorch.
func saveDistributed(ts *testscript.TestScript, neg bool, args []string) {
	z, err := zip.OpenReader("../../trainer/dcp/testdata/checkpoint.zip")
	ts.Check(err)
	defer z.Close()
	ts.Check(os.CopyFS(ts.MkAbs(args[0]), z))
}

// writeMetrics implements "metrics FILE". It writes metrics as a run does. The last loss is
// NaN.
func writeMetrics(ts *testscript.TestScript, neg bool, args []string) {
	log, err := metrics.Open(ts.MkAbs(args[0]), 0)
	ts.Check(err)
	defer log.Close()
	slowest := 3
	for _, r := range []metrics.Record{
		{Kind: "train", Step: 50, Loss: metrics.NewNumber(0.75)},
		{Kind: "eval", Step: 50, Loss: metrics.NewNumber(0.5), Accuracy: metrics.NewNumber(0.8125)},
		{Kind: "train", Step: 100, Epoch: 1, Epochs: 3, Loss: metrics.NewNumber(math.NaN()), SamplesPerSecond: metrics.NewNumber(1234), LeftSeconds: metrics.NewNumber(90),
			StepMillis: metrics.NewNumber(20), CommMillis: metrics.NewNumber(8), CommHidden: metrics.NewNumber(0.75), SlowestRank: &slowest, SlowestRatio: metrics.NewNumber(1.5), Straggler: true, Time: time.Now()},
		{Kind: "invented", Step: 999, Epoch: 9},
	} {
		ts.Check(log.Write(r))
	}
}

// writeLive implements "live DIR STATE [JOB]". It writes the live status of a job's launcher.
// The default job ID is 101.
func writeLive(ts *testscript.TestScript, neg bool, args []string) {
	l := rundir.Live{Time: time.Now(), JobID: "101", Attempt: 1, Phase: rundir.PhaseRunning, Hosts: "n[1-2]", PerNode: 2, Ranks: 4, Joined: 4,
		Nodes: []rundir.NodeGroup{{State: "saving", Hosts: "n1", Ranks: []int{0}, Count: 1, Least: 100, Most: 100},
			{State: "training", Hosts: "n2", Ranks: []int{2, 3}, Count: 2, Least: 100, Most: 101}}}
	switch args[1] {
	case "joining":
		l.Phase, l.Joined = rundir.PhaseJoining, 3
		l.Nodes = []rundir.NodeGroup{{State: "joining", Hosts: "n2", Ranks: []int{3}, Count: 1}, {State: "connecting", Hosts: "n1", Ranks: []int{0, 1}, Count: 2}}
	case "stopping":
		l.Phase, l.Detail = rundir.PhaseStopping, "the time limit is near"
	case "over":
		l.Phase, l.Time = rundir.PhaseOver, l.Time.Add(-5*time.Minute)
	case "old":
		l.Time = l.Time.Add(-5 * time.Minute)
	case "saving":
		if len(args) > 2 {
			l.JobID = args[2]
		}
	default:
		ts.Fatalf("no such state %q", args[1])
	}
	ts.Check(rundir.Dir{Path: ts.MkAbs(args[0])}.WriteLive(l))
}

// requireRoot skips a test that needs root. In CI, it fails the test.
func requireRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") != "":
		t.Fatal("CI must run as root")
	default:
		t.Skip("requires root")
	}
}
