//go:build cuda

package engine_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestGroupsTrainTheSame checks that steps that are replayed as graphs are bit-identical to other
// steps: with dropout, with the first momentum, and with a learning rate and clipping that differ
// in every step. Asynchronous steps, which are one graph each, are included. In bf16, their optimizer
// rounds the weights.
func TestGroupsTrainTheSame(t *testing.T) {
	const steps = 4
	for _, k := range trainings {
		for _, p := range []device.Precision{device.FP32, device.BF16} {
			t.Run(fmt.Sprintf("%s precision %d", k.name, p), func(t *testing.T) {
				want := k.losses(t, open(t, engine.Options{}), p, steps)
				k.captured = true
				for _, k.async = range []bool{false, true} {
					k.rounded = k.async && p == device.BF16
					d := open(t, engine.Options{})
					got := k.losses(t, d, p, steps)
					if !slices.Equal(got, want) {
						t.Errorf("async %t: losses differ:\n%v\n%v", k.async, got, want)
					}
					// A step has three parts that are large enough for a graph: up to the loss, up
					// to the first norm, and the updates if there are many.
					least, most := 2, 3
					if k.async {
						least, most = 1, 1
					}
					s := d.GroupStats()
					if s.Captured < least || s.Captured > most || s.Replayed < least*(steps-2) {
						t.Errorf("async %t: %+v of %d steps", k.async, s, steps)
					}
				}
			})
		}
	}
}

// sums computes y = y + x repeatedly in a group of operations.
func sums(d *engine.Device, y, x device.Tensor, n int) {
	d.Begin()
	for range n {
		d.Add(y, y, x)
	}
	d.End()
}

// TestGroupsThatDiffer checks that a group is not replayed as a group that differs in a tensor, in
// a length, or in the number of operations, even if there are more groups than graphs.
func TestGroupsThatDiffer(t *testing.T) {
	d := open(t, engine.Options{})
	const kinds, most = 40, 8
	x, want := d.Alloc(device.Float32, kinds), make([]float32, kinds)
	device.Fill(d, x, func(v []float32) {
		for i := range v {
			v[i] = float32(i)
		}
	})
	y := d.Alloc(device.Float32, kinds)
	for round := range 5 {
		for i := range kinds - 1 {
			n := 1 + (i+round/3)%most
			sums(d, y.Slice(i, i+2), x.Slice(i, i+2), n)
			want[i] += float32(n * i)
			want[i+1] += float32(n * (i + 1))
		}
	}
	for range 4 { // these are few enough to be cached
		sums(d, y.Slice(0, 5), x.Slice(0, 5), 5)
		for i := range 5 {
			want[i] += float32(5 * i)
		}
	}
	if got := device.Floats(d, y); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if s := d.GroupStats(); s.Replayed < 3 || s.Parts != 5*(kinds-1)+4 {
		t.Errorf("%+v", s)
	}
}

// TestReadingAndWritingInAGroup checks that reads and writes in a group are in order with the
// other operations.
func TestReadingAndWritingInAGroup(t *testing.T) {
	d := open(t, engine.Options{})
	x, y := d.Alloc(device.Float32, 3), d.Alloc(device.Float32, 3)
	got := make([]float32, 3)
	for round := range 4 {
		v := float32(round)
		d.Begin()
		d.Write(x, []float32{v, 1, 2})
		d.Copy(y, x)
		for range 5 {
			d.Add(y, y, x)
		}
		d.Write(x, []float32{100, 100, 100})
		d.Add(y, y, x)
		if sum := d.SumSquares(x); sum != 30000 {
			t.Errorf("sum of squares %v", sum)
		}
		d.Read(got, y)
		d.Zero(y)
		d.End()
		if want := []float32{6*v + 100, 106, 112}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	d.Read(got, y)
	if !slices.Equal(got, make([]float32, 3)) {
		t.Errorf("got %v after the last operation", got)
	}
	if s := d.GroupStats(); s.Captured != 1 || s.Replayed != 3 {
		t.Errorf("%+v", s)
	}
}

// TestMoreValuesThanAGroupStores checks that values beyond the capacity of the buffer are passed
// as arguments, with correct results.
func TestMoreValuesThanAGroupStores(t *testing.T) {
	d := open(t, engine.Options{})
	const n = 12000
	x, y := d.Alloc(device.Float32, 1), d.Alloc(device.Float32, 1)
	d.Write(x, []float32{1})
	d.Begin()
	for i := range n { // 24 bytes each
		d.Update(device.RuleSGD, device.Arrays{Value: y, Grad: x}, device.Factors{Rate: float32(1 + i%2), GradScale: 1})
	}
	d.End()
	if got := device.Floats(d, y)[0]; got != n*3/2 {
		t.Errorf("got %v, want %v", got, n*3/2)
	}
}

// TestMemoryThatGrowsInAGroup checks that the backward pass uses the dropout mask of the forward
// pass even if scratch memory grows in the middle of a group. This happens if the first batch
// after a resume is short.
func TestMemoryThatGrowsInAGroup(t *testing.T) {
	const batch, heads, size, queries = 1, 2, 16, 40
	want := attention(open(t, engine.Options{}), batch, heads, size, queries, device.FP32, 0.2)
	d := open(t, engine.Options{})
	attention(d, batch, heads, size, queries/5, device.FP32, 0.2)
	d.Begin()
	got := attention(d, batch, heads, size, queries, device.FP32, 0.2)
	d.End()
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestGroupsAllocateNothing checks that a group does not allocate memory once its graph is
// captured.
func TestGroupsAllocateNothing(t *testing.T) {
	d := open(t, engine.Options{})
	x, y := d.Alloc(device.Float32, 64), d.Alloc(device.Float32, 64)
	drop := device.Dropout{P: 0.5, Stride: 1, PerSample: 64}
	step := func() {
		d.Begin()
		for range 6 {
			drop.Key++
			d.Dropout(y, x, drop)
		}
		d.End()
	}
	for range 3 {
		step()
	}
	if n := testing.AllocsPerRun(20, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestFailureInAGroup checks that a failure names the operation, or the graph that contains it.
func TestFailureInAGroup(t *testing.T) {
	if os.Getenv(inChild) != "" {
		err := func() (err error) {
			defer device.Recover(&err)
			gpu, err := driver.Open(0)
			if err != nil {
				return err
			}
			d, err := engine.Open(gpu, engine.Options{})
			if err != nil {
				return err
			}
			x, y := d.Alloc(device.Float32, 6), d.Alloc(device.Float32, 6)
			m := device.Rows(x, 2, 3)
			for i := range 3 {
				d.Begin()
				for range 5 {
					d.Add(y, x, x)
				}
				if i == 2 {
					d.Activate(device.Tanh, y, x)
				}
				d.End()
			}
			d.LayerNorm(m, y.Slice(0, 2), y.Slice(2, 4), m, y.Slice(0, 3), y.Slice(3, 6))
			d.Read(make([]float32, 6), x)
			return nil
		}()
		t.Logf("error: %v", err)
		return
	}
	gpusim.Require(t)
	for fail, want := range map[string]string{
		"refuse:activate": `activate of 6: cuLaunchKernel: kernel "activate"`,
		// The first call after the failure detects it. That can be the load of the module of layer_norm.
		"launch:activate": "detected in (read of 6, after layer_norm of 2x3|layer_norm of 2x3, after activate of 6)",
		"launch:graph":    "LAUNCH_FAILED",
		"lost:11":         "detected in",
	} {
		out, err := gpusim.Again(t, "TestFailureInAGroup", inChild+"=1", "GPUSIM_FAIL="+fail)
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %v, want %q in\n%s", fail, err, want, out)
		}
	}
}
