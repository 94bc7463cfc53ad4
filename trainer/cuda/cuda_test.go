//go:build !cuda

package cuda

import (
	"errors"
	"testing"
)

func TestDevicesSaysThatTheTagIsMissing(t *testing.T) {
	if d, err := Devices(); !errors.Is(err, ErrNotBuilt) || d != nil {
		t.Errorf("got %v, %v", d, err)
	}
}
