package rendezvous

import (
	"fmt"
	"strings"
	"time"
)

// Progress is how far a rank has come.
type Progress struct {
	Step  int    `json:"step"`
	Phase string `json:"phase"`
	// Done changes with everything that is finished, a batch say. A rank that keeps
	// no such count has 0, and is not expected to make progress.
	Done uint64 `json:"done,omitempty"`
}

// beatEvery is how often a rank says that it is alive, and how far it has come.
const beatEvery = 500 * time.Millisecond

// beat tells the server of this rank until the session ends. A launcher that cannot be
// told is noticed by the reader.
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

// Report has the server told from now on what progress returns, at once and then
// twice a second; it is called from another goroutine.
func (s *Session) Report(progress func() Progress) {
	s.mu.Lock()
	s.progress = progress
	s.mu.Unlock()
	_ = send(s.conn, kindBeat, progress())
}

// silence is what the server's watch knows of a rank. Times are those in which this
// process ran, and for a rank that stands still in which it was heard.
type silence struct {
	silent  time.Duration
	heard   bool // since the last look
	done    uint64
	stalled time.Duration
}

// watch looks for ranks that are silent, and for a training that stands still. Only
// time in which this process itself ran counts, and none in which no rank at all was
// heard: who stops all of a job (Slurm's suspend, a debugger) resumes it later.
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

// lookLocked counts a time since the last look, and ends the attempt if it must.
func (s *Server) lookLocked(passed time.Duration) {
	heard := false
	for r := range s.ranks {
		heard = heard || s.members[r] != nil && s.silences[r].heard
	}
	if !heard {
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

// frozenLocked is the failure of ranks that fell silent.
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

// stalledLocked is the failure of a training that stands still: of the ranks that are
// farthest behind.
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

// at is where a rank was last.
func (r *RankStatus) at() string {
	if r.Phase == "" {
		return ""
	}
	return fmt.Sprintf(" at step %d (%s)", r.Step, r.Phase)
}

// onHosts names ranks with their hosts.
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
		parts[i] = FormatRanks(byHost[h])
		if h != "" {
			parts[i] += " on " + h
		}
	}
	return strings.Join(parts, "; ")
}

// heard notes that a rank lives.
func (s *Server) heard(rank int) {
	s.mu.Lock()
	s.silences[rank].heard, s.ranks[rank].Seen = true, time.Now()
	s.mu.Unlock()
}

// beaten notes how far a rank has come.
func (s *Server) beaten(rank int, p Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, q := &s.ranks[rank], &s.silences[rank]
	if p.Done != q.done || p.Phase != st.Phase {
		q.done, q.stalled = p.Done, 0
	}
	st.Step, st.Phase = p.Step, p.Phase
}
