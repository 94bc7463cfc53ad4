package outcome

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFailureLimitsRanks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "failure.json")
	for _, n := range []int{0, 2, maxRanks + 1} {
		text := `{"exit":1,"ranks":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := ReadFailure(path)
		if n <= maxRanks && (err != nil || len(f.Ranks) != n) || n > maxRanks && err == nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
