package collective

import (
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
