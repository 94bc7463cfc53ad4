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

// heartbeatInterval is the interval of the heartbeats, which include the progress.
const heartbeatInterval = 500 * time.Millisecond

// sendHeartbeats sends heartbeats until the session ends. If a send fails, the reader detects the loss
// of the launcher.
func (s *Session) sendHeartbeats() {
	tick := time.NewTicker(heartbeatInterval)
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
// Later calls of progress are on a different goroutine, twice per second, and in Leave.
func (s *Session) Report(progress func() Progress) {
	s.mu.Lock()
	s.progress = progress
	s.mu.Unlock()
	_ = send(s.conn, kindBeat, progress())
}

// An activity is the record of a rank in the server's watchdog. Only time in which this process
// ran and any rank sent a message counts.
type activity struct {
	silent  time.Duration
	hasSent bool // sent a message since the last check
	done    uint64
	stalled time.Duration
}

// watch detects silent ranks and stalled training. Only time in which this process itself ran
// counts, and only if any rank sent a message in it. So a whole job can be suspended, by Slurm or a
// debugger, and resumed. After a stop request, ranks leave one by one, and the silence of the last
// ones counts as well.
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
		case <-s.ctx.Done():
			return
		}
		now := time.Now()
		s.mu.Lock()
		s.checkLocked(min(now.Sub(last), 2*every))
		s.mu.Unlock()
		last = now
	}
}

// checkLocked adds the time since the last check, and fails the attempt if a limit is reached.
func (s *Server) checkLocked(passed time.Duration) {
	anySent := false
	for r := range s.ranks {
		anySent = anySent || s.members[r] != nil && s.activities[r].hasSent
	}
	if !anySent && !s.stopping {
		return
	}
	var silent, active []int
	allStalled := s.complete
	for r := range s.ranks {
		q := &s.activities[r]
		if s.members[r] == nil {
			continue
		}
		if q.hasSent {
			q.silent, q.hasSent = 0, false
		} else {
			q.silent += passed
		}
		q.stalled += passed
		if s.o.Silence > 0 && q.silent >= s.o.Silence {
			silent = append(silent, r)
		}
		allStalled = allStalled && q.done > 0 && s.o.Stall > 0 && q.stalled >= s.o.Stall
		active = append(active, r)
	}
	switch {
	case len(silent) > 0:
		s.failLocked(s.silentFailureLocked(silent))
	case allStalled && len(active) > 0:
		s.stack = true
		s.failLocked(s.stalledFailureLocked(active))
	}
}

// silentFailureLocked returns the failure for silent ranks.
func (s *Server) silentFailureLocked(ranks []int) Failure {
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

// stalledFailureLocked returns the failure for stalled training. It names the ranks with the least
// progress.
func (s *Server) stalledFailureLocked(ranks []int) Failure {
	least := ranks[0]
	for _, r := range ranks {
		if s.activities[r].done < s.activities[least].done {
			least = r
		}
	}
	var slowest []int
	for _, r := range ranks {
		if s.activities[r].done == s.activities[least].done {
			slowest = append(slowest, r)
		}
	}
	first := &s.ranks[least]
	subject := "no rank has"
	if len(slowest) < len(ranks) {
		subject = s.onHosts(slowest) + " and all that wait for it have not"
	}
	return Failure{Rank: first.Rank, Host: first.Host, State: Lost, Step: first.Step, Phase: first.Phase,
		Reason: fmt.Sprintf("%s made progress for %s%s", subject, s.o.Stall, first.at()),
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

// recordMessage records that a message of a rank arrived.
func (s *Server) recordMessage(rank int) {
	s.mu.Lock()
	s.activities[rank].hasSent, s.ranks[rank].Seen = true, time.Now()
	s.mu.Unlock()
}

// recordProgress records the progress of a rank.
func (s *Server) recordProgress(rank int, p Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, q := &s.ranks[rank], &s.activities[rank]
	if p.Done != q.done || p.Phase != st.Phase {
		q.done, q.stalled = p.Done, 0
	}
	st.Step, st.Phase = p.Step, p.Phase
}
