package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch/hang"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/trainlog"
)

// TestOutputAttemptWithoutALauncher checks that each start has a separate attempt, and that old
// attempts are removed.
func TestOutputAttemptWithoutALauncher(t *testing.T) {
	for _, tt := range []struct {
		name     string
		launcher jobs.Launcher
		rank     int
		base     string
	}{
		{"rank", jobs.LauncherRank, 1, output.RankBase(1)},
		{"node", jobs.LauncherTorchrun, 1, output.NodeBase(1)},
		{"worker", jobs.LauncherTorchrun, 1, output.RankBase(5)},
		{"first node", jobs.LauncherTorchrun, 0, output.NodeBase(0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newRun(t)
			job := &jobs.Job{Command: &jobs.Command{Launcher: tt.launcher}}
			job.Slurm.TasksPerNode = 4
			r := &Rank{Info: RankInfo{Rank: tt.rank, WorldSize: 2, Nodes: 2}, dir: dir, job: job}
			for want := 1; want <= maxOutputAttempts+2; want++ {
				got := r.outputAttempt(&ProgramOptions{Say: func(line string) { t.Error(line) }})
				if got != want {
					t.Fatalf("got attempt %d, want %d", got, want)
				}
				out, err := dir.CreateRankOutput(got)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{tt.base, output.RankBase(9)} { // 9 belongs to another rank and node
					f, err := out.Create(output.Parts(name)[0])
					if err != nil {
						t.Fatal(err)
					}
					f.Close()
				}
				out.Close()
			}
			kept, err := dir.OutputAttempts()
			if err != nil || tt.rank == 0 && len(kept) != maxOutputAttempts || tt.rank != 0 && len(kept) != maxOutputAttempts+2 {
				t.Errorf("got the attempts %v, %v", kept, err)
			}
		})
	}
}

// TestProgressBeyondTheOutputLimit checks that steps and pauses are read from the output of rank 0
// when its first file is full.
func TestProgressBeyondTheOutputLimit(t *testing.T) {
	was := maxParseTime
	maxParseTime = time.Hour // a busy machine parses few lines in 200 ms
	defer func() { maxParseTime = was }()
	dir := newRun(t)
	a := &attempt{output: 1, o: Options{Dir: dir, Say: func(line string) { t.Error(line) }, Job: &jobs.Job{Command: &jobs.Command{Output: jobs.OutputPerRank}}}}
	r, err := newProgressRecorder(a.o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	r.followOutput(a)
	out, err := dir.CreateRankOutput(1)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	capture, err := output.StartCapture(output.Options{Mode: output.PerRank, Limit: 64 << 10, Dir: out, Warn: func(m string) { t.Error(m) }})
	if err != nil {
		t.Fatal(err)
	}
	for step := range 3000 {
		fmt.Fprintf(capture.Stdout, "step %d: loss 0.5 %s\n", step, strings.Repeat("x", 50))
	}
	capture.Close(t.Context())
	r.read()
	if r.newest != 2999 {
		t.Errorf("got step %d, want 2999", r.newest)
	}
	pauses := a.followRank(0)
	last := ""
	if err := pauses.Read(func(line string) { last = line }); err != nil || !strings.HasPrefix(last, "step 2999:") {
		t.Errorf("got %q, %v", last, err)
	}
}

// TestCountsFromZero checks how the epochs of a program count in a later attempt: as the first attempt
// printed them or, without its output, as recorded.
func TestCountsFromZero(t *testing.T) {
	for _, tt := range []struct {
		name    string
		output  string // of the first attempt; empty if it is not retained
		metrics string
		want    bool
	}{
		{name: "first attempt"},
		{name: "from 1", output: "start\nTrain Epoch: 1 [0/60000 (0%)]\tLoss: 2.3\n", metrics: `{"kind":"train","step":0}`},
		{name: "from 0", output: "start\rTrain Epoch: 0 [0/60000 (0%)]\tLoss: 2.3\n", metrics: `{"kind":"train","step":0}`, want: true},
		{name: "no epoch in the output", output: "step 0: loss 2.3\n", metrics: `{"kind":"train","step":0}{"kind":"train","step":5}`},
		{name: "only epochs", metrics: `{"kind":"train","step":0}{"kind":"eval","step":0,"epoch":1}{"kind":"train","step":1,"epoch":1}`, want: true},
		{name: "steps", metrics: `{"kind":"train","step":0}{"kind":"train","step":640}{"kind":"train","step":60000,"epoch":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newRun(t)
			if tt.output != "" {
				out, err := dir.CreateRankOutput(1)
				if err != nil {
					t.Fatal(err)
				}
				out.Close()
				if err := os.WriteFile(filepath.Join(dir.RankOutput(1), "rank-00000.out"), []byte(tt.output), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.metrics != "" {
				if err := os.WriteFile(dir.Metrics(), []byte(tt.metrics), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := countsFromZero(dir, nil); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestStepsContinueAfterARestart checks the steps of a program that prints the epoch and resumes in the
// third of 90 steps each.
func TestStepsContinueAfterARestart(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       int
	}{
		{name: "steps of an epoch", line: "epoch 3 step 20 loss 0.5", want: 200},
		{name: "all steps", line: "epoch 3 step 190 loss 0.5", want: 190},
		{name: "from scratch", line: "epoch 1 step 20 loss 0.5", want: 20},
		{name: "no epoch", line: "step 20 loss 0.5", want: 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newRun(t)
			const recorded = `{"kind":"train","step":90}
{"kind":"eval","step":90,"epoch":1}
{"kind":"train","step":180,"epoch":1}
{"kind":"train","step":230,"epoch":2}
`
			if err := os.WriteFile(dir.Metrics(), []byte(recorded), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := newProgressRecorder(Options{Dir: dir, Say: func(line string) { t.Error(line) }, Job: &jobs.Job{Command: &jobs.Command{}}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			if got := r.parser.Line(tt.line); len(got) != 1 || got[0].Step != tt.want {
				t.Errorf("got %+v, want step %d", got, tt.want)
			}
		})
	}
}

// TestSkippedOutputIsNoHang checks that a step or a pause that may be in skipped output does not count
// as a hang.
func TestSkippedOutputIsNoHang(t *testing.T) {
	line := strings.Repeat("x", 10_000) + "\n"
	var slow []jobs.Text // 80 lines take longer than maxParseTime
	for i := range 100 {
		slow = append(slow, jobs.Text(fmt.Sprintf("(x*x*)*y{%d}(?P<step>\\d+)", i+1)))
	}
	for _, tt := range []struct {
		name, before, after string
		progress, pauses    []jobs.Text
	}{
		{"a step in more than 1 MiB", "step 5: loss 0.5\n", strings.Repeat(line, 200), nil, nil},
		{"a step after lines that take long", strings.Repeat(line, 80), "step 5: loss 0.5\n", append(slices.Clip(slow), `step (?P<step>\d+): loss (?P<loss>\S+)`), nil},
		{"a pause after lines that take long", strings.Repeat(line, 80), "saving\n", nil, append(slices.Clip(slow), "^saving")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newRun(t)
			limits := hang.Limits{Progress: time.Second, Pause: time.Hour}
			a := &attempt{o: Options{Dir: dir, Say: func(line string) { t.Error(line) }, Job: &jobs.Job{Command: &jobs.Command{}}}}
			a.o.Job.Command.Progress.Patterns = tt.progress
			r, err := newProgressRecorder(a.o)
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			path := filepath.Join(dir.Path, "log")
			lines := trainlog.Follow(opener(dir, path), 0)
			now := time.Now()
			w := &programWatch{a: a, now: time.Now, limits: limits, d: hang.New(limits, time.Minute, now)}
			if tt.pauses == nil {
				r.output = lines
			} else {
				w.lines = lines
			}
			for _, p := range tt.pauses {
				w.pauses = append(w.pauses, regexp.MustCompile(string(p)))
			}
			if err := os.WriteFile(path, []byte(tt.before+tt.after), 0o600); err != nil {
				t.Fatal(err)
			}
			r.read()
			if r.newest != -1 {
				t.Fatalf("read step %d, which must be skipped", r.newest)
			}
			w.observe(r.newest, r.skipped)
			if stalls := w.d.Check(now.Add(30 * time.Second)); len(stalls) > 0 {
				t.Errorf("got %v", stalls)
			}
		})
	}
}

// TestPausesInLabeledOutput checks that pause patterns see lines without their label.
func TestPausesInLabeledOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("[rank 3] saving\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	limits := hang.Limits{Progress: time.Second, Pause: time.Hour}
	w := &programWatch{now: time.Now, limits: limits, labeled: true, lines: trainlog.Follow(opener(rundir.Dir{Path: filepath.Dir(path)}, path), 0), pauses: []*regexp.Regexp{regexp.MustCompile("^saving")},
		d: hang.New(limits, time.Minute, now)}
	w.observe(1, false)
	if stalls := w.d.Check(now.Add(30 * time.Second)); len(stalls) > 0 {
		t.Errorf("got %v during a pause", stalls)
	}
}
