package optim

import "github.com/ddpbatch/ddpbatch/trainer/nn"

// A segment is a run of elements of an array that one operation of the device updates.
type segment struct {
	part  int // index of the array
	first int
	end   int
	group int // index of its group; 0 is the optimizer's own settings
}

// splitByGroup divides arrays into segments of the same group. Padding belongs to the piece before
// it, so that neighbors of the same group are one segment.
func splitByGroup(params []*nn.Param, groups []Group) []segment {
	var out []segment
	for i, array := range params {
		at := 0
		pieces := array.Contents()
		for k, p := range pieces {
			end := array.Len()
			if k+1 < len(pieces) {
				end = pieces[k+1].At
			}
			group := groupOf(p.Param, groups)
			if last := len(out) - 1; last >= 0 && out[last].part == i && out[last].group == group {
				out[last].end = end
			} else {
				out = append(out, segment{i, at, end, group})
			}
			at = end
		}
	}
	return out
}

// groupOf returns 1 plus the index of the first group that selects p, or 0.
func groupOf(p *nn.Param, groups []Group) int {
	for i, g := range groups {
		if g.Selects(p) {
			return i + 1
		}
	}
	return 0
}
