package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// leave records the exit code and the error of a rank that leaves. An error ends the attempt, unless
// the rank ended because the attempt had already failed.
func (s *Server) leave(rank int, m leaveMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.ranks[rank]
	st.Exit, st.Error, st.StopUnhandled = m.Exit, m.Error, m.Unhandled
	st.State = Done
	if m.Ended && s.first != nil {
		st.State, st.Error = Ended, ""
		if w := s.worker; w != nil && w.rank == rank && s.first.Rank == rank && s.first.State == Failed {
			st.State, st.Exit, st.Error = Failed, s.first.Exit, w.text
		}
		s.removeLocked(rank)
		return
	}
	switch {
	case s.first != nil:
	case m.Error != "":
		s.exit = m.Exit // ranks that were asked to stop may have left with larger codes
	default:
		s.exit = max(s.exit, m.Exit)
	}
	if m.Error != "" {
		st.State = Failed
		f := Failure{Rank: rank, Host: st.Host, State: Failed, Exit: m.Exit, Step: st.Step, Phase: st.Phase,
			Reason: fmt.Sprintf("rank %d on %s: %s", rank, st.Host, m.Error), Advice: m.Hint, PortTaken: m.PortTaken}
		switch {
		case m.PortTaken:
			s.setPortCauseLocked(f)
		case m.Blames != nil:
			s.setCauseLocked(&f, *m.Blames)
		case len(m.Suspects) > 0:
			s.suspectLocked(&f, m)
		}
		s.setWorkerCauseLocked(&f)
		s.failLocked(f)
	}
	s.removeLocked(rank)
}

// setPortCauseLocked makes a taken port the cause of the attempt's failure. A rank that has connected
// to the wrong process may have failed before.
func (s *Server) setPortCauseLocked(f Failure) {
	if s.first == nil || s.first.PortTaken || s.first.Rank < 0 {
		return
	}
	f.Reason += "; before that: " + s.first.Reason
	s.first = &f
}

// maxWorkerAge is how long a failed worker can be the cause of a later failure. If torchrun
// does not restart a worker, it exits within seconds of the worker's failure. It kills the
// other workers after up to 30 s.
const maxWorkerAge = time.Minute

// A failedWorker is the first failed worker of any rank's program.
type failedWorker struct {
	rank, restarts int
	text           string
	at             time.Time
}

func (w *failedWorker) isStale() bool { return time.Since(w.at) > maxWorkerAge }

// workerFailed records a failed worker if it is the first since the workers were started. It
// ignores workers that stop because the attempt ends.
func (s *Server) workerFailed(rank int, m workerFailedMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || s.first != nil {
		return
	}
	if w := s.worker; w == nil || m.Restarts > w.restarts || w.isStale() {
		s.worker = &failedWorker{rank, m.Restarts, m.Text, time.Now()}
	}
}

// setWorkerCauseLocked makes the rank of the first failed worker the cause of f. It discards a
// worker that failed long ago, because torchrun has restarted it.
func (s *Server) setWorkerCauseLocked(f *Failure) {
	if s.worker != nil && s.worker.isStale() {
		s.worker = nil
	}
	w := s.worker
	if w == nil || f.State != Failed {
		return
	}
	if w.rank == f.Rank {
		f.Reason += ": " + w.text
		return
	}
	st := &s.ranks[w.rank]
	*f = Failure{Rank: w.rank, Host: st.Host, State: Failed, Exit: f.Exit, Step: st.Step, Phase: st.Phase, Advice: f.Advice,
		Reason: fmt.Sprintf("rank %d on %s: %s; after that %s", w.rank, st.Host, w.text, f.Reason)}
}

// setCauseLocked makes the rank that f's rank waited for the cause of f, unless the blamed rank
// has ended or has not joined.
func (s *Server) setCauseLocked(f *Failure, rank int) {
	if rank < 0 || rank >= len(s.ranks) || rank == f.Rank || s.ranks[rank].State != Joined {
		return
	}
	st := &s.ranks[rank]
	if st.Error == "" {
		st.Error = fmt.Sprintf("rank %d waited for it without success", f.Rank)
	}
	*f = Failure{Rank: rank, Host: st.Host, State: Lost, Step: st.Step, Phase: st.Phase, Advice: f.Advice,
		Reason: fmt.Sprintf("rank %d on %s hangs or is cut off%s: %s", rank, st.Host, st.at(), f.Reason)}
}

// maxSuspects limits how many suspected ranks and hosts a message names.
const maxSuspects = 8

// suspectLocked makes f a failure of the suspects that a rank reported. If there is a single
// suspect, f.Rank is the suspect. If all suspects are on one host, f.Host is that host.
// Otherwise Rank is -1 and Host is empty, so that no healthy node is excluded.
func (s *Server) suspectLocked(f *Failure, m leaveMessage) {
	var ranks, hosts []string
	for _, rank := range m.Suspects {
		if rank < 0 || rank >= len(s.ranks) {
			return // report it like any other failure
		}
		host := s.ranks[rank].Host
		ranks = append(ranks, fmt.Sprintf("rank %d on %s", rank, host))
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	f.Rank, f.Host = -1, ""
	if len(ranks) == 1 {
		f.Rank = m.Suspects[0]
	}
	if len(hosts) == 1 {
		f.Host = hosts[0]
	}
	f.Reason = fmt.Sprintf("%s (%s)", m.Error, listSome(ranks))
	f.Advice = fmt.Sprintf("suspected nodes: %s; %s", listSome(hosts), m.Hint)
}

// listSome joins the first maxSuspects items of a list.
func listSome(list []string) string {
	text := strings.Join(list[:min(len(list), maxSuspects)], ", ")
	if more := len(list) - maxSuspects; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (s *Server) recordLoss(rank int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.ranks[rank]
	st.State = Lost
	why := Died
	if !errors.Is(err, io.EOF) {
		why = err.Error()
	}
	if st.Error == "" { // otherwise it was silent before
		st.Error = why
	}
	s.failLocked(Failure{Rank: rank, Host: st.Host, State: Lost, Step: st.Step, Phase: st.Phase,
		Reason: fmt.Sprintf("rank %d on %s was lost%s: %s", rank, st.Host, st.at(), why)})
	s.removeLocked(rank)
}

func (s *Server) removeLocked(rank int) {
	s.members[rank] = nil
	s.left++
	s.finishLocked()
}

// finishLocked ends the attempt if every rank has ended, or if a rank has failed and all ranks
// that joined have ended.
func (s *Server) finishLocked() {
	if s.left+s.missing < s.o.WorldSize || (s.missing > 0 && s.first == nil) {
		return
	}
	select {
	case <-s.finished:
	default:
		close(s.finished)
	}
}

// failLocked records f if it is the first failure, and then sends it to all ranks.
func (s *Server) failLocked(f Failure) {
	if s.recordLocked(f) {
		s.announceLocked()
	}
}

// recordLocked records f if it is the first failure, and reports whether it is.
func (s *Server) recordLocked(f Failure) bool {
	if s.first != nil {
		return false
	}
	if len(s.notices) > 0 {
		f.Reason += "; noticed before: " + strings.Join(s.notices, "; ")
	}
	s.first = &f
	close(s.failing)
	return true
}

// maxNotices limits the stored notices, for example of a link that flaps all day.
const maxNotices = 4

// notice stores a rank's notice for the reason of a later failure, and passes it to
// ServerOptions.Warn.
func (s *Server) notice(rank int, text string) {
	s.mu.Lock()
	line := fmt.Sprintf("%s: %s", s.ranks[rank].Host, text)
	s.notices = append(s.notices[max(0, len(s.notices)+1-maxNotices):], line)
	s.mu.Unlock()
	if s.o.Warn != nil {
		s.o.Warn(line)
	}
}

// announceLocked sends the first failure to the connected ranks.
func (s *Server) announceLocked() {
	for _, c := range s.connected() {
		go send(c, kindAbort, reasonMessage{s.first.Reason, s.stack})
	}
	s.finishLocked()
}

func (s *Server) joinExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []int
	for _, r := range s.ranks {
		if r.State == Missing {
			missing = append(missing, r.Rank)
		}
	}
	if len(missing) == 0 {
		return
	}
	s.failLocked(Failure{Rank: missing[0], Host: s.ranks[missing[0]].Host, State: Missing, Phase: "join",
		Reason: fmt.Sprintf("%d of %d ranks did not join within %s: %s", len(missing), s.o.WorldSize, s.o.JoinTimeout, s.onHosts(missing)),
		Advice: "check the named hosts: is the node up, can it reach the launching node, does the program start there? network.join_timeout sets how long to wait"})
}
