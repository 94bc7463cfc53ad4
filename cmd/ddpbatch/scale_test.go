package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// manyRuns are the run directories of submitted runs. Only accounting lists the jobs of every
// second run.
type manyRuns struct {
	dir, fake string
	environ   []string
}

// counted is a script that records its command line and prints a file.
const counted = `#!/bin/sh
echo "${0##*/} $*" >>"$FAKE_DIR/calls"
exec cat "$FAKE_DIR/${0##*/}.out"
`

func newManyRuns(tb testing.TB, n int) manyRuns {
	tb.Helper()
	m := manyRuns{dir: tb.TempDir(), fake: tb.TempDir()}
	bin := tb.TempDir()
	m.environ = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "FAKE_DIR="+m.fake)
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			tb.Fatal(err)
		}
	}
	var squeue, sacct strings.Builder
	for i := range n {
		id := 1000 + i
		dir, err := rundir.Create(filepath.Join(m.dir, runs.DefaultDir, fmt.Sprintf("run-%03d", i)))
		if err != nil {
			tb.Fatal(err)
		}
		sub := rundir.NewSubmission()
		sub.JobID, sub.Slurm = fmt.Sprint(id), "23.11.4"
		record := rundir.Record{Run: "r", Name: filepath.Base(dir.Path), Base: m.dir, Submissions: []rundir.Submission{sub}}
		if err := dir.WriteRecord(record); err != nil {
			tb.Fatal(err)
		}
		if i%2 == 0 {
			fmt.Fprintf(&squeue, "%d|%[1]d|N/A|RUNNING|n1|0:10|N/A|N/A|0|0|None\n", id)
		} else {
			fmt.Fprintf(&sacct, "%d|%[1]d|COMPLETED|0:0|n1|00:00:10|Unknown|Unknown\n", id)
		}
	}
	write(filepath.Join(m.fake, "squeue.out"), squeue.String(), 0o600)
	write(filepath.Join(m.fake, "sacct.out"), sacct.String(), 0o600)
	for _, program := range []string{"squeue", "sacct"} {
		write(filepath.Join(bin, program), counted, 0o700)
	}
	return m
}

func (m manyRuns) status(tb testing.TB, program string) []watch.Status {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), program, "status", "--json")
	cmd.Dir, cmd.Env, cmd.Stderr = m.dir, m.environ, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	var all []watch.Status
	if err := json.Unmarshal(out, &all); err != nil {
		tb.Fatal(err)
	}
	return all
}

// TestStatusOfManyRuns checks that the status of 500 runs takes two calls: squeue for all
// jobs, and sacct for the jobs that squeue does not list.
func TestStatusOfManyRuns(t *testing.T) {
	const n = 500
	m := newManyRuns(t, n)
	all := m.status(t, "ddpbatch")
	calls, err := os.ReadFile(filepath.Join(m.fake, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(calls)), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "squeue ") || !strings.HasPrefix(lines[1], "sacct ") {
		t.Fatalf("got %d calls %.300q, want squeue and sacct", len(lines), lines)
	}
	if strings.Contains(lines[1], "1000,") || !strings.Contains(lines[1], "1001,1003,") {
		t.Errorf("got call %.300q, want only the jobs that squeue did not list", lines[1])
	}
	if len(all) != n {
		t.Fatalf("got %d runs, want %d", len(all), n)
	}
	for i, s := range all {
		want := []slurm.State{slurm.StateRunning, slurm.StateCompleted}[i%2]
		if s.Job != fmt.Sprint(1000+i) || s.State != want {
			t.Errorf("run %d: got %+v, want %s", i, s, want)
		}
	}
}

// built builds the program as users run it. The test executable is larger.
func built(b *testing.B) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "ddpbatch")
	cmd := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return program
}

// BenchmarkProcess measures the wall time of whole processes, from start to exit, as a user or
// a script sees it.
func BenchmarkProcess(b *testing.B) {
	program := built(b)
	examples, err := filepath.Abs("../../jobs/examples")
	if err != nil {
		b.Fatal(err)
	}
	for _, args := range [][]string{
		{"version"},
		{"check", "fashion-mnist.toml"}, {"check", "sweep.toml"}, {"check", "ddp-script.toml"},
		{"render", "fashion-mnist.toml"}, {"render", "sweep.toml"}, {"render", "ddp-script.toml"},
	} {
		b.Run(strings.Join(args, "_"), func(b *testing.B) {
			slowest := time.Duration(0)
			for b.Loop() {
				start := time.Now()
				cmd := exec.CommandContext(b.Context(), program, args...)
				cmd.Dir = examples
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v: %v\n%s", args, err, out)
				}
				slowest = max(slowest, time.Since(start))
			}
			b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
		})
	}
	b.Run("status_of_500_runs", func(b *testing.B) {
		m := newManyRuns(b, 500)
		for b.Loop() {
			m.status(b, program)
		}
	})
}
