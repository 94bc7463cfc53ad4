package trainer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// interval holds the measurements since the last report.
type interval struct {
	began   time.Time
	samples int // over all ranks
	steps   int

	communicating ddp.Times     // in steps
	computing     time.Duration // in steps
}

// Communication describes communication and stragglers, per step of an interval.
type Communication struct {
	Busy        time.Duration // time in collectives on rank 0, including the wait for slower ranks
	Hidden      float64       // fraction of Busy, 0 to 1, that overlaps computation
	Slowest     int           // rank with the longest computation time
	Ratio       float64       // its computation time relative to the median
	IsStraggler bool          // it is a straggler, see [metrics.StragglerRatio]

	// Computing is each rank's computation time per step, by rank, without exposed communication.
	Computing []time.Duration
}

// straggler counts the consecutive intervals in which a rank was the slowest by a large margin.
type straggler struct{ rank, intervals int }

// update records an interval with this number of steps, in which c's slowest rank computed for the
// given time. It reports whether that rank is a straggler.
func (s *straggler) update(c *Communication, computing, elapsed time.Duration, steps int) bool {
	more := time.Duration(float64(computing) * (1 - 1/c.Ratio))
	if c.Ratio < metrics.StragglerRatio || more < time.Duration(steps)*metrics.StragglerTime || float64(more) < metrics.StragglerShare*float64(elapsed) {
		*s = straggler{}
		return false
	}
	if c.Slowest != s.rank {
		*s = straggler{rank: c.Slowest}
	}
	s.intervals++
	return s.intervals >= metrics.StragglerIntervals
}

// measureStep runs a step and measures it. Work between steps does not count: only rank 0 may save,
// and evaluations and weight comparisons communicate.
func (r *run) measureStep(ctx context.Context, s *stepBatches) error {
	r.sharder.TakeTimes() // discard times from between steps
	began := time.Now()
	err := r.step(ctx, s)
	took, times := time.Since(began), r.sharder.TakeTimes()
	r.Trace.Add(trace.Step, int(r.pos.Step)+1, began)
	r.interval.communicating.Busy += times.Busy
	r.interval.communicating.Exposed += times.Exposed
	r.interval.computing += took - times.Exposed
	return err
}

// communication gathers the times of all ranks for the interval. It returns nil with one rank.
func (r *run) communication(ctx context.Context) (*Communication, error) {
	defer r.Trace.Add(trace.Report, 0, r.Trace.Now())
	times, n := r.interval.communicating, r.Comm.Size()
	if n == 1 || r.interval.steps == 0 {
		return nil, nil
	}
	computing := make([]float64, n)
	computing[r.Comm.Rank()] = r.interval.computing.Seconds()
	if err := r.Comm.Do(ctx, collective.AllReduce(computing, collective.Sum)); err != nil {
		return nil, fmt.Errorf("compare times at step %d: %w", r.pos.Step, err)
	}
	c := &Communication{Busy: times.Busy / time.Duration(r.interval.steps)}
	if times.Busy > 0 {
		c.Hidden = max(0, 1-times.Exposed.Seconds()/times.Busy.Seconds())
	}
	c.Slowest, c.Ratio = slowestRank(computing)
	for _, t := range computing {
		c.Computing = append(c.Computing, time.Duration(t*float64(time.Second))/time.Duration(r.interval.steps))
	}
	c.IsStraggler = r.straggler.update(c, time.Duration(computing[c.Slowest]*float64(time.Second)), time.Since(r.interval.began), r.interval.steps)
	return c, nil
}

// slowestRank returns the rank with the longest time, and its ratio to the median. For an even
// number of ranks it uses the lower median.
func slowestRank(times []float64) (rank int, ratio float64) {
	for i, t := range times {
		if t > times[rank] {
			rank = i
		}
	}
	sorted := slices.Clone(times)
	slices.Sort(sorted)
	if middle := sorted[(len(sorted)-1)/2]; middle > 0 {
		return rank, times[rank] / middle
	}
	return rank, 1
}
