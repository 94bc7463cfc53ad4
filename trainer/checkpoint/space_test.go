package checkpoint

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckSpace checks that the error for a full file system names the directory, whether it
// exists or not, and the sizes.
func TestCheckSpace(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "not", "there")} {
		if err := CheckSpace(dir, &Manifest{Files: []File{{Bytes: 1}, {Bytes: 2}}}, 2); err != nil {
			t.Error(err)
		}
		err := CheckSpace(dir, &Manifest{Files: []File{{Bytes: math.MaxInt64 / 4}, {Bytes: math.MaxInt64 / 8}}}, 2)
		var hint interface{ Hint() string }
		if err == nil || !errors.As(err, &hint) || !strings.HasPrefix(err.Error(), "not enough space for 2 more checkpoints of 3.07e+03 PiB in \""+dir+"\": ") {
			t.Errorf("%v", err)
		}
	}
	// The size is known before the ranks write.
	m, _ := state(1)
	m.Sharded = map[string]map[string][]int{ModelFile: {"w": {1 << 30, 1 << 30}}}
	if _, err := Begin(t.TempDir(), m); err == nil || !strings.Contains(err.Error(), "save checkpoint of step 1: not enough space for 4.1e+03 PiB") {
		t.Errorf("%v", err)
	}
}
