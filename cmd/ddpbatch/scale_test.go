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
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// manyRuns are run directories below a folder of their own, of runs that were
// submitted to a cluster with a release of Slurm. Of every second one only the
// accounts tell.
type manyRuns struct {
	dir, fake string
	environ   []string
}

// counted is a program that notes its call and answers what stands in a file.
const counted = `#!/bin/sh
echo "${0##*/} $*" >>"$FAKE_DIR/calls"
exec cat "$FAKE_DIR/${0##*/}.out"
`

func newManyRuns(tb testing.TB, n int, release string) manyRuns {
	tb.Helper()
	m := manyRuns{dir: tb.TempDir(), fake: tb.TempDir()}
	bin := tb.TempDir()
	m.environ = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "FAKE_DIR="+m.fake)
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			tb.Fatal(err)
		}
	}
	var text, accounts strings.Builder
	list := []map[string]any{}
	for i := range n {
		id := 1000 + i
		dir, err := rundir.Create(filepath.Join(m.dir, runsFolder, fmt.Sprintf("run-%03d", i)))
		if err != nil {
			tb.Fatal(err)
		}
		sub := rundir.NewSubmission()
		sub.JobID, sub.Slurm = fmt.Sprint(id), release
		record := rundir.Record{Run: "r", Name: filepath.Base(dir.Path), Base: m.dir, Submissions: []rundir.Submission{sub}}
		if err := dir.WriteRecord(record); err != nil {
			tb.Fatal(err)
		}
		if i%2 == 0 {
			fmt.Fprintf(&text, "%d|%[1]d|N/A|RUNNING|n1|0:10|N/A|N/A|0|0|None|name\n", id)
			list = append(list, map[string]any{"job_id": id, "job_state": []string{"RUNNING"}, "name": "name", "nodes": "n1"})
		} else {
			fmt.Fprintf(&accounts, "%d|%[1]d|COMPLETED|0:0|n1|00:00:10|Unknown|Unknown|name\n", id)
		}
	}
	answer := text.String()
	if release != "" {
		asJSON, err := json.Marshal(map[string]any{"jobs": list})
		if err != nil {
			tb.Fatal(err)
		}
		answer = string(asJSON)
	}
	write(filepath.Join(m.fake, "squeue.out"), answer, 0o600)
	write(filepath.Join(m.fake, "sacct.out"), accounts.String(), 0o600)
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

// Five hundred runs are two questions to Slurm: squeue about all, and sacct about
// those that squeue has forgotten.
func TestStatusOfManyRuns(t *testing.T) {
	const n = 500
	for _, release := range []string{"", "23.11.4"} {
		m := newManyRuns(t, n, release)
		all := m.status(t, "ddpbatch")
		calls, err := os.ReadFile(filepath.Join(m.fake, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(calls)), "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "squeue ") || !strings.HasPrefix(lines[1], "sacct ") {
			t.Fatalf("Slurm %q: %d calls: %.300q", release, len(lines), lines)
		}
		if got := strings.Contains(lines[0], "--json"); got != (release != "") {
			t.Errorf("Slurm %q: asked for JSON: %v", release, got)
		}
		if strings.Contains(lines[1], "1000,") || !strings.Contains(lines[1], "1001,1003,") {
			t.Errorf("Slurm %q: sacct was asked about what squeue knows: %.300q", release, lines[1])
		}
		if len(all) != n {
			t.Fatalf("Slurm %q: %d runs", release, len(all))
		}
		for i, s := range all {
			want := []slurm.State{slurm.StateRunning, slurm.StateCompleted}[i%2]
			if s.Job != fmt.Sprint(1000+i) || s.State != want {
				t.Errorf("Slurm %q: run %d: %+v; want %s", release, i, s, want)
			}
		}
	}
}

// built is the program as users have it; the tests' own is larger.
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

// BenchmarkProcess is the wall time of whole processes, from their start to their
// end: what a person at a prompt, or a script with a hundred jobs, waits for.
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
		m := newManyRuns(b, 500, "")
		for b.Loop() {
			m.status(b, program)
		}
	})
}
