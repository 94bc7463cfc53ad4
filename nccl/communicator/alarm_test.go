package communicator

import (
	"errors"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// TestFindCulprit checks which rank is the reason why an operation does not end.
func TestFindCulprit(t *testing.T) {
	sum := collective.Signature{Kind: uint8(collective.KindAllReduce), Bytes: 8}
	gather := collective.Signature{Kind: uint8(collective.KindAllGather), Bytes: 8}
	in := func(begun, ended uint64) position { return position{begun: begun, ended: ended, signature: sum} }
	for _, tt := range []struct {
		name  string
		ranks []position
		rank  int // -1: none
		want  string
	}{
		{"all in the operation", []position{in(6, 5), in(6, 5), in(6, 5)}, -1, ""},
		{"one has not begun", []position{in(6, 5), in(6, 5), in(5, 5)}, 2, "has not begun operation 5"},
		{"the others are further ahead", []position{in(9, 5), in(5, 5), in(7, 5)}, 1, "has not begun operation 5"},
		{"some have ended it", []position{in(6, 6), in(6, 5), in(5, 5)}, 2, "has not begun operation 5"},
		{"a GPU has not reached it", []position{in(6, 5), {begun: 6, ended: 5, waits: true, signature: sum}, in(6, 5)}, 1, "its GPU has not reached operation 5"},
		{"a GPU waits, but a rank has not begun", []position{{begun: 6, ended: 5, waits: true}, in(6, 5), in(5, 5)}, 2, "has not begun operation 5"},
		{"a GPU waits for a later operation", []position{{begun: 9, ended: 6, waits: true}, in(6, 5), in(6, 5)}, -1, ""},
		{"different operations", []position{in(6, 5), in(6, 5), {begun: 6, ended: 5, signature: gather}}, 2, "have diverged"},
		{"a different operation that has ended", []position{in(6, 5), in(6, 5), {begun: 7, ended: 6, signature: gather}}, -1, ""},
		{"all have ended", []position{in(6, 6), in(6, 6), in(6, 6)}, 0, "has not begun operation 6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, p := range tt.ranks {
				tt.ranks[i] = decodePosition(p.encode())
			}
			err := findCulprit(tt.ranks, 0)
			var remote *remoteError
			switch {
			case tt.rank < 0 && err != nil:
				t.Errorf("got %v", err)
			case tt.rank >= 0 && (!errors.As(err, &remote) || remote.rank != tt.rank || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want rank %d and %q", err, tt.rank, tt.want)
			}
		})
	}
}
