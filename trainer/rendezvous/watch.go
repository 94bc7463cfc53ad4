package rendezvous

import (
	"fmt"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// Progress is the progress of a rank.
type Progress struct {
	Step  int    `json:"step"`
	Phase string `json:"phase"`
	// Done changes whenever work, such as a batch, is finished. A rank without such a count
	// reports 0 and is not expected to make progress.
	Done uint64 `json:"done,omitempty"`
}

// beatEvery is the interval of the heartbeats, which include the progress.
const beatEvery = 500 * time.Millisecond

// beat sends heartbeats until the session ends. If a send fails, the reader detects the loss
// of the launcher.
func (s *Session) beat() {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		progress := s.progress
		s.mu.Unlock()
		_ = send(s.conn, kindBeat, progress())
	}
}

// Report sets the source of the progress in heartbeats. It sends a heartbeat immediately.
// Later calls of progress are on a different goroutine, twice per second.
func (s *Session) Report(progress func() Progress) {
	s.mu.Lock()
	s.progress = progress
	s.mu.Unlock()
	_ = send(s.conn, kindBeat, progress())
}

// A silence is the record of a rank in the server's watchdog. Only time in which this process
// ran and any rank sent a message counts.
type silence struct {
	silent  time.Duration
	heard   bool // since the last check
	done    uint64
	stalled time.Duration
}

// watch detects silent ranks and stalled training. Only time in which this process itself ran
// counts, and only if any rank sent a message in it. If all of a job is stopped, by Slurm's
// suspend or a debugger, it resumes later. After a stop request, ranks leave one by one, and the
// silence of the last ones counts as well.
func (s *Server) watch() {
	every := time.Second
	for _, limit := range []time.Duration{s.o.Silence, s.o.Stall} {
		if limit > 0 {
			every = min(every, limit/4)
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
		case <-s.failing:
			return
		case <-s.finished:
			return
		}
		now := time.Now()
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.lookLocked(min(now.Sub(last), 2*every))
		}
		s.mu.Unlock()
		if closed {
			return
		}
		last = now
	}
}

// lookLocked adds the time since the last check, and fails the attempt if a limit is reached.
func (s *Server) lookLocked(passed time.Duration) {
	heard := false
	for r := range s.ranks {
		heard = heard || s.members[r] != nil && s.silences[r].heard
	}
	if !heard && !s.stopping {
		return
	}
	var frozen, standing []int
	still := s.complete
	for r := range s.ranks {
		q := &s.silences[r]
		if s.members[r] == nil {
			continue
		}
		if q.heard {
			q.silent, q.heard = 0, false
		} else {
			q.silent += passed
		}
		q.stalled += passed
		if s.o.Silence > 0 && q.silent >= s.o.Silence {
			frozen = append(frozen, r)
		}
		still = still && q.done > 0 && s.o.Stall > 0 && q.stalled >= s.o.Stall
		standing = append(standing, r)
	}
	switch {
	case len(frozen) > 0:
		s.failLocked(s.frozenLocked(frozen))
	case still && len(standing) > 0:
		s.stack = true
		s.failLocked(s.stalledLocked(standing))
	}
}

// frozenLocked returns the failure for silent ranks.
func (s *Server) frozenLocked(ranks []int) Failure {
	first := &s.ranks[ranks[0]]
	for _, r := range ranks {
		s.ranks[r].Error = fmt.Sprintf("silent for %s", s.o.Silence)
	}
	text := fmt.Sprintf("rank %d on %s has", first.Rank, first.Host)
	if len(ranks) > 1 {
		text = s.onHosts(ranks) + " have"
	}
	return Failure{Rank: first.Rank, Host: first.Host, State: Lost, Step: first.Step, Phase: first.Phase,
		Reason: fmt.Sprintf("%s been silent for %s%s", text, s.o.Silence, first.at()),
		Advice: "the process is frozen, its node hangs, or the network to it is cut; network.heartbeat_timeout sets how long to wait"}
}

// stalledLocked returns the failure for stalled training. It names the ranks with the least
// progress.
func (s *Server) stalledLocked(ranks []int) Failure {
	least := ranks[0]
	for _, r := range ranks {
		if s.silences[r].done < s.silences[least].done {
			least = r
		}
	}
	var behind []int
	for _, r := range ranks {
		if s.silences[r].done == s.silences[least].done {
			behind = append(behind, r)
		}
	}
	first := &s.ranks[least]
	who := "no rank has"
	if len(behind) < len(ranks) {
		who = s.onHosts(behind) + " and all that wait for it have not"
	}
	return Failure{Rank: first.Rank, Host: first.Host, State: Lost, Step: first.Step, Phase: first.Phase,
		Reason: fmt.Sprintf("%s made progress for %s%s", who, s.o.Stall, first.at()),
		Advice: "each rank's stacks are in its log; a file system that hangs looks like this. network.progress_timeout sets how long to wait"}
}

// at describes the last known step and phase of a rank.
func (r *RankStatus) at() string {
	if r.Phase == "" {
		return ""
	}
	return fmt.Sprintf(" at step %d (%s)", r.Step, r.Phase)
}

// onHosts lists ranks with their hosts.
func (s *Server) onHosts(ranks []int) string {
	byHost := map[string][]int{}
	var hosts []string
	for _, r := range ranks {
		h := s.ranks[r].Host
		if len(byHost[h]) == 0 {
			hosts = append(hosts, h)
		}
		byHost[h] = append(byHost[h], r)
	}
	parts := make([]string, len(hosts))
	for i, h := range hosts {
		parts[i] = format.Ranks(byHost[h])
		if h != "" {
			parts[i] += " on " + h
		}
	}
	return strings.Join(parts, "; ")
}

// heard records that a message of a rank arrived.
func (s *Server) heard(rank int) {
	s.mu.Lock()
	s.silences[rank].heard, s.ranks[rank].Seen = true, time.Now()
	s.mu.Unlock()
}

// beaten records the progress of a rank.
func (s *Server) beaten(rank int, p Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, q := &s.ranks[rank], &s.silences[rank]
	if p.Done != q.done || p.Phase != st.Phase {
		q.done, q.stalled = p.Done, 0
	}
	st.Step, st.Phase = p.Step, p.Phase
}
