package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// Prepare makes the directory ready for a job: it writes the record, or reads
// the one of earlier submissions, and stores the spec. Name is the job's, base
// the folder of its file, version the program's.
//
// It refuses the directory of a job of another name, and one that has no record
// but other files: a home directory, given by mistake.
func (d Dir) Prepare(name, base, version string, spec []byte) (Record, error) {
	r, err := d.prepare(name, base, version)
	if err != nil {
		return Record{}, fmt.Errorf("use run directory %q: %w", d.Path, err)
	}
	return r, d.write(specName, spec)
}

func (d Dir) prepare(name, base, version string) (Record, error) {
	r, err := d.ReadRecord()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.empty(); err != nil {
			return Record{}, err
		}
		r = NewRecord(name, base, version)
		return r, d.WriteRecord(r)
	case err != nil:
		return Record{}, err
	case r.Name != name:
		return Record{}, hints.Errorf("give this job a directory of its own with --run-dir",
			"it holds the run of another job, %q, and this one is %q", r.Name, name)
	case r.Base != base:
		// The spec that is stored next has its relative paths from there.
		r.Base = base
		return r, d.WriteRecord(r)
	}
	return r, nil
}

// empty refuses a directory with files that are not this package's.
func (d Dir) empty() error {
	entries, err := d.readDir()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if n := e.Name(); n != launchLockName && n != submitLockName && !strings.HasPrefix(n, tempPrefix) {
			hint := "name a directory that does not exist yet, or an empty one, with --run-dir"
			if d.IsRepairable() {
				hint = "to resume from its checkpoints, run " + repairCommand(d.Path) + "; or name an empty directory with --run-dir"
			}
			return hints.Errorf(hint, "it is not empty (%q) and holds no run", n)
		}
	}
	return nil
}
