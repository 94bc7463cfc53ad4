package ddp

import (
	"context"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// Over is a communicator's operations for a [Sharder].
func Over(c collective.Communicator) Communicator { return over{c} }

type over struct{ collective.Communicator }

// mine is this rank's part.
func mine[T collective.Number](o over, buf []T) []T {
	n := len(buf) / o.Size()
	return buf[o.Rank()*n:][:n]
}

func (o over) AllReduceBF16(ctx context.Context, buf []element.BF16) error {
	return o.Do(ctx, collective.AllReduce(buf, collective.Sum))
}

func (o over) ReduceScatter(ctx context.Context, buf []float32) error {
	return o.Do(ctx, collective.ReduceScatter(mine(o, buf), buf, collective.Sum))
}

func (o over) ReduceScatterBF16(ctx context.Context, buf []element.BF16) error {
	return o.Do(ctx, collective.ReduceScatter(mine(o, buf), buf, collective.Sum))
}

func (o over) AllGather(ctx context.Context, buf []float32) error {
	return o.Do(ctx, collective.AllGather(buf, mine(o, buf)))
}

// Alloc returns memory that the other ranks of the node can read, if there is such.
func (o over) Alloc(ctx context.Context, n int) ([]float32, error) {
	return collective.Alloc[float32](ctx, o.Communicator, n)
}
