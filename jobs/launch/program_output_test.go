package launch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch/hang"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/trainlog"
)

// TestOutputAttemptWithoutALauncher checks that each start has an attempt of its own, and that old
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

// TestWatchAfterTheOutputLimit checks which limits still apply after the file of rank 0 has reached
// its limit, and that there is one warning.
func TestWatchAfterTheOutputLimit(t *testing.T) {
	for _, tt := range []struct {
		name     string
		progress bool // the steps are read from the output
		pauses   bool
		want     hang.Limits
		warning  string
	}{
		{"progress", true, false, hang.Limits{Silence: time.Minute}, "command.watch.progress has no effect"},
		{"pauses", false, true, hang.Limits{}, "command.watch has no effect"},
		{"neither", false, false, hang.Limits{Silence: time.Minute, Progress: time.Minute}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var said []string
			a := &attempt{o: Options{Say: func(line string) { said = append(said, line) }}}
			w := &programWatch{a: a, limits: hang.Limits{Silence: time.Minute, Progress: time.Minute}}
			if tt.pauses {
				w.lines = trainlog.Follow(opener(rundir.Dir{Path: "/nonexistent"}, "/nonexistent/log"), 0)
			}
			for range 2 {
				w.endOutput(tt.progress)
			}
			if w.limits != tt.want {
				t.Errorf("got %+v, want %+v", w.limits, tt.want)
			}
			if tt.warning == "" && len(said) > 0 || tt.warning != "" && (len(said) != 1 || !strings.Contains(said[0], tt.warning)) {
				t.Errorf("said %q, want %q", said, tt.warning)
			}
		})
	}
	dir := newRun(t)
	r := &progressRecorder{dir: dir}
	if r.isOutputCut() {
		t.Error("without a limit, the output is cut")
	}
	r.followOutput(&attempt{output: 1, o: Options{Dir: dir, Job: &jobs.Job{Command: &jobs.Command{Output: jobs.OutputPerRank}}}})
	if r.isOutputCut() || r.output == nil {
		t.Error("the output is cut before its limit, or not read")
	}
	err := os.MkdirAll(filepath.Dir(r.next), 0o700)
	if err == nil {
		err = os.WriteFile(r.next, nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !r.isOutputCut() {
		t.Error("the output is not cut after its limit")
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
	w.observe(1)
	if stalls := w.d.Check(now.Add(30 * time.Second)); len(stalls) > 0 {
		t.Errorf("got %v during a pause", stalls)
	}
}
