package optim

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// A segment is a run of elements of a parameter that one operation of the device updates.
type segment struct {
	param  int
	first  int
	end    int
	decays bool // weight decay applies
}

// wholeParams returns one segment with weight decay for each parameter.
func wholeParams(params []*nn.Param) []segment {
	out := make([]segment, len(params))
	for i, p := range params {
		out[i] = segment{param: i, end: p.Len(), decays: true}
	}
	return out
}

// splitByDecay divides parameters of the given segments into the given ranges, which decay, and the
// elements between them, which do not. It panics if the ranges of a parameter overlap, are empty,
// are not in ascending order, or exceed the parameter.
func splitByDecay(whole []segment, decaying [][]nn.Range) []segment {
	if len(whole) != len(decaying) {
		panic(fmt.Sprintf("optim: ranges of %d parameters, want %d", len(decaying), len(whole)))
	}
	var out []segment
	for i, s := range whole {
		at := 0
		add := func(end int, decays bool) {
			if at < end {
				out = append(out, segment{i, at, end, decays})
				at = end
			}
		}
		for _, r := range decaying[i] {
			if r.First < at || r.End <= r.First || r.End > s.end {
				panic(fmt.Sprintf("optim: range %d to %d of a parameter of %d elements, after element %d", r.First, r.End, s.end, at))
			}
			add(r.First, false)
			add(r.End, true)
		}
		add(s.end, false)
	}
	return out
}
