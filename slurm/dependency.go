package slurm

import (
	"fmt"
	"strings"
)

// DependencyType is what a job waits for in others (sbatch(1), --dependency).
type DependencyType string

// The dependencies that a submission may have. For an array as a whole each
// means all of its elements.
const (
	After      DependencyType = "after"      // they have begun, or were cancelled
	AfterAny   DependencyType = "afterany"   // they have ended
	AfterOK    DependencyType = "afterok"    // they have succeeded
	AfterNotOK DependencyType = "afternotok" // they have failed
)

// Dependency makes a job wait for others. A job whose dependency can no longer
// come true stays pending for ever on most clusters (DependencyNeverSatisfied);
// an afterok is not fulfilled by a failed job that is submitted again.
type Dependency struct {
	Type DependencyType
	IDs  []string // "18", an array's too, or "18_3"
}

// dependencyOption writes the dependencies, all of which must come true.
func dependencyOption(dependencies []Dependency) (string, error) {
	var parts []string
	for _, d := range dependencies {
		switch d.Type {
		case After, AfterAny, AfterOK, AfterNotOK:
		default:
			return "", fmt.Errorf("dependency %q: there are after, afterany, afterok and afternotok", d.Type)
		}
		if len(d.IDs) == 0 {
			return "", fmt.Errorf("dependency %s: on no job", d.Type)
		}
		if err := checkIDs(d.IDs); err != nil {
			return "", fmt.Errorf("dependency %s: %w", d.Type, err)
		}
		parts = append(parts, string(d.Type)+":"+strings.Join(d.IDs, ":"))
	}
	return "--dependency=" + strings.Join(parts, ","), nil
}
