package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// TestReadCostCountsAllFiles checks that the cost of a run includes the job file and the names in the
// directory of checkpoints.
func TestReadCostCountsAllFiles(t *testing.T) {
	dir := rundir.Dir{Path: t.TempDir()}
	before := readCost(dir)
	write(t, dir.Spec(), strings.Repeat("#", 1000))
	spec := readCost(dir)
	if spec < before+specCost*1000 {
		t.Errorf("the cost is %d with a job file and %d without", spec, before)
	}
	for i := range 100 {
		write(t, filepath.Join(dir.Checkpoints(), fmt.Sprintf("step-%08d", i)), "")
	}
	names := readCost(dir)
	if names < spec+100*nameCost {
		t.Errorf("the cost is %d with 100 checkpoints and %d without", names, spec)
	}
	stored := statusCost(dir)
	write(t, dir.Metrics(), strings.Repeat("x", 2*maxLastMetrics))
	if cost := readCost(dir); cost < names+6*maxLastMetrics || statusCost(dir) < stored+4*maxLastMetrics {
		t.Errorf("the cost is %d with metrics, of which %d is for the status, and %d without", cost, statusCost(dir), names)
	}
}

// TestExhaustedBudget checks that no further costs are computed after many runs that are too large.
func TestExhaustedBudget(t *testing.T) {
	b := newReadBudget(1600)
	calls := 0
	cost := func(n int64) func() int64 { return func() int64 { calls++; return n } }
	if !b.take(7, cost(100)) || b.take(7, cost(1501)) || !b.take(7, cost(100)) {
		t.Errorf("got %+v", b)
	}
	for range 100 {
		b.take(7, cost(1501))
	}
	if calls > 20 || b.skipped[7] != 101 {
		t.Errorf("computed %d costs, skipped %d runs", calls, b.skipped[7])
	}
	if !b.take(8, cost(1)) {
		t.Error("the budget of a different user is used")
	}
}

// TestErrorsAboutOthersAreLimited checks that the runs of another user cause few and short errors, and that
// each of this user's runs causes one. The errors of a list would otherwise hide the runs.
func TestErrorsAboutOthersAreLimited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	s := &Store{Dir: t.TempDir()}
	const runs = 3 * maxForeignErrors
	var foreign []Run
	for i := range runs {
		for _, user := range []int{0, 61001} {
			name := fmt.Sprintf("%d-%d", user, i)
			write(t, filepath.Join(s.Runs(), name, "record.json"), `{"format":1,"run":"a","name":"a","base":"/","submissions":[{"job_id":"`+strings.Repeat("x", 1<<20)+`"}]}`)
			sweep := create(t, filepath.Join(s.Dir, "sweeps", name), rundir.Record{Name: "s", Sweep: &rundir.SweepRecord{Elements: make([]rundir.ElementRecord, 1)}})
			write(t, sweep.Element(0).Record(), "{")
			if err := errors.Join(os.Chown(filepath.Join(s.Runs(), name), user, -1), os.Chown(sweep.Path, user, -1)); err != nil {
				t.Fatal(err)
			}
			run, err := Open(sweep.Path)
			if err != nil {
				t.Fatal(err)
			}
			foreign = append(foreign, run)
		}
	}
	_, errs, err := s.List(s.Runs())
	if err != nil {
		t.Fatal(err)
	}
	_, pollErr := s.NewPoller().Poll(t.Context(), foreign)
	for what, text := range map[string]string{"list": errors.Join(errs...).Error(), "poll": pollErr.Error()} {
		more := fmt.Sprintf("%d more runs of user 61001", runs-maxForeignErrors)
		if lines := strings.Count(text, "\n") + 1; lines != runs+maxForeignErrors+1 || !strings.Contains(text, more) || len(text) > lines*2*maxErrorText {
			t.Errorf("%s: got %d lines with %d bytes, want %d with %q", what, lines, len(text), runs+maxForeignErrors+1, more)
		}
	}
	named := s.NewPoller()
	named.Unlimited = true
	if _, err := named.Poll(t.Context(), foreign); strings.Count(err.Error(), "\n")+1 != len(foreign) {
		t.Errorf("runs that the user named: got %d errors, want %d", strings.Count(err.Error(), "\n")+1, len(foreign))
	}
	if hints.Of(errs[0]) == "" {
		t.Error("the hint is lost")
	}
}

// TestLinksOfAnotherUserAreNotFollowed checks that another user cannot show a private run of this user as a
// trial of a foreign sweep, or private checkpoints as the checkpoints of a foreign run.
func TestLinksOfAnotherUserAreNotFollowed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	private := create(t, filepath.Join(t.TempDir(), "private"), rundir.Record{Name: "private"})
	if _, err := checkpoint.Save(private.Checkpoints(), &checkpoint.Manifest{Run: "private", Step: 1}, checkpoint.Files{checkpoint.ModelFile: nil}); err != nil {
		t.Fatal(err)
	}
	sweep := newSweep(t, &Store{Dir: t.TempDir()}, 2, 0)
	trial := sweep.Dir.Element(0).Path
	if err := errors.Join(os.RemoveAll(trial), os.Symlink(private.Path, trial), os.Symlink(private.Checkpoints(), sweep.Dir.Checkpoints())); err != nil {
		t.Fatal(err)
	}
	if _, err := sweep.Trials(); err != nil {
		t.Errorf("the user's own link: %v", err)
	}
	if found, err := checkpoint.List(sweep.Dir.Checkpoints()); err != nil || len(found) != 1 {
		t.Errorf("the user's own link: got %v, %v", found, err)
	}
	if err := filepath.WalkDir(sweep.Dir.Path, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, 61001, -1))
	}); err != nil {
		t.Fatal(err)
	}
	_, openErr := Open(trial)
	_, trialsErr := sweep.Trials()
	_, listErr := checkpoint.List(sweep.Dir.Checkpoints())
	_, pollErr := (&Store{Dir: t.TempDir()}).NewPoller().Poll(t.Context(), []Run{sweep})
	for _, err := range []error{openErr, trialsErr, listErr, pollErr, sweep.CheckSweepSize()} {
		if !errors.Is(err, safefile.ErrLink) {
			t.Errorf("got %v, want %v", err, safefile.ErrLink)
		}
	}
	if err := os.Remove(sweep.Dir.Checkpoints()); err != nil {
		t.Fatal(err)
	}
	sweep.Record.Chain = make([]rundir.Submission, maxForeignCost/runCost)
	if cost := costOf(t, sweep); cost <= maxForeignCost {
		t.Errorf("the cost is %d, want more than %d without a check of the trials", cost, maxForeignCost)
	}
}

// TestListOmitsLinksOfOthers checks that a list follows no symbolic link of another user, whose target can be
// on a file server that does not answer, but links of root, and that a named run is found through such a link.
func TestListOmitsLinksOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	s := &Store{Dir: t.TempDir()}
	one := create(t, filepath.Join(s.Runs(), "one"), rundir.Record{Name: "one"})
	moved := create(t, filepath.Join(s.Runs(), "moved"), rundir.Record{Name: "moved"})
	archived := create(t, filepath.Join(s.Runs(), "archived"), rundir.Record{Name: "archived"}) // by root
	link, copied := filepath.Join(s.Runs(), "link"), filepath.Join(s.Runs(), "copied")
	err := errors.Join(os.Symlink("one", filepath.Join(s.Runs(), "own-link")), os.Symlink("one", link), os.Lchown(link, 61001, -1),
		os.Mkdir(copied, 0o755), os.MkdirAll(filepath.Join(s.Dir, "saved", "step-1"), 0o755), os.Chown(filepath.Join(s.Dir, "saved"), 61001, -1))
	for _, d := range []rundir.Dir{moved, {Path: copied}, archived} {
		err = errors.Join(err, os.RemoveAll(d.Checkpoints()), os.Symlink(filepath.Join(s.Dir, "saved"), d.Checkpoints()), os.Chown(d.Path, 61001, -1),
			os.Lchown(d.Checkpoints(), 61001, -1))
	}
	err = errors.Join(err, os.Lchown(archived.Checkpoints(), 0, -1), os.WriteFile(filepath.Join(s.Dir, "record.json"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	found, errs, err := s.List(s.Runs())
	if err != nil || len(found) != 3 || found[0].Dir.Path != archived.Path || found[1].Dir.Path != one.Path || found[2].Record.Name != "one" {
		t.Errorf("got %+v, %v, want the two runs and this user's link", found, err)
	}
	if text := fmt.Sprint(errs); len(errs) != 3 || !strings.Contains(text, "1 symbolic link of other users") || hints.Of(errs[2]) == "" ||
		!errors.Is(errs[0], safefile.ErrLink) || !errors.Is(errs[1], safefile.ErrLink) {
		t.Errorf("got %q, want the link and the two runs with linked checkpoints", errs)
	}
	for _, path := range []string{link, moved.Path, archived.Path} {
		run, err := s.Find(path)
		if err != nil {
			t.Errorf("named run: %v", err)
		}
		listed, named := s.NewPoller(), s.NewPoller()
		named.Unlimited = true
		if _, err := listed.Poll(t.Context(), []Run{run}); errors.Is(err, safefile.ErrLink) != (path == moved.Path) {
			t.Errorf("%s in a list: got %v", path, err)
		}
		if all, err := named.Poll(t.Context(), []Run{run}); err != nil || len(all) != 1 {
			t.Errorf("%s: got %v, %v", path, all, err)
		}
	}
	for _, path := range []string{copied, s.Dir} { // without a record, and with an empty one
		if cost := recordCost(rundir.Dir{Path: path}); cost <= 0 {
			t.Errorf("the record of %q costs %d", path, cost)
		}
	}
}

// TestMetricsOfAForeignSweepAreLimited checks the total size of the metrics in a sweep of another user that a
// command reads, which can be links to one sparse file.
func TestMetricsOfAForeignSweepAreLimited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	sweep := newSweep(t, &Store{Dir: t.TempDir()}, 2, 0)
	for i := range 2 {
		metrics := sweep.Dir.Element(i).Metrics()
		if err := errors.Join(os.WriteFile(metrics, nil, 0o644), os.Truncate(metrics, maxForeignMetrics/2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(sweep.Dir.Path, 61001, -1); err != nil {
		t.Fatal(err)
	}
	if err := sweep.CheckSweepSize(); err != nil {
		t.Errorf("%d bytes of metrics: %v", int64(maxForeignMetrics), err)
	}
	if err := os.Truncate(sweep.Dir.Element(0).Metrics(), maxForeignMetrics/2+1); err != nil {
		t.Fatal(err)
	}
	if err := sweep.CheckSweepSize(); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("more than %d bytes of metrics: got %v", int64(maxForeignMetrics), err)
	}
}

// TestFindDoesNotWaitForPipe checks a FIFO with the name of a run, which another user may have created in
// the current directory.
func TestFindDoesNotWaitForPipe(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	if err := unix.Mkfifo(filepath.Join(s.Dir, "one"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find("one"); !errors.Is(err, safefile.ErrNotRegular) {
		t.Errorf("got %v, want %v", err, safefile.ErrNotRegular)
	}
}

// TestMissingRunIsForeign checks that the limits for other users apply to a run that is missing at the
// moment: another user may move it away for the check, and back before it is read.
func TestMissingRunIsForeign(t *testing.T) {
	own := t.TempDir()
	for path, want := range map[string]bool{own: false, filepath.Join(own, "missing"): true} {
		if _, foreign := foreignOwner(path); foreign != want {
			t.Errorf("%s: got %v, want %v", path, foreign, want)
		}
	}
}
