package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestUsage checks that the measurements of the newest attempt are read, that old ones are removed, and
// that other files and links are ignored.
func TestUsage(t *testing.T) {
	d, err := Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	if files, err := d.ReadUsage(100); err != nil || files != nil {
		t.Errorf("an empty directory: got %q, %v", files, err)
	}
	for attempt := 1; attempt <= 7; attempt++ {
		for node := range 2 {
			for range 2 { // replaces
				if err := d.WriteUsage(attempt, node, fmt.Appendf(nil, "%d/%d", attempt, node)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := os.Symlink("/etc/passwd", d.Usage(7, 2)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Path, "usage", "attempt-8-node-0.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := d.ReadUsage(100)
	if err != nil || !slices.EqualFunc(files, []string{"7/0", "7/1"}, func(a []byte, b string) bool { return string(a) == b }) {
		t.Errorf("got %q, %v", files, err)
	}
	names, _ := filepath.Glob(filepath.Join(d.Path, "usage", "attempt-*-node-00000.json"))
	if len(names) != maxUsageAttempts {
		t.Errorf("%d attempts are retained, want %d", len(names), maxUsageAttempts)
	}
	if info, err := os.Stat(d.Usage(7, 0)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
}
