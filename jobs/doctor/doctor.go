// Package doctor looks at what a job of several nodes depends on, before it fails: Slurm's
// settings, the network, GPUs and their libraries, limits, shared memory, clocks, and the
// file system of the run directory. [Examine] looks at one node, [Slurm] at the cluster,
// [Merge] puts the nodes of an allocation together and names what differs between them.
//
// It promises a verdict and, where it is not good, what to do, for each thing that it
// looks at; that it leaves nothing behind, unless it is killed; and that no look takes
// more than some seconds, unless a file system hangs. It does not measure what a network
// carries, starts no job and changes no setting.
package doctor

import "github.com/ddpbatch/ddpbatch/trainer/cuda"

// Verdict is how a thing is.
type Verdict string

// The verdicts, from good to bad.
const (
	OK   Verdict = "ok"
	Look Verdict = "look" // it may be right here; if something goes wrong, look at this first
	Bad  Verdict = "bad"  // jobs will fail, or be slow, because of it
)

// Finding is one thing that was looked at.
type Finding struct {
	Part    string       `json:"part"` // such as "driver", "gpu 0", "slurm KillWait"
	Verdict Verdict      `json:"verdict"`
	Version string       `json:"version,omitempty"`
	Path    string       `json:"path,omitempty"`   // of a library
	Detail  string       `json:"detail,omitempty"` // what was found
	Hint    string       `json:"hint,omitempty"`   // what to do; empty where it is good
	Hosts   string       `json:"hosts,omitempty"`  // a host list: which nodes it is about, where there are several
	Kernel  string       `json:"kernel_module,omitempty"`
	GPU     *cuda.Device `json:"gpu,omitempty"`
}

// good, look and bad are findings in one line.
func good(part, detail string) Finding { return Finding{Part: part, Verdict: OK, Detail: detail} }

func look(part, detail, hint string) Finding {
	return Finding{Part: part, Verdict: Look, Detail: detail, Hint: hint}
}

func bad(part, detail, hint string) Finding {
	return Finding{Part: part, Verdict: Bad, Detail: detail, Hint: hint}
}

// CountBad is how many findings are bad.
func CountBad(findings []Finding) int {
	n := 0
	for _, f := range findings {
		if f.Verdict == Bad {
			n++
		}
	}
	return n
}
