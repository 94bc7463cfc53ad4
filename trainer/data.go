package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// openData opens the data. Reading large data can take long, so a stop request interrupts it: then
// all ranks return errStopped, except for a rank whose data cannot be read.
func (r *run) openData(ctx context.Context) (err error) {
	opening, disarm, cancel := r.untilStop(ctx)
	defer cancel()
	scan := func(opening context.Context, key data.ScanKey, compute scanFunc) (data.Scan, error) {
		return r.scan(ctx, opening, key, compute)
	}
	r.data, r.eval, err = data.OpenScanned(opening, DataOptions(r.train), scan)
	if errors.Is(err, errAllStopped) {
		disarm()
		return errStopped
	}
	interrupted := disarm() && errors.Is(err, errStopped)
	if err != nil && !interrupted {
		return err
	}
	stopped, err := r.anyStopped(ctx, interrupted)
	if stopped {
		return errStopped
	}
	return err
}

// scanFunc reads all tokens of the data.
type scanFunc = func(context.Context) (data.Scan, error)

// errAllStopped reports that all ranks have stopped reading, because a rank was asked to stop.
var errAllStopped = errors.New("all ranks have stopped")

// scanPoll is the interval in which ranks report whether they still read tokens. It is much shorter
// than the timeout of a collective.
const scanPoll = 500 * time.Millisecond

// nodeScan is the result of the rank that reads the tokens for its node.
type nodeScan struct {
	Node int
	Scan data.Scan
	Err  string
}

// scan returns the scan of token files. On each node, the lowest rank reads all tokens, or uses the
// file that an earlier attempt has written to the run directory. The others wait.
func (r *run) scan(ctx, opening context.Context, key data.ScanKey, compute scanFunc) (data.Scan, error) {
	reads, err := r.isFirstOfNode(ctx)
	if err != nil {
		return data.Scan{}, err
	}
	own := nodeScan{Node: -1}
	var failed error
	reading, cancel := context.WithCancel(opening)
	defer cancel()
	done := make(chan struct{})
	if reads {
		go func() {
			defer close(done)
			own.Node = r.Node
			own.Scan, failed = r.loadOrCompute(reading, key, compute)
		}()
	} else {
		close(done)
	}
	if err := r.waitForScans(ctx, done, &failed); err != nil {
		cancel()
		<-done
		if failed != nil && !errors.Is(failed, errStopped) && !errors.Is(failed, context.Canceled) {
			return data.Scan{}, failed
		}
		return data.Scan{}, err
	}
	if failed != nil {
		own.Err = failed.Error()
	}
	all, err := collective.AllGatherJSON(ctx, r.Comm, own)
	if failed != nil {
		return data.Scan{}, failed
	}
	if err != nil {
		return data.Scan{}, err
	}
	for rank, s := range all {
		if s.Err != "" {
			return data.Scan{}, RemoteError{rank, errors.New(s.Err)}
		}
	}
	for _, s := range all {
		if s.Node == r.Node {
			return s.Scan, nil
		}
	}
	return data.Scan{}, fmt.Errorf("internal error: no rank of node %d has read the data", r.Node)
}

// waitForScans waits until no rank reads tokens. If a rank is asked to stop, all ranks return
// errAllStopped, unless all have finished reading and one has failed. done is closed when this rank
// has finished reading; then *failed may be read.
func (r *run) waitForScans(ctx context.Context, done <-chan struct{}, failed *error) error {
	tick := time.NewTicker(scanPoll)
	defer tick.Stop()
	for {
		states := make([]float64, 3) // numbers of ranks: reading, asked to stop, failed
		select {
		case <-done:
			if *failed != nil && !errors.Is(*failed, errStopped) {
				states[2] = 1
			}
		case <-tick.C:
			states[0] = 1
		}
		if r.stopRequested() {
			states[1] = 1
		}
		if err := r.Comm.Do(ctx, collective.AllReduce(states, collective.Sum)); err != nil {
			return fmt.Errorf("wait until the data are read: %w", err)
		}
		switch {
		case states[0] == 0 && states[2] > 0:
			return nil
		case states[1] > 0:
			return errAllStopped
		case states[0] == 0:
			return nil
		}
	}
}

// loadOrCompute returns the scan of an earlier attempt, or computes it and stores it for later ones.
func (r *run) loadOrCompute(ctx context.Context, key data.ScanKey, compute scanFunc) (data.Scan, error) {
	if r.RunDir != nil {
		if s, ok := key.Load(r.RunDir); ok {
			return s, nil
		}
	}
	s, err := compute(ctx)
	if err == nil && r.RunDir != nil {
		_ = key.Save(r.RunDir, s) // without the file, the next attempt reads all tokens again
	}
	return s, err
}

// isFirstOfNode reports whether no rank below this one is on the same node. Every rank must call it.
func (r *run) isFirstOfNode(ctx context.Context) (bool, error) {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return false, err
	}
	return !slices.Contains(nodes[:r.Comm.Rank()], float64(r.Node)), nil
}

// errStopped is the cause of a context that ended because the run was asked to stop.
var errStopped = errors.New("the run was asked to stop")

// stopRequested reports whether this rank was asked to stop.
func (o *Options) stopRequested() bool {
	select {
	case <-o.Stop:
		return true
	default:
		return false
	}
}

// untilStop returns a context that also ends, with errStopped, when this rank is asked to stop.
// After disarm has returned, a request to stop no longer ends the context; disarm reports whether a
// request has ended it. Both functions must be called, cancel last.
func (r *run) untilStop(ctx context.Context) (_ context.Context, disarm func() (stopped bool), cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	if r.stopRequested() {
		end(errStopped)
	}
	disarmed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-r.Stop:
			end(errStopped)
		case <-disarmed:
		}
	}()
	disarm = func() bool {
		close(disarmed)
		<-ended
		return errors.Is(context.Cause(ctx), errStopped)
	}
	return ctx, disarm, func() { end(nil) }
}

// anyStopped reports whether stopped is true on any rank. Every rank must call it.
func (r *run) anyStopped(ctx context.Context, stopped bool) (bool, error) {
	flag := make([]float64, 1)
	if stopped {
		flag[0] = 1
	}
	err := r.Comm.Do(ctx, collective.AllReduce(flag, collective.Sum))
	return flag[0] > 0, err
}

// checkSameData compares each rank's data with rank 0's. A rank with different training data would
// silently corrupt the model; different held-out data would falsify the metrics.
func (r *run) checkSameData(ctx context.Context) error {
	for _, part := range []struct {
		what string
		data data.Dataset
	}{{"training", r.data}, {"held-out", r.eval}} {
		digest := strings.Repeat("0", 64) // no data
		if part.data != nil {
			digest = part.data.Digest()
		}
		zero := []byte(digest)
		if err := r.Comm.Do(ctx, collective.Broadcast(zero, 0)); err != nil {
			return err
		}
		if digest != string(zero) {
			return fmt.Errorf("the %s data of this rank differ from rank 0's (digest %.12s, not %.12s)", part.what, digest, zero)
		}
	}
	return nil
}

// nodes returns the node rank of each rank. Every rank must call it.
func (r *run) nodes(ctx context.Context) ([]float64, error) {
	nodes := make([]float64, r.Comm.Size())
	nodes[r.Comm.Rank()] = float64(r.Node)
	if err := r.Comm.Do(ctx, collective.AllReduce(nodes, collective.Sum)); err != nil {
		return nil, fmt.Errorf("exchange the layout of ranks: %w", err)
	}
	return nodes, nil
}

// formatLayout describes the nodes of all ranks as checkpoint.Manifest.Layout does.
func formatLayout(nodes []float64) string {
	var order []float64 // nodes in the order of their first ranks
	var counts []int    // their numbers of ranks
	var list []string   // the node of each rank
	consecutive := true
	for rank, node := range nodes {
		at := slices.Index(order, node)
		if at < 0 {
			at = len(order)
			order, counts = append(order, node), append(counts, 0)
		} else if nodes[rank-1] != node {
			consecutive = false
		}
		counts[at]++
		list = append(list, strconv.Itoa(at))
	}
	switch {
	case !consecutive:
		return strings.Join(list, ",")
	case len(slices.Compact(slices.Clone(counts))) == 1:
		return fmt.Sprintf("%dx%d", len(order), counts[0])
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(counts), "[]"), " ", "+")
}

// stepBatches is this rank's part of an optimizer step. With uneven = "join", a rank with fewer
// micro-batches than others takes part in collectives with padding batches, which do not count, as
// in PyTorch's Join.
type stepBatches struct {
	batches [][]int
	count   int // batches that count; the others are padding
	samples int // samples of all ranks that count
}

// An order is the order in which this rank uses the samples.
type order struct {
	train            *jobs.Train
	data             data.Dataset
	rank, size       int
	reducesEachBatch bool // gradients are reduced after each micro-batch
}

// steps returns the remaining steps of an epoch. Every rank has the same number of steps.
func (o *order) steps(at position) []stepBatches {
	t, world := o.train, o.size
	join, accumulate := t.Data.Uneven == jobs.UnevenJoin, max(1, t.Accumulate)
	s := data.Sampler{N: o.data.Len(), Replicas: world, Rank: o.rank, Shuffle: *t.Data.Shuffle, Join: join,
		DropLast: t.Data.DropLast || t.Data.Uneven == jobs.UnevenDrop, Seed: int64(t.Seed)}
	b := data.BatchSampler{Sampler: s, Batch: t.Batch, DropLast: t.Data.DropLast}
	rest := b.Rest(data.State{Seed: int64(t.Seed), Epoch: int(at.Epoch), Consumed: int(at.Consumed)})
	left := s.N - int(at.Consumed)
	var out []stepBatches
	for len(rest) > 0 || join && left > 0 {
		n := min(accumulate, len(rest))
		now := stepBatches{batches: rest[:n:n], count: n}
		rest = rest[n:]
		if join {
			now.samples = min(left, accumulate*b.Batch*world)
			left -= now.samples
			for len(now.batches) < o.batchesPerRank(now.samples) {
				now.batches = append(now.batches, []int{0}) // padding
			}
		} else {
			for _, batch := range now.batches {
				now.samples += len(batch) * world
			}
		}
		out = append(out, now)
	}
	return out
}

// count returns the number of steps that steps returns, without computing the order of samples.
func (o *order) count(at position) int {
	t, world := o.train, o.size
	accumulate, left := max(1, t.Accumulate), max(0, o.data.Len()-int(at.Consumed))
	if t.Data.Uneven == jobs.UnevenJoin {
		return roundedUp(left, accumulate*t.Batch*world)
	}
	batches := left / world
	if !t.Data.DropLast && t.Data.Uneven != jobs.UnevenDrop {
		batches = roundedUp(left, world)
	}
	if t.Data.DropLast {
		batches /= t.Batch
	} else {
		batches = roundedUp(batches, t.Batch)
	}
	return roundedUp(batches, accumulate)
}

// roundedUp returns a/b, rounded up.
func roundedUp(a, b int) int { return (a + b - 1) / b }

// batchesPerRank returns the minimum number of micro-batches per rank in a step with this number of
// samples. One is enough to have gradients to reduce. If gradients are reduced after each
// micro-batch, all ranks need as many as rank 0, which has the most samples.
func (o *order) batchesPerRank(samples int) int {
	if !o.reducesEachBatch {
		return 1
	}
	return roundedUp(roundedUp(samples, o.size), o.train.Batch)
}

// batchesOf returns the batches of all steps, in order.
func batchesOf(steps []stepBatches) [][]int {
	var out [][]int
	for _, s := range steps {
		out = append(out, s.batches...)
	}
	return out
}
