package runs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

const spec = "name = %q\n[command]\nargv = [\"true\"]\n"

// submitted returns a submission of job id.
func submitted(id string) rundir.Submission {
	s := rundir.NewSubmission()
	s.JobID = id
	s.Time = s.Time.Add(-time.Hour)
	return s
}

// create creates a run directory with a record.
func create(t *testing.T, path string, record rundir.Record) rundir.Dir {
	t.Helper()
	dir, err := rundir.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	record.Run, record.Base = "0123456789abcdef", filepath.Dir(path)
	if err := dir.WriteRecord(record); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newStore returns a store with the run "one" of job 18, and the sweep "tune" of job 19 with two
// trials.
func newStore(t *testing.T) *Store {
	t.Helper()
	s := &Store{Dir: t.TempDir(), Note: func(note string) { t.Log(note) }}
	create(t, filepath.Join(s.Runs(), "one"), rundir.Record{Name: "one", Submissions: []rundir.Submission{submitted("18")}})
	sweep := &rundir.SweepRecord{Elements: []rundir.ElementRecord{{Values: map[string]string{"train.batch": "8"}}, {Values: map[string]string{"train.batch": "16"}}}}
	tune := create(t, filepath.Join(s.Runs(), "tune"), rundir.Record{Name: "tune", Submissions: []rundir.Submission{submitted("19")}, Sweep: sweep})
	create(t, tune.Element(1).Path, rundir.Record{Name: "tune-1", Submissions: []rundir.Submission{submitted("19_1")}})
	write(t, filepath.Join(s.Dir, "one.toml"), strings.Replace(spec, "%q", `"one"`, 1))
	return s
}

func exitCodeOf(err error) int {
	var coded interface{ ExitCode() int }
	if !errors.As(err, &coded) {
		return exitcode.Failed
	}
	return coded.ExitCode()
}

// TestRunOfAnotherUserIsNotReportedAsAbsent checks the error for the run of another user, which only
// this user can read.
func TestRunOfAnotherUserIsNotReportedAsAbsent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	s := newStore(t)
	one := filepath.Join(s.Runs(), "one")
	for dir := s.Dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(s.Runs(), 0o755); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _ = unix.SetfsuidRetUid(61001) // this thread accesses files as another user
	_, named := s.Find("one")
	_, directory := s.Find(one)
	_, _ = unix.SetfsuidRetUid(0)
	for _, err := range []error{named, directory} {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(hints.Of(err), "open to its owner only") {
			t.Errorf("got %v, hint %q", err, hints.Of(err))
		}
	}
}

// TestFind checks how names, paths, and job IDs select a run.
func TestFind(t *testing.T) {
	s := newStore(t)
	one, tune := filepath.Join(s.Runs(), "one"), filepath.Join(s.Runs(), "tune")
	write(t, filepath.Join(s.Dir, "tune", "data.csv"), "1\n") // the user's data has the name of a run
	write(t, filepath.Join(s.Runs(), "broken", "record.json"), "{")
	for _, tt := range []struct {
		name, arg string
		want      string // run directory
		fails     string
	}{
		{"directory", "runs/one", one, ""},
		{"absolute path", one, one, ""},
		{"name", "one", one, ""},
		{"job file", "one.toml", one, ""},
		{"job ID", "18", one, ""},
		{"name of a sweep and of a directory", "tune", tune, ""},
		{"trial by name", "tune/1", filepath.Join(tune, "elements", "1"), ""},
		{"array task", "19_1", filepath.Join(tune, "elements", "1"), ""},
		{"empty argument", "", "", "name of the run is empty"},
		{"unknown name", "nothing", "", `no run "nothing"`},
		{"unknown job", "20", "", "no run below"},
		{"directory without a run", ".", "", "open run directory"},
		{"missing trial", "tune/7", "", `no run "tune/7"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run, err := s.Find(tt.arg)
			switch {
			case tt.fails == "" && (err != nil || run.Dir.Path != tt.want):
				t.Errorf("got %q, %v, want %q", run.Dir.Path, err, tt.want)
			case tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)):
				t.Errorf("got error %v, want %q", err, tt.fails)
			case tt.fails != "" && exitCodeOf(err) != exitcode.Usage:
				t.Errorf("got exit code %d, want %d", exitCodeOf(err), exitcode.Usage)
			}
		})
	}
	// An invalid record has an error that names the directory, and a missing record has an error, also if another
	// user has a run with this name in the current directory, or the run that a dependency names next to the job file.
	write(t, filepath.Join(s.Runs(), "lost", "checkpoints", "step-1", "manifest.json"), "{}")
	write(t, filepath.Join(tune, "elements", "1", "record.json"), "{")
	base := t.TempDir()
	for _, another := range []bool{false, true} {
		for arg, want := range map[string]string{"broken": filepath.Join(s.Runs(), "broken"), "lost": "", "19_1": filepath.Join(tune, "elements", "1")} {
			for _, path := range []string{filepath.Join(s.Dir, arg), filepath.Join(base, DefaultDir, arg)} {
				if !another {
					break
				}
				create(t, path, rundir.Record{Name: "another"})
				if err := os.Chown(path, 61001, -1); err != nil {
					t.Fatal(err) // the suite runs as root
				}
			}
			if run, err := s.Find(arg); err == nil || run.Dir.Path != want {
				t.Errorf("%s: got %+v, %v, want an error and %q", arg, run, err, want)
			}
			if dir, err := s.FindDependency(base, arg); dir != nil {
				t.Errorf("%s: got the dependency %+v, %v, want none", arg, dir, err)
			}
		}
	}
}

// TestList checks that all runs are listed, and that changed records are read again in spite of
// the cache.
func TestList(t *testing.T) {
	s := newStore(t)
	write(t, filepath.Join(s.Runs(), "broken", "record.json"), "{")
	write(t, filepath.Join(s.Runs(), "notes.txt"), "not a run\n")
	for range 2 { // the second call uses the cache
		found, unreadable, err := s.List(s.Runs())
		if err != nil || len(unreadable) != 1 || len(found) != 2 || found[0].Record.Name != "one" || found[1].Record.Name != "tune" {
			t.Fatalf("got %+v, %v, %v, want two runs and one error", found, unreadable, err)
		}
	}
	// A changed record is read again, even if it was cached.
	dir := rundir.Dir{Path: filepath.Join(s.Runs(), "one")}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir.Record(), long, long); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"18", "77"} {
		record, err := dir.ReadRecord()
		if err != nil {
			t.Fatal(err)
		}
		if id != "18" {
			record.Submissions = append(record.Submissions, submitted(id))
			if err := dir.WriteRecord(record); err != nil {
				t.Fatal(err)
			}
		}
		found, _, err := s.List(s.Runs())
		if err != nil || found[0].Record.LastJob() != id {
			t.Errorf("got %+v, %v, want job %s", found[0].Record, err, id)
		}
	}
	if found, unreadable, err := s.List(filepath.Join(s.Dir, "nothing")); found != nil || unreadable != nil || err != nil {
		t.Errorf("missing directory: got %v, %v, %v", found, unreadable, err)
	}
}

// TestTrials checks the trials of a sweep and their jobs.
func TestTrials(t *testing.T) {
	s := newStore(t)
	tune, err := s.Find("tune")
	if err != nil {
		t.Fatal(err)
	}
	trials, err := tune.Trials()
	if err != nil || len(trials) != 2 {
		t.Fatalf("got %v, %v, want 2 trials", trials, err)
	}
	if trials[0].Record.Name != "tune-0" || trials[0].Record.LastJob() != "" || trials[1].Record.LastJob() != "19_1" {
		t.Errorf("got %+v", trials)
	}
	if submitted, launched := SplitByStart(trials); len(submitted) != 1 || len(launched) != 0 {
		t.Errorf("got %d submitted and %d launched trials, want 1 and 0", len(submitted), len(launched))
	}
	if ids := JobIDs(trials); !slices.Equal(ids, []string{"19_1"}) {
		t.Errorf("got jobs %v", ids)
	}
	one, err := s.Find("one")
	if err != nil {
		t.Fatal(err)
	}
	if trials, err := one.Trials(); trials != nil || err != nil {
		t.Errorf("not a sweep: got %v, %v", trials, err)
	}
}

// TestParseTrials checks lists of trials, and the errors for trials that do not exist.
func TestParseTrials(t *testing.T) {
	for _, tt := range []struct {
		list  string
		want  []int
		fails string
	}{
		{"0-3,7", []int{0, 1, 2, 3, 7}, ""},
		{"7, 1, 1", []int{1, 7}, ""},
		{"8", nil, "no trial 8"},
		{"3-1", nil, "is not a list"},
		{"", nil, "is not a list"},
		{"-1", nil, "is not a list"},
	} {
		got, err := ParseTrials(tt.list, 8)
		if tt.fails == "" && (err != nil || !slices.Equal(got, tt.want)) || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%q: got %v, %v, want %v %s", tt.list, got, err, tt.want, tt.fails)
		}
	}
}

// TestJobResult checks the result of a job from Slurm's state, the recorded end, and the failure.
func TestJobResult(t *testing.T) {
	for _, tt := range []struct {
		name     string
		job      slurm.JobState
		end      *rundir.End
		failure  string
		finished bool
		code     int
		text     string
	}{
		{name: "completed", job: slurm.JobState{State: slurm.StateCompleted}, finished: true},
		{name: "completed after a stop request", job: slurm.JobState{State: slurm.StateCompleted}, end: &rundir.End{Stopped: true}, code: exitcode.Stopped, text: "stopped before the run had finished"},
		{name: "failed", job: slurm.JobState{State: slurm.StateFailed, ExitCode: "7:0"}, code: 7, text: "exit code 7"},
		{name: "failed, with a cause", job: slurm.JobState{State: slurm.StateFailed, ExitCode: "4:0"}, end: &rundir.End{Exit: 4}, failure: "rank 3 was lost", code: exitcode.Lost, text: "rank 3 was lost"},
		{name: "canceled", job: slurm.JobState{State: slurm.StateCancelled}, failure: "rank 3 was lost", code: exitcode.Canceled, text: "cancelled"},
		{name: "node failure", job: slurm.JobState{State: slurm.StateNodeFail}, code: exitcode.Lost, text: "node_fail"},
		{name: "time limit without a checkpoint", job: slurm.JobState{State: slurm.StateTimeout}, code: exitcode.Failed, text: "timeout"},
		{name: "failed without an exit code", job: slurm.JobState{State: slurm.StateOutOfMemory, ExitCode: "0:125"}, code: exitcode.Failed, text: "out_of_memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := create(t, filepath.Join(t.TempDir(), "run"), rundir.Record{Name: "run", Submissions: []rundir.Submission{submitted("18")}})
			tt.job.ID = "18"
			if tt.end != nil {
				tt.end.JobID = "18"
				if err := dir.WriteEnd(*tt.end); err != nil {
					t.Fatal(err)
				}
			}
			if tt.failure != "" {
				writeFailure(t, dir, tt.failure)
			}
			r := jobResult(dir, tt.job)
			if r.Finished != tt.finished || r.ExitCode != tt.code || !strings.Contains(strings.ToLower(r.Text), tt.text) || r.SavedStep != -1 {
				t.Errorf("got %+v, want exit code %d and text %q", r, tt.code, tt.text)
			}
			if got := r.Advice == watch.TimeLimitAdvice; got != (tt.job.State == slurm.StateTimeout) {
				t.Errorf("got advice %q", r.Advice)
			}
			if isCause := strings.Contains(r.Text, "rank 3"); isCause != (tt.failure != "" && !r.Canceled) {
				t.Errorf("got text %q", r.Text)
			}
		})
	}
}

func writeFailure(t *testing.T, dir rundir.Dir, reason string) {
	t.Helper()
	write(t, dir.Failure(), `{"first":{"rank":3,"reason":"`+reason+`","hint":"look at n2"}}`)
	if f := outcome.Read(dir, "18").Failure; f == nil || f.Reason != reason || f.State != rendezvous.State("") {
		t.Fatalf("failure.json: got %+v", f)
	}
}

// TestLaunchEnd checks the end of a launch without Slurm by what its run directory contains.
func TestLaunchEnd(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name     string
		live     *rundir.Live
		end      *rundir.End
		launched bool
		over     bool
		text     string
	}{
		{name: "never launched", over: true, text: "its launcher was killed"},
		{name: "running", live: &rundir.Live{Time: now, Phase: rundir.PhaseRunning}, launched: true},
		{name: "silent", live: &rundir.Live{Time: now.Add(-time.Hour), Phase: rundir.PhaseRunning}, launched: true, over: true, text: "its launcher was killed"},
		{name: "ended", live: &rundir.Live{Time: now, Phase: rundir.PhaseOver}, end: &rundir.End{Exit: 3, Time: now}, launched: true, over: true, text: "exit code 3"},
		{name: "ended, as a Slurm job", end: &rundir.End{JobID: "18", Exit: 3, Time: now}, over: true, text: "its launcher was killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := create(t, filepath.Join(t.TempDir(), "run"), rundir.Record{Name: "run"})
			if tt.live != nil {
				if err := dir.WriteLive(*tt.live); err != nil {
					t.Fatal(err)
				}
			}
			if tt.end != nil {
				if err := dir.WriteEnd(*tt.end); err != nil {
					t.Fatal(err)
				}
			}
			run := Run{Dir: dir, Record: rundir.Record{Name: "run"}}
			if got := run.IsLaunched(); got != tt.launched {
				t.Errorf("launched: got %v, want %v", got, tt.launched)
			}
			end, over := run.LaunchEnd(now)
			if over != tt.over || over && !strings.Contains(end.String(), tt.text) {
				t.Errorf("got %q, over %v, want %q, over %v", end, over, tt.text, tt.over)
			}
		})
	}
}

// TestReadStatus checks that the status of a run is about its last start.
func TestReadStatus(t *testing.T) {
	now := time.Now()
	submission := submitted("18")
	submission.Time = now.Add(-time.Hour)
	for _, tt := range []struct {
		name string
		live rundir.Live
		job  string
	}{
		{name: "launched after the job", live: rundir.Live{Time: now, Phase: rundir.PhaseRunning}},
		{name: "submitted after the launch", live: rundir.Live{Time: now.Add(-2 * time.Hour), Phase: rundir.PhaseOver}, job: "18"},
		{name: "job is running", live: rundir.Live{JobID: "18", Time: now, Phase: rundir.PhaseRunning}, job: "18"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			record := rundir.Record{Name: "run", Submissions: []rundir.Submission{submission}}
			dir := create(t, filepath.Join(t.TempDir(), "run"), record)
			if err := dir.WriteLive(tt.live); err != nil {
				t.Fatal(err)
			}
			if got := ReadStatus(Run{Dir: dir, Record: record}, nil).Job; got != tt.job {
				t.Errorf("got job %q, want %q", got, tt.job)
			}
		})
	}
}

// TestCancelAfterError checks that the jobs canceled before an error of scancel are returned in order
// and, for trials, recorded.
func TestCancelAfterError(t *testing.T) {
	bin := t.TempDir()
	for name, script := range map[string]string{
		"squeue":  "for id in 19 20 21; do echo \"$id|$id|N/A|PENDING||0:00|s|e|0|0|Priority\"; done",
		"scancel": "[ \"$2\" != 19 ]",
		"sacct":   "",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := &Store{Dir: t.TempDir(), Slurm: slurm.Client{Environ: []string{"PATH=" + bin}}}
	var trials []Run
	var chain []rundir.Submission
	for _, id := range []string{"19", "20", "21"} {
		sub := submitted(id)
		sub.ID = "" // the logs identify the jobs
		record := rundir.Record{Name: id, Submissions: []rundir.Submission{sub}}
		trials = append(trials, Run{Dir: create(t, filepath.Join(s.Runs(), id), record), Record: record})
		chain = append(chain, sub)
		for _, d := range []rundir.Dir{trials[len(trials)-1].Dir, trials[0].Dir} {
			write(t, d.BatchLog(id), "")
		}
	}
	arrays, err := s.CancelTrials(t.Context(), trials)
	if want := []CanceledArray{{"20", 1}, {"21", 1}}; err == nil || !slices.Equal(arrays, want) {
		t.Errorf("got arrays %v, %v, want %v and an error", arrays, err, want)
	}
	for _, trial := range trials {
		id := trial.Record.LastJob()
		if _, ok := trial.Dir.ReadEnd(); ok != (id != "19") {
			t.Errorf("job %s: recorded %v", id, ok)
		}
	}
	jobs, err := s.CancelChain(t.Context(), Run{Dir: trials[0].Dir, Record: rundir.Record{Chain: chain}})
	if want := []string{"20", "21"}; err == nil || !slices.Equal(jobs, want) {
		t.Errorf("got jobs %v, %v, want %v and an error", jobs, err, want)
	}
}
