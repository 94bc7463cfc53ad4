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
	Busy        time.Duration // time in collectives on this rank, including the wait for slower ranks
	Hidden      float64       // fraction of Busy, 0 to 1, that overlaps computation
	Slowest     int           // rank with the longest computation time
	Ratio       float64       // its computation time relative to the median
	IsStraggler bool          // it is a straggler, see [metrics.StragglerRatio]

	// Computing is the computation time per step, without exposed communication, by rank.
	Computing []time.Duration
}

// straggler counts the consecutive intervals in which a rank was the slowest by a large margin.
type straggler struct{ rank, intervals int }

// update records an interval of length elapsed with this number of steps, in which c's slowest rank
// computed for the given time. It reports whether that rank is a straggler.
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

// A monitor measures the steps of this rank and compares the ranks. It needs neither a job nor a
// model.
type monitor struct {
	comm      collective.Communicator
	steps     interface{ TakeTimes() ddp.Times } // communication of the steps
	trace     *trace.Recorder
	interval  interval
	straggler straggler
	began     time.Time // of the step in progress
}

// begin begins an interval.
func (m *monitor) begin() { m.interval = interval{began: time.Now()} }

// beginStep begins a step. Work between steps does not count: with DDP only rank 0 saves, and
// evaluations and weight comparisons communicate.
func (m *monitor) beginStep() { m.began = time.Now() }

// endStep ends a step, with its number from 1 and its number of samples over all ranks.
func (m *monitor) endStep(step, samples int) {
	took, times := time.Since(m.began), m.steps.TakeTimes()
	m.trace.Add(trace.Step, step, m.began)
	m.interval.communicating.Busy += times.Busy
	m.interval.communicating.Exposed += times.Exposed
	m.interval.computing += max(0, took-times.Exposed) // on a GPU, the times belong to the step before
	m.interval.samples += samples
	m.interval.steps++
}

// report ends an interval: it sets the times and rates of e, for samples with the given number of
// tokens, of which left remain. Every rank must call it.
func (m *monitor) report(ctx context.Context, e *Event, tokens, left int64) error {
	elapsed := time.Since(m.interval.began)
	var err error
	if e.Communication, err = m.communication(ctx, e.Step); err != nil {
		return err
	}
	if n := m.interval.steps; n > 0 {
		e.StepTime = (m.interval.computing + m.interval.communicating.Exposed) / time.Duration(n)
	}
	if elapsed > 0 {
		e.SamplesPerSecond = float64(m.interval.samples) / elapsed.Seconds()
		e.TokensPerSecond = e.SamplesPerSecond * float64(tokens)
		e.Remaining = time.Duration(float64(max(left, 0)) / e.SamplesPerSecond * float64(time.Second))
	}
	m.begin()
	return nil
}

// communication gathers the times of all ranks for the interval. It returns nil with one rank or
// without steps.
func (m *monitor) communication(ctx context.Context, step int) (*Communication, error) {
	defer m.trace.Add(trace.Report, 0, m.trace.Now())
	times, n, steps := m.interval.communicating, m.comm.Size(), m.interval.steps
	if n == 1 || steps == 0 {
		return nil, nil
	}
	computing := make([]float64, n)
	computing[m.comm.Rank()] = m.interval.computing.Seconds()
	if err := m.comm.Do(ctx, collective.AllReduce(computing, collective.Sum)); err != nil {
		return nil, fmt.Errorf("compare times at step %d: %w", step, err)
	}
	c := &Communication{Busy: times.Busy / time.Duration(steps)}
	if times.Busy > 0 {
		c.Hidden = max(0, 1-times.Exposed.Seconds()/times.Busy.Seconds())
	}
	c.Slowest, c.Ratio = slowestRank(computing)
	for _, t := range computing {
		c.Computing = append(c.Computing, time.Duration(t*float64(time.Second))/time.Duration(steps))
	}
	c.IsStraggler = m.straggler.update(c, time.Duration(computing[c.Slowest]*float64(time.Second)), time.Since(m.interval.began), steps)
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
