package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// openData opens the data. Reading large data can take long, so a stop request interrupts it: then
// all ranks return errStopped.
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
	interrupted := disarm() && err != nil
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

// errAllStopped reports that all ranks have stopped, because one of them was asked to.
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

// scan returns the scan of token files. On each node, the rank with the lowest number reads all
// tokens, or uses the file that an earlier attempt has written to the run directory. The others wait.
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

// waitForScans waits until no rank reads tokens. If a rank was asked to stop, all ranks return
// errAllStopped. failed may be read when done is closed.
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

// isFirstOfNode reports whether no rank below this one is on the same node.
func (r *run) isFirstOfNode(ctx context.Context) (bool, error) {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return false, err
	}
	for _, node := range nodes[:r.Comm.Rank()] {
		if node == float64(r.Node) {
			return false, nil
		}
	}
	return true, nil
}
