package cuda

import (
	"fmt"
	"strings"
)

// Seen is what one rank tells all others of the GPUs that it may use.
type Seen struct {
	Node  int      `json:"node"`            // of the job; GPUs of two nodes are never the same
	UUIDs []string `json:"uuids,omitempty"` // in the order of their ordinals
	Why   string   `json:"why,omitempty"`   // there are none
}

// Assign gives each rank a GPU that no other has, and returns its ordinal: where the
// ranks of a node see all its GPUs, the one with the number of the local rank; where
// each sees its own (Slurm's per-task binding), the first. What is seen is in the order
// of ranks; every rank that asks gets the same answer. The error is a [Shortage], which names
// a rank that is left without.
func Assign(seen []Seen) ([]int, error) {
	type gpu struct {
		node int
		uuid string
	}
	owner := map[gpu]int{}
	ordinals := make([]int, len(seen))
	// Augmenting paths (Kuhn 1955): a rank takes a free GPU, or one whose rank can take
	// another instead.
	var place func(rank int, tried map[gpu]bool) bool
	place = func(rank int, tried map[gpu]bool) bool {
		for _, onlyFree := range []bool{true, false} {
			for i, uuid := range seen[rank].UUIDs {
				g := gpu{seen[rank].Node, uuid}
				other, taken := owner[g]
				if taken && (onlyFree || tried[g]) {
					continue
				}
				tried[g] = true
				if !taken || place(other, tried) {
					owner[g], ordinals[rank] = rank, i
					return true
				}
			}
		}
		return false
	}
	for rank := range seen {
		if !place(rank, map[gpu]bool{}) {
			if len(seen[rank].UUIDs) == 0 {
				return nil, Shortage{fmt.Errorf("rank %d sees no GPU: %s", rank, seen[rank].Why)}
			}
			var others []string
			for _, uuid := range seen[rank].UUIDs {
				others = append(others, fmt.Sprintf("%s is rank %d's", uuid, owner[gpu{seen[rank].Node, uuid}]))
			}
			return nil, Shortage{fmt.Errorf("rank %d is left without a GPU: of those that it sees, %s", rank, strings.Join(others, ", "))}
		}
	}
	return ordinals, nil
}

// Shortage is a rank that is left without a GPU where others have one.
type Shortage struct{ error }

// Hint says what to do about it.
func (Shortage) Hint() string {
	return "every rank needs a GPU of its own: ask for as many with slurm.gpus_per_node as there are ranks on a node, or set train.device = \"cpu\"; `ddpbatch doctor` on the node tells what is there"
}
