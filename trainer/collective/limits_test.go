package collective

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestOffersHaveFixedLength checks that encoded offers have a fixed length, whatever characters
// their error messages contain.
func TestOffersHaveFixedLength(t *testing.T) {
	for _, why := range []string{"", "no space left", strings.Repeat("ü", 1000), strings.Repeat("\x01", 1000), strings.Repeat("<\xff", 1000)} {
		b, err := offer{Name: "ddpbatch-" + strings.Repeat("f", 32), Bytes: 1 << 62, Why: why}.encode()
		if err != nil || len(b) != offerBytes {
			t.Errorf("%.10q: %d bytes, %v", why, len(b), err)
			continue
		}
		var o offer
		if err := json.Unmarshal(b, &o); err != nil || len(why) > 0 && o.Why == "" {
			t.Errorf("%.10q: read back as %q, %v", why, o.Why, err)
		}
	}
}

// TestTooManyRanksOfANodeExchangeMessages checks that more ranks on a node than the limit exchange
// messages instead of sharing memory. Each rank needs at least one cache line of a window.
func TestTooManyRanksOfANodeExchangeMessages(t *testing.T) {
	m := &messages{world: &world{}, members: make([]int, maxRanksPerNode+1)}
	f, why, err := shareMemory(t.Context(), m)
	if f != nil || why != "4097 ranks on one node exceed the limit of 4096" || err != nil {
		t.Errorf("got %v, %q, %v", f, why, err)
	}
}

// TestSlackIsFractionOfTimeout checks that a step that follows a step between nodes waits longer,
// by a fraction of the operation's timeout.
func TestSlackIsFractionOfTimeout(t *testing.T) {
	o := &onNodes{nodes: &nodes{world: &world{timeout: time.Second}, local: &shared{members: []int{0}}},
		ctx: WithTimeout(context.Background(), time.Minute)}
	if err := o.runOnNode(true, &Call{step: &sharedStep{read: func(int, int, func(int) []byte) {}}}); err != nil {
		t.Fatal(err)
	}
	if o.local.slack != 15*time.Second {
		t.Errorf("slack of %v", o.local.slack)
	}
}
