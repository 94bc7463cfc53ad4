// Package doctor checks what a multi-node job depends on, before the job fails: Slurm's settings,
// the network, checkGPUs and their libraries, limits, shared memory, clocks, and the file system
// of the run directory. [Examine] checks one node, and [Slurm] checks the cluster. [Merge]
// combines the results of all nodes of an allocation and reports the differences.
//
// The package guarantees:
//
//   - Each check returns a level and, if the level is not OK, a hint.
//   - It leaves no files behind, unless it is killed.
//   - No check takes more than about 10 s, unless a file system hangs.
//
// The package does not measure the throughput of a network, does not start jobs, and does not
// change settings.
package doctor

import "github.com/ddpbatch/ddpbatch/trainer/cuda"

// Level is the level of a finding.
type Level string

// Levels, from best to worst.
const (
	OK   Level = "ok"
	Warn Level = "look" // may be intended; check this first if something fails
	Fail Level = "bad"  // jobs will fail or be slow because of it
)

// A Finding is the result of one check.
type Finding struct {
	Part    string       `json:"part"` // such as "driver", "gpu 0", "slurm KillWait"
	Level   Level        `json:"verdict"`
	Version string       `json:"version,omitempty"`
	Path    string       `json:"path,omitempty"`   // path of a library
	Detail  string       `json:"detail,omitempty"` // result as text
	Hint    string       `json:"hint,omitempty"`   // what to do; may be empty if the level is OK
	Hosts   string       `json:"hosts,omitempty"`  // node list, if the finding is about some of several nodes
	Kernel  string       `json:"kernel_module,omitempty"`
	GPU     *cuda.Device `json:"gpu,omitempty"`
}

// pass, warn, and fail return a finding with the level OK, Warn, or Fail.
func pass(part, detail string) Finding { return Finding{Part: part, Level: OK, Detail: detail} }

func warn(part, detail, hint string) Finding {
	return Finding{Part: part, Level: Warn, Detail: detail, Hint: hint}
}

func fail(part, detail, hint string) Finding {
	return Finding{Part: part, Level: Fail, Detail: detail, Hint: hint}
}

// CountFailed returns the number of findings with the level Bad.
func CountFailed(findings []Finding) int {
	n := 0
	for _, f := range findings {
		if f.Level == Fail {
			n++
		}
	}
	return n
}
