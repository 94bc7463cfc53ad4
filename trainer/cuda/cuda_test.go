//go:build !cuda

package cuda

import (
	"errors"
	"testing"
)

// TestLookWithoutBuildTag checks that a program without GPU support reports this.
func TestLookWithoutBuildTag(t *testing.T) {
	if found, err := Discover(); !errors.Is(err, ErrNotBuilt) || found.Devices != nil {
		t.Errorf("got %v, %v", found, err)
	}
}
