package collective

import (
	"context"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// firstQueryDelay is how long an operation takes before a rank queries the rank that it waits for.
// Each later query follows after twice the previous interval, because that rank may have entered the
// operation in the meantime.
const firstQueryDelay = time.Second

// divergenceDetector detects ranks that wait for each other because their programs have diverged,
// long before the timeout. No message shows this. During an operation, a rank queries the operation
// of the rank that it waits for. If ranks wait in a cycle and are not all in the same operation, one
// of them receives a different operation or different arguments. Ranks that share memory compare
// operations before they wait.
type divergenceDetector struct {
	diverged chan struct{} // closed when a mismatch is found, so waiting cannot succeed
	mismatch *mesh.Mismatch

	ctx     context.Context // context of the queries
	stop    context.CancelFunc
	queries sync.WaitGroup

	// The group's mutex protects these fields.
	timer    *time.Timer // nil if the ranks share memory and need no queries
	interval time.Duration
}

func newDivergenceDetector() *divergenceDetector {
	l := &divergenceDetector{diverged: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// startDetector is called with the group's mutex held when an operation begins.
func (g *group) startDetector() {
	l := g.detector
	l.interval = firstQueryDelay
	if l.timer != nil {
		l.timer.Reset(l.interval)
	} else if _, memory := g.engine.(*shared); !memory {
		l.timer = time.AfterFunc(l.interval, g.detectDivergence)
	}
}

// stopDetector is called with the group's mutex held when an operation has finished.
func (g *group) stopDetector() {
	if g.detector.timer != nil {
		g.detector.timer.Stop()
	}
}

// closeDetector waits until no query is in progress. The group must be broken, so no new one
// starts.
func (g *group) closeDetector() {
	g.detector.stop()
	g.detector.queries.Wait()
}

// detectDivergence sends one query and schedules the next if the answer shows no mismatch.
func (g *group) detectDivergence() {
	l := g.detector
	g.mu.Lock()
	at, pause := g.at, l.interval
	ended := g.broken != nil || at.signature.Kind == 0
	if !ended {
		l.queries.Add(1)
	}
	g.mu.Unlock()
	if ended {
		return
	}
	defer l.queries.Done()
	other := g.queryMismatch(at, min(pause, maxQueryTimeout))
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.at != at || g.broken != nil || l.mismatch != nil:
	case other != nil:
		l.mismatch = other
		close(l.diverged)
	default:
		l.interval = 2 * pause
		l.timer.Reset(l.interval)
	}
}

// queryMismatch returns the mismatch between this rank and the rank that it waits for. It returns
// nil if the operations match, or if no answer arrives within timeout.
func (g *group) queryMismatch(at groupState, timeout time.Duration) *mesh.Mismatch {
	suspect := int(g.waiting.rank.Load()) - 1
	if suspect < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(g.detector.ctx, timeout)
	defer cancel()
	state, err := g.mesh.Query(ctx, suspect, g.id)
	if err != nil {
		return nil // the operation itself detects that the peer is gone
	}
	return at.mismatch(suspect, state)
}

// mismatch returns the mismatch between a rank's state and this rank in the same operation, or nil
// if they match or the other rank is not in the operation.
func (at groupState) mismatch(rank int, state mesh.State) *mesh.Mismatch {
	if state.Sequence != at.sequence || state.Signature.Kind == 0 || state.Signature == at.signature {
		return nil
	}
	return &mesh.Mismatch{Peer: rank, Sequence: at.sequence, Local: at.signature, Remote: state.Signature}
}
