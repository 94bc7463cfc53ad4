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

// processEnd is how the process of a rank ended.
type processEnd struct {
	code   int    // as a shell has it
	signal string // that ended it, "SIGKILL" say, if one has
	how    string // both in words
	advice string // what to do about it, where that is known
}

// endedByItself is the end of a process that had an exit code.
func endedByItself(code int) processEnd {
	return processEnd{code: code, how: fmt.Sprintf("its process ended with exit code %d", code)}
}

// endedBySignal is the end of one that had none.
func endedBySignal(s syscall.Signal) processEnd {
	name := unix.SignalName(s)
	return processEnd{code: 128 + int(s), signal: name, how: "its process was ended by " + name}
}

// endedByMemory is the end by the kernel's out-of-memory killer, which sends SIGKILL.
var endedByMemory = processEnd{code: 128 + int(syscall.SIGKILL), signal: "SIGKILL",
	how:    "its process was ended by SIGKILL of the out-of-memory killer",
	advice: "it needs more memory than the job has on that node: raise slurm.mem, or take fewer ranks on a node or a smaller batch; `ddpbatch plan` says what the built-in trainer needs"}

// endOf is how a process of this machine ended.
func endOf(p *os.ProcessState) processEnd {
	if status, ok := p.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return endedBySignal(status.Signal())
	}
	return endedByItself(p.ExitCode())
}

// tellExits adds how their processes ended to ranks that did not say so themselves, and
// to the first failure if it is one of theirs: not of a rank that hung, and that the
// launcher has then killed.
func tellExits(o *rendezvous.Outcome, ends map[int]processEnd, killed map[int]bool) {
	for rank, end := range ends {
		r := &o.Ranks[rank]
		if r.State != rendezvous.Lost && r.State != rendezvous.Missing {
			continue
		}
		r.Exit, r.Signal = end.code, end.signal
		if killed[rank] {
			continue
		}
		r.Error = strings.Replace(r.Error, rendezvous.Died, end.how, 1)
		if o.First != nil && o.First.Rank == rank && o.First.State == r.State {
			first := *o.First // the ranks are told of what is there
			first.Exit, first.Signal = r.Exit, r.Signal
			first.Reason = strings.Replace(first.Reason, rendezvous.Died, end.how, 1)
			first.Advice = cmp.Or(first.Advice, end.advice)
			o.First = &first
		}
	}
}
