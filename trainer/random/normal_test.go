package random

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"
)

// normalCall is a call of a case in normal_golden.json; see testdata/torch_normal.py.
type normalCall struct {
	Call        string
	N           int
	Mean, Std   float64
	Start, Step int
	Values      []float32
	Sum         float64
}

// run makes the call and checks the normal values.
func (c normalCall) run(t *testing.T, g *Generator) {
	t.Helper()
	got := make([]float32, c.N)
	switch c.Call {
	case "perm":
		g.Perm(c.N)
		return
	case "uniform":
		g.Uniform(0, 1, got)
		return
	case "normal", "embedding":
		g.Normal(c.Mean, c.Std, got)
	default:
		t.Fatalf("unknown call %q", c.Call)
	}
	if want := (c.N - c.Start + c.Step - 1) / c.Step; len(c.Values) != want {
		t.Fatalf("%d golden values, want %d", len(c.Values), want)
	}
	for i, want := range c.Values {
		i := c.Start + i*c.Step
		scale := max(math.Abs(float64(want)), math.Abs(c.Mean))
		if off := math.Abs(float64(got[i]) - float64(want)); !(off <= 1e-6*scale) {
			t.Errorf("number %d of %d = %v, want %v", i, c.N, got[i], want)
		}
	}
	sum := 0.0
	for _, v := range got {
		sum += float64(v)
	}
	// Rounding errors accumulate like a random walk.
	limit := 1e-6 * (math.Abs(c.Mean) + c.Std) * math.Sqrt(float64(c.N))
	if !(math.Abs(sum-c.Sum) <= limit) {
		t.Errorf("sum of %d numbers = %v, want %v", c.N, sum, c.Sum)
	}
}

// TestNormalEqualsTorch compares normal values with PyTorch's, and the state of the generator
// after them.
func TestNormalEqualsTorch(t *testing.T) {
	var golden []struct {
		Seed  int64
		Calls []normalCall
		Next  []float32
	}
	readGolden(t, "testdata/normal_golden.json", &golden)
	if len(golden) != 51 {
		t.Fatalf("%d cases, want 51", len(golden))
	}
	for _, c := range golden {
		g := New(uint64(c.Seed))
		for i, call := range c.Calls {
			call.run(t, g)
			if t.Failed() {
				t.Fatalf("seed %d: call %d of %d differs", c.Seed, i, len(c.Calls))
			}
		}
		if len(c.Next) != 3 {
			t.Fatalf("seed %d: %d draws after the calls, want 3", c.Seed, len(c.Next))
		}
		for i, want := range c.Next {
			if got := g.Float32() * (1 << 24); got != want {
				t.Errorf("seed %d: draw %d after the calls = %v, want %v", c.Seed, i, got, want)
			}
		}
	}
}

// TestNormalBits checks that the bits do not depend on the CPU, although PyTorch does not
// guarantee this. The digest was computed on amd64.
func TestNormalBits(t *testing.T) {
	g := New(1)
	long, short := make([]float32, 100003), make([]float32, 15)
	g.Normal(0.5, 0.02, long)
	g.Normal(0, 1, short)
	h := sha256.New()
	for _, part := range [][]float32{long, short} {
		if err := binary.Write(h, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	const want = "7fae617ebeee4440cd43c3666c609b62c3b2bee5734fa9e5eb9a040e8cc03bc8"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// TestNormalOfNothingSamplesNothing checks that a call without values does not advance the
// generator.
func TestNormalOfNothingSamplesNothing(t *testing.T) {
	g := New(0)
	g.Normal(0, 1, nil)
	if got, want := g.Uint32(), New(0).Uint32(); got != want {
		t.Errorf("draw after no numbers = %d, want the first, %d", got, want)
	}
}

// TestNormalPanicsOnInvalidDeviation checks that Normal panics for a negative standard deviation
// and for NaN.
func TestNormalPanicsOnInvalidDeviation(t *testing.T) {
	for _, std := range []float64{-1, math.NaN()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Normal(0, %v) did not panic", std)
				}
			}()
			New(0).Normal(0, std, make([]float32, 1))
		}()
	}
}

// TestElementaryFunctions compares logarithm, sine, and cosine with package math for the arguments
// that occur: u and 2 pi u for uniform values, and the ends of the ranges.
func TestElementaryFunctions(t *testing.T) {
	check := func(name string, x, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 1e-15*math.Abs(want)) {
			t.Errorf("%s(%v) = %v, want %v", name, x, got, want)
		}
	}
	uniform := []float64{0x1p-53, 0x1p-24, 0.25, 0.5, 0.75, math.Sqrt2 / 2, 1 - 0x1p-24, 1 - 0x1p-53, 1}
	g := New(2)
	for range 20000 {
		uniform = append(uniform, 1-g.float64())
	}
	for _, u := range uniform {
		check("log", u, logUnit(u), math.Log(u))
		x := float64(float32(2 * math.Pi * u))
		sin, cos := sincosTurn(x)
		wantSin, wantCos := math.Sincos(x)
		check("sin", x, sin, wantSin)
		check("cos", x, cos, wantCos)
	}
}

func BenchmarkNormal65536(b *testing.B) {
	dst := make([]float32, 1<<16)
	g := New(0)
	b.SetBytes(int64(4 * len(dst)))
	for range b.N {
		g.Normal(0, 0.02, dst)
	}
}
