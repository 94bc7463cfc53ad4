package watch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// textOf returns the details with the given label, including continuation lines.
func textOf(s *Status, label string, now time.Time) []string {
	var all []string
	last := ""
	for _, l := range s.Details(now) {
		if l.Label != "" {
			last = l.Label
		}
		if last == label {
			all = append(all, l.Text)
		}
	}
	return all
}

// TestDetailsOfTheJob checks the description of a job in each state.
func TestDetailsOfTheJob(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    Status
		want string
	}{
		{"waits, start expected", Status{State: slurm.StatePending, Reason: "Priority", Start: "08:00"}, "18, pending (Priority), expected to start at 08:00"},
		{"waits, nothing expected", Status{State: slurm.StatePending}, "18, pending, no start is foreseen yet"},
		{"runs", Status{State: slurm.StateRunning, Nodes: "n[1-2]", Elapsed: "0:10"}, "18, running on n[1-2], ran 0:10"},
		{"has just begun", Status{State: slurm.StateRunning, Nodes: "n1", Elapsed: "0:00", ExitCode: "0:0"}, "18, running on n1"},
		{"failed", Status{State: slurm.StateFailed, ExitCode: "4:0"}, "18, failed, exit code 4"},
		{"killed", Status{State: slurm.StateFailed, ExitCode: "0:9", Requeues: 1}, "18, failed, killed by signal 9 (SIGKILL), requeued once"},
		{"requeued", Status{State: slurm.StateRunning, Requeues: 2}, "18, running, requeued twice"},
		{"requeued often", Status{State: slurm.StateRunning, Requeues: 3}, "18, running, requeued 3 times"},
		{"no answer", Status{State: slurm.StateUnknown, Requeues: -1}, "18, Slurm did not answer"},
		{"forgotten", Status{State: slurm.StateUnknown, Reason: "no such job"}, "18, unknown: no such job"},
	} {
		tt.s.Name, tt.s.Job = "a", "18"
		if got := textOf(&tt.s, "job", time.Now()); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := textOf(&Status{Name: "a"}, "job", time.Now()); got != nil {
		t.Errorf("a run without a job: %q", got)
	}
}

// TestStepText checks that common durations of steps have no exponents.
func TestStepText(t *testing.T) {
	for millis, want := range map[float64]string{
		0.07716: "0.0772 ms per step", 20: "20 ms per step", 999.4: "999 ms per step", 999.9: "1 s per step",
		1010: "1.01 s per step", 999_600: "1,000 s per step", 3_600_000: "3,600 s per step",
	} {
		if got := stepText(millis); got != want {
			t.Errorf("%v ms: got %q, want %q", millis, got, want)
		}
	}
}

// TestDetailsOfMetrics checks the description of progress, loss, and communication.
func TestDetailsOfMetrics(t *testing.T) {
	now := time.Now()
	step := 100
	train := metrics.Record{Step: 100, Epoch: 1, Epochs: 3, Loss: metrics.NewNumber(0.43125), SamplesPerSecond: metrics.NewNumber(1234567), StepMillis: metrics.NewNumber(20),
		CommMillis: metrics.NewNumber(8), CommHidden: metrics.NewNumber(0.75), LeftSeconds: metrics.NewNumber(90), Time: now}
	s := Status{Name: "a", Phase: Training, Detail: "all is well", Advice: "wait", Step: &step, Steps: 400, Epochs: 3, Train: &train,
		Eval: &metrics.Record{Step: 50, Loss: metrics.NewNumber(2.5e7), Accuracy: metrics.NewNumber(0.8125)}}
	for label, want := range map[string][]string{
		"phase":    {"training: all is well", "wait"},
		"progress": {"step 100 of 400 (25%), epoch 2 of 3, 1m30s left"},
		"training": {"loss 0.4313, 1,234,567 samples/s, 20 ms per step"},
		"exchange": {"10% of a step waits for communication; 75% of the communication is hidden"},
		"held-out": {"loss 2.5e+07, accuracy 0.8125, after step 50"},
	} {
		if got := textOf(&s, label, now); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", label, got, want)
		}
	}
	if got := textOf(&s, "training", now.Add(time.Minute)); !strings.HasSuffix(got[0], " (1m00s ago)") {
		t.Errorf("metrics of a minute ago: %q", got)
	}
	s.Phase = Stopped
	if got := textOf(&s, "progress", now)[0]; strings.Contains(got, "left") {
		t.Errorf("a run that has stopped: %q", got)
	}
	tokens := metrics.Record{Step: 100, TokensPerSecond: metrics.NewNumber(987)}
	alone := Status{Name: "a", Phase: Training, Step: &step, Train: &tokens}
	if got := textOf(&alone, "training", tokens.Time); !slices.Equal(got, []string{"987 tokens/s"}) {
		t.Errorf("tokens: %q", got)
	}
	if got := textOf(&alone, "exchange", now); got != nil {
		t.Errorf("the communication of a single rank: %q", got)
	}
	if got := textOf(&alone, "progress", now); !slices.Equal(got, []string{"step 100"}) {
		t.Errorf("without a known end: %q", got)
	}
}

// TestDetailsOfNodes checks the description of nodes, with failed nodes first.
func TestDetailsOfNodes(t *testing.T) {
	s := Status{Name: "a", Phase: Training, Live: &rundir.Live{Nodes: []rundir.NodeGroup{
		{State: "lost", Hosts: "n4", Ranks: []int{6}, Count: 1, Least: 90, Most: 90},
		{State: "silent", Hosts: "n3", Ranks: []int{4, 5}, Count: 9},
		{State: "training", Hosts: "n[1-2]", Ranks: []int{0, 1, 2, 3}, Count: 4, Least: 100, Most: 101},
	}}}
	want := []string{"n4 lost (rank 6), step 90", "n3 silent (ranks 4, 5 and 7 more)", "n[1-2] training, step 100 to 101"}
	if got := textOf(&s, "nodes", time.Now()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if note := s.note(); note != "n4 lost; n3 silent" {
		t.Errorf("the note is %q", note)
	}
	s.Phase = Failed
	if got := textOf(&s, "nodes", time.Now()); got != nil {
		t.Errorf("of a run that has ended: %q", got)
	}
}

// TestReadAndVerify checks the details of a run directory, with a checkpoint that is first
// verified and then corrupt.
func TestReadAndVerify(t *testing.T) {
	d, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(d.Spec(), "[train]\nepochs = 4\n")
	write(d.Metrics(), `{"kind":"train","step":10,"steps":40,"epoch":1,"epochs":4,"loss":0.5}`+"\n"+`{"kind":"eval","step":10,"epoch":2,"accuracy":0.75}`+"\n")
	if err := d.WriteEnd(rundir.End{JobID: "18", Exit: 3, Stopped: true}); err != nil {
		t.Fatal(err)
	}
	created := time.Now().Add(-time.Hour)
	tensor := safetensors.Tensor{Name: "w", Shape: []int{2}, Data: []float32{1, 2}}
	path, err := checkpoint.Save(d.Checkpoints(), &checkpoint.Manifest{Created: created, Step: 10, Epoch: 2}, checkpoint.Files{checkpoint.ModelFile: {tensor}})
	if err != nil {
		t.Fatal(err)
	}
	s := Read(d, "a", "18", nil)
	s.AddJob(slurm.JobState{State: slurm.StateFailed, Reason: "NonZeroExitCode", ExitCode: "3:0", Nodes: "n1", Restarts: 1, Start: "08:00", Elapsed: "0:10"})
	s.SetPhase(time.Now())
	if s.Phase != Stopped || s.Finished || s.Restarts != 1 || *s.Step != 10 || s.Steps != 40 || *s.Epoch != 2 || s.Epochs != 4 ||
		*s.Loss != 0.5 || *s.Accuracy != 0.75 || *s.Checkpoint != 10 || s.Nodes != "n1" || s.Start != "08:00" || s.Elapsed != "0:10" {
		t.Errorf("%+v", s)
	}
	if s.Advice != "submit it again to resume after step 10" {
		t.Errorf("advice %q", s.Advice)
	}
	if got := textOf(&s, "checkpoint", created.Add(2*time.Hour))[0]; !strings.HasPrefix(got, "step 10, 2h00m ago, ") || !strings.Contains(got, "not read back") {
		t.Errorf("%q", got)
	}
	s.Verify(t.Context())
	if !s.Saved.Verified || s.Saved.Damaged != "" || !strings.Contains(textOf(&s, "checkpoint", created)[0], "verified") {
		t.Errorf("%+v", s.Saved)
	}
	write(filepath.Join(path, checkpoint.ModelFile), "these are not tensors")
	again := Read(d, "a", "18", nil)
	again.AddJob(slurm.JobState{State: slurm.StatePreempted})
	again.SetPhase(time.Now())
	again.Verify(t.Context())
	if again.Saved.Verified || !strings.Contains(textOf(&again, "checkpoint", created)[0], "damaged: ") || !strings.Contains(again.Advice, "step 10 is corrupt") {
		t.Errorf("%+v, advice %q", again.Saved, again.Advice)
	}
	write(filepath.Join(path, "manifest.json"), "{")
	if s := Read(d, "a", "18", nil); s.Saved.Damaged == "" || *s.Checkpoint != 10 {
		t.Errorf("%+v", s.Saved)
	}
	// The recorded end of another job does not count for this job.
	other := Read(d, "a", "19", nil)
	other.SetPhase(time.Now())
	if other.Phase != Unknown {
		t.Errorf("another job is %q", other.Phase)
	}
}

// TestHeadingAndSum checks the summary of a sweep.
func TestHeadingAndSum(t *testing.T) {
	sweep := Status{Elements: []Status{{Phase: Done}, {Phase: Failed}, {Phase: Done}}}
	sweep.SumUp()
	if sweep.Finished || sweep.Reason != "2 done, 1 failed" {
		t.Errorf("%v, %q", sweep.Finished, sweep.Reason)
	}
	if note := sweep.note(); note != sweep.Reason {
		t.Errorf("the note is %q", note)
	}
	sweep.Elements[1].Phase = Done
	if sweep.SumUp(); !sweep.Finished {
		t.Error("all trials are done, and the sweep has not finished")
	}
	sweep.Elements[1].Phase = TimeLimit
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := Heading([]Status{sweep, {Phase: Training}}, at); got != "03:04:05  2 done, 1 time limit, 1 training" {
		t.Errorf("%q", got)
	}
}

// TestTableSortsByEnd checks that runs that are over come last, in their order.
func TestTableSortsByEnd(t *testing.T) {
	lines := TopTable([]Status{{Name: "ended", Phase: Failed}, {Name: "sweep", Finished: true, Elements: []Status{{}}}, {Name: "queued", Phase: Queued, Start: "08:00"}, {Name: "live", Phase: Training}}).Lines(0)
	var order []string
	for _, line := range lines[1:] {
		order = append(order, strings.Fields(line)[0])
	}
	if want := []string{"queued", "live", "ended", "sweep"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
	if !strings.Contains(lines[1], "expected to start at 08:00") {
		t.Errorf("%q", lines[1])
	}
}

// TestDetailsOfComponents checks the lines about components: all of them during the run,
// and only those that have failed after it.
func TestDetailsOfComponents(t *testing.T) {
	c := func(name, host string, phase rundir.ComponentPhase, restarts int, reason string) rundir.ComponentState {
		return rundir.ComponentState{Name: name, Host: host, Address: "10.0.0.1:2", Phase: phase, Restarts: restarts, Reason: reason}
	}
	all := []rundir.ComponentState{
		c("server", "n1", rundir.ComponentReady, 1, "it had ended"), c("worker", "n1", rundir.ComponentReady, 0, ""), c("worker", "n2", rundir.ComponentReady, 0, ""),
		c("worker", "n3", rundir.ComponentReady, 0, ""), c("cache", "n1", rundir.ComponentFailed, 0, "cache\x1b[2J has ended"),
	}
	for _, tt := range []struct {
		phase Phase
		want  []string
	}{
		{Running, []string{"server: ready on n1 at 10.0.0.1:2, 1 restart", "worker: ready on n[1-3]", "cache: failed on n1 at 10.0.0.1:2: cache[2J has ended"}},
		{Done, []string{"cache: failed on n1 at 10.0.0.1:2: cache[2J has ended"}},
	} {
		s := Status{Phase: tt.phase, Components: all}
		if got := textOf(&s, "components", time.Now()); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.phase, got, tt.want)
		}
	}
}

// TestComponentsOfTheNewestAttempt checks that a component that failed in an earlier attempt is not
// shown if the newest attempt has no components. Ranks without a launcher record no attempts.
func TestComponentsOfTheNewestAttempt(t *testing.T) {
	for _, tt := range []struct {
		name     string
		attempts int // recorded
		want     int // states
	}{
		{"newest attempt", 1, 1},
		{"earlier attempt", 2, 0},
		{"no record of attempts", 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := rundir.Dir{Path: t.TempDir()}
			if err := d.WriteComponents(1, 0, []rundir.ComponentState{{Name: "server", Attempt: 1, Host: "n1", Phase: rundir.ComponentFailed}}); err != nil {
				t.Fatal(err)
			}
			s := Status{Attempts: make([]outcome.Attempt, tt.attempts)}
			if s.AddComponents(d); len(s.Components) != tt.want {
				t.Errorf("got %+v, want %d states", s.Components, tt.want)
			}
		})
	}
}
