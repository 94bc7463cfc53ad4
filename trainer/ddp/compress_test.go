package ddp

import (
	"math"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// sumHalf does the same as sumShard in bfloat16, with each sum rounded.
func (m *member) sumHalf(buf []element.BF16, r int) []element.BF16 {
	n := len(buf) / m.size
	sum := m.half[r*n : (r+1)*n]
	copy(sum, m.halves[(r+1)%m.size][r*n:])
	for k := 2; k <= m.size; k++ {
		for i, v := range m.halves[(r+k)%m.size][r*n : (r+1)*n] {
			sum[i] = element.ToBF16(sum[i].Float32() + v.Float32())
		}
	}
	return sum
}

func (m *member) allReduceHalves(buf []element.BF16) error {
	m.reduced += 2 * len(buf)
	m.halves[m.rank] = buf
	m.barrier()
	for r := range m.size {
		m.sumHalf(buf, r)
	}
	m.barrier()
	copy(buf, m.half)
	return m.fail
}

func (m *member) reduceScatterHalves(part, buf []element.BF16) error {
	m.reduced += 2 * len(buf)
	m.halves[m.rank] = buf
	m.barrier()
	sum := m.sumHalf(buf, m.rank)
	m.barrier()
	for i := range buf {
		buf[i] = 0x7149 // undefined
	}
	copy(part, sum)
	return m.fail
}

// TestCompressedSumsTrainNearlyTheSame checks that reductions in bfloat16 train nearly the same as
// reductions in float32, but not bit-identically.
func TestCompressedSumsTrainNearlyTheSame(t *testing.T) {
	const steps = 30
	run := func(n int, bf16 bool) (losses []float64) {
		ranks := newRanks(t, n, gptOptions, Options{FirstBucket: 1 << 10, Bucket: 3 << 10, BF16: bf16})
		onAllRanks(t, ranks, func(r *rank) error {
			for range steps {
				if err := r.train(t.Context()); err != nil {
					return err
				}
				if r.comm.rank == 0 {
					losses = append(losses, r.loss)
				}
			}
			return nil
		})
		return losses
	}
	for _, n := range []int{2, 4} {
		want, got, worst := run(n, false), run(n, true), 0.0
		for i := range want {
			worst = max(worst, math.Abs(got[i]/want[i]-1))
		}
		t.Logf("%d ranks: losses within %.2g, the last %.4f of %.4f", n, worst, want[steps-1], want[0])
		if !(worst > 0 && worst < 0.02) {
			t.Errorf("%d ranks: losses differ by up to %.2g, want more than nothing and at most a fiftieth", n, worst)
		}
		if want[steps-1] > want[0]/2 {
			t.Errorf("%d ranks: the loss went from %v to %v only", n, want[0], want[steps-1])
		}
	}
}
