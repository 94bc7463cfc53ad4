package outcome

import (
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// TestReadFailureLimitsRanks checks that a file of another user cannot have any number of ranks.
func TestReadFailureLimitsRanks(t *testing.T) {
	dir := rundir.Dir{Path: t.TempDir()}
	for _, n := range []int{0, 2, maxRanks + 1} {
		text := `{"exit":1,"ranks":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}`
		if err := os.WriteFile(dir.Failure(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := ReadFailure(dir)
		if n <= maxRanks && (err != nil || len(f.Ranks) != n) || n > maxRanks && err == nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

// TestReadFailureLimitsSize checks that a file of another user is not read beyond the limit.
func TestReadFailureLimitsSize(t *testing.T) {
	dir := rundir.Dir{Path: t.TempDir()}
	const text = `{"exit":1}`
	for _, size := range []int{maxFailure, maxFailure + 1} {
		if err := os.WriteFile(dir.Failure(), []byte(strings.Repeat(" ", size-len(text))+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFailure(dir); (err == nil) != (size <= maxFailure) {
			t.Errorf("%d bytes: got %v, the limit is %d", size, err, maxFailure)
		}
	}
}

// TestReadFailureLimitsTexts checks that the texts of another user's file are short, and that they
// remain valid after a cut.
func TestReadFailureLimitsTexts(t *testing.T) {
	dir := rundir.Dir{Path: t.TempDir()}
	long := strings.Repeat("ä", 1<<20)
	text := `{"exit":1,"last_lines":["short","` + long + `"],"finding":{"name":"` + long + `","cause":"` + long + `","hint":"` + long + `"}}`
	if err := os.WriteFile(dir.Failure(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFailure(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f.LastLines[0] != "short" {
		t.Errorf("got %q", f.LastLines[0])
	}
	for _, got := range []string{f.LastLines[1], f.Finding.Name, f.Finding.Cause, f.Finding.Hint} {
		if len(got) > maxText+10 || !strings.HasSuffix(got, "ä ...") {
			t.Errorf("got %d bytes that end with %q", len(got), got[len(got)-10:])
		}
	}
}
