package collective

import (
	"context"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// firstLook is how long an operation takes before a rank asks about the one that it waits
// for. It asks again after twice the time, and so on: that one may have come later.
const firstLook = time.Second

// lookout finds out, long before the timeout, that ranks only wait for each other since
// their programs have diverged, of which no message tells. While an operation lasts it asks
// the rank that is waited for which one that is in. Where ranks wait in a circle, and not
// all for the same, one of them is told of another operation, or of other arguments.
// Ranks that share memory have compared them before they wait.
type lookout struct {
	diverged chan struct{} // closed when there is an answer that no waiting helps against
	found    *mesh.Mismatch

	ctx    context.Context // of the questions
	stop   context.CancelFunc
	asking sync.WaitGroup

	// These are the group's mutex's.
	timer *time.Timer // none where there is nobody to ask
	pause time.Duration
}

func newLookout() *lookout {
	l := &lookout{diverged: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// beginLook is called with the group's mutex, when an operation begins.
func (g *group) beginLook() {
	l := g.lookout
	l.pause = firstLook
	if l.timer != nil {
		l.timer.Reset(l.pause)
	} else if _, memory := g.engine.(*shared); !memory {
		l.timer = time.AfterFunc(l.pause, g.look)
	}
}

// endLook is called with the group's mutex, when the operation is over.
func (g *group) endLook() {
	if g.lookout.timer != nil {
		g.lookout.timer.Stop()
	}
}

// closeLook returns when nothing is asked any more; the group is broken.
func (g *group) closeLook() {
	g.lookout.stop()
	g.lookout.asking.Wait()
}

// look asks once, and has it asked again if that says nothing.
func (g *group) look() {
	l := g.lookout
	g.mu.Lock()
	at, pause := g.at, l.pause
	over := g.broken != nil || at.signature.Kind == 0
	if !over {
		l.asking.Add(1)
	}
	g.mu.Unlock()
	if over {
		return
	}
	defer l.asking.Done()
	other := g.otherThan(at, min(pause, mostAnswer))
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.at != at || g.broken != nil || l.found != nil:
	case other != nil:
		l.found = other
		close(l.diverged)
	default:
		l.pause = 2 * pause
		l.timer.Reset(l.pause)
	}
}

// otherThan is how the rank that this one waits for is in another operation, if it is and
// says so within patience.
func (g *group) otherThan(at standing, patience time.Duration) *mesh.Mismatch {
	suspect := int(g.waiting.rank.Load()) - 1
	if suspect < 0 || g.memory && g.nodes[suspect] == g.nodes[g.world.rank] {
		return nil
	}
	ctx, cancel := context.WithTimeout(g.lookout.ctx, patience)
	defer cancel()
	state, err := g.mesh.Ask(ctx, suspect, g.id)
	if err != nil {
		return nil // who is gone is noticed by who waits for it
	}
	return at.other(suspect, state)
}

// other is how a rank that says where it is differs from this one in the same operation;
// nil where it does not, or is not there.
func (at standing) other(rank int, state mesh.State) *mesh.Mismatch {
	if state.Sequence != at.sequence || state.Signature.Kind == 0 || state.Signature == at.signature {
		return nil
	}
	return &mesh.Mismatch{Peer: rank, Sequence: at.sequence, Ours: at.signature, Theirs: state.Signature}
}
