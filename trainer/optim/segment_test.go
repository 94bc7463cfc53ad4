package optim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// TestSplitByGroup checks that neighbors of the same group become one segment, and that padding
// belongs to the piece before it.
func TestSplitByGroup(t *testing.T) {
	named := func(name string, n int) *nn.Param { return &nn.Param{Name: name, Shape: []int{n}} }
	array := &nn.Param{Name: "bucket", Shape: []int{20}, Pieces: []nn.Piece{
		{Param: named("a", 9), Offset: 5, At: 1, Len: 4}, {Param: named("b", 3), At: 6, Len: 3}, {Param: named("c", 5), At: 12, Len: 5},
	}}
	params := []*nn.Param{array, named("a", 4), {Name: "padding", Shape: []int{16}, Pieces: []nn.Piece{}}}
	is := func(names ...string) Group {
		return Group{Selects: func(p *nn.Param) bool { return slices.Contains(names, p.Name) }}
	}
	for _, c := range []struct {
		name   string
		groups []Group
		want   []segment
	}{
		{"no groups", nil, []segment{{0, 0, 20, 0}, {1, 0, 4, 0}}},
		{"neighbors", []Group{is("a", "b")}, []segment{{0, 0, 12, 1}, {0, 12, 20, 0}, {1, 0, 4, 1}}},
		{"in the middle", []Group{is("b")}, []segment{{0, 0, 6, 0}, {0, 6, 12, 1}, {0, 12, 20, 0}, {1, 0, 4, 0}}},
		{"first match", []Group{is("c"), is("a", "b", "c")}, []segment{{0, 0, 12, 2}, {0, 12, 20, 1}, {1, 0, 4, 2}}},
	} {
		if got := splitByGroup(params, c.groups); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestGroupsEqualSeparateOptimizers compares one array with pieces of two groups, as ranks have
// them, to separate parameters, some of which have a weight decay of 0.
func TestGroupsEqualSeparateOptimizers(t *testing.T) {
	sizes := []int{16, 48, 1, 31, 32}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			g := random.New(1)
			flat := randomParam(g, "flat", 128)
			noDecay := usual
			noDecay.WeightDecay = 0
			var parts []*nn.Param
			var rules []Optimizer
			at := 0
			for i, n := range sizes {
				p := &nn.Param{Name: fmt.Sprint(i), Shape: []int{n}, Data: device.Host(slices.Clone(flat.Data.Floats()[at : at+n])), Grad: device.Host(make([]float32, n))}
				o := usual
				if i%2 == 0 {
					o = noDecay
				}
				flat.Pieces = append(flat.Pieces, nn.Piece{Param: p, At: at, Len: n})
				parts, rules = append(parts, p), append(rules, build(t, kind, []*nn.Param{p}, o))
				at += n
			}
			whole := build(t, kind, []*nn.Param{flat}, usual)
			whole.SetGroups(Group{Selects: func(p *nn.Param) bool { return slices.Index(parts, p)%2 == 0 }})
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
