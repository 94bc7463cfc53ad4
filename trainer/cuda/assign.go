package cuda

import (
	"fmt"
	"strings"
)

// VisibleGPUs is the list of GPUs that a rank may use. Ranks exchange these lists.
type VisibleGPUs struct {
	Node  int      `json:"node"`            // index of the node in the job; GPUs of different nodes are never the same
	UUIDs []string `json:"uuids,omitempty"` // in the order of their ordinals
	Why   string   `json:"why,omitempty"`   // reason why the list is empty
}

// Assign assigns each rank a different GPU and returns its ordinal. If the ranks of a node see all
// of its GPUs, the ordinal is the local rank. If each rank sees only its own GPUs (Slurm's per-task
// binding), it is the first. seen is in the order of the ranks; all ranks get the same result. The
// error is a [ShortageError] that names a rank without a GPU.
func Assign(seen []VisibleGPUs) ([]int, error) {
	type gpu struct {
		node int
		uuid string
	}
	owner := map[gpu]int{}
	ordinals := make([]int, len(seen))
	// Augmenting paths (Kuhn 1955): a rank gets a free GPU, or a GPU whose rank can use a different
	// one.
	var assign func(rank int, tried map[gpu]bool) bool
	assign = func(rank int, tried map[gpu]bool) bool {
		for _, onlyFree := range []bool{true, false} {
			for i, uuid := range seen[rank].UUIDs {
				g := gpu{seen[rank].Node, uuid}
				other, taken := owner[g]
				if taken && (onlyFree || tried[g]) {
					continue
				}
				tried[g] = true
				if !taken || assign(other, tried) {
					owner[g], ordinals[rank] = rank, i
					return true
				}
			}
		}
		return false
	}
	for rank := range seen {
		if !assign(rank, map[gpu]bool{}) {
			if len(seen[rank].UUIDs) == 0 {
				return nil, ShortageError{fmt.Errorf("rank %d sees no GPU: %s", rank, seen[rank].Why)}
			}
			var others []string
			for _, uuid := range seen[rank].UUIDs {
				others = append(others, fmt.Sprintf("%s is rank %d's", uuid, owner[gpu{seen[rank].Node, uuid}]))
			}
			return nil, ShortageError{fmt.Errorf("rank %d has no GPU of its own: %s", rank, strings.Join(others, ", "))}
		}
	}
	return ordinals, nil
}

// ShortageError is the error if a rank sees no GPU, or only GPUs that other ranks need.
type ShortageError struct{ error }

// Hint returns the fix.
func (ShortageError) Hint() string {
	return "set slurm.gpus_per_node to the number of ranks per node, or set train.device = \"cpu\"; `ddpbatch doctor` on the node shows its GPUs"
}
