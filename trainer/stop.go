package trainer

import (
	"context"
	"errors"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// errStopped is the cause of a context that ended because the run was asked to stop.
var errStopped = errors.New("the run was asked to stop")

// untilStop returns a context that also ends, with errStopped, when this rank is asked to stop.
// After disarm has returned, a request to stop no longer ends the context; disarm reports whether a
// request has ended it. Both functions must be called, cancel last.
func (r *run) untilStop(ctx context.Context) (_ context.Context, disarm func() (stopped bool), cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	if r.stopRequested() {
		end(errStopped)
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-r.Stop:
			end(errStopped)
		case <-over:
		}
	}()
	disarm = func() bool {
		close(over)
		<-ended
		return errors.Is(context.Cause(ctx), errStopped)
	}
	return ctx, disarm, func() { end(nil) }
}

// anyStopped reports whether any rank was asked to stop. Every rank must call it.
func (r *run) anyStopped(ctx context.Context, stopped bool) (bool, error) {
	flag := make([]float64, 1)
	if stopped {
		flag[0] = 1
	}
	err := r.Comm.Do(ctx, collective.AllReduce(flag, collective.Sum))
	return flag[0] > 0, err
}
