package launch

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// tellExits adds how their processes ended to ranks that did not say so themselves, and
// to the first failure if it is one of theirs: not of a rank that hung, and that the
// launcher has then killed.
func tellExits(o *rendezvous.Outcome, processes []*os.ProcessState, killed map[int]bool) {
	for rank, p := range processes {
		r := &o.Ranks[rank]
		if p == nil || r.State != rendezvous.Lost && r.State != rendezvous.Missing {
			continue
		}
		var how string
		r.Exit, r.Signal, how = exitOf(p)
		if killed[rank] {
			continue
		}
		r.Error = strings.Replace(r.Error, rendezvous.Died, how, 1)
		if o.First != nil && o.First.Rank == rank && o.First.State == r.State {
			first := *o.First // the ranks are told of what is there
			first.Exit, first.Signal = r.Exit, r.Signal
			first.Reason = strings.Replace(first.Reason, rendezvous.Died, how, 1)
			o.First = &first
		}
	}
}

// exitOf is a process's exit code, as a shell has it, the signal that ended it, if one
// has, and both in words.
func exitOf(p *os.ProcessState) (code int, signal, how string) {
	if status, ok := p.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		signal = unix.SignalName(status.Signal())
		return 128 + int(status.Signal()), signal, "its process was ended by " + signal
	}
	return p.ExitCode(), "", fmt.Sprintf("its process ended with exit code %d", p.ExitCode())
}
