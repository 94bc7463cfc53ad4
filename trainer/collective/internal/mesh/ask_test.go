package mesh

import (
	"testing"
	"time"
)

// TestQuery checks that a rank answers queries of its state over both kinds of mesh.
func TestQuery(t *testing.T) {
	state := func(rank int, group uint64) State {
		return State{Sequence: group + 1, Signature: Signature{Kind: uint8(rank + 3), Type: 2, Op: 1, Root: -7, Bytes: 1 << 40}, WaitsFor: -rank}
	}
	local := Local(2, state)
	meshes := map[string][2]Mesh{"local": {local[0], local[1]}}
	o := plain
	o.State = func(group uint64) State { return state(1, group) }
	meshes["network"] = pair(t, o)
	for name, m := range meshes {
		got, err := m[0].Query(t.Context(), 1, 6)
		if want := state(1, 6); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}

// TestInvalidStates checks that a state that names an impossible rank is rejected.
func TestInvalidStates(t *testing.T) {
	for _, tt := range []struct {
		waits int
		good  bool
	}{{-2, false}, {-1, true}, {3, true}, {4, false}} {
		s := State{Sequence: 1 << 40, Signature: Signature{9, 8, 7, 6, 1 << 50}, WaitsFor: tt.waits}
		got, err := decodeState(s.encode(), 4)
		if (err == nil) != tt.good || tt.good && got != s {
			t.Errorf("%+v: %+v, %v", s, got, err)
		}
	}
}

// TestQueryOfLostRank checks that a query of a lost rank fails without waiting.
func TestQueryOfLostRank(t *testing.T) {
	m := pair(t, plain)
	if err := m[0].Send(1, head(0), nil).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m[1].Receive(0, head(0), nil).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	m[1].Close()
	start := time.Now()
	if s, err := m[0].Query(t.Context(), 1, 6); err == nil {
		t.Errorf("it answers %+v", s)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}
