package launch

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// A componentRecorder writes the states of the components of this node to the run directory. A file
// system that does not respond delays no component.
type componentRecorder struct {
	dir     rundir.Dir
	say     func(line string)
	attempt int
	node    int

	mu      sync.Mutex
	states  []rundir.ComponentState
	changed chan struct{}
	written chan struct{} // closed when no more states are written
	once    sync.Once
}

func newComponentRecorder(dir rundir.Dir, attempt, node int, say func(string)) *componentRecorder {
	r := &componentRecorder{dir: dir, say: say, attempt: attempt, node: node, changed: make(chan struct{}, 1), written: make(chan struct{})}
	go func() {
		defer close(r.written)
		warned := false
		for range r.changed {
			r.mu.Lock()
			states := slices.Clone(r.states)
			r.mu.Unlock()
			if err := dir.WriteComponents(attempt, node, states); err != nil && !warned && !dir.IsDeleted() {
				warned = true
				say(fmt.Sprintf("warning: %v", err))
			}
		}
	}()
	return r
}

// set records the state of a component.
func (r *componentRecorder) set(p *component, phase rundir.ComponentPhase, reason error) {
	s := rundir.ComponentState{Name: string(p.spec.Name), Attempt: r.attempt, Node: r.node, Host: p.c.r.Info.Host, Address: p.at.String(),
		Phase: phase, Restarts: p.restarts, Time: time.Now().UTC()}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.states, func(t rundir.ComponentState) bool { return t.Name == s.Name })
	if i < 0 {
		i = len(r.states)
		r.states = append(r.states, s)
	}
	s.Reason = r.states[i].Reason
	if reason != nil {
		s.Reason = reason.Error()
	}
	r.states[i] = s
	select {
	case r.changed <- struct{}{}:
	default: // the next write has this state
	}
}

// close writes the last states, if the file system responds. No call of set may follow.
func (r *componentRecorder) close() {
	r.once.Do(func() { close(r.changed) })
	select {
	case <-r.written:
	case <-time.After(stopFileTimeout):
	}
}
