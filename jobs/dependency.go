package jobs

import (
	"slices"
	"strings"
)

// A Dependency is a condition on another run, in the form "afterok:RUN". The condition is a
// type of sbatch --dependency. RUN is a run directory, a run's name, or a job ID.
type Dependency string

// dependencyKinds are the types of sbatch --dependency that refer to jobs.
var dependencyKinds = []string{"after", "afterok", "afterany", "afternotok"}

const dependencyForms = `allowed: "afterok:RUN", "afterany:RUN", "afternotok:RUN" or "after:RUN", where RUN is a run's name, directory or job ID`

// Parts returns the condition and the run.
func (d Dependency) Parts() (kind, run string) {
	kind, run, _ = strings.Cut(string(d), ":")
	return kind, run
}

// UnmarshalTOML accepts a TOML string.
func (d *Dependency) UnmarshalTOML(v any) error {
	s, err := stringValue(v)
	if err != nil {
		return valueErrorf(dependencyForms, "%s", err)
	}
	if err := checkControl(s); err != nil {
		return err
	}
	kind, run, ok := strings.Cut(s, ":")
	if !ok || run == "" {
		return valueErrorf(dependencyForms, "%q does not name a run", s)
	}
	if !slices.Contains(dependencyKinds, kind) {
		return valueErrorf(dependencyForms, "%q is not a condition", kind)
	}
	*d = Dependency(s)
	return nil
}
