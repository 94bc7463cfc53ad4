package ddp

import (
	"context"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// Over is a communicator's operations for a [Sharder].
func Over(c collective.Communicator) Communicator { return over{c} }

type over struct{ collective.Communicator }

// mine is this rank's part.
func (o over) mine(buf []float32) []float32 {
	n := len(buf) / o.Size()
	return buf[o.Rank()*n:][:n]
}

// AllReduce adds up in the order that ReduceScatter has, as one operation where that
// has it too: the sum of two numbers has no order, and in shared memory there is but
// one. Where nodes share memory inside and not with each other it keeps the order of
// nodes, which is faster: there alone it differs from ReduceScatter's.
func (o over) AllReduce(ctx context.Context, buf []float32) error {
	all, parts := collective.AllReduce(buf, collective.Sum), collective.ReduceScatter(o.mine(buf), buf, collective.Sum)
	path := o.Path(all)
	if o.Size() <= 2 || strings.Contains(path.Transport, "memory") || path.Algorithm == o.Path(parts).Algorithm {
		return o.Communicator.AllReduce(ctx, buf)
	}
	if err := o.Do(ctx, parts); err != nil {
		return err
	}
	return o.AllGather(ctx, buf)
}

func (o over) ReduceScatter(ctx context.Context, buf []float32) error {
	return o.Do(ctx, collective.ReduceScatter(o.mine(buf), buf, collective.Sum))
}

func (o over) AllGather(ctx context.Context, buf []float32) error {
	return o.Do(ctx, collective.AllGather(buf, o.mine(buf)))
}

// Alloc returns memory that the other ranks of the node can read, if there is such.
func (o over) Alloc(ctx context.Context, n int) ([]float32, error) {
	return collective.Alloc[float32](ctx, o.Communicator, n)
}
