package bench

import (
	"context"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// An AllReduceResult is the result of [AllReduce] for one buffer size.
type AllReduceResult struct {
	Kind      string  `json:"bench"` // "allreduce"
	Ranks     int     `json:"ranks"`
	Bytes     int     `json:"bytes"`
	Runs      int     `json:"runs"` // timed operations
	Median    float64 `json:"median_ms"`
	Best      float64 `json:"best_ms"`
	BusBW     float64 `json:"busbw_gbs"` // GB/s: 2(N-1)/N times the buffer size, divided by Median
	Transport string  `json:"transport"`
	Algorithm string  `json:"algorithm"`
}

// Limits of a measurement by [AllReduce].
const (
	// The kernel may need this time to give each rank its own core.
	allReduceWarmUp = 250 * time.Millisecond
	allReduceLimit  = 5 * time.Second
	allReduceBytes  = 400 << 20 // of all timed operations
	minAllReduces   = 8
	maxAllReduces   = 2000
)

// A PrepareAllReduce allocates a float32 buffer of the given size, in bytes, and returns a function
// that all-reduces it, and the path that the operation takes.
type PrepareAllReduce func(ctx context.Context, bytes int) (do func(context.Context) error, path collective.Path, err error)

// InHostMemory returns the operations of a communicator on host memory.
func InHostMemory(comm collective.Communicator) PrepareAllReduce {
	return func(ctx context.Context, bytes int) (func(context.Context) error, collective.Path, error) {
		buf, err := collective.Alloc[float32](ctx, comm, bytes/4)
		if err != nil {
			return nil, collective.Path{}, err
		}
		if buf == nil {
			buf = make([]float32, bytes/4)
		}
		call := collective.AllReduce(buf, collective.Sum)
		return func(ctx context.Context) error { return comm.Do(ctx, call) }, comm.Path(call), nil
	}
}

// AllReduce times all-reduce operations on buffers of the given size, in bytes. All ranks must call
// it with the same size, a multiple of 4. They agree over comm, which is on host memory.
//
// It runs enough operations for 400 MiB, but at least 8 and at most 2,000, and stops after about
// 5 s. Before that, it warms up for 250 ms. All ranks run the same number of operations, which
// the slowest rank determines.
func AllReduce(ctx context.Context, comm collective.Communicator, prepare PrepareAllReduce, bytes int) (AllReduceResult, error) {
	do, path, err := prepare(ctx, bytes)
	if err != nil {
		return AllReduceResult{}, err
	}
	began, spent, done := time.Now(), []float64{0}, 0
	for spent[0] < allReduceWarmUp.Seconds() {
		for range max(done, 1) { // doubles each time
			if err := do(ctx); err != nil {
				return AllReduceResult{}, err
			}
			done++
		}
		spent[0] = time.Since(began).Seconds()
		if err := comm.Do(ctx, collective.AllReduce(spent, collective.Max)); err != nil {
			return AllReduceResult{}, err
		}
	}
	affordable := int(allReduceLimit.Seconds() * float64(done) / spent[0])
	times := make([]float64, min(max(allReduceBytes/bytes, minAllReduces), maxAllReduces, max(affordable, 1)))
	for i := range times {
		start := time.Now()
		if err := do(ctx); err != nil {
			return AllReduceResult{}, err
		}
		times[i] = float64(time.Since(start)) / float64(time.Millisecond)
	}
	slices.Sort(times)
	n, median := float64(comm.Size()), times[len(times)/2]
	return AllReduceResult{Kind: "allreduce", Ranks: comm.Size(), Bytes: bytes, Runs: len(times), Median: median, Best: times[0],
		BusBW: float64(bytes) * 2 * (n - 1) / n / (median * 1e6), Transport: path.Transport, Algorithm: path.Algorithm}, nil
}
