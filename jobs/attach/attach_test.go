package attach

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/process"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// TestFind checks which runs have running ranks, and the nodes of these runs.
func TestFind(t *testing.T) {
	for _, tt := range []struct {
		name  string
		live  *rundir.Live
		lock  func(rundir.Dir) error // of the launcher; nil without one
		want  []string
		fails string
	}{
		{name: "not started", fails: "no running ranks"},
		{name: "over", live: &rundir.Live{JobID: "7", Phase: rundir.PhaseOver, Hosts: "n1"}, fails: "no running ranks"},
		{name: "no launcher", live: &rundir.Live{Phase: rundir.PhaseRunning, Hosts: "n1"}, fails: "no running ranks"},
		{name: "launcher has ended", live: &rundir.Live{Phase: rundir.PhaseRunning, Hosts: "n1"}, lock: lockWith(1 << 30), fails: "no running ranks"},
		{name: "launcher is running", live: &rundir.Live{Phase: rundir.PhaseRunning, Hosts: "n1"}, lock: lockWith(os.Getpid()), want: []string{"n1"}},
		{name: "job", live: &rundir.Live{JobID: "7", Phase: rundir.PhaseRunning, Hosts: "n[1-2]"}, want: []string{"n1", "n2"}},
		{name: "no hosts", live: &rundir.Live{JobID: "7", Phase: rundir.PhaseRunning}, fails: "names none"},
	} {
		dir, err := rundir.Create(filepath.Join(t.TempDir(), "run;id"))
		if err == nil {
			err = dir.WriteRecord(rundir.Record{Name: "mine", Run: "0123456789abcdef", Base: filepath.Dir(dir.Path)})
		}
		if err == nil && tt.live != nil {
			err = dir.WriteLive(*tt.live)
		}
		if err == nil && tt.lock != nil {
			err = tt.lock(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		run, err := Find(&runs.Store{}, dir.Path)
		switch {
		case tt.fails == "" && err != nil, tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)):
			t.Errorf("%s: got error %v, want %q", tt.name, err, tt.fails)
		case tt.fails == "no running ranks" && !strings.Contains(hints.Of(err), "'"+dir.Path+"'"):
			t.Errorf("%s: the hint does not quote the path for a shell: %s", tt.name, hints.Of(err))
		case err == nil && !slices.Equal(run.Hosts, tt.want):
			t.Errorf("%s: got nodes %q, want %q", tt.name, run.Hosts, tt.want)
		}
	}
}

// lockWith returns a function that locks a run directory like a launcher on this host with the given
// process ID.
func lockWith(pid int) func(rundir.Dir) error {
	return func(dir rundir.Dir) error {
		unlock, err := dir.Lock(rundir.Claim{Launcher: true})
		if err != nil {
			return err
		}
		path := filepath.Join(dir.Path, "lock")
		text, err := os.ReadFile(path)
		unlock()
		if err != nil {
			return err
		}
		own, other := fmt.Sprintf(`"pid":%d,`, os.Getpid()), fmt.Sprintf(`"pid":%d,`, pid)
		if !strings.Contains(string(text), own) {
			return fmt.Errorf("%q contains %q, without %q", path, text, own)
		}
		return os.WriteFile(path, []byte(strings.Replace(string(text), own, other, 1)), 0o600)
	}
}

// TestFindRank checks that a rank is found among several on this machine, with its variables.
func TestFindRank(t *testing.T) {
	const id = "fedcba9876543210"
	pids := map[int]int{}
	for rank := range 3 {
		cmd := exec.Command("sleep", "600")
		cmd.Env = append(os.Environ(), process.RunVariable+"="+id, fmt.Sprintf("%s=%d", process.RankVariable, rank))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		pids[rank] = cmd.Process.Pid
	}
	run := &Run{Run: runs.Run{Record: rundir.Record{Run: id}}, Hosts: []string{"n1"}}
	for rank, pid := range pids {
		target, found, err := run.FindRank(t.Context(), rank)
		if err != nil || !found {
			t.Fatalf("rank %d: found is %t, error %v", rank, found, err)
		}
		for _, want := range []string{fmt.Sprintf("%s=%d", process.RankVariable, rank), fmt.Sprintf("%s=%d", rankPIDVariable, pid)} {
			if !slices.Contains(target.variables, want) {
				t.Errorf("rank %d: got variables %q, want %s", rank, target.variables, want)
			}
		}
	}
	if _, found, err := run.FindRank(t.Context(), 3); found || err != nil {
		t.Errorf("rank 3: found is %t, error %v", found, err)
	}
}

// TestFindOfAnotherUser checks that root can attach to the run of another user.
func TestFindOfAnotherUser(t *testing.T) {
	requireRoot(t)
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err == nil {
		err = dir.WriteRecord(rundir.Record{Name: "theirs", Run: "0123456789abcdef", Base: filepath.Dir(dir.Path)})
	}
	if err == nil {
		err = dir.WriteLive(rundir.Live{JobID: "7", Phase: rundir.PhaseRunning, Hosts: "n1"})
	}
	if err == nil {
		err = os.Chown(dir.Path, 61001, 61001)
	}
	if err != nil {
		t.Fatal(err)
	}
	if run, err := Find(&runs.Store{}, dir.Path); err != nil || run.Live.JobID != "7" {
		t.Errorf("root: got %v, %v", run, err)
	}
}

// requireRoot skips a test without root, but not in CI.
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

// TestCommandLine checks how a program starts on nodes and next to a rank, with and without Slurm.
func TestCommandLine(t *testing.T) {
	job := &Run{Live: rundir.Live{JobID: "7"}}
	variables := []string{"RANK=3"}
	for _, tt := range []struct {
		name        string
		target      Target
		interactive bool
		start       []string
		has, lacks  []string
	}{
		{name: "local", target: new(Run).Nodes("n1"), start: []string{"nvidia-smi", "-L"}},
		{name: "local rank", target: Target{new(Run), []string{"n1"}, variables}, start: []string{"/usr/bin/env", "RANK=3"}, has: []string{"start", "--"}},
		{name: "local shell", target: new(Run).Nodes("n1"), interactive: true, start: []string{"nvidia-smi", "-L"}},
		{name: "job", target: job.Nodes("n1", "n2"), start: []string{"srun"}, has: []string{"--jobid=7", "--nodes=2", "--overlap", "start"}, lacks: []string{"/usr/bin/env"}},
		{name: "rank of a job", target: Target{job, []string{"n2"}, variables}, start: []string{"srun"}, has: []string{"--nodelist=n2", "/usr/bin/env", "RANK=3", "start"}},
		{name: "shell in a job", target: job.Nodes("n1"), interactive: true, start: []string{"srun", "--pty"}, lacks: []string{"--input=none"}},
	} {
		argv, err := tt.target.CommandLine(false, "nvidia-smi", "-L")
		if tt.interactive {
			argv, err = tt.target.Interactive("nvidia-smi", "-L")
		}
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(argv[:len(tt.start)], tt.start) || !slices.Equal(argv[len(argv)-2:], []string{"nvidia-smi", "-L"}) {
			t.Errorf("%s: got %q", tt.name, argv)
		}
		for _, word := range tt.has {
			if !slices.Contains(argv, word) {
				t.Errorf("%s: got %q, want %s", tt.name, argv, word)
			}
		}
		for _, word := range tt.lacks {
			if slices.Contains(argv, word) {
				t.Errorf("%s: got %q, want no %s", tt.name, argv, word)
			}
		}
	}
}

// TestCheckJobOwner checks that root runs a command only in a job of the run's owner, and that the
// owner needs no check.
func TestCheckJobOwner(t *testing.T) {
	requireRoot(t)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "squeue"), []byte("#!/bin/sh\ncase $* in *--jobs=7*) echo 61001;; *) echo 61002;; esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	client := slurm.Client{Environ: []string{"PATH=" + bin + ":" + os.Getenv("PATH")}}
	for _, tt := range []struct {
		name  string
		owner int // of the run
		job   string
		fails string
	}{
		{name: "own run", owner: 0, job: "8"},
		{name: "job of the owner", owner: 61001, job: "7"},
		{name: "job of a different user", owner: 61001, job: "8", fails: "job 8 of user 61002"},
		{name: "without Slurm", owner: 61001},
	} {
		dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
		if err == nil {
			err = os.Chown(dir.Path, tt.owner, tt.owner)
		}
		if err != nil {
			t.Fatal(err)
		}
		run := &Run{Run: runs.Run{Dir: dir}, Live: rundir.Live{JobID: tt.job}, slurm: client}
		err = run.CheckJobOwner(t.Context())
		if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.fails)
		}
	}
}
