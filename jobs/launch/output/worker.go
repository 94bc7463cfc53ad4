package output

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// nameAge is how long the rank of a process is valid without a check. The kernel is not expected to
// reuse the PID of a process within this time.
const nameAge = time.Second

// maxParents is the maximum number of processes between a worker and a process that it started.
const maxParents = 32

// workerNames finds the ranks of processes: the value of RANK in the environment of a process, or
// of the next process above it that has one.
type workerNames struct {
	mu    sync.Mutex
	known map[int]workerName
}

type workerName struct {
	rank int
	read time.Time
}

func newWorkerNames() *workerNames { return &workerNames{known: map[int]workerName{}} }

// rankOf returns the rank of a process, or agent if it does not belong to a rank. For a process
// that has ended, it returns the last known rank.
func (w *workerNames) rankOf(pid int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.known[pid]
	if known && time.Since(last.read) < nameAge {
		return last.rank
	}
	rank, alive := findRank(pid)
	if !alive && known {
		return last.rank
	}
	if len(w.known) > 10_000 {
		clear(w.known)
	}
	w.known[pid] = workerName{rank, time.Now()}
	return rank
}

// name sets the rank of a process.
func (w *workerNames) name(pid, rank int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[pid] = workerName{rank, time.Now()}
}

// findRank returns the rank of a process, and whether the process is running.
func findRank(pid int) (rank int, alive bool) {
	for i := range maxParents {
		if pid <= 1 || pid == os.Getpid() {
			break
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if i == 0 {
			alive = err == nil && len(environ) > 0 // a process that has ended has no environment
		}
		for _, v := range bytes.Split(environ, []byte{0}) {
			if text, ok := bytes.CutPrefix(v, []byte("RANK=")); ok {
				if n, err := strconv.Atoi(string(text)); err == nil && n >= 0 {
					return n, alive
				}
			}
		}
		stat, err := process.Read(pid)
		if err != nil {
			break
		}
		pid = stat.Parent
	}
	return agent, alive
}
