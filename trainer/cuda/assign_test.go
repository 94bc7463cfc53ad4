package cuda

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// ranks parses lists of GPUs: nodes are separated by "|", ranks by " ", and GPUs by ",".
func ranks(text string) (seen []VisibleGPUs) {
	for node, part := range strings.Split(text, "|") {
		for _, list := range strings.Fields(part) {
			s := VisibleGPUs{Node: node, UUIDs: strings.Split(list, ",")}
			if list == "-" {
				s.UUIDs, s.Why = nil, "no driver"
			}
			seen = append(seen, s)
		}
	}
	return seen
}

// TestAssign checks the GPU of each rank, whichever GPUs the ranks see, and the error that names
// the ranks if there are too few.
func TestAssign(t *testing.T) {
	for name, c := range map[string]struct {
		seen string
		want []int
		err  string
	}{
		"all see all":                  {"a,b,c,d a,b,c,d a,b,c,d a,b,c,d", []int{0, 1, 2, 3}, ""},
		"fewer ranks than GPUs":        {"a,b,c,d a,b,c,d", []int{0, 1}, ""},
		"per task":                     {"a b c d", []int{0, 0, 0, 0}, ""},
		"two for each task":            {"a,b c,d", []int{0, 0}, ""},
		"in each rank's own order":     {"b,a a,b", []int{0, 0}, ""},
		"two nodes":                    {"a,b a,b | a,b a,b", []int{0, 1, 0, 1}, ""},
		"MIG":                          {"MIG-1,MIG-2 MIG-1,MIG-2", []int{0, 1}, ""},
		"the second has no choice":     {"a,b a", []int{1, 0}, ""},
		"the third has no choice":      {"a,b b,c a", []int{1, 1, 0}, ""},
		"one GPU, two ranks":           {"a a", nil, "rank 1 has no GPU of its own: a is rank 0's"},
		"three ranks, two GPUs":        {"a,b a,b a,b", nil, "rank 2 has no GPU of its own: a is rank 0's, b is rank 1's"},
		"too few on the second node":   {"a b | a a", nil, "rank 3 has no GPU of its own: a is rank 2's"},
		"one rank sees none":           {"a | -", nil, "rank 1 sees no GPU: no driver"},
		"three ranks want two of them": {"a b,c b c", nil, "rank 3 has no GPU of its own: c is rank 1's"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Assign(ranks(c.seen))
			if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
				t.Errorf("got %v, %v; want %v, %q", got, err, c.want, c.err)
			}
		})
	}
}

// FuzzAssign checks that Assign never assigns a GPU to two ranks.
func FuzzAssign(f *testing.F) {
	f.Add("a,b a b,c | a -")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 {
			return
		}
		seen := ranks(text)
		got, err := Assign(seen)
		if err != nil {
			return
		}
		taken := map[string]bool{}
		for rank, ordinal := range got {
			g := fmt.Sprint(seen[rank].Node, seen[rank].UUIDs[ordinal])
			if taken[g] {
				t.Fatalf("%q: %s is given twice", text, g)
			}
			taken[g] = true
		}
	})
}
