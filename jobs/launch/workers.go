package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// workerScanInterval is the interval at which watchWorkers searches for new workers of torchrun.
const workerScanInterval = 200 * time.Millisecond

// watchWorkers reports each worker of torchrun that fails, until torchrun has ended. torchrun
// notices a failure only after up to 5 s, and the torchruns of other nodes may end first.
// Their order does not show which node failed first. Without /proc/PID/task/TID/children
// (CONFIG_PROC_CHILDREN), watchWorkers reports nothing.
func (r *Rank) watchWorkers(torchrun int, ended <-chan struct{}) {
	watched, zombies := map[int]bool{}, map[int]bool{}
	for {
		for _, pid := range childrenOf(torchrun) {
			stat, err := process.Read(pid)
			if err != nil || watched[pid] {
				continue
			}
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			lookup := lookupIn(strings.Split(string(environ), "\x00"))
			_, worker := lookup("TORCHELASTIC_RUN_ID")
			// A worker that ends soon after its start has no environment anymore. Other
			// programs that torchrun runs do not stay zombies, because it waits for them.
			if !worker && stat.Ended {
				worker = zombies[pid]
				zombies[pid] = true
			}
			if !worker {
				continue
			}
			watched[pid] = true
			if text, ok := lookup("RANK"); ok && r.capture != nil {
				if rank, err := strconv.Atoi(text); err == nil {
					r.capture.NameWorker(pid, rank)
				}
			}
			if failed := r.failedWorkers.Load(); failed > 0 && failed <= restartCount(lookup) {
				r.failedWorkers.Store(0) // torchrun has replaced them
			}
			go r.watchWorker(&userProcess{Stat: stat}, lookup, ended)
		}
		select {
		case <-ended:
			return
		case <-time.After(workerScanInterval):
		}
	}
}

// watchWorker waits for a worker to end and reports it if it failed. It does not report a
// worker that SIGTERM killed, because torchrun stops the other workers with SIGTERM after one
// has failed.
func (r *Rank) watchWorker(p *userProcess, lookup func(string) (string, bool), ended <-chan struct{}) {
	status, known := p.waitForEnd(ended)
	if !known || status == 0 || status.Signaled() && status.Signal() == syscall.SIGTERM {
		return
	}
	name := "a worker of torchrun"
	if rank, ok := lookup("RANK"); ok {
		name = "torchrun's worker with RANK=" + rank
	}
	restarts := restartCount(lookup)
	if !stopCodesOf(r.job).has(exitCode(status)) {
		r.failedWorkers.Store(restarts + 1)
	}
	what := fmt.Sprintf("ended with exit code %d", status.ExitStatus())
	if status.Signaled() {
		what = fmt.Sprintf("was killed by signal %d (%s)", status.Signal(), status.Signal())
	}
	// The server detects a lost connection on its own.
	_ = r.Session.ReportWorkerFailure(int(restarts), name+" "+what)
}

// restartCount returns how often torchrun had restarted its workers when it started this
// worker.
func restartCount(lookup func(string) (string, bool)) int64 {
	text, _ := lookup("TORCHELASTIC_RESTART_COUNT")
	n, _ := strconv.ParseInt(text, 10, 32)
	return n
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
