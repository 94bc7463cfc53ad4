package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// workerScan is the interval at which torchrun is checked for new workers.
const workerScan = 200 * time.Millisecond

// watchWorkers reports the first worker of torchrun that fails, until torchrun has ended.
// torchrun notices a failure only after up to 5 s, and the torchruns of other nodes may end
// first: the order in which they end does not show which node has failed. Without
// /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN) nothing is reported.
func (r *Rank) watchWorkers(torchrun int, ended <-chan struct{}) {
	watched, ghosts := map[int]bool{}, map[int]bool{}
	for {
		for _, pid := range childrenOf(torchrun) {
			p, ok := readProcess(pid)
			if !ok || watched[pid] {
				continue
			}
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			lookup := lookupIn(strings.Split(string(environ), "\x00"))
			_, worker := lookup("TORCHELASTIC_RUN_ID")
			// A worker that ends soon after its start has no environment anymore. Other
			// programs that torchrun runs do not stay zombies, because it waits for them.
			if !worker && p.ended {
				worker = ghosts[pid]
				ghosts[pid] = true
			}
			if worker {
				watched[pid] = true
				go r.watchWorker(p, lookup, ended)
			}
		}
		select {
		case <-ended:
			return
		case <-time.After(workerScan):
		}
	}
}

// watchWorker waits for the end of a worker and reports it if the worker failed. It does not
// report a worker that SIGTERM killed: this is how torchrun ends the other workers after one
// has failed.
func (r *Rank) watchWorker(p *process, lookup func(string) (string, bool), ended <-chan struct{}) {
	status, known := p.await(ended)
	if !known || status == 0 || status.Signaled() && status.Signal() == syscall.SIGTERM {
		return
	}
	name := "a worker of torchrun"
	if rank, ok := lookup("RANK"); ok {
		name = "torchrun's worker with RANK=" + rank
	}
	count, _ := lookup("TORCHELASTIC_RESTART_COUNT")
	restarts, _ := strconv.Atoi(count)
	what := fmt.Sprintf("ended with exit code %d", status.ExitStatus())
	if status.Signaled() {
		what = fmt.Sprintf("was killed by signal %d (%s)", status.Signal(), status.Signal())
	}
	// The server notices a lost connection by itself.
	_ = r.Session.TellWorkerFailed(restarts, name+" "+what)
}

// readProcess reads the state of a process.
func readProcess(pid int) (*process, bool) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	p, _, ok := parseStat(text)
	return p, ok
}

// childrenOf returns the children of all threads of a process.
func childrenOf(pid int) (children []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
