package outcome

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// newRun creates a run directory with the given job file, which may be empty.
func newRun(t *testing.T, spec string) rundir.Dir {
	t.Helper()
	d, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	if spec != "" {
		if err := os.WriteFile(d.Spec(), []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// TestFinished checks which runs count as finished, from checkpoints, exit codes, and Slurm's
// state.
func TestFinished(t *testing.T) {
	const (
		threeEpochs = "name = \"a\"\n[train]\nepochs = 3\nnew_key_of_a_later_version = 1\n"
		program     = "name = \"a\"\n[command]\nargv = [\"sh\"]\n"
	)
	end := func(exit int, stopped bool) *rundir.End { return &rundir.End{Exit: exit, Stopped: stopped} }
	for _, tt := range []struct {
		name       string
		spec       string
		checkpoint *checkpoint.Manifest
		corrupt    bool
		end        *rundir.End
		last       slurm.JobState
		want       bool
	}{
		{name: "nothing yet", spec: threeEpochs},
		{name: "all epochs", spec: threeEpochs, checkpoint: &checkpoint.Manifest{Epoch: 3, Finished: true}, want: true},
		{name: "all epochs, but the job was canceled later", spec: threeEpochs, checkpoint: &checkpoint.Manifest{Epoch: 3, Finished: true},
			end: end(130, false), last: slurm.JobState{State: slurm.StateCancelled}, want: true},
		{name: "more epochs than requested", spec: threeEpochs, checkpoint: &checkpoint.Manifest{Epoch: 9}, want: true},
		{name: "more epochs requested since", spec: threeEpochs, checkpoint: &checkpoint.Manifest{Epoch: 2, Finished: true}, end: end(0, false)},
		{name: "in the middle", spec: threeEpochs, checkpoint: &checkpoint.Manifest{Epoch: 2, Consumed: 5}, end: end(0, false)},
		{name: "not evaluated", spec: threeEpochs, checkpoint: &checkpoint.Manifest{Epoch: 3, Unevaluated: true}},
		{name: "corrupt checkpoint", spec: threeEpochs, checkpoint: &checkpoint.Manifest{Epoch: 3, Finished: true}, corrupt: true, end: end(0, false)},
		{name: "checkpoints deleted", spec: threeEpochs, end: end(0, false), want: true},
		{name: "no job file, finished", checkpoint: &checkpoint.Manifest{Epoch: 3, Finished: true}, want: true},
		{name: "no job file, not finished", checkpoint: &checkpoint.Manifest{Epoch: 3}, end: end(0, false)},
		{name: "program", spec: program, end: end(0, false), want: true},
		{name: "program with its own checkpoints", spec: program, checkpoint: &checkpoint.Manifest{}, end: end(0, false), want: true},
		{name: "program that failed", spec: program, end: end(1, false)},
		{name: "program that was asked to stop and ended with 0", spec: program, end: end(0, true)},
		{name: "program of a job without a launcher", spec: program, last: slurm.JobState{State: slurm.StateCompleted}, want: true},
		{name: "program that Slurm says completed, but was stopped", spec: program, end: end(0, true), last: slurm.JobState{State: slurm.StateCompleted}},
		{name: "end of another job", spec: program, end: &rundir.End{JobID: "17"}, last: slurm.JobState{ID: "18", State: slurm.StateFailed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newRun(t, tt.spec)
			if tt.checkpoint != nil {
				tensor := safetensors.Tensor{Name: "w", Shape: []int{1}, Data: []float32{1}}
				path, err := checkpoint.Save(d.Checkpoints(), tt.checkpoint, checkpoint.Files{checkpoint.ModelFile: {tensor}})
				if err != nil {
					t.Fatal(err)
				}
				if tt.corrupt {
					if err := os.Truncate(filepath.Join(path, "manifest.json"), 20); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tt.end != nil {
				if err := d.WriteEnd(*tt.end); err != nil {
					t.Fatal(err)
				}
			}
			if got := Read(d, tt.last.ID).Finished(tt.last); got != tt.want {
				t.Errorf("got finished %v, want %v", got, tt.want)
			}
		})
	}
}

// TestEnd checks how an attempt ended, and a launcher with the same records, in run
// directories of this version and of earlier versions, which lack the field "stopped".
func TestEnd(t *testing.T) {
	rank := 0
	for _, tt := range []struct {
		name    string
		exit    int
		stopped bool
		rank    *int // the failed rank
		want    End
	}{
		{"finished", 0, false, nil, Finished},
		{"trainer that stopped", 3, true, nil, Stopped},
		{"trainer that stopped, earlier version", 3, false, nil, Stopped},
		{"program that SIGTERM stopped", 143, true, nil, Stopped},
		{"program that SIGTERM stopped, earlier version", 143, false, nil, Stopped},
		{"program that SIGUSR1 stopped, earlier version", 138, false, nil, Stopped},
		{"program that stopped with 0", 0, true, nil, Stopped},
		{"program that failed with 3", 3, false, &rank, Failed},
		{"program that somebody killed by SIGTERM", 143, false, &rank, Failed},
		{"program that failed with 130", 130, false, &rank, Failed},
		{"interrupted twice", 130, false, nil, Canceled},
		{"lost a rank", 4, false, &rank, Failed},
		{"refused", 5, false, nil, Failed},
	} {
		a := Attempt{Exit: &tt.exit, Stopped: tt.stopped, Rank: tt.rank}
		if got := a.End(); got != tt.want {
			t.Errorf("%s: the attempt is %q, want %q", tt.name, got, tt.want)
		}
		s := State{End: &rundir.End{Exit: tt.exit, Stopped: tt.stopped}}
		if tt.rank != nil {
			s.Failure = &rendezvous.Failure{Rank: *tt.rank}
		}
		if got := s.Ended(); got != tt.want && tt.exit != 130 {
			t.Errorf("%s: the launcher is %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := (Attempt{}).End(); got != Open {
		t.Errorf("an attempt without an end is %q", got)
	}
	if got := (State{}).Ended(); got != Open {
		t.Errorf("a launcher without an end is %q", got)
	}
}

// TestRestarts checks that restarts by the launcher and by Slurm count. Starts by the user do
// not count.
func TestRestarts(t *testing.T) {
	begin := func(job string, requeues, number int) rundir.AttemptEvent {
		return rundir.AttemptEvent{Event: rundir.AttemptBegan, JobID: job, Requeues: requeues, Attempt: number}
	}
	end := func(job string, requeues, number, exit int, again bool) rundir.AttemptEvent {
		return rundir.AttemptEvent{Event: rundir.AttemptEnded, JobID: job, Requeues: requeues, Attempt: number, Exit: exit, Again: again}
	}
	requeue := func(job string, requeues int) rundir.AttemptEvent {
		return rundir.AttemptEvent{Event: rundir.JobRequeued, JobID: job, Requeues: requeues}
	}
	for _, tt := range []struct {
		name     string
		events   []rundir.AttemptEvent
		job      string
		requeues int // by Slurm
		want     int
	}{
		{name: "no attempt", requeues: -1},
		{name: "a running one", events: []rundir.AttemptEvent{begin("", 0, 1)}, requeues: -1},
		{name: "stopped by Ctrl-C and launched again", events: []rundir.AttemptEvent{begin("", 0, 1), end("", 0, 1, 3, false), begin("", 0, 1)}, requeues: -1},
		{name: "refused launches", events: []rundir.AttemptEvent{begin("", 0, 1), end("", 0, 1, 5, false), begin("", 0, 1), end("", 0, 1, 5, false), begin("", 0, 1)}, requeues: -1},
		{name: "killed with its launcher and launched again", events: []rundir.AttemptEvent{begin("", 0, 1), begin("", 0, 1), end("", 0, 1, 0, false)}, requeues: -1},
		{name: "launched twice by one job", events: []rundir.AttemptEvent{begin("18", 0, 1), end("18", 0, 1, 0, false), begin("18", 0, 1)}, job: "18", requeues: 0},
		{name: "restarted twice by the launcher", events: []rundir.AttemptEvent{begin("", 0, 1), end("", 0, 1, 4, true), begin("", 0, 2), end("", 0, 2, 4, true), begin("", 0, 3)}, requeues: -1, want: 2},
		{name: "requeued by the launcher, waiting", events: []rundir.AttemptEvent{begin("18", 0, 1), end("18", 0, 1, 3, false), requeue("18", 0)}, job: "18", requeues: -1, want: 1},
		{name: "the same, as Slurm sees it", events: []rundir.AttemptEvent{begin("18", 0, 1), end("18", 0, 1, 3, false), requeue("18", 0)}, job: "18", requeues: 1, want: 1},
		{name: "requeued by Slurm", events: []rundir.AttemptEvent{begin("18", 0, 1), begin("18", 1, 1)}, job: "18", requeues: 1, want: 1},
		{name: "requeued before its launcher started", job: "18", requeues: 2, want: 2},
		{name: "requeues of two jobs, and a restart", events: []rundir.AttemptEvent{begin("18", 0, 1), requeue("18", 0), begin("18", 1, 1), end("18", 1, 1, 4, true), begin("18", 1, 2), begin("19", 0, 1), begin("19", 1, 1)},
			job: "19", requeues: 1, want: 3},
		{name: "rubbish", events: []rundir.AttemptEvent{begin("18", -7, 1), begin("18", -7, 1)}, job: "18", requeues: -1},
	} {
		s := State{Job: tt.job, Attempts: attempts(tt.events)}
		if got := s.Restarts(tt.requeues); got != tt.want {
			t.Errorf("%s: got %d restarts, want %d", tt.name, got, tt.want)
		}
	}
}

// TestRequeuesWithoutProgress checks the count of consecutive requeues without progress.
func TestRequeuesWithoutProgress(t *testing.T) {
	job := func(id string, requeues int, unhandled bool, then string) Attempt {
		return Attempt{JobID: id, Requeues: requeues, NoProgress: unhandled, Then: then}
	}
	for name, tt := range map[string]struct {
		attempts []Attempt
		want     int
	}{
		"none":                       {nil, 0},
		"handled":                    {[]Attempt{job("7", 0, false, "requeued"), job("7", 1, false, "")}, 0},
		"recorded":                   {[]Attempt{job("7", 0, true, "requeued")}, 1},
		"only the next one tells":    {[]Attempt{job("7", 0, true, ""), job("7", 1, true, ""), job("7", 2, false, "")}, 2},
		"stopped, submitted again":   {[]Attempt{job("7", 0, true, ""), job("8", 0, false, "")}, 0},
		"restarted in the same job":  {[]Attempt{job("7", 0, true, ""), job("7", 0, false, "")}, 0},
		"stopped, and nothing since": {[]Attempt{job("7", 0, true, "")}, 0},
	} {
		if got := (State{Attempts: tt.attempts}).RequeuesWithoutProgress(); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

// TestReadIgnoresExchangedDirectory checks that a directory that another user puts at the path of
// an open directory does not finish the run: neither by its checkpoint nor by its job file.
func TestReadIgnoresExchangedDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	save := func(d rundir.Dir, m checkpoint.Manifest) {
		t.Helper()
		tensor := safetensors.Tensor{Name: "w", Shape: []int{1}, Data: []float32{1}}
		if _, err := checkpoint.Save(d.Checkpoints(), &m, checkpoint.Files{checkpoint.ModelFile: {tensor}}); err != nil {
			t.Fatal(err)
		}
	}
	d := newRun(t, "[train]\nepochs = 3\n")
	save(d, checkpoint.Manifest{Epoch: 1})
	held, release, err := d.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if got := Read(held, ""); got.Newest == nil || got.Newest.Manifest.Epoch != 1 {
		t.Fatalf("before the exchange: got %+v", got.Newest)
	}
	other := newRun(t, "[train]\nepochs = 2\n")
	save(other, checkpoint.Manifest{Epoch: 3, Finished: true})
	if err := filepath.WalkDir(other.Path, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, 61001, 61001))
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(d.Path, d.Path+".moved"), os.Rename(other.Path, d.Path)); err != nil {
		t.Fatal(err)
	}
	if got := Read(held, ""); got.Newest != nil || got.Finished(slurm.JobState{}) || got.Goal.Epochs != 3 {
		t.Errorf("after the exchange: got checkpoint %+v, goal %+v, finished %v", got.Newest, got.Goal, got.Finished(slurm.JobState{}))
	}
	// Commands show the runs of other users.
	if got := Read(d, ""); !got.Finished(slurm.JobState{}) || got.Goal.Epochs != 2 {
		t.Errorf("run of another user: got checkpoint %+v, goal %+v", got.Newest, got.Goal)
	}
}
