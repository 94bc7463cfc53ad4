//go:build !cuda

package cuda

import (
	"errors"
	"testing"
)

func TestLookSaysThatTheTagIsMissing(t *testing.T) {
	if found, err := Look(); !errors.Is(err, ErrNotBuilt) || found.Devices != nil {
		t.Errorf("got %v, %v", found, err)
	}
}
