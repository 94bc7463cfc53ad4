package launch

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// taskEnds passes on what srun prints to its standard error, and keeps what that says of
// how ranks ended. Nothing else knows it of a single rank: accounting has the end of the
// whole step, and the node's step daemon, which has waited for the process, tells srun
// alone.
type taskEnds struct {
	to       io.Writer
	hosts    []string // of the ranks, by Slurm's names
	mu       sync.Mutex
	line     []byte // what has come of the present one
	overlong bool   // it is not one of srun's
	ours     bool   // what ends from now on, the launcher ends
	ends     map[int]processEnd
	unrun    string // why a node could not execute the ranks' program, in the step daemon's words
}

// maxLine bounds what is kept of a line: ranks print to the same stream.
const maxLine = 64 << 10

// Write does not fail: srun would end its ranks if nobody took what it says.
func (t *taskEnds) Write(p []byte) (int, error) {
	_, _ = t.to.Write(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte{'\n'})
		rest = after
		if t.overlong = t.overlong || len(t.line)+len(part) > maxLine; !t.overlong {
			t.line = append(t.line, part...)
		}
		if !ended {
			break
		}
		if !t.overlong {
			t.read(string(t.line))
		}
		t.line, t.overlong = t.line[:0], false
	}
	return len(p), nil
}

// read keeps what a line says of ranks. A rank's own output may look like one of srun's:
// what is not about the ranks of those hosts is passed over, and the first word counts.
func (t *taskEnds) read(line string) {
	if why, ok := unexecuted(line); ok && t.unrun == "" {
		t.unrun = why
	}
	end, ok := slurm.ParseTaskEnd(line)
	if !ok || t.ours {
		return
	}
	for _, rank := range end.Tasks {
		if rank >= len(t.hosts) || !slices.Contains(end.Hosts, t.hosts[rank]) {
			continue
		}
		if _, known := t.ends[rank]; known {
			continue
		}
		if t.ends == nil {
			t.ends = map[int]processEnd{}
		}
		switch {
		case end.OutOfMemory:
			t.ends[rank] = endedByMemory
		case end.Signal != 0:
			t.ends[rank] = endedBySignal(end.Signal)
		default:
			t.ends[rank] = endedByItself(end.Exit)
		}
	}
}

// unexecuted returns what the step daemon says of a program that it could not execute, such
// as "slurmstepd-n1: error: execve(): /opt/ddpbatch: No such file or directory".
func unexecuted(line string) (why string, ok bool) {
	daemon, why, ok := strings.Cut(line, ": error: execve(): ")
	return why, ok && strings.HasPrefix(daemon, "slurmstepd") && !strings.Contains(daemon, " ")
}

// unexecuted returns why a node could not execute the ranks' program, if it said so.
func (t *taskEnds) unexecuted() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unrun
}

// close has what ends from now on not count: the launcher ends it.
func (t *taskEnds) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ours = true
}

// all is what is known.
func (t *taskEnds) all() map[int]processEnd {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.ends)
}
