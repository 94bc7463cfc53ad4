package bench_test

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
)

// TestParseShape checks that sizes and layouts of matmuls are parsed, and that anything else is
// rejected.
func TestParseShape(t *testing.T) {
	for _, c := range []struct {
		text string
		want bench.Shape
	}{
		{"1x2x3", bench.Shape{M: 1, N: 2, K: 3, Layout: "NN"}},
		{"128x512x784/NT", bench.Shape{M: 128, N: 512, K: 784, Layout: "NT"}},
		{"16384x1x1/TN", bench.Shape{M: 16384, N: 1, K: 1, Layout: "TN"}},
	} {
		if got, err := bench.ParseShape(c.text); err != nil || got != c.want {
			t.Errorf("%q is %v, %v; want %v", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"", "1x2", "0x1x1", "-1x2x3", "1x2x3/TT", "1x2x3x4", "1X2X3", "1x2x3\n", " 1x2x3"} {
		if got, err := bench.ParseShape(text); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}

// TestParseShapeTooLarge checks the error for a valid but too large shape.
func TestParseShapeTooLarge(t *testing.T) {
	for _, text := range []string{"16385x1x1", "1x9999999x1/NT", "1x1x99999999999999999999"} {
		if got, err := bench.ParseShape(text); err == nil || !strings.Contains(err.Error(), "has a side above 16384") {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

// FuzzParseShape checks that a parsed shape can be parsed again and multiplied.
func FuzzParseShape(f *testing.F) {
	f.Add("128x512x784/NT")
	f.Add("1024x1024x1024")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := bench.ParseShape(text)
		if err != nil {
			return
		}
		if again, err := bench.ParseShape(s.String()); err != nil || again != s {
			t.Errorf("%q is %v, and that %v, %v", text, s, again, err)
		}
		if s.M < 1 || s.N < 1 || s.K < 1 || s.M > 1<<14 || s.N > 1<<14 || s.K > 1<<14 {
			t.Errorf("%q is %v", text, s)
		}
	})
}

// TestShapes checks that the MLP's shapes are the eight matmuls of its steps.
func TestShapes(t *testing.T) {
	count := map[string]int{}
	terms := 0
	for _, s := range bench.Shapes() {
		count[s.Model]++
		if s.Model == "mlp" {
			terms += s.M * s.N * s.K
		}
	}
	if count["square"] != 3 || count["mlp"] != 8 || count["gpt"] != 15 || len(count) != 3 {
		t.Errorf("shapes: %v", count)
	}
	if want := 128 * (2*784*512 + 3*512*512 + 3*512*10); terms != want {
		t.Errorf("the MLP's products have %d terms, want %d", terms, want)
	}
}
