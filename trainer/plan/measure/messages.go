package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// Messages measures all-reduces of two ranks in this process, which are connected like ranks of one
// node. It returns the link with which package plan predicts the same time.
func Messages(ctx context.Context) (plan.Link, error) {
	comms, err := connect(ctx, 2)
	if err != nil {
		return plan.Link{}, fmt.Errorf("measure messages: %w", err)
	}
	defer closeAll(comms)
	const small, large = 16, 1 << 20 // elements
	latency, err := fastest(ctx, comms, small, 200)
	if err != nil {
		return plan.Link{}, fmt.Errorf("measure messages: %w", err)
	}
	all, err := fastest(ctx, comms, large, 20)
	if err != nil {
		return plan.Link{}, fmt.Errorf("measure messages: %w", err)
	}
	// In a ring of two these are two messages, each with half of the elements.
	return plan.Link{Latency: latency / 2, Bandwidth: 4 * large / max(all-latency, 1e-9)}, nil
}

// fastest returns the minimum time of a number of all-reduces.
func fastest(ctx context.Context, comms []collective.Communicator, elements, times int) (float64, error) {
	best := math.Inf(1)
	err := each(comms, func(c collective.Communicator) error {
		// Gradients are in memory that the ranks of a node share, if it exists.
		v, err := collective.Alloc[float32](ctx, c, elements)
		if err != nil {
			return err
		}
		if v == nil {
			v = make([]float32, elements)
		}
		for range times {
			begin := time.Now()
			if err := c.Do(ctx, collective.AllReduce(v, collective.Sum)); err != nil {
				return err
			}
			if c.Rank() == 0 {
				best = min(best, time.Since(begin).Seconds())
			}
		}
		return nil
	})
	return best, err
}

// each runs do on all ranks at the same time.
func each(comms []collective.Communicator, do func(collective.Communicator) error) error {
	errs := make([]error, len(comms))
	var wait sync.WaitGroup
	for i, c := range comms {
		wait.Go(func() { errs[i] = do(c) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func closeAll(comms []collective.Communicator) {
	for _, c := range comms {
		if c != nil {
			c.Close()
		}
	}
}
