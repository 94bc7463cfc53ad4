package launch

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// A processEnd describes how the process of a rank ended.
type processEnd struct {
	code   int    // as reported by a shell
	signal string // signal that killed the process, such as "SIGKILL"; empty if none did
	text   string // code and signal as text
	advice string // hint for the user; empty if unknown
}

func exitedWith(code int) processEnd {
	return processEnd{code: code, text: fmt.Sprintf("its process ended with exit code %d", code)}
}

func killedBySignal(s syscall.Signal) processEnd {
	name := unix.SignalName(s)
	return processEnd{code: 128 + int(s), signal: name, text: "its process was killed by " + name}
}

// oomKilled describes a process that the kernel's out-of-memory killer killed with
// SIGKILL.
var oomKilled = processEnd{code: 128 + int(syscall.SIGKILL), signal: "SIGKILL",
	text:   "its process was killed by the out-of-memory killer (SIGKILL)",
	advice: "raise slurm.mem, or use fewer ranks per node or a smaller batch; `ddpbatch plan` estimates the memory of the built-in trainer"}

// processEndOf describes how a child of this process ended.
func processEndOf(p *os.ProcessState) processEnd {
	if status, ok := p.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return killedBySignal(status.Signal())
	}
	return exitedWith(p.ExitCode())
}

// addProcessEnds adds the ends of processes to ranks that did not report their own end. It also
// updates the first failure if it belongs to one of these ranks. Ranks that the launcher
// killed because they hung keep their original failure.
func addProcessEnds(o *rendezvous.Outcome, ends map[int]processEnd, killed map[int]bool) {
	for rank, end := range ends {
		r := &o.Ranks[rank]
		if r.State != rendezvous.Lost && r.State != rendezvous.Missing {
			continue
		}
		r.Exit, r.Signal = end.code, end.signal
		if killed[rank] {
			continue
		}
		r.Error = strings.Replace(r.Error, rendezvous.Died, end.text, 1)
		if o.First != nil && o.First.Rank == rank && o.First.State == r.State {
			first := *o.First // copy: the ranks receive the original
			first.Exit, first.Signal = r.Exit, r.Signal
			first.Reason = strings.Replace(first.Reason, rendezvous.Died, end.text, 1)
			first.Advice = cmp.Or(first.Advice, end.advice)
			o.First = &first
		}
	}
}

// maxKinds is the maximum number of different ends to list. failure.json has all of them.
const maxKinds = 12

// printRankEnds prints how the ranks of a failed attempt ended, with one line for all ranks that
// ended in the same way. Killed holds the ranks that the launcher had to kill.
func (o Options) printRankEnds(ranks []rendezvous.RankStatus, killed map[int]bool) {
	if len(ranks) < 2 {
		return
	}
	var kinds []string
	byEnd := map[string][]rendezvous.RankStatus{}
	for _, r := range ranks {
		end := describeEnd(r, killed[r.Rank])
		if byEnd[end] == nil {
			kinds = append(kinds, end)
		}
		byEnd[end] = append(byEnd[end], r)
	}
	o.Say("how the ranks ended:")
	for _, end := range kinds[:min(maxKinds, len(kinds))] {
		var numbers []int
		var hosts []string
		for _, r := range byEnd[end] {
			numbers = append(numbers, r.Rank)
			if !slices.Contains(hosts, r.Host) {
				hosts = append(hosts, r.Host)
			}
		}
		o.Say(fmt.Sprintf("  %s on %s: %s", format.Ranks(numbers), slurm.FoldHosts(hosts), end))
	}
	if more := len(kinds) - maxKinds; more > 0 {
		o.Say(fmt.Sprintf("  %d other ways: see %s", more, o.Dir.Failure()))
	}
}

// describeEnd describes how a rank ended.
func describeEnd(r rendezvous.RankStatus, killed bool) string {
	switch r.State {
	case rendezvous.Joined:
		return "stopped responding"
	case rendezvous.Missing:
		return "did not join"
	case rendezvous.Ended:
		return "ended with the job"
	case rendezvous.Failed:
		return fmt.Sprintf("failed with exit code %d", r.Exit)
	case rendezvous.Lost:
		if killed {
			return fmt.Sprintf("killed after %s", killGrace)
		}
		return "lost: " + r.Error
	case rendezvous.Done:
		return fmt.Sprintf("ended with exit code %d", r.Exit)
	}
	return string(r.State)
}

// taskEnds forwards srun's standard error and records which tasks it reports as ended, and
// how. No other source reports the end of a single rank. Accounting records only the end of the
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
	execFailure string // the step daemon's message about a program that it could not execute
}

// maxLine is the maximum length of a recorded line, in bytes. Ranks print to the same stream.
const maxLine = 64 << 10

// Write never returns an error. srun would kill its ranks if its output could not be written.
func (t *taskEnds) Write(p []byte) (int, error) {
	_, _ = t.out.Write(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		part, remaining, ended := bytes.Cut(rest, []byte{'\n'})
		rest = remaining
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
// from srun. Therefore parseLine ignores lines whose ranks and hosts do not match, and uses only
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
