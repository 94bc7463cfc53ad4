package collective

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// circle is a mesh whose ranks are in one operation, each waiting for another, or in the next
// operation.
type circle struct {
	mesh.Mesh
	signature mesh.Signature
	waits     []int // by rank; -1 if the rank is in the next operation
}

func (c circle) Query(_ context.Context, rank int, _ uint64) (mesh.State, error) {
	if c.waits[rank] < 0 {
		return mesh.State{Sequence: 8, Signature: c.signature, WaitsFor: -1}, nil
	}
	return mesh.State{Sequence: 7, Signature: c.signature, WaitsFor: c.waits[rank]}, nil
}

// TestRanksThatWaitForEachOtherAreNamed checks that the error names all ranks that wait for each
// other in a cycle, whichever rank reports it. The network between two of them is down.
func TestRanksThatWaitForEachOtherAreNamed(t *testing.T) {
	many := make([]int, 20)
	for r := range many {
		many[r] = (r + 1) % len(many)
	}
	for name, c := range map[string]struct {
		rank, waitsFor int
		waits          []int
		peer           int
		want           string
	}{
		"two others":         {2, 1, []int{1, 0, 1}, 1, "ranks 0, 1 wait for each other"},
		"two others, behind": {3, 2, []int{1, 0, 1, 2}, 1, "ranks 0, 1 wait for each other"},
		"this one, too":      {2, 1, []int{2, 0, 1}, 1, "ranks 0-2 wait for each other"},
		"one is ahead":       {2, 1, []int{-1, 0, 1}, 0, "that rank has left the operation, but its message to rank 1 was lost"},
		"many":               {0, 1, many, 1, "ranks 0-19 wait for each other"},
	} {
		t.Run(name, func(t *testing.T) {
			signature := mesh.Signature{Kind: 1}
			g := &group{world: &world{rank: c.rank, mesh: circle{signature: signature, waits: c.waits}, timeout: time.Second}}
			err := g.findRootCause(t.Context(), groupState{7, signature}, &mesh.PeerError{Peer: c.waitsFor, Err: timeoutError(time.Second)})
			var of *mesh.PeerError
			if !errors.As(err, &of) || of.Peer != c.peer || !strings.Contains(err.Error(), "no answer within 1s: "+c.want) {
				t.Errorf("%v, want rank %d and %q", err, c.peer, c.want)
			}
		})
	}
}
