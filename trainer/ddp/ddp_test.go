package ddp

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// twin is a communicator of two ranks whose other rank holds the same values
// times ten; it records the size of each all-reduce.
type twin struct {
	collective.Alone
	sizes []int
	fail  error
}

func (*twin) Size() int { return 2 }

func (c *twin) AllReduce(_ context.Context, buf []float32) error {
	c.sizes = append(c.sizes, len(buf))
	for i := range buf {
		buf[i] *= 11
	}
	return c.fail
}

func params(sizes ...int) []*nn.Param {
	var out []*nn.Param
	for i, n := range sizes {
		out = append(out, &nn.Param{Name: fmt.Sprint(i), Shape: []int{n}})
	}
	return out
}

func TestBucketsFollowTheBackwardPass(t *testing.T) {
	for _, tt := range []struct {
		name        string
		sizes       []int
		extra       int
		first, rest int
		want        []int
	}{
		{"all in one", []int{10, 5, 3}, 2, 1 << 20, 1 << 20, []int{50}},
		{"small first", []int{20, 10, 40, 4, 2}, 1, 4 * 20, 4 * 50, []int{32, 64, 33}},
		{"one tensor over the size", []int{5, 100}, 0, 4, 4, []int{112, 16}},
		{"exactly full at the end", []int{16, 16}, 3, 128, 128, []int{35}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, ps := &twin{}, params(tt.sizes...)
			r := newReducer(c, cpu.New(1), ps, tt.extra, tt.first, tt.rest)
			for step := range 2 {
				c.sizes = nil
				r.Start(t.Context())
				for i := len(ps) - 1; i >= 0; i-- {
					for j := range ps[i].Grad.Floats() {
						ps[i].Grad.Floats()[j] = float32(100*i + j + step)
					}
					if i == 0 {
						for j := range r.Extra() {
							r.Extra()[j] = float32(j + 1)
						}
					}
					r.Ready(i)
				}
				if err := r.Finish(); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(c.sizes) != fmt.Sprint(tt.want) {
					t.Errorf("buckets %v, want %v", c.sizes, tt.want)
				}
				for i, p := range ps {
					for j, g := range p.Grad.Floats() {
						if want := float32(100*i+j+step) * 11; g != want {
							t.Fatalf("step %d: gradient %d of %d is %v, want %v", step, j, i, g, want)
						}
					}
				}
				for j, e := range r.Extra() {
					if want := float32(j+1) * 11; e != want {
						t.Errorf("extra %d is %v, want %v", j, e, want)
					}
				}
			}
		})
	}
}

// A bucket that is complete early waits for those before it: the order must be
// the same on every rank.
func TestBucketsAreLaunchedInOrder(t *testing.T) {
	c, ps := &twin{}, params(1, 2, 3)
	r := newReducer(c, cpu.New(1), ps, 0, 4, 4)
	r.Start(t.Context())
	for _, i := range []int{0, 1, 2} {
		r.Ready(i)
	}
	if err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(c.sizes) != "[16 16 16]" {
		t.Errorf("order %v", c.sizes)
	}
}

func TestFailureAndForgottenParameter(t *testing.T) {
	c, ps := &twin{fail: errors.New("rank 1 is gone")}, params(1, 2, 3)
	r := newReducer(c, cpu.New(1), ps, 0, 4, 4)
	r.Start(t.Context())
	for _, i := range []int{2, 1, 0} {
		r.Ready(i)
	}
	if err := r.Finish(); !errors.Is(err, c.fail) || err.Error() != "add up bucket 0 of 3: rank 1 is gone" {
		t.Errorf("got %v", err)
	}
	if len(c.sizes) != 1 {
		t.Errorf("%d all-reduces after a failure", len(c.sizes)-1)
	}
	c.fail = nil
	r.Start(t.Context())
	r.Ready(2)
	if err := r.Finish(); err == nil || err.Error() != "2 of 3 buckets did not become ready" {
		t.Errorf("forgotten parameters: %v", err)
	}
}
