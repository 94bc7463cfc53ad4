package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestStep checks that the values of a result are consistent, and that the loss equals PyTorch's
// for the same work, as tests/peers/mlp.py prints it.
func TestStep(t *testing.T) {
	r, err := bench.New(1).Step(t.Context(), bench.Models()[0], device.FP32, 3)
	if err != nil {
		t.Fatal(err)
	}
	checkFigures(t, r, 3)
	if r.Kind != "step" || r.Model != "mlp" || r.Shape != "784-512-512-10 B128" || r.Precision != "fp32" || r.Params != 669706 {
		t.Errorf("the result is of %s %s %s %s with %d parameters", r.Kind, r.Model, r.Shape, r.Precision, r.Params)
	}
	if got := float64(*r.FirstLoss); math.Abs(got-2.308918) > 1e-5 {
		t.Errorf("the first loss is %.6f", got)
	}
	if got := float64(*r.Loss); math.Abs(got-2.278897) > 1e-5 {
		t.Errorf("the last loss is %.6f", got)
	}
	if want := 128 / r.Median; r.Unit != "samples" || r.PerSecond != want {
		t.Errorf("%v %s a second, want %v samples", r.PerSecond, r.Unit, want)
	}
	// 2*128 floating-point operations per weight in three matmuls, but in two in the first layer.
	if want := 2 * 128 * (2*784*512 + 3*512*512 + 3*512*10) / 1e9; math.Abs(r.GFLOP-want) > 1e-9 {
		t.Errorf("a step has %v GFLOP, want %v", r.GFLOP, want)
	}
}

// checkFigures checks the invariants of every result.
func checkFigures(t *testing.T, r bench.Result, runs int) {
	t.Helper()
	if r.Runs != runs || r.Threads != 1 || r.Device == "" {
		t.Errorf("%d runs on %d threads of %q", r.Runs, r.Threads, r.Device)
	}
	if !(r.Best > 0 && r.Best <= r.Median) || math.Abs(r.GFLOPS*r.Best/r.GFLOP-1) > 1e-9 {
		t.Errorf("best %v s, median %v s, %v GFLOP, %v GFLOP/s", r.Best, r.Median, r.GFLOP, r.GFLOPS)
	}
	if r.Peak > 0 && math.Abs(r.Share*r.Peak/r.GFLOPS-1) > 1e-9 {
		t.Errorf("%v GFLOP/s are %v of %v", r.GFLOPS, r.Share, r.Peak)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shape", "precision", "threads", "gflops"} {
		if fields[name] == nil {
			t.Errorf("no %q in %s", name, text)
		}
	}
}

// TestGemm checks that a matmul benchmark reports consistent metrics for each layout and
// precision.
func TestGemm(t *testing.T) {
	for _, text := range []string{"33x17x65", "64x10x512/NT", "10x64x128/TN"} {
		s, err := bench.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []device.Precision{device.FP32, device.BF16} {
			r, err := bench.New(1).Gemm(t.Context(), s, p, time.Microsecond)
			if err != nil {
				t.Fatal(err)
			}
			checkFigures(t, r, 3)
			if want := float64(2*s.M*s.N*s.K) / 1e9; r.Kind != "gemm" || r.Shape != s.String() || r.GFLOP != want {
				t.Errorf("the result is of %s %s with %v GFLOP, want %v", r.Kind, r.Shape, r.GFLOP, want)
			}
		}
	}
}

// TestEnds checks that a measurement ends with its context and returns its cause.
func TestEnds(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := bench.New(1).Step(ctx, bench.Models()[0], device.FP32, 3); !errors.Is(err, why) {
		t.Errorf("a step: %v", err)
	}
	if _, err := bench.New(1).Gemm(ctx, bench.Shape{M: 8, N: 8, K: 8, Layout: "NN"}, device.FP32, time.Second); !errors.Is(err, why) {
		t.Errorf("a product: %v", err)
	}
}

// TestMedian checks the median of odd and even counts, and that the argument is not changed.
func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{5, 1}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 100}, 3.5}} {
		before := slices.Clone(c.of)
		if got := bench.Median(c.of); got != c.want || !slices.Equal(c.of, before) {
			t.Errorf("the median of %v is %v, want %v", before, got, c.want)
		}
	}
}

// TestModels checks that names are single words for a command line, and that shapes are unchanged.
func TestModels(t *testing.T) {
	want := [][2]string{{"mlp", "784-512-512-10 B128"}, {"gpt", "L4 C256 H4 V65 T128 B8"}, {"gpt2", "L12 C768 H12 V50304 T64 B4"}}
	for i, m := range bench.Models() {
		if got := [2]string{m.Name(), m.Shape()}; got != want[i] {
			t.Errorf("model %d is %q, want %q", i, got, want[i])
		}
	}
}
