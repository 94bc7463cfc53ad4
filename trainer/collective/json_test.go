package collective

import (
	"maps"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAllGatherJSON checks that AllGatherJSON transfers texts of any length, including empty ones,
// with any characters.
func TestAllGatherJSON(t *testing.T) {
	comms := Local(3, time.Minute)
	texts := []string{"", strings.Repeat("é", 5000), "für drei "}
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			defer c.Close()
			all, err := AllGatherJSON(t.Context(), c, texts[r])
			if err != nil || strings.Join(all, "|") != strings.Join(texts, "|") {
				t.Errorf("rank %d: %d texts, %v", r, len(all), err)
			}
		})
	}
	wg.Wait()
}

// TestBroadcastJSON checks that all ranks have the root's value afterward, without parts of their own.
func TestBroadcastJSON(t *testing.T) {
	comms := Local(3, time.Minute)
	values := []map[string]string{{"a": "0"}, {"b": strings.Repeat("é", 5000)}, nil}
	for root, want := range values {
		var wg sync.WaitGroup
		for r, c := range comms {
			value := maps.Clone(values[r])
			wg.Go(func() {
				if err := BroadcastJSON(t.Context(), c, &value, root); err != nil || !maps.Equal(value, want) {
					t.Errorf("rank %d: %v, %v; want %v", r, value, err, want)
				}
			})
		}
		wg.Wait()
	}
	for _, c := range comms {
		c.Close()
	}
}
