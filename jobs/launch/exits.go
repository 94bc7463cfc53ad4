package launch

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// A processEnd describes how the process of a rank ended.
type processEnd struct {
	code   int    // as reported by a shell
	signal string // signal that killed the process, such as "SIGKILL"; empty if none did
	text   string // code and signal as text
	advice string // hint for the user; empty if unknown
}

// exitedWith describes a process that ended with an exit code.
func exitedWith(code int) processEnd {
	return processEnd{code: code, text: fmt.Sprintf("its process ended with exit code %d", code)}
}

// killedBySignal describes a process that a signal killed.
func killedBySignal(s syscall.Signal) processEnd {
	name := unix.SignalName(s)
	return processEnd{code: 128 + int(s), signal: name, text: "its process was ended by " + name}
}

// oomKilled describes a process that the kernel's out-of-memory killer killed with
// SIGKILL.
var oomKilled = processEnd{code: 128 + int(syscall.SIGKILL), signal: "SIGKILL",
	text:   "its process was ended by SIGKILL of the out-of-memory killer",
	advice: "it needs more memory than the job has on that node: raise slurm.mem, or take fewer ranks on a node or a smaller batch; `ddpbatch plan` says what the built-in trainer needs"}

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
