package collective_test

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
)

// TestAlgorithms checks the selected algorithms for usual bucket sizes on up to 16,384 nodes.
func TestAlgorithms(t *testing.T) {
	for _, c := range []struct {
		bytes, n       int
		reduce, gather collective.Algorithm
	}{
		{0, 2, collective.Doubling, collective.Doubling},
		{16 << 10, 16_384, collective.Doubling, collective.Doubling},
		{40 << 10, 3, collective.Ring, collective.Ring},
		{40 << 10, 4, collective.Halving, collective.Doubling},
		{40 << 10, 24, collective.Halving, collective.Doubling},
		{40 << 10, 1000, collective.Halving, collective.Doubling},
		{1<<20 - 1, 16, collective.Halving, collective.Doubling},
		{1 << 20, 16, collective.Ring, collective.Ring},
		{1 << 20, 64, collective.Halving, collective.Doubling},
		{25 << 20, 64, collective.Ring, collective.Ring},
		{25 << 20, 1000, collective.Halving, collective.Doubling},
		{25 << 20, 4096, collective.Halving, collective.Doubling},
		{1 << 30, 16_384, collective.Ring, collective.Ring},
	} {
		if got := collective.ReduceAlgorithm(c.bytes, c.n); got != c.reduce {
			t.Errorf("%d bytes are reduced over %d ranks by %s, want %s", c.bytes, c.n, got, c.reduce)
		}
		if got := collective.GatherAlgorithm(c.bytes, c.n); got != c.gather {
			t.Errorf("%d bytes are gathered from %d ranks by %s, want %s", c.bytes, c.n, got, c.gather)
		}
	}
}

// TestMessagesOfManyRanks tests halving for numbers of ranks that are not powers of two, up to the
// ring, and for messages above the eager limit.
func TestMessagesOfManyRanks(t *testing.T) {
	for n, sizes := range map[int][]int{6: {8192, 20_000}, 7: {16_385}, 11: {10_001, 80_003}} {
		conformance.Values(t, conformance.Member{Connect: processes(nil, false, 1), Sizes: sizes, Ranks: []int{n}})
	}
}
