package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// swept returns a sweep of n trials. Trial 0 is done. Trial 1 is better and has failed. Trial
// 2 was never submitted. Trial 3 has no metrics. All further trials are like trial 0.
func swept(t *testing.T, n int) Sweep {
	t.Helper()
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	check(t, err)
	record := rundir.Record{Run: "00ff", Name: "tune", Base: "/home/ada", Created: noon, Sweep: &rundir.SweepRecord{}}
	for i := range n {
		record.Sweep.Elements = append(record.Sweep.Elements, rundir.ElementRecord{Values: map[string]string{"train.optimizer.lr": fmt.Sprintf("0.%d", i), "train.batch": hostile}})
		if i == 2 {
			continue
		}
		check(t, os.MkdirAll(filepath.Dir(dir.Element(i).Path), 0o700))
		e, err := rundir.Create(dir.Element(i).Path)
		check(t, err)
		id := fmt.Sprintf("18_%d", i)
		check(t, e.WriteRecord(rundir.Record{Run: "00ff", Name: fmt.Sprintf("tune-%d", i), Base: "/home/ada", Submissions: []rundir.Submission{{JobID: id, Time: noon}}}))
		if i == 3 {
			continue
		}
		accuracy := 0.5
		if i == 1 {
			accuracy = 0.9
			check(t, os.WriteFile(e.BatchLog(id), []byte("OSError: [Errno 28] No space left on device "+hostile+"\n"), 0o600))
			check(t, os.WriteFile(e.Failure(), []byte(`{"exit": 1, "first": {"rank": 0, "reason": "rank 0 could not save", "hint": "make room"},
				"finding": {"name": "not finite", "cause": "training diverged", "hint": "use a smaller lr"}}`), 0o600))
		}
		check(t, os.WriteFile(e.Metrics(), fmt.Appendf(nil, `{"kind":"train","step":10,"loss":2.5}
{"kind":"train","step":20,"loss":1.25}
{"kind":"eval","step":10,"loss":0.4,"accuracy":%g}
{"kind":"eval","step":20,"loss":0.5,"accuracy":0.25}
`, accuracy), 0o600))
	}
	s := CollectSweep(dir, record)
	s.Version = "v1.2.3"
	s.SetStatus(map[string]slurm.JobState{"18_0": {ID: "18_0", State: slurm.StateCompleted}, "18_1": {ID: "18_1", State: slurm.StateFailed, ExitCode: "1:0"},
		"18_3": {ID: "18_3", State: slurm.StatePending, Reason: "Priority"}}, noon)
	return s
}

func sweepHTML(t *testing.T, s Sweep) string {
	t.Helper()
	var out bytes.Buffer
	check(t, s.HTML(&out))
	return out.String()
}

// TestSweep checks that the report of a sweep contains the values, the status, and the best
// metric of each trial, and that all content of files is text.
func TestSweep(t *testing.T) {
	page := sweepHTML(t, swept(t, 4))
	wellFormed(t, page)
	if m := reaching.FindString(strings.ReplaceAll(regexp.MustCompile(`&lt;[^<]*`).ReplaceAllString(page, ""), ` href="#trial-`, "")); m != "" {
		t.Errorf("the page has %q", m)
	}
	for _, want := range []string{
		"<title>tune: 1 done, 1 failed, 1 not submitted, 1 queued</title>", "A sweep of 4 trials", "Trial 1 has the best accuracy, 0.9.",
		`<th scope="col">train.batch</th><th scope="col">train.optimizer.lr</th><th scope="col">state</th><th scope="col">last loss</th><th scope="col">best accuracy</th>`,
		`<td>0.0</td><td class="fixed good">done</td><td>1.25</td><td>0.5</td>`,
		`<tr class="best"><th scope="row"><a href="#trial-1">1</a></th>`, `<td>0.9 (the best)</td>`,
		`<td>0.2</td><td class="fixed wait">not submitted</td><td></td><td></td>`, `<td class="fixed wait">queued</td>`,
		"Rank 0 could not save.", "Fix: make room", "Diagnosis: not finite.", "disk full (the file system), line 1", `id="trial-0-loss-title"`, "Other jobs come first.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page[strings.Index(page, "<body>"):])
		}
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("two things have the id %q", m[1])
		}
		ids[m[1]] = true
	}
}

// TestLargeSweep checks that the table of a large sweep lists all trials, and that only some
// have their own section.
func TestLargeSweep(t *testing.T) {
	page := sweepHTML(t, swept(t, maxTable+2))
	if n := strings.Count(page, `<section class="trial"`); n != maxTable || !strings.Contains(page, "<p>2 more trials are not shown.") || !strings.Contains(page, `<th scope="row">65</th>`) {
		t.Errorf("%d parts:\n%s", n, page[strings.Index(page, "<body>"):])
	}
}

// TestSweepWithManyKeys checks that a report has a limited number of keys with a limited length:
// another user may own the record.
func TestSweepWithManyKeys(t *testing.T) {
	s := swept(t, maxTable)
	values := map[string]string{strings.Repeat("a", 1<<20): "1"}
	for i := range 1000 {
		values[fmt.Sprintf("train.k%04d", i)] = "1"
	}
	s.trials[0].values = values
	page := sweepHTML(t, s)
	wellFormed(t, page)
	if len(page) > 2<<20 || strings.Contains(page, "train.k0999") || !strings.Contains(page, "more keys are not shown.") {
		t.Errorf("the report has %d bytes, and may have all keys", len(page))
	}
}

// TestSweepDropsMeasurements checks that the data of a report does not hold the measurements and the
// components of all trials, which may belong to another user.
func TestSweepDropsMeasurements(t *testing.T) {
	s := swept(t, 1)
	trial := s.Dir.Element(0)
	check(t, trial.WriteUsage(1, 0, []byte(`{"node":0,"host":"n1","ranks":[{"rank":0}]}`)))
	check(t, trial.WriteComponents(1, 0, []rundir.ComponentState{{Name: "server"}}))
	run := Collect(trial)
	if len(run.Usage) != 1 || len(run.Status.Components) != 1 {
		t.Fatalf("a run has %+v and %+v", run.Usage, run.Status.Components)
	}
	run = CollectSweep(s.Dir, s.Record).trials[0].run
	if run.Usage != nil || run.Status.Usage != nil || run.Status.Components != nil {
		t.Errorf("a trial has %+v, %+v, and %+v", run.Usage, run.Status.Usage, run.Status.Components)
	}
}

// TestMerits checks which metric ranks the trials, depending on the metrics that they have.
func TestMerits(t *testing.T) {
	nan := "NaN"
	for name, tt := range map[string]struct {
		figures []string // for each trial
		want    string
	}{
		"nothing":         {[]string{"", ""}, "-1"},
		"losses only":     {[]string{`{"kind":"train","step":1,"loss":2}`, `{"kind":"train","step":1,"loss":1}`}, "1 lowest training loss"},
		"held-out losses": {[]string{`{"kind":"eval","step":1,"loss":2}`, `{"kind":"eval","step":1,"loss":"` + nan + `"}`}, "0 lowest held-out loss"},
		"some accuracies": {[]string{`{"kind":"eval","step":1,"loss":2}`, `{"kind":"eval","step":1,"accuracy":0.1}`}, "1 best accuracy"},
	} {
		s := Sweep{}
		for _, text := range tt.figures {
			f, err := parseMetrics(strings.NewReader(text + "\n"))
			check(t, err)
			s.trials = append(s.trials, trial{best: bestOf(&f)})
		}
		got := "-1"
		if by, winner := s.findBest(); winner >= 0 {
			got = fmt.Sprintf("%d %s", winner, trialMetrics[by].name)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
