package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// workerScan is how often torchrun is checked for new workers.
const workerScan = time.Second

// watchWorkers reports the first worker of torchrun that fails, until torchrun has ended.
// torchrun tells the others only after up to 5 s, and those of other nodes may end first:
// the order in which torchruns end does not show which node has failed. Without
// /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN) nothing is reported.
func (r *Rank) watchWorkers(torchrun int, ended <-chan struct{}) {
	watched := map[int]bool{}
	for {
		for _, pid := range childrenOf(torchrun) {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			lookup := lookupIn(strings.Split(string(environ), "\x00"))
			if _, worker := lookup("TORCHELASTIC_RUN_ID"); !worker || watched[pid] {
				continue
			}
			watched[pid] = true
			go r.watchWorker(pid, lookup, ended)
		}
		select {
		case <-ended:
			return
		case <-time.After(workerScan):
		}
	}
}

func (r *Rank) watchWorker(pid int, lookup func(string) (string, bool), ended <-chan struct{}) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	p, _, ok := parseStat(text)
	if !ok {
		return
	}
	status, known := p.await(ended)
	if !known || status == 0 {
		return
	}
	rank, _ := lookup("RANK")
	count, _ := lookup("TORCHELASTIC_RESTART_COUNT")
	restarts, _ := strconv.Atoi(count)
	what := fmt.Sprintf("ended with exit code %d", status.ExitStatus())
	if status.Signaled() {
		what = fmt.Sprintf("was killed by signal %d (%s)", status.Signal(), status.Signal())
	}
	// The server notices a lost connection by itself.
	_ = r.Session.TellWorkerFailed(restarts, fmt.Sprintf("torchrun's worker with RANK=%s %s", rank, what))
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
