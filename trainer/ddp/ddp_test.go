package ddp

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// twin is a communicator of two ranks. Its other rank holds the same values times ten. It records
// the size of each all-reduce.
type twin struct {
	member
	sizes []int
	fail  error
}

func (*twin) Rank() int { return 0 }
func (*twin) Size() int { return 2 }

func (c *twin) AllReduce(_ context.Context, t device.Tensor) (Work, error) {
	buf := t.Floats()
	c.sizes = append(c.sizes, len(buf))
	for i := range buf {
		buf[i] *= 11
	}
	return nil, c.fail
}

func params(sizes ...int) []*nn.Param {
	var out []*nn.Param
	for i, n := range sizes {
		out = append(out, &nn.Param{Name: fmt.Sprint(i), Shape: []int{n}})
	}
	return out
}

// TestBucketSizes checks the default bucket sizes, which depend on the size of the model.
func TestBucketSizes(t *testing.T) {
	const mebi = 1 << 20
	for _, tt := range []struct {
		given       Options
		bytes       int
		first, rest int
	}{
		{Options{}, 100, mebi, mebi},
		{Options{}, 80 * mebi, mebi, 10 * mebi},
		{Options{}, 1000 * mebi, mebi, 25 * mebi},
		{Options{Bucket: 3}, 80 * mebi, 3, 3},
		{Options{Bucket: 60 * mebi}, 80 * mebi, mebi, 60 * mebi},
		{Options{FirstBucket: 5}, 80, 5, 10},
		{Options{FirstBucket: 40 * mebi}, 80 * mebi, 40 * mebi, 40 * mebi},
		{Options{FirstBucket: 2, Bucket: 7}, 80 * mebi, 2, 7},
	} {
		if first, rest := tt.given.Buckets(tt.bytes); first != tt.first || rest != tt.rest {
			t.Errorf("%+v of %d bytes: %d and %d, want %d and %d", tt.given, tt.bytes, first, rest, tt.first, tt.rest)
		}
	}
}

// TestBucketsFollowTheBackwardPass checks that buckets are filled from the last parameter to the
// first, and that their sums are correct.
func TestBucketsFollowTheBackwardPass(t *testing.T) {
	for _, tt := range []struct {
		name        string
		sizes       []int
		extra       int
		first, rest int
		want        []int
	}{
		{"all in one", []int{10, 5, 3}, 2, 1 << 20, 1 << 20, []int{64}},
		{"small first", []int{20, 10, 40, 4, 2}, 1, 4 * 20, 4 * 50, []int{32, 64, 64}},
		{"one tensor over the size", []int{5, 100}, 0, 4, 4, []int{128, 32}},
		{"exactly full at the end", []int{16, 16}, 3, 128, 128, []int{64}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, ps := &twin{}, params(tt.sizes...)
			r := New(c, cpu.New(1), ps, Options{Extra: tt.extra, FirstBucket: tt.first, Bucket: tt.rest})
			for step := range 2 {
				c.sizes = nil
				r.Start(t.Context())
				for i := len(ps) - 1; i >= 0; i-- {
					for j := range ps[i].Grad.Floats() {
						ps[i].Grad.Floats()[j] = float32(100*i + j + step)
					}
					if i == 0 {
						for j := range r.Extra().Floats() {
							r.Extra().Floats()[j] = float32(j + 1)
						}
					}
					r.Ready(i)
				}
				if err := r.Finish(t.Context()); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(c.sizes) != fmt.Sprint(tt.want) {
					t.Errorf("buckets %v, want %v", c.sizes, tt.want)
				}
				squares := 0.0
				for i, p := range ps {
					for j, g := range p.Grad.Floats() {
						want := float32(100*i+j+step) * 11
						if g != want {
							t.Fatalf("step %d: gradient %d of %d is %v, want %v", step, j, i, g, want)
						}
						squares += float64(want) * float64(want)
					}
				}
				sums := make([]float64, 1+tt.extra) // of the records of all ranks
				for j, v := range r.Records().Doubles() {
					sums[j%len(sums)] += v
				}
				for j, e := range sums[1:] {
					if want := float64(j+1) * 11; e != want {
						t.Errorf("extra %d is %v, want %v", j, e, want)
					}
				}
				if got := sums[0]; got < squares*(1-1e-12) || got > squares*(1+1e-12) {
					t.Errorf("square of the norm %v, want %v", got, squares)
				}
			}
		})
	}
}

// TestBucketsAreLaunchedInOrder checks that a bucket that is complete early waits for the buckets
// before it. The order must be the same on every rank.
func TestBucketsAreLaunchedInOrder(t *testing.T) {
	c, ps := &twin{}, params(1, 2, 40)
	r := New(c, cpu.New(1), ps, Options{FirstBucket: 4, Bucket: 4})
	r.Start(t.Context())
	for _, i := range []int{0, 1, 2} {
		r.Ready(i)
	}
	if err := r.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(c.sizes) != "[64 32 32]" {
		t.Errorf("order %v", c.sizes)
	}
}

// TestFailureAndMissingParameter checks that a failure stops later all-reduces, and that a
// parameter that never becomes ready is an error.
func TestFailureAndMissingParameter(t *testing.T) {
	c, ps := &twin{fail: errors.New("rank 1 is gone")}, params(1, 2, 3)
	r := New(c, cpu.New(1), ps, Options{FirstBucket: 4, Bucket: 4})
	r.Start(t.Context())
	for _, i := range []int{2, 1, 0} {
		r.Ready(i)
	}
	if err := r.Finish(t.Context()); !errors.Is(err, c.fail) || err.Error() != "reduce bucket 0 of 3: rank 1 is gone" {
		t.Errorf("got %v", err)
	}
	if len(c.sizes) != 1 {
		t.Errorf("%d all-reduces after a failure", len(c.sizes)-1)
	}
	r = New(&twin{}, cpu.New(1), ps, Options{FirstBucket: 4, Bucket: 4})
	r.Start(t.Context())
	r.Ready(2)
	if err := r.Finish(t.Context()); err == nil || err.Error() != "2 of 3 buckets did not become ready" {
		t.Errorf("forgotten parameters: %v", err)
	}
}

// TestFailureOfAnyOperation checks that a step fails with the error of its communication,
// whichever operation failed.
func TestFailureOfAnyOperation(t *testing.T) {
	gone := errors.New("rank 1 is gone")
	for _, strategy := range Strategies() {
		for at := range 3 {
			ranks := newRanks(t, 2, gptOptions, Options{Strategy: strategy, FirstBucket: 1 << 10, Bucket: 3 << 10})
			errs := make([]error, 2)
			onAllRanks(t, ranks, func(r *rank) error {
				for step := range 3 {
					if step == at {
						r.comm.fail = gone
					}
					if errs[r.comm.rank] = r.train(t.Context()); step == at {
						break
					}
				}
				return nil
			})
			for _, err := range errs {
				if !errors.Is(err, gone) {
					t.Errorf("%s, step %d: %v", strategy, at, err)
				}
			}
		}
	}
}

// TestPiecesLocateParameters checks that the pieces of all parts hold every element of every
// parameter once (with DDP, once per rank), at the positions of the parameter's values.
func TestPiecesLocateParameters(t *testing.T) {
	ps := params(20, 3, 40, 16, 100, 5, 1)
	for _, strategy := range Strategies() {
		for _, n := range []int{1, 2, 3} {
			for _, bytes := range []int{64, 600, 1 << 20} {
				covered := map[*nn.Param]int{}
				for rank := range n {
					s := New(newFakeGroup(n)[rank], cpu.New(1), ps, Options{Strategy: strategy, FirstBucket: bytes, Bucket: bytes, Extra: 2})
					for i, part := range s.Parts() {
						first, last := 0, 0
						if s.Strategy != DDP {
							first = rank * part.Len()
						}
						for _, p := range part.Contents() {
							if p.At < last || p.Len < 1 || p.At+p.Len > part.Len() || p.Offset < 0 || p.Offset+p.Len > p.Param.Len() {
								t.Fatalf("%s on %d ranks: piece %+v of a part of %d elements, after element %d", strategy, n, p, part.Len(), last)
							}
							last = p.At + p.Len
							if want := s.layout.positions[p.Param]; want.bucket != i || want.offset+p.Offset != first+p.At {
								t.Fatalf("%s on %d ranks: piece %+v of bucket %d is at element %d, the parameter at %+v", strategy, n, p, i, first+p.At, want)
							}
							if s.Strategy == DDP && !p.IsWhole() {
								t.Errorf("on %d ranks: piece %+v is not a whole parameter", n, p)
							}
							covered[p.Param] += p.Len
						}
					}
				}
				for i, p := range ps {
					if want := p.Len(); covered[p] != want && !(strategy == DDP && covered[p] == n*want) {
						t.Errorf("%s on %d ranks: %d of %d elements of parameter %d are in pieces", strategy, n, covered[p], want, i)
					}
				}
			}
		}
	}
}

// TestRoundedValues checks that DDP rounds values to bfloat16 before the first step and after they have
// been written, but not after an update, which rounds them itself. The other strategies have no
// rounded values.
func TestRoundedValues(t *testing.T) {
	options := Options{Rounded: true, FirstBucket: 64, Bucket: 64}
	for _, options.Strategy = range Strategies() {
		ps := params(20, 3, 40)
		s := New(newFakeGroup(2)[0], cpu.New(1), ps, options)
		for _, p := range append(ps, s.Parts()...) {
			want := 0
			if options.Strategy == DDP {
				want = p.Len()
			}
			if p.Rounded.Len() != want {
				t.Errorf("%s: %d rounded values of %q, want %d", options.Strategy, p.Rounded.Len(), p.Name, want)
			}
		}
	}
	ps := params(20, 3, 40)
	options.Strategy = DDP
	s := New(newFakeGroup(1)[0], cpu.New(1), ps, options)
	for i, step := range []struct {
		mark func()
		want uint16
	}{{func() {}, 0x3f80}, {s.MarkUpdated, 0x3f80}, {s.MarkWritten, 0x4040}} {
		for _, p := range ps {
			p.Data.Floats()[p.Len()-1] = float32(1 + i)
		}
		step.mark()
		s.Start(t.Context())
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range ps {
			if got := p.Rounded.Halves()[p.Len()-1]; got != step.want {
				t.Errorf("step %d: rounded value %#x of %q, want %#x", i, got, p.Name, step.want)
			}
		}
	}
}

// alignedMemory allocates tensors at multiples of 256 bytes, like a GPU.
type alignedMemory struct{ *cpu.Device }

func (m alignedMemory) Alloc(t device.Type, n int) device.Tensor {
	const alignment = 256
	all := m.Device.Alloc(t, n+alignment)
	skip := (alignment - int(all.Addr()%alignment)) / t.Size()
	return all.Slice(skip, skip+n)
}

// TestRoundedValuesAreAligned checks that the rounded values of each bucket are aligned for matmuls,
// also if the number of ranks is not a power of two.
func TestRoundedValuesAreAligned(t *testing.T) {
	ps := params(128, 128, 128)
	New(newFakeGroup(3)[0], alignedMemory{cpu.New(1)}, ps, Options{Rounded: true, FirstBucket: 64, Bucket: 64})
	for _, p := range ps {
		if p.Rounded.Len() != p.Len() || p.Rounded.Addr()%256 != 0 {
			t.Errorf("%d rounded values of %q at %#x", p.Rounded.Len(), p.Name, p.Rounded.Addr())
		}
	}
}
