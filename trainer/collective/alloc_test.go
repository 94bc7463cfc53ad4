package collective

import (
	"context"
	"testing"
)

// allocating is a communicator of two ranks with memory that both can access.
type allocating struct{ SingleRank }

func (allocating) Size() int { return 2 }

func (allocating) AllocBytes(_ context.Context, bytes int) ([]byte, error) {
	return make([]byte, bytes), nil
}

// TestAllocOfWrappedCommunicator checks that a communicator that is embedded in another type still
// allocates its memory.
func TestAllocOfWrappedCommunicator(t *testing.T) {
	type wrapper struct{ Communicator }
	if v, err := Alloc[float32](t.Context(), wrapper{allocating{}}, 3); err != nil || len(v) != 3 {
		t.Errorf("got %d elements, %v; want 3 elements", len(v), err)
	}
	if v, err := Alloc[float32](t.Context(), SingleRank{}, 3); err != nil || v != nil {
		t.Errorf("a single rank: got %d elements, %v; want nil", len(v), err)
	}
}
