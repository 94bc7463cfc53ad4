package runs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// Commands that list runs also read the runs of other users. Another user can create thousands
// of run directories with large files, which can be hard links to one file. The following
// limits keep a list from running for hours or out of memory. They apply to each of the other
// users separately, so that one user's runs do not displace another's. To runs that the user
// names, only the limits of sweeps apply.
const (
	// maxForeignRecords is the total size in bytes of the records in a list.
	maxForeignRecords = 16 << 20
	// maxForeignCost is the total of [readCost] in a list.
	maxForeignCost = 2 << 30
	// maxForeignSweep is the total of [statusCost] of the trials of a sweep that the user names, and
	// maxForeignMetrics the total size of their metrics in bytes.
	maxForeignSweep   = 4 << 30
	maxForeignMetrics = 32 << 30
	// maxForeignJobs is the number of jobs of the trials of such a sweep. Slurm is queried for each.
	maxForeignJobs = 100_000
	// specCost is the cost of a byte of a job file. Decoding TOML takes much longer than decoding JSON: up
	// to 2 s for each MiB.
	specCost = 128
	// nameCost is the cost of a name in a directory of checkpoints.
	nameCost = 4 << 10
	// runCost is the part of readCost that does not depend on the size of files.
	runCost = 64 << 10
)

// A readBudget limits how much a command reads from the runs of each other user.
type readBudget struct {
	max     int64
	used    map[int]int64 // by user ID
	skipped map[int]int   // number of runs that were not read, by user ID
}

func newReadBudget(max int64) *readBudget {
	return &readBudget{max: max, used: map[int]int64{}, skipped: map[int]int{}}
}

// maxTooLarge is the number of runs whose cost exceeds the rest of the budget, after which the budget is
// exhausted. Finding the cost of a run also takes time.
const maxTooLarge = 16

// take reports whether the budget of a user suffices for a run, and uses the cost of the run. It does
// not call cost after the budget is exhausted.
func (b *readBudget) take(user int, cost func() int64) bool {
	if b == nil {
		return true
	}
	if b.used[user] < b.max {
		n := cost()
		if n <= b.max-b.used[user] {
			b.used[user] += n
			return true
		}
		b.used[user] += b.max / maxTooLarge
	}
	b.skipped[user]++
	return false
}

// errors returns an error for each user whose runs were not all read.
func (b *readBudget) errors() (errs []error) {
	if b == nil {
		return nil
	}
	for _, user := range slices.Sorted(maps.Keys(b.skipped)) {
		errs = append(errs, fmt.Errorf("left out: %s of user %d, because the files are too large to read them all; name a run to see it",
			format.Count(b.skipped[user], "run"), user))
	}
	return errs
}

// maxForeignErrors is the maximum number of errors about runs of each other user in a list, and
// maxErrorText the maximum length of an error in bytes. Errors can contain text of the other user.
const maxForeignErrors, maxErrorText = 5, 1000

// skippedRuns collects the errors of the runs that a list omits.
type skippedRuns struct {
	all     bool // keep any number of errors, for runs that the user named
	errs    []error
	foreign map[int]int // number of errors by user ID
}

// add adds the error of a run. If foreign is set, the run belongs to another user.
func (s *skippedRuns) add(user int, foreign bool, err error) {
	if foreign {
		if s.foreign == nil {
			s.foreign = map[int]int{}
		}
		if s.foreign[user]++; s.foreign[user] > maxForeignErrors && !s.all {
			return
		}
	}
	if text := err.Error(); len(text) > maxErrorText {
		err = hints.Errorf(hints.Of(err), "%s", printable.Shorten(text, maxErrorText))
	}
	s.errs = append(s.errs, fmt.Errorf("left out: %w", err))
}

// errors returns all errors, and one more for each user with too many.
func (s *skippedRuns) errors() []error {
	errs := s.errs
	for _, user := range slices.Sorted(maps.Keys(s.foreign)) {
		if more := s.foreign[user] - maxForeignErrors; more > 0 && !s.all {
			errs = append(errs, fmt.Errorf("left out: %s of user %d, which cannot be read", format.Count(more, "more run"), user))
		}
	}
	return errs
}

// foreignOwner returns the owner of the run directory at path, and reports whether it is
// another user. A symbolic link of another user makes that user the owner. A directory that is missing
// counts as another user's: it may reappear before it is read.
func foreignOwner(path string) (uid int, foreign bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return -1, true
	}
	if isOwnFile(info) {
		if info, err = os.Stat(path); err != nil {
			return -1, false // reading it returns the error
		}
	}
	uid, ok := safefile.Owner(info)
	return uid, ok && uid != os.Geteuid()
}

// readCost estimates the memory in bytes that the status of a run needs. JSON needs up to 40
// times its size in memory.
func readCost(dir rundir.Dir) int64 {
	return runCost + fileSize(dir.Metrics(), 32<<20) + statusCost(dir) // metrics are parsed, but only the last ones are stored
}

// maxLastMetrics is the number of bytes of metrics whose content a [watch.MetricsTail] stores. A computation
// time can have 2 bytes in a file, and needs 8 bytes of memory.
const maxLastMetrics = 32 << 10

// statusCost returns the part of readCost for files whose content is stored.
func statusCost(dir rundir.Dir) int64 {
	cost := 4*fileSize(dir.Metrics(), maxLastMetrics) + specCost*fileSize(dir.Spec(), 32<<20)
	for _, path := range []string{dir.Record(), dir.Live(), dir.Attempts(), dir.Failure()} {
		cost += 16 * fileSize(path, 32<<20)
	}
	names, manifest := checkpoint.NewestCost(dir.Checkpoints())
	return cost + nameCost*int64(names) + 16*manifest
}

// foreignLinkError returns the error for a run of another user with a link in place of a directory.
func foreignLinkError(dir string) error {
	return hints.Errorf("show the run with `ddpbatch status RUN`", "%q %w in a run of another user", dir, safefile.ErrLink)
}

// readCost returns the cost of a run of another user in a list, with its trials. Slurm is queried for each
// job of a chain. It returns an error if a directory of the run is a symbolic link of another user: the
// target can be on a file server that does not answer.
func (r Run) readCost() (cost int64, err error) {
	cost = runCost * int64(1+len(r.Record.Chain))
	if isForeignLink(r.Dir.Checkpoints()) {
		return cost, foreignLinkError(r.Dir.Checkpoints())
	}
	cost += readCost(r.Dir) - runCost
	if !r.IsSweep() {
		return cost, nil
	}
	if cost += runCost * int64(len(r.Record.Sweep.Elements)) * int64(1+len(r.Record.Chain)); cost > maxForeignCost {
		return cost, nil
	}
	if trials := filepath.Dir(r.Dir.Element(0).Path); isForeignLink(trials) {
		return cost, foreignLinkError(trials)
	}
	for i := range r.Record.Sweep.Elements {
		trial := r.Dir.Element(i)
		for _, dir := range []string{trial.Path, trial.Checkpoints()} {
			if isForeignLink(dir) {
				return cost, foreignLinkError(dir)
			}
		}
		if cost += readCost(trial) - runCost; cost > maxForeignCost {
			break
		}
	}
	return cost, nil
}

// CheckSweepSize returns an error if the run is a sweep of another user that has too many jobs, or
// whose files are too large to read all of them. The files can be links to a few large files. It also
// returns an error if a trial is a link that [rundir.Dir.CheckLinks] rejects.
func (r Run) CheckSweepSize() error {
	user, foreign := foreignOwner(r.Dir.Path)
	if !foreign || !r.IsSweep() {
		return nil
	}
	if n := len(r.Record.Sweep.Elements) * (1 + len(r.Record.Chain)); n > maxForeignJobs {
		return fmt.Errorf("%q is a sweep of user %d, which has too many jobs: %d", r.Dir.Path, user, n)
	}
	cost, metrics := int64(0), int64(0)
	for i := range r.Record.Sweep.Elements {
		trial := r.Dir.Element(i)
		if err := trial.CheckLinks(); err != nil {
			return err
		}
		cost, metrics = cost+statusCost(trial), metrics+fileSize(trial.Metrics(), maxForeignMetrics)
		if cost > maxForeignSweep || metrics > maxForeignMetrics {
			return hints.Errorf(fmt.Sprintf("name a single trial, such as %s", jobs.ShellQuote(trial.Path)),
				"%q is a sweep of user %d, whose files are too large to read them all", r.Dir.Path, user)
		}
	}
	return nil
}

// recordCost returns the size of a record in bytes, but at least nameCost. Finding the size
// also takes time.
func recordCost(dir rundir.Dir) int64 {
	return max(nameCost, fileSize(dir.Record(), maxForeignRecords))
}

// fileSize returns the size of a file in bytes, but at most the given limit. It is 0 if the
// file does not exist.
func fileSize(path string, limit int64) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return min(info.Size(), limit)
}
