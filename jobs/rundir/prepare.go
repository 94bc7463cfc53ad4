package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// Prepare makes the directory ready for a job. It reads the record of earlier submissions or
// creates a new record, and it stores the spec. Name is the job's name, base is the directory
// of its job file, and version is the version of ddpbatch.
//
// Prepare rejects a directory that contains the run of a job with another name. It also
// rejects a directory with files but no record, such as a home directory named by accident.
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
		// Relative paths in the spec, which Prepare stores next, start at base.
		r.Base = base
		return r, d.WriteRecord(r)
	}
	return r, nil
}

// IsEmpty reports whether the directory can be read and contains no files other than this package's
// locks and temporary files.
func (d Dir) IsEmpty() bool { return d.empty() == nil }

// empty returns an error if the directory contains files other than this package's locks and
// temporary files.
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
