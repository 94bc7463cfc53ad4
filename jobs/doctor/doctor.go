// Package doctor checks what a multi-node job depends on, before the job fails: Slurm's
// settings, the network, GPUs and their libraries, limits, shared memory, clocks, and the file
// system of the run directory. [Examine] checks one node, and [Slurm] checks the cluster.
// [Merge] combines the results of all nodes of an allocation and reports the differences.
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

// Verdict is the level of a finding.
type Verdict string

// Levels, from best to worst.
const (
	OK   Verdict = "ok"
	Look Verdict = "look" // may be intended; check this first if something fails
	Bad  Verdict = "bad"  // jobs will fail or be slow because of it
)

// A Finding is the result of one check.
type Finding struct {
	Part    string       `json:"part"` // such as "driver", "gpu 0", "slurm KillWait"
	Verdict Verdict      `json:"verdict"`
	Version string       `json:"version,omitempty"`
	Path    string       `json:"path,omitempty"`   // path of a library
	Detail  string       `json:"detail,omitempty"` // result as text
	Hint    string       `json:"hint,omitempty"`   // what to do; may be empty if the level is OK
	Hosts   string       `json:"hosts,omitempty"`  // node list, if the finding is about some of several nodes
	Kernel  string       `json:"kernel_module,omitempty"`
	GPU     *cuda.Device `json:"gpu,omitempty"`
}

// good, look, and bad return a finding with the level OK, Look, or Bad.
func good(part, detail string) Finding { return Finding{Part: part, Verdict: OK, Detail: detail} }

func look(part, detail, hint string) Finding {
	return Finding{Part: part, Verdict: Look, Detail: detail, Hint: hint}
}

func bad(part, detail, hint string) Finding {
	return Finding{Part: part, Verdict: Bad, Detail: detail, Hint: hint}
}

// CountBad returns the number of findings with the level Bad.
func CountBad(findings []Finding) int {
	n := 0
	for _, f := range findings {
		if f.Verdict == Bad {
			n++
		}
	}
	return n
}
