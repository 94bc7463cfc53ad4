package rankoutput

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// newRun returns a run with the given output of an attempt on n1 and n2, by the base of its files.
func newRun(t *testing.T, number int, attempt rundir.AttemptEvent, files map[string]string) runs.Run {
	t.Helper()
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	for range number {
		attempt.Event, attempt.Hosts = rundir.AttemptBegan, "n[1-2]"
		if err := dir.AppendAttempt(attempt); err != nil {
			t.Fatal(err)
		}
	}
	to, err := dir.CreateRankOutput(number)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	for base, text := range files {
		f, err := to.Create(output.Parts(base)[0])
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return runs.Run{Dir: dir, Record: rundir.Record{Name: "mine"}}
}

// record appends events to the history of attempts.
func record(t *testing.T, run runs.Run, events ...rundir.AttemptEvent) {
	t.Helper()
	for _, e := range events {
		if err := run.Dir.AppendAttempt(e); err != nil {
			t.Fatal(err)
		}
	}
}

// fail records a failure of a run.
func fail(t *testing.T, run runs.Run, first *rendezvous.Failure) {
	t.Helper()
	text, err := json.Marshal(outcome.Failure{First: first})
	if err == nil {
		err = os.WriteFile(run.Dir.Failure(), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSelect checks which outputs are selected, and that an error names the outputs that exist.
func TestSelect(t *testing.T) {
	ranks := map[string]string{}
	for i := range 5 {
		ranks[output.RankBase(i)] = "x\n"
	}
	equal := newRun(t, 1, rundir.AttemptEvent{Ranks: 6}, ranks)
	fail(t, equal, &rendezvous.Failure{Rank: 0, Reason: "a worker with RANK=3 failed"})
	uneven := newRun(t, 2, rundir.AttemptEvent{Ranks: 5, TasksPerNode: "4,1"}, ranks)
	fail(t, uneven, &rendezvous.Failure{Rank: -1, Reason: "no node answers"})
	torchrun := newRun(t, 1, rundir.AttemptEvent{Ranks: 2}, map[string]string{output.NodeBase(0): "x\n", output.NodeBase(1): "x\n"})
	fail(t, torchrun, &rendezvous.Failure{Rank: 1, Reason: "a worker with RANK=7 failed"})
	workers := newRun(t, 1, rundir.AttemptEvent{Ranks: 2}, map[string]string{output.RankBase(0): "x\n", output.RankBase(1): "x\n", output.RankBase(2): "x\n"})
	const spec = "name = \"t\"\n[slurm]\nnodes = 2\ntasks_per_node = 4\n[command]\nlauncher = \"torchrun\"\nargv = [\"train.py\"]\n"
	if err := os.WriteFile(workers.Dir.Spec(), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	first := 2 // rank that failed
	earlier, killed := newRun(t, 1, rundir.AttemptEvent{Ranks: 6}, ranks), newRun(t, 1, rundir.AttemptEvent{Ranks: 6}, ranks)
	record(t, earlier, rundir.AttemptEvent{Event: rundir.AttemptEnded, Rank: &first}, rundir.AttemptEvent{Event: rundir.AttemptBegan})
	record(t, killed, rundir.AttemptEvent{Event: rundir.AttemptBegan})
	for _, run := range []runs.Run{earlier, killed} {
		fail(t, run, &rendezvous.Failure{Rank: 4, Reason: "rank 4 did not join"})
	}
	parts := newRun(t, 1, rundir.AttemptEvent{Ranks: 2}, map[string]string{
		output.ComponentBase("server", 1, 0): "x\n", output.ComponentBase("server", 0, 1): "x\n", output.ComponentBase("server", 0, 0): "x\n", output.ComponentBase("proxy", 0, 0): "x\n"})

	rank := func(n int) func(*Attempt) ([]Output, error) {
		return func(a *Attempt) ([]Output, error) {
			o, err := a.Rank(n)
			return []Output{o}, err
		}
	}
	node := func(name string) func(*Attempt) ([]Output, error) {
		return func(a *Attempt) ([]Output, error) { return a.Node(name) }
	}
	component := func(name string) func(*Attempt) ([]Output, error) {
		return func(a *Attempt) ([]Output, error) { return a.Component(name) }
	}
	failed := func(a *Attempt) ([]Output, error) {
		o, err := a.Failed()
		return []Output{o}, err
	}
	for _, tt := range []struct {
		name   string
		run    runs.Run
		choose func(*Attempt) ([]Output, error)
		want   []string // bases of the selected outputs
		fails  string
	}{
		{name: "rank", run: equal, choose: rank(2), want: []string{"rank-00002"}},
		{name: "silent rank", run: equal, choose: rank(5), fails: "there is output of ranks 0-4"},
		{name: "node with equal ranks", run: equal, choose: node("n2"), want: []string{"rank-00003", "rank-00004"}},
		{name: "node with uneven ranks", run: uneven, choose: node("n2"), want: []string{"rank-00004"}},
		{name: "node with silent workers", run: workers, choose: node("n1"), want: []string{"rank-00000", "rank-00001", "rank-00002"}},
		{name: "other node", run: equal, choose: node("n3"), fails: "it ran on n[1-2]"},
		{name: "silent node", run: parts, choose: node("n1"), fails: "have printed nothing"},
		{name: "failed worker", run: equal, choose: failed, want: []string{"rank-00003"}},
		{name: "failed rank of an earlier attempt", run: earlier, choose: failed, want: []string{"rank-00002"}},
		{name: "earlier attempt without an end", run: killed, choose: failed, fails: "recorded for attempt 1"},
		{name: "no rank failed", run: uneven, choose: failed, fails: "no node answers"},
		{name: "no failure", run: parts, choose: failed, fails: `no failure of run "mine"`},
		{name: "rank of torchrun", run: torchrun, choose: rank(7), fails: "torchrun mixes the output"},
		{name: "failed worker of torchrun", run: torchrun, choose: failed, want: []string{"node-00001"}},
		{name: "all", run: torchrun, choose: func(a *Attempt) ([]Output, error) { return a.All(), nil }, want: []string{"node-00000", "node-00001"}},
		{name: "component", run: parts, choose: component("server"), want: []string{"component-server.00000.0", "component-server.00000.1", "component-server.00001.0"}},
		{name: "other component", run: parts, choose: component("db"), fails: "there is output of proxy, server"},
		{name: "no component", run: equal, choose: component("db"), fails: "no component has printed anything"},
		{name: "rank without output", run: parts, choose: rank(0), fails: "no rank has printed anything"},
	} {
		a, err := Read(tt.run, 0)
		if err != nil || a == nil {
			t.Fatal(a, err)
		}
		found, err := tt.choose(a)
		if tt.fails != "" {
			var coded interface{ ExitCode() int }
			if err == nil || !strings.Contains(err.Error(), tt.fails) || !errors.As(err, &coded) || coded.ExitCode() != exitcode.Usage {
				t.Errorf("%s: got %v, want the usage error %q", tt.name, err, tt.fails)
			}
			continue
		}
		var got []string
		for _, o := range found {
			got = append(got, o.base)
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, error %v, want %q", tt.name, got, err, tt.want)
		}
	}
}

// TestRead checks which attempt is read.
func TestRead(t *testing.T) {
	run := newRun(t, 3, rundir.AttemptEvent{Ranks: 1}, map[string]string{output.RankBase(0): "hello\n"})
	a, err := Read(run, 3)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if o, err := a.Rank(0); err != nil || o.Copy(&text) != nil || text.String() != "hello\n" || o.Label() != "[rank 0] " {
		t.Errorf("got %q with label %q, error %v", text.String(), o.Label(), err)
	}
	if _, err := Read(run, 1); err == nil || !strings.Contains(err.Error(), "has the output of attempt 3") {
		t.Errorf("removed attempt: got %v", err)
	}
	empty, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := Read(runs.Run{Dir: empty}, 1); a != nil || err != nil {
		t.Errorf("no output: got %v, error %v", a, err)
	}
}

// TestWithRestarts checks that the outputs of later restarts follow the last restart of each node.
func TestWithRestarts(t *testing.T) {
	found := []Output{{component: "server", number: 0, restart: 0}, {component: "server", number: 0, restart: 1}, {component: "server", number: 1, restart: 0}}
	all := WithRestarts(found)
	if len(all) != 3+2*followedRestarts {
		t.Fatalf("got %d outputs", len(all))
	}
	for _, want := range []string{output.ComponentBase("server", 0, 2), output.ComponentBase("server", 1, 1)} {
		if n := len(slices.DeleteFunc(slices.Clone(all), func(o Output) bool { return o.base != want })); n != 1 {
			t.Errorf("got %d outputs %s, want 1", n, want)
		}
	}
	if all := WithRestarts([]Output{{isRank: true}}); len(all) != 1 {
		t.Errorf("rank: got %d outputs, want 1", len(all))
	}
}

// TestNamesOfForeignFilesAreLimited checks that an error names only some of the components in the run
// of another user.
func TestNamesOfForeignFilesAreLimited(t *testing.T) {
	var a Attempt
	for i := range 3 * maxComponentNames {
		a.parts = append(a.parts, Output{component: fmt.Sprintf("component-%03d", i)})
	}
	_, err := a.Component("missing")
	if n := strings.Count(fmt.Sprint(err), "component-"); n != maxComponentNames {
		t.Errorf("got %d names: %v", n, err)
	}
}

// TestSymptoms checks that known failures are found in the output of the rank that failed.
func TestSymptoms(t *testing.T) {
	run := newRun(t, 1, rundir.AttemptEvent{Ranks: 2}, map[string]string{
		output.RankBase(0): "RuntimeError: CUDA error: device-side assert triggered\n", output.RankBase(1): "start\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"})
	if found := Symptoms(run); found != nil {
		t.Errorf("without a failure: got %+v", found)
	}
	fail(t, run, &rendezvous.Failure{Rank: 1, Reason: "ended with exit code 1"})
	found := Symptoms(run)
	if len(found) != 1 || found[0].Name != "gpu out of memory" || found[0].Where() != "line 2 of the output of rank 1" {
		t.Errorf("got %+v", found)
	}
	record(t, run, rundir.AttemptEvent{Event: rundir.AttemptBegan})
	if found := Symptoms(run); found != nil {
		t.Errorf("last attempt without output: got %+v of the attempt before it", found)
	}
}
