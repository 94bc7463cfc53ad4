//go:build cuda

package engine_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/blaslt"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// dot returns a row times a column, whose sum depends on the order of its terms.
func dot(d *engine.Device) float32 {
	const n = 64
	row, col, to := d.Alloc(device.Float32, n), d.Alloc(device.Float32, n), d.Alloc(device.Float32, 1)
	v := make([]float32, n)
	for i := range v {
		v[i] = 1 / float32(i*i+1)
	}
	d.Write(row, v)
	for i := range v {
		v[i] = 1 + float32(i)/7
	}
	d.Write(col, v)
	d.MatMul(device.Product{C: device.Rows(to, 1, 1), A: device.Rows(row, 1, n), B: device.Rows(col, n, 1)})
	got := make([]float32, 1)
	d.Read(got, to)
	return got[0]
}

// TestTuning checks which algorithm of three is recorded for its times, and that multiplications use
// it while and after the algorithms are timed, and on a device that only has the record. The simulated
// algorithms 0 and 2 sum in ascending order, and 1 in descending order.
func TestTuning(t *testing.T) {
	gpusim.Require(t)
	t.Setenv("GPUSIM_ALGORITHMS", "differ")
	ascending := dot(open(t, engine.Options{}))
	for _, c := range []struct {
		name       string
		seconds    []float64 // 0: not usable
		descending bool
		want       engine.TimedAlgorithm
	}{
		{name: "the first is the fastest", seconds: []float64{1, 2, 3}, want: engine.TimedAlgorithm{Seconds: 1, DefaultTime: 1}},
		{name: "the second is the fastest", seconds: []float64{3, 1, 2}, descending: true, want: engine.TimedAlgorithm{Seconds: 1, DefaultTime: 3}},
		{name: "the last is the fastest", seconds: []float64{3, 2, 1}, want: engine.TimedAlgorithm{Seconds: 1, DefaultTime: 3}},
		{name: "the difference is small", seconds: []float64{1, 0.99, 2}, want: engine.TimedAlgorithm{Seconds: 1, DefaultTime: 1}},
		{name: "the first is not usable", seconds: []float64{0, 2, 3}, descending: true, want: engine.TimedAlgorithm{Seconds: 2, DefaultTime: 2}},
		{name: "the first is not usable, and the last is the fastest", seconds: []float64{0, 3, 2}, want: engine.TimedAlgorithm{Seconds: 2, DefaultTime: 3}},
		{name: "the fastest is not usable", seconds: []float64{3, 0, 2}, want: engine.TimedAlgorithm{Seconds: 2, DefaultTime: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t, engine.Options{})
			d.StartTuning()
			var seconds []float64
			d.SetSeconds(func(run func() error) (float64, error) {
				if len(seconds) == len(c.seconds) {
					t.Fatal("an algorithm is timed again")
				}
				seconds = c.seconds[:len(seconds)+1]
				if s := seconds[len(seconds)-1]; s > 0 {
					return s, run()
				}
				return 0, blaslt.Status(15)
			})
			compare := func(when string, d *engine.Device) {
				t.Helper()
				if got := dot(d); (got != ascending) != c.descending {
					t.Errorf("%s: got %v, with the first algorithm %v", when, got, ascending)
				}
			}
			compare("during timing", d)
			compare("during timing, again", d)
			d.StopTuning()
			compare("after timing", d)

			text, err := json.Marshal(d.Algorithms())
			if err != nil {
				t.Fatal(err)
			}
			var recorded engine.Algorithms
			if err := json.Unmarshal(text, &recorded); err != nil {
				t.Fatal(err)
			}
			got := slices.Collect(maps.Values(recorded.Products))
			if len(got) != 1 || len(got[0].Algorithm) != 128 || got[0].NumAlgorithms != 3 || got[0].Seconds != c.want.Seconds || got[0].DefaultTime != c.want.DefaultTime {
				t.Fatalf("recorded %+v", got)
			}
			other := open(t, engine.Options{})
			other.UseAlgorithms(recorded)
			compare("with the record", other)
			other.UseAlgorithms(engine.Algorithms{Platform: recorded.Platform})
			if got := dot(other); got != ascending {
				t.Errorf("without the record: got %v, want %v", got, ascending)
			}
		})
	}
}

// TestTimeRuns checks that all algorithms of a multiplication get a time, also in a group, and that the
// next group is captured as a graph again.
func TestTimeRuns(t *testing.T) {
	d := open(t, engine.Options{})
	rows := func() device.Matrix {
		x := d.Alloc(device.Float32, 16)
		d.Zero(x)
		return device.Rows(x, 4, 4)
	}
	a, b, c := rows(), rows(), rows()
	group := func() {
		d.Begin()
		for range 4 {
			d.MatMul(device.Product{C: c, A: a, B: b})
		}
		d.End()
	}
	for range 3 {
		group()
	}
	before := d.GroupStats()
	if before.Replayed == 0 {
		t.Fatalf("no group is replayed: %+v", before)
	}
	d.StartTuning()
	for range 3 {
		group()
	}
	d.StopTuning()
	if s := d.GroupStats(); s.Captured != before.Captured || s.Replayed != before.Replayed {
		t.Errorf("a graph is used while algorithms are timed: %+v, before %+v", s, before)
	}
	for name, timed := range d.Algorithms().Products {
		if timed.Seconds <= 0 || timed.DefaultTime < timed.Seconds || timed.NumAlgorithms < 1 {
			t.Errorf("%s: %+v", name, timed)
		}
	}
	if n := len(d.Algorithms().Products); n != 1 {
		t.Errorf("%d multiplications are recorded, want 1", n)
	}
	for range 3 {
		group()
	}
	if s := d.GroupStats(); s.Captured != before.Captured+1 || s.Replayed <= before.Replayed {
		t.Errorf("no new graph: %+v, before %+v", s, before)
	}
}

// TestUnknownAlgorithm checks the error for a recorded algorithm that cuBLASLt does not offer.
func TestUnknownAlgorithm(t *testing.T) {
	gpusim.Require(t)
	d := open(t, engine.Options{})
	d.StartTuning()
	dot(d)
	d.StopTuning()
	a := d.Algorithms()
	for name, timed := range a.Products {
		timed.Algorithm = strings.Repeat("ff", 64)
		a.Products[name] = timed
	}
	d.UseAlgorithms(a)
	var err error
	func() {
		defer device.Recover(&err)
		dot(d)
	}()
	if err == nil || !strings.Contains(err.Error(), "does not offer the algorithm that was recorded for the product 1x1x64") {
		t.Errorf("got %v", err)
	}
}
