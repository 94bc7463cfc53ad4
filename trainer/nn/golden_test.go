package nn

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// golden is a tensor as testdata/torch_golden.py writes it: with all values, or with 8 from each
// end and sums.
type golden struct {
	Name        string
	Shape       []int
	Values      []float32
	First, Last []float32
	Sum         float64
	AbsSum      float64 `json:"abs_sum"`
}

// ints returns the values of a tensor of tokens or labels.
func (g golden) ints() (v []int32) {
	for _, x := range g.Values {
		v = append(v, int32(x))
	}
	return v
}

// readGolden reads a file that a script in testdata has written.
func readGolden(t testing.TB, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("testdata/%s: %v", name, err)
	}
}

// checkParams compares parameters with PyTorch's; value returns the values or the gradient. The
// maximum difference is most times the largest element. In a summary, sums may differ by most times
// the sum of absolute values.
func checkParams(t *testing.T, m device.Memory, params []*Param, value func(*Param) device.Tensor, want []golden, most float64) {
	t.Helper()
	if len(params) != len(want) || len(want) == 0 {
		t.Fatalf("%d parameters, want %d", len(params), len(want))
	}
	for i, p := range params {
		w := want[i]
		if p.Name != w.Name || !slices.Equal(p.Shape, w.Shape) {
			t.Fatalf("parameter %d is %s %v, want %s %v", i, p.Name, p.Shape, w.Name, w.Shape)
		}
		got := get(m, value(p))
		if w.Values != nil {
			checkClose(t, p.Name, got, w.Values, most)
			continue
		}
		sum, absolute := 0.0, 0.0
		for _, v := range got {
			sum += float64(v)
			absolute += math.Abs(float64(v))
		}
		ends := min(8, len(got))
		checkClose(t, p.Name+" at its ends", slices.Concat(got[:ends], got[len(got)-ends:]), slices.Concat(w.First, w.Last), most)
		if math.Abs(sum-w.Sum) > most*w.AbsSum || math.Abs(absolute-w.AbsSum) > most*w.AbsSum {
			t.Errorf("%s: sums %v and %v, want %v and %v", p.Name, sum, absolute, w.Sum, w.AbsSum)
		}
	}
}

func dataOf(p *Param) device.Tensor { return p.Data }
func gradOf(p *Param) device.Tensor { return p.Grad }

// checkLosses compares the losses, or norms, of a training run with PyTorch's: the first 20 with
// the relative tolerance early, all with late.
func checkLosses(t *testing.T, what string, got, want []float64, early, late float64) {
	t.Helper()
	if len(got) != len(want) || len(want) < 50 {
		t.Fatalf("%d %s, want %d", len(got), what, len(want))
	}
	worst := [2]float64{}
	for i, w := range want {
		diff := math.Abs(got[i]-w) / math.Abs(w)
		if i < 20 && !(diff <= early) || !(diff <= late) {
			t.Errorf("%s: %v at step %d, want %v; differs by %.2g of it", what, got[i], i, w, diff)
			return
		}
		if i < 20 {
			worst[0] = max(worst[0], diff)
		}
		worst[1] = max(worst[1], diff)
	}
	t.Logf("%s: largest relative difference %.2g in the first 20 steps, %.2g in all %d", what, worst[0], worst[1], len(want))
}
