package trainer

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// updateTrace begins or ends the trace before the next step, on all ranks. The trace includes work
// between steps: after the last traced step and before the next step.
func (r *run) updateTrace(ctx context.Context) error {
	begin, end := r.Trace.Due(int(r.pos.Step) + 1)
	if end {
		r.endTrace()
	}
	if !begin {
		return nil
	}
	var id [8]byte // rank 0's, to distinguish files of different attempts
	binary.LittleEndian.PutUint64(id[:], uint64(time.Now().UnixNano()))
	err := r.Comm.Do(ctx, collective.Broadcast(id[:], 0))
	if err == nil {
		err = r.Trace.Begin(binary.LittleEndian.Uint64(id[:]), func() error { return r.Comm.Do(ctx, collective.Barrier()) })
	}
	if err != nil {
		return fmt.Errorf("compare clocks before step %d: %w", r.pos.Step+1, err)
	}
	return nil
}

// endTrace ends the trace, if one is active, and emits the event to write it. A save in the
// background is included up to now.
func (r *run) endTrace() {
	if !r.Trace.Recording() {
		return
	}
	if s := r.asyncSave; s != nil {
		r.Trace.Add(trace.AsyncSave, 0, s.began)
	}
	r.Trace.End()
	r.Observe(Event{Kind: Traced, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs})
}

// spansPerStep returns the maximum number of spans of a step on one track: a fixed number, and for
// each micro-batch an operation or a wait per bucket, for values in both passes and for gradients.
func spansPerStep(batches, buckets int) int { return 16 + max(1, batches)*(4+3*buckets) }
