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

// interval is the time since the last report.
type interval struct {
	began   time.Time
	samples int // of all ranks
	steps   int

	communicating ddp.Times     // in steps
	computing     time.Duration // in steps
}

// Communication is how ranks waited for each other in the steps of an interval, for each.
type Communication struct {
	Busy    time.Duration // in exchanging gradients and values on rank 0, which is also waiting for slower ranks
	Hidden  float64       // part of it, 0 to 1, that passed while computation went on
	Slowest int           // the rank that computes longest
	Ratio   float64       // how much longer than the rank in the middle
	Lasting bool          // it is a straggler, see [metrics.StragglerRatio]

	// Computing is each rank's own part of a step, by rank: without what it waited for
	// others.
	Computing []time.Duration
}

// straggler is a rank that was the slow one in the last intervals.
type straggler struct{ rank, intervals int }

// lasts notes an interval of so many steps in which c's slowest rank computed for a
// time, and says whether it has been slow for long enough.
func (s *straggler) lasts(c *Communication, computing, elapsed time.Duration, steps int) bool {
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

// timed does a step and counts its time. What ranks do between steps is not their speed:
// only one may save, and in an evaluation and to compare weights they communicate, too.
func (r *run) timed(ctx context.Context, s step) (stop bool, err error) {
	r.sharder.TakeTimes() // of what was between
	began := time.Now()
	stop, err = r.grouped(ctx, s)
	took, times := time.Since(began), r.sharder.TakeTimes()
	r.Trace.Add(trace.Step, int(r.at.Step)+1, began)
	r.interval.communicating.Busy += times.Busy
	r.interval.communicating.Exposed += times.Exposed
	r.interval.computing += took - times.Exposed
	return stop, err
}

// communication asks all ranks how they spent the interval. A rank alone has none.
func (r *run) communication(ctx context.Context) (*Communication, error) {
	defer r.Trace.Add(trace.Report, 0, r.Trace.Now())
	times, n := r.interval.communicating, r.Comm.Size()
	if n == 1 || r.interval.steps == 0 {
		return nil, nil
	}
	computing := make([]float64, n)
	computing[r.Comm.Rank()] = r.interval.computing.Seconds()
	if err := r.Comm.Do(ctx, collective.AllReduce(computing, collective.Sum)); err != nil {
		return nil, fmt.Errorf("compare times at step %d: %w", r.at.Step, err)
	}
	c := &Communication{Busy: times.Busy / time.Duration(r.interval.steps)}
	if times.Busy > 0 {
		c.Hidden = max(0, 1-times.Exposed.Seconds()/times.Busy.Seconds())
	}
	c.Slowest, c.Ratio = slowest(computing)
	for _, t := range computing {
		c.Computing = append(c.Computing, time.Duration(t*float64(time.Second))/time.Duration(r.interval.steps))
	}
	c.Lasting = r.straggler.lasts(c, time.Duration(computing[c.Slowest]*float64(time.Second)), time.Since(r.interval.began), r.interval.steps)
	return c, nil
}

// slowest is the rank with the longest time, and how many times the middle one that
// is: of an even number of ranks the lower of the two in the middle.
func slowest(times []float64) (rank int, ratio float64) {
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
