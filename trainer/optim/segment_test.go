package optim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

func TestSplitByDecay(t *testing.T) {
	whole := []segment{{0, 0, 10, true}, {1, 0, 4, true}}
	for _, c := range []struct {
		name string
		in   [][]nn.Range
		want []segment
	}{
		{"everything", [][]nn.Range{{{First: 0, End: 10}}, {{First: 0, End: 4}}}, whole},
		{"nothing", [][]nn.Range{nil, nil}, []segment{{0, 0, 10, false}, {1, 0, 4, false}}},
		{"in the middle", [][]nn.Range{{{First: 2, End: 5}, {First: 6, End: 9}}, nil},
			[]segment{{0, 0, 2, false}, {0, 2, 5, true}, {0, 5, 6, false}, {0, 6, 9, true}, {0, 9, 10, false}, {1, 0, 4, false}}},
		{"at both ends", [][]nn.Range{{{First: 0, End: 1}, {First: 9, End: 10}}, {{First: 0, End: 4}}},
			[]segment{{0, 0, 1, true}, {0, 1, 9, false}, {0, 9, 10, true}, {1, 0, 4, true}}},
	} {
		if got := splitByDecay(whole, c.in); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for _, bad := range [][][]nn.Range{
		{nil},
		{{{First: 0, End: 11}}, nil},
		{{{First: 3, End: 3}}, nil},
		{{{First: 0, End: 4}, {First: 3, End: 6}}, nil},
		{{{First: -1, End: 4}}, nil},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v: no panic", bad)
				}
			}()
			splitByDecay(whole, bad)
		}()
	}
}

// TestDecayingRangesEqualGroups compares one array with ranges that decay, as ranks have them, to
// separate parameters, some of which have a weight decay of 0.
func TestDecayingRangesEqualGroups(t *testing.T) {
	sizes := []int{16, 48, 1, 31, 32}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			g := random.New(1)
			flat := randomParam(g, "flat", 128)
			noDecay := usual
			noDecay.WeightDecay = 0
			var ranges []nn.Range
			var parts []*nn.Param
			var rules []Optimizer
			at := 0
			for i, n := range sizes {
				p := &nn.Param{Name: fmt.Sprint(i), Shape: []int{n}, Data: device.Host(slices.Clone(flat.Data.Floats()[at : at+n])), Grad: device.Host(make([]float32, n))}
				o := usual
				if i%2 == 0 {
					o = noDecay
				} else {
					ranges = append(ranges, nn.Range{First: at, End: at + n})
				}
				parts, rules = append(parts, p), append(rules, build(t, kind, []*nn.Param{p}, o))
				at += n
			}
			whole := build(t, kind, []*nn.Param{flat}, usual)
			whole.SetDecaying([][]nn.Range{ranges})
			step := func() {
				g.Uniform(-1, 1, flat.Grad.Floats())
				whole.Step([]*nn.Param{flat}, 0.5)
				at := 0
				for i, p := range parts {
					copy(p.Grad.Floats(), flat.Grad.Floats()[at:])
					rules[i].Step([]*nn.Param{p}, 0.5)
					at += sizes[i]
				}
			}
			for range 5 {
				step()
			}
			got := flat.Data.Floats()
			for i, p := range parts {
				if !sameBits(got[:sizes[i]], p.Data.Floats()) {
					t.Errorf("elements of part %d differ", i)
				}
				got = got[sizes[i]:]
			}
			params := []*nn.Param{flat}
			if n := testing.AllocsPerRun(5, func() { whole.Step(params, 1) }); n != 0 {
				t.Errorf("%v allocations in a step", n)
			}
		})
	}
}
