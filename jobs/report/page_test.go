package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// hostile is a text that must not be interpreted as HTML.
const hostile = `</pre><script src="https://example.org/x.js">alert('1')</script><img src=x onerror=alert(1)>`

// ran creates the directory of a run with two nodes and two ranks on each. The run lost a
// rank, was restarted, and resumed. Its texts are hostile.
func ran(t *testing.T) rundir.Dir {
	t.Helper()
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	check(t, err)
	put := func(path, text string) { check(t, os.WriteFile(path, []byte(text), 0o600)) }
	put(dir.Spec(), "name = \"x\" # "+hostile+"\n")
	put(dir.Script(), "#!/bin/sh\n# "+hostile+"\n")
	check(t, dir.WriteRecord(rundir.Record{Run: "00ff", Name: "run " + hostile, Base: "/home/ada", Created: noon, Version: "v1.2.3",
		Submissions: []rundir.Submission{{ID: "aaaaaaaaaaaaaaaa", JobID: "18", Time: noon, Host: "login1", User: "ada", SpecSHA256: "12", ScriptSHA256: "34", Version: "v1.2.3", Slurm: "22.05.8",
			Code: &rundir.Code{Folder: "/home/ada/code", Commit: "0123456789abcdef0123", Branch: hostile, Dirty: true}}}}))
	rank := 2
	for _, e := range []rundir.AttemptEvent{
		{Event: rundir.AttemptBegan, Time: noon, JobID: "18", Attempt: 1, Hosts: "n[1-2]", Ranks: 4},
		{Event: rundir.AttemptEnded, Time: noon.Add(time.Minute), JobID: "18", Attempt: 1, Exit: 4, Step: 50, Cause: "rank 2 on n2 was lost " + hostile, Rank: &rank, Host: "n2", Again: true},
		{Event: rundir.AttemptBegan, Time: noon.Add(2 * time.Minute), JobID: "18", Attempt: 2, Hosts: "n[1-2]", Ranks: 4},
	} {
		check(t, dir.AppendAttempt(e))
	}
	check(t, dir.WriteNetwork(rundir.Network{Time: noon, Choice: netif.Choice{Interface: "hsn0", MTU: 9000, Addr: netip.MustParseAddr("10.20.0.1"),
		Prefix: netip.MustParsePrefix("10.20.0.0/24"), Why: "10.20.0.0/24 reaches all 2 hosts; preferred for mtu 9000",
		Rejected: []netif.Rejection{{Interface: "eth0", Reason: "slower " + hostile}}, Warnings: []string{"odd " + hostile}},
		Hosts: []rundir.NetworkHost{{Host: "n1", Interface: "hsn0", Address: "10.20.0.1"}, {Host: "n2", Interface: "hsn1", Address: "10.20.0.2"}}}))
	failure, err := json.Marshal(outcome.Failure{Time: noon, Attempt: 1, Exit: 4, First: &rendezvous.Failure{Rank: 2, Host: "n2", Reason: "rank 2 on n2 was lost " + hostile, Advice: "look at n2"},
		Ranks: []rendezvous.RankStatus{{Rank: 2, Host: "n2", State: rendezvous.Lost, Exit: 137, Signal: "SIGKILL", Step: 50, Phase: "training", Error: hostile}}})
	check(t, err)
	put(dir.Failure(), string(failure))
	put(dir.BatchLog("18"), "epoch 1\nsrun: error: n2: task 2: Exited with exit code 1\ntorch.cuda.OutOfMemoryError: CUDA out of memory. "+hostile+"\n")
	var lines strings.Builder
	for i := 1; i <= 10; i++ {
		fmt.Fprintf(&lines, `{"kind":"train","step":%d,"epoch":0,"loss":%g,"samples_per_s":%d,"comm_ms":4,"comm_hidden":0.75,"slowest_rank":2,"slowest_ratio":2,"compute_ms":[10,11,25,12],"time":%q}`+"\n",
			10*i, 2.5/float64(i), 1000+10*i, noon.Add(time.Duration(20*i)*time.Second).Format(time.RFC3339))
	}
	fmt.Fprintln(&lines, `{"kind":"eval","step":100,"epoch":1,"loss":0.5,"accuracy":0.9}`)
	fmt.Fprintln(&lines, `{"kind":"train","step":110,"loss":"NaN"}`)
	fmt.Fprintln(&lines, `{"kind":"train","step":`+hostile)
	put(dir.Metrics(), lines.String())
	return dir
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// html returns the report of a run with a fixed time, version, and path.
func html(t *testing.T, r Run) string {
	t.Helper()
	dir := r.Dir.Path
	r.Made, r.Version = noon, "v1.2.3"
	var out bytes.Buffer
	check(t, r.HTML(&out))
	return strings.ReplaceAll(out.String(), dir, "/runs/run")
}

// TestPage compares the report with a golden file, except for the style.
func TestPage(t *testing.T) {
	r := Collect(ran(t))
	r.SetStatus(nil, noon)
	got := html(t, r)
	if i, j := strings.Index(got, "<style>"), strings.Index(got, "</style>"); i > 0 && j > i {
		got = got[:i+len("<style>")] + got[j:]
	}
	const golden = "testdata/page.html"
	if *update {
		check(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	check(t, err)
	if got != string(want) {
		t.Errorf("the page is not %s: run go test -update, and read the difference\n%s", golden, got)
	}
}

// TestNoFailuresOfADoneRun checks that known texts in the log of a successful run are not
// reported as failures.
func TestNoFailuresOfADoneRun(t *testing.T) {
	dir := ran(t)
	check(t, os.Remove(dir.Attempts()))
	r := Collect(dir)
	r.SetStatus(&slurm.JobState{ID: "18", State: slurm.StateCompleted}, noon)
	if page := html(t, r); len(r.Known) != 2 || strings.Contains(page, "Known failures") {
		t.Errorf("%d are found, and told:\n%s", len(r.Known), page)
	}
}

// reaching matches HTML and CSS that would load or run something.
var reaching = regexp.MustCompile(`(?i)<(script|img|iframe|link|object|embed|base|form|meta http-equiv="refresh")|\s(src|href|srcset|on[a-z]+|action)=|url\(|@import`)

// wellFormed checks that all elements are closed in order.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, page)
		}
	}
}

// TestEveryRunHasAPage checks that all content of the run's files is shown as text, and that
// the report lists missing files.
func TestEveryRunHasAPage(t *testing.T) {
	broken := func(names ...string) func(*testing.T, rundir.Dir) {
		return func(t *testing.T, d rundir.Dir) {
			for _, name := range names {
				check(t, os.WriteFile(filepath.Join(d.Path, name), []byte("\x00{\"<script>\xff"), 0o600))
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*testing.T, rundir.Dir)
		job    *slurm.JobState
		want   []string
	}{
		"as it is": {nil, nil, []string{"unknown", "Stragglers: rank 2 on n2 computes 2.3x", "Non-finite values that are not shown: 1.", "1 line of metrics.jsonl cannot be parsed", "0123456789ab, changed", "75% of it overlaps the backward pass"}},
		"stopped": {func(t *testing.T, d rundir.Dir) {
			check(t, os.Remove(d.Failure()))
			check(t, d.WriteEnd(rundir.End{JobID: "18", Exit: 3}))
		}, nil, []string{">stopped<", "Exit code 3."}},
		"a program that failed with 3": {func(t *testing.T, d rundir.Dir) { check(t, d.WriteEnd(rundir.End{JobID: "18", Exit: 3})) }, nil, []string{">failed<", "Exit code 3."}},
		"lost":                         {func(t *testing.T, d rundir.Dir) { check(t, d.WriteEnd(rundir.End{JobID: "18", Exit: 4})) }, nil, []string{"failed", "Rank 2 on n2 was lost", "Exit code 4.", "SIGKILL"}},
		"queued":                       {nil, &slurm.JobState{ID: "18", State: slurm.StatePending, Reason: "Priority"}, []string{"queued", "<td>18</td>"}},
		"launched after the job": {func(t *testing.T, d rundir.Dir) {
			check(t, d.WriteLive(rundir.Live{Time: noon.Add(time.Minute), Phase: rundir.PhaseRunning, Ranks: 4, Joined: 4}))
		}, &slurm.JobState{ID: "18", State: slurm.StateFailed, ExitCode: "1:0"}, []string{">running<"}},
		"damaged": {broken("record.json", "job.toml", "metrics.jsonl", "attempts.jsonl", "network.json", "failure.json", "ended.json"), nil,
			[]string{"run record: ", "network: ", "last failure: failure.json is damaged", "no metrics: ", "no attempts: "}},
		"known failures": {nil, nil, []string{"Known failures in the log", "gpu out of memory (CUDA), line 3</h3>", "OutOfMemoryError: CUDA out of memory. &lt;/pre&gt;&lt;script", "Fix: use a smaller batch", "srun ended the step (srun), line 2; a consequence of another failure"}},
		"consequences": {func(t *testing.T, d rundir.Dir) {
			check(t, os.WriteFile(d.BatchLog("18"), []byte("epoch 1\nsrun: error: n2: task 2: Exited with exit code 1\n"), 0o600))
		}, nil, []string{"None of these is a root cause: check the logs of the other ranks, and the lines before line 2."}},
		"empty": {func(t *testing.T, d rundir.Dir) {
			check(t, os.RemoveAll(d.Path))
			check(t, os.Mkdir(d.Path, 0o700))
		}, nil, []string{"run record: file does not exist", "job file: file does not exist", "not submitted", "no network: "}},
		"checkpoints": {func(t *testing.T, d rundir.Dir) {
			check(t, os.MkdirAll(filepath.Join(d.Checkpoints(), "step-00000050"), 0o700))
			check(t, os.WriteFile(filepath.Join(d.Checkpoints(), "step-00000050", "manifest.json"), []byte("{"), 0o600))
		}, nil, []string{"unusable: "}},
		"more checkpoints than rows": {func(t *testing.T, d rundir.Dir) {
			for step := range maxTable + 2 {
				check(t, os.MkdirAll(filepath.Join(d.Checkpoints(), fmt.Sprintf("step-%08d", step+1)), 0o700))
			}
		}, nil, []string{"2 older checkpoints"}},
		"unequal hosts": {func(t *testing.T, d rundir.Dir) {
			check(t, d.AppendAttempt(rundir.AttemptEvent{Event: rundir.AttemptBegan, Time: noon.Add(3 * time.Minute), JobID: "18", Attempt: 3, Hosts: "n[1-2]", Ranks: 4, TasksPerNode: "3,1"}))
		}, nil, []string{"rank 2 on n1 computes"}},
		"hosts of different ranks": {func(t *testing.T, d rundir.Dir) {
			check(t, d.AppendAttempt(rundir.AttemptEvent{Event: rundir.AttemptBegan, Time: noon.Add(3 * time.Minute), JobID: "18", Attempt: 3, Hosts: "n[1-2]", Ranks: 5, TasksPerNode: "3,2"}))
		}, nil, []string{"rank 2 computes"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := ran(t)
			if tt.change != nil {
				tt.change(t, dir)
			}
			r := Collect(dir)
			r.SetStatus(tt.job, noon)
			page := html(t, r)
			wellFormed(t, page)
			if m := reaching.FindString(regexp.MustCompile(`&lt;[^<]*`).ReplaceAllString(page, "")); m != "" {
				t.Errorf("the page has %q", m)
			}
			for _, want := range tt.want {
				if !strings.Contains(page, want) {
					t.Errorf("the page lacks %q:\n%s", want, page[strings.Index(page, "<body>"):])
				}
			}
		})
	}
}

// TestExitCodeOfTheState checks that the exit code is that of the run: not of a job that was submitted
// after training was complete, and then canceled.
func TestExitCodeOfTheState(t *testing.T) {
	for _, tt := range []struct {
		phase watch.Phase
		exit  int
		want  bool
	}{{watch.Done, 0, true}, {watch.Done, 130, false}, {watch.Failed, 4, true}, {watch.Canceled, 130, true}, {watch.Training, 0, false}} {
		r := &Run{End: &rundir.End{Exit: tt.exit}}
		r.Status.Phase = tt.phase
		if got := strings.Contains(r.describeState().Text, "Exit code"); got != tt.want {
			t.Errorf("%s with exit code %d: told %v, want %v: %q", tt.phase, tt.exit, got, tt.want, r.describeState().Text)
		}
	}
}
