// Package doctor checks the requirements of a multi-node job before it runs: Slurm's settings,
// the network, GPUs and their libraries, limits, shared memory, clocks, and the file system
// of the run directory. [Examine] checks one node, and [Slurm] checks the cluster. [ExamineNodes]
// checks all nodes of an allocation and reports the differences.
//
// To check that all nodes share a file system, ExamineNodes creates a directory and a file in it,
// and passes the path to all nodes ([Options].Token). Each node creates an answer. ExamineNodes
// checks the answers and removes the directory.
//
// The package guarantees:
//
//   - Each check returns a level and, if the level is not OK, a hint.
//   - It leaves no files behind unless it is killed.
//   - No check takes more than about 10 s, unless a file system hangs. The checks of all nodes are
//     stopped after 2 minutes.
//
// The package does not measure the throughput of a network, does not start jobs, and does not
// change settings.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
)

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

// remarkIf returns f if the condition is true, and otherwise a finding without a remark.
func remarkIf(condition bool, f Finding) Finding {
	if condition {
		return f
	}
	return pass("", "")
}

// CountFailed returns the number of findings with the level Fail.
func CountFailed(findings []Finding) int {
	n := 0
	for _, f := range findings {
		if f.Level == Fail {
			n++
		}
	}
	return n
}

// Options select the checks of a node.
type Options struct {
	Lookup func(string) (string, bool) // the environment
	Dir    string                      // directory on the file system of the run directories
	Job    bool                        // several nodes are checked: see Token
	// Token is the path of a file in Dir that another node has written, or empty. Examine
	// checks whether this node sees the file. As its answer it writes a file with its name
	// next to it.
	Token string
}

// A Node holds the results of one node.
type Node struct {
	Host      string          `json:"host"`
	Time      time.Time       `json:"time"` // according to this node's clock
	Findings  []Finding       `json:"findings"`
	Inventory netif.Inventory `json:"inventory"`
}

// Examine checks the node of this process.
func Examine(ctx context.Context, o Options) Node {
	n := Node{Time: time.Now()}
	n.Host, _ = os.Hostname()
	if name, ok := o.Lookup("SLURMD_NODENAME"); ok && name != "" {
		n.Host = name
	}
	var err error
	if n.Inventory, err = netif.Collect(ctx); err != nil {
		n.Findings = append(n.Findings, fail("network", err.Error(), hints.Of(err)))
	} else if n.Inventory.Host = n.Host; !o.Job {
		n.Findings = append(n.Findings, checkNetwork([]netif.Inventory{n.Inventory})...)
	}
	n.Findings = append(n.Findings, checkGPUs(o.Lookup, &n.Inventory)...)
	n.Findings = append(n.Findings, checkCPU(), kernelVersion(), checkClock(), checkSharedMemory("/dev/shm"))
	n.Findings = append(n.Findings, checkLimits(len(n.Inventory.RDMA) > 0)...)
	if o.Dir != "" {
		n.Findings = append(n.Findings, checkFiles(o.Dir, o.Job)...)
	}
	if o.Token != "" {
		n.Findings = append(n.Findings, checkToken(o.Token, n.Host))
	}
	return n
}

// tokenTimeout is the maximum time to wait for a file that another node has written.
const tokenTimeout = 10 * time.Second

// checkToken waits for the file token, which another node has written, and writes the answer of
// host.
func checkToken(token, host string) Finding {
	const part = "files on all nodes"
	began := time.Now()
	for {
		_, err := os.Stat(token)
		if err == nil {
			break
		}
		if time.Since(began) > tokenTimeout {
			return fail(part, "a file of the first node is not visible after "+tokenTimeout.String()+": "+err.Error(),
				"put the run directory on a shared file system with --run-dir")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := createEmpty(answerPath(token, host)); err != nil {
		return fail(part, err.Error(), "make the directory writable on all nodes; ranks write logs and checkpoints there")
	}
	return pass(part, "visible")
}

// answerPath returns the path of the file with which a host confirms that it has seen the token.
func answerPath(token, host string) string { return filepath.Join(filepath.Dir(token), "seen-"+host) }

// createEmpty creates an empty file with mode 0600. It returns an error if there is a file or
// a link with the name: other users may be able to write to the directory.
func createEmpty(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// openNewDir opens a directory that this process has just created. It returns an error if a
// different directory is now at the path, which has files or which other users can access.
func openNewDir(path string) (*os.Root, error) {
	root, err := safefile.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = safefile.CheckPrivate(info)
	}
	if err == nil {
		var names []fs.DirEntry
		if names, err = fs.ReadDir(root.FS(), "."); err == nil && len(names) > 0 {
			err = errors.New("another directory has replaced it")
		}
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("open directory %q: %w", path, err)
	}
	return root, nil
}
