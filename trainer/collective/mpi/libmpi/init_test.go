//go:build linux && !static

package libmpi

import (
	"strings"
	"testing"

	"github.com/ebitengine/purego"
)

// TestInitRejectsInitializedLibrary checks that Init does not use MPI at an unknown level of thread
// support if other code of the process has initialized it.
func TestInitRejectsInitializedLibrary(t *testing.T) {
	l := &Library{signals: saveSignals()}
	l.initialized = purego.NewCallback(func(flag *int32) uintptr {
		*flag = 1
		return 0
	})
	if _, err := l.Init(); err == nil || !strings.Contains(err.Error(), "already initialized") {
		t.Errorf("got %v", err)
	}
}
