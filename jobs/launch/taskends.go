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

// taskEnds forwards srun's standard error and records which tasks it reports as ended, and
// how. There is no other source for a single rank. Accounting records only the end of the
// whole step. The step daemon of the node waits for the process and reports its end only to
// srun.
type taskEnds struct {
	out         io.Writer
	hosts       []string // host of each rank, as Slurm names it
	mu          sync.Mutex
	line        []byte // the current line, so far
	overlong    bool   // the current line is too long to be from srun
	killing     bool   // the launcher has started to kill the ranks
	ends        map[int]processEnd
	execFailure string // why a node could not execute the ranks' program, in the step daemon's words
}

// maxLine is the maximum length of a recorded line, in bytes. Ranks print to the same stream.
const maxLine = 64 << 10

// Write never returns an error. srun would kill its ranks if its output could not be written.
func (t *taskEnds) Write(p []byte) (int, error) {
	_, _ = t.out.Write(p)
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
			t.parseLine(string(t.line))
		}
		t.line, t.overlong = t.line[:0], false
	}
	return len(p), nil
}

// parseLine records what a line reports about ranks. A rank may print a line that looks like one
// from srun. Therefore read ignores lines whose ranks and hosts do not match, and uses only
// the first report for each rank.
func (t *taskEnds) parseLine(line string) {
	if why, ok := parseExecError(line); ok && t.execFailure == "" {
		t.execFailure = why
	}
	end, ok := slurm.ParseTaskEnd(line)
	if !ok || t.killing {
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
			t.ends[rank] = oomKilled
		case end.Signal != 0:
			t.ends[rank] = killedBySignal(end.Signal)
		default:
			t.ends[rank] = exitedWith(end.Exit)
		}
	}
}

// parseExecError returns the step daemon's message about a program that it could not execute, such
// as "slurmstepd-n1: error: execve(): /opt/ddpbatch: No such file or directory".
func parseExecError(line string) (why string, ok bool) {
	daemon, why, ok := strings.Cut(line, ": error: execve(): ")
	return why, ok && strings.HasPrefix(daemon, "slurmstepd") && !strings.Contains(daemon, " ")
}

// execError returns why a node could not execute the ranks' program. It returns an empty
// string if no node has reported this.
func (t *taskEnds) execError() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.execFailure
}

// stopRecording stops recording, because the launcher now kills the ranks.
func (t *taskEnds) stopRecording() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.killing = true
}

// all returns a copy of the recorded ends, by rank.
func (t *taskEnds) all() map[int]processEnd {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.ends)
}
