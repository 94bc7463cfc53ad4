package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// A Group is a set of ranks that do the same.
type Group struct {
	Doing string
	Ranks []Rank // sorted by rank
}

// GroupRanks returns the ranks in groups, the largest group first. If all ranks are in the same
// function, the first caller that differs separates them: ranks may wait in all_reduce for ranks
// that wait in a different all_reduce.
func GroupRanks(ranks []Rank) []Group {
	byDoing := map[string]*Group{}
	var groups []*Group
	callers := differingCallers(ranks)
	for i, r := range ranks {
		doing := r.Doing
		if callers != nil {
			doing += ", called from " + callers[i]
		}
		g := byDoing[doing]
		if g == nil {
			g = &Group{Doing: doing}
			byDoing[doing] = g
			groups = append(groups, g)
		}
		g.Ranks = append(g.Ranks, r)
	}
	slices.SortFunc(groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(len(b.Ranks), len(a.Ranks)), cmp.Compare(a.Ranks[0].Rank, b.Ranks[0].Rank))
	})
	out := make([]Group, len(groups))
	for i, g := range groups {
		out[i] = *g
	}
	return out
}

// differingCallers returns a caller of the function of each rank: the first caller that is not the
// same for all ranks. It returns nil if the ranks are in different functions or have the same
// stack.
func differingCallers(ranks []Rank) []string {
	all := make([][]string, len(ranks))
	depth := 0 // of the shortest stack
	for i, r := range ranks {
		if r.Doing != ranks[0].Doing || r.Stack == "" {
			return nil
		}
		all[i] = mainThread(r.Stack, r.Source)
		if i == 0 || len(all[i]) < depth {
			depth = len(all[i])
		}
	}
	for level := 1; level < depth; level++ {
		callers := make([]string, len(ranks))
		same := true
		for i := range all {
			callers[i] = all[i][level]
			same = same && callers[i] == callers[0]
		}
		if !same {
			return callers
		}
	}
	return nil
}

// maxGroups is the number of groups that [Summarize] names.
const maxGroups = 4

// Summarize returns one line about groups of ranks, such as "3 of 4 ranks are in all_reduce
// (torch.py:10); rank 3 on n07 is in read (io.py:5)". World is the number of ranks of the run. The line
// ends with the number of ranks that were not found.
func Summarize(groups []Group, world int) string {
	var parts []string
	found := 0
	for i, g := range groups {
		found += len(g.Ranks)
		if i >= maxGroups {
			continue
		}
		in := ""
		if g.Ranks[0].Source != sourceKernel {
			in = "in "
		}
		switch {
		case len(g.Ranks) == 1:
			parts = append(parts, fmt.Sprintf("rank %d on %s is %s%s", g.Ranks[0].Rank, printable.Line(g.Ranks[0].Host), in, printable.Line(g.Doing)))
		case len(g.Ranks) == world:
			parts = append(parts, fmt.Sprintf("all %d ranks are %s%s", world, in, printable.Line(g.Doing)))
		case i == 0:
			parts = append(parts, fmt.Sprintf("%d of %d ranks are %s%s", len(g.Ranks), world, in, printable.Line(g.Doing)))
		default:
			parts = append(parts, fmt.Sprintf("ranks %s are %s%s", FormatRanks(g.Ranks), in, printable.Line(g.Doing)))
		}
	}
	if more := len(groups) - maxGroups; more > 0 {
		parts = append(parts, fmt.Sprintf("%s elsewhere", format.Count(more, "group")))
	}
	if missing := world - found; missing > 0 {
		parts = append(parts, fmt.Sprintf("%s not found", format.Count(missing, "rank")))
	}
	return strings.Join(parts, "; ")
}

// Odd returns the only rank that differs from all others, if there are at least two others: the only
// rank that does something else, the only rank outside of torch.distributed, or the only rank that
// is running while the others wait.
func Odd(groups []Group) (Rank, bool) {
	if len(groups) == 2 && len(groups[0].Ranks) >= 2 && len(groups[1].Ranks) == 1 {
		return groups[1].Ranks[0], true
	}
	if r, ok := only(groups, func(r Rank) bool {
		return r.Stack != "" && !isInCollective(mainThread(r.Stack, r.Source))
	}); ok {
		return r, true
	}
	return only(groups, func(r Rank) bool { return r.Source == sourceKernel && r.Doing == states['R'] })
}

// only returns the only rank with a property, if there are at least two others.
func only(groups []Group, has func(Rank) bool) (found Rank, ok bool) {
	others := 0
	for _, g := range groups {
		for _, r := range g.Ranks {
			switch {
			case !has(r):
				others++
			case ok:
				return Rank{}, false
			default:
				found, ok = r, true
			}
		}
	}
	return found, ok && others >= 2
}

// Stopped returns the only rank that a signal or a debugger has stopped.
func Stopped(ranks []Rank) (stopped Rank, ok bool) {
	for _, r := range ranks {
		if r.Source == sourceKernel && strings.HasPrefix(r.Doing, stoppedBy) {
			if ok {
				return Rank{}, false
			}
			stopped, ok = r, true
		}
	}
	return stopped, ok
}

// FormatRanks returns the numbers of ranks as ranges, such as "0-2, 5".
func FormatRanks(ranks []Rank) string {
	numbers := make([]int, len(ranks))
	for i, r := range ranks {
		numbers[i] = r.Rank
	}
	return format.Ranges(numbers)
}
