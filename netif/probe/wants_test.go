package probe

import (
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants checks that there is exactly one finding, and checks its text.
func wants(t *testing.T, findings []Finding, cause Cause, level Level, words ...string) {
	t.Helper()
	if len(findings) != 1 {
		for _, f := range findings {
			t.Logf("%s (%s)", f, f.Level)
		}
		t.Fatalf("%d findings, want one of %s", len(findings), cause)
	}
	f := findings[0]
	t.Logf("%s (%s); hint: %s", f, f.Level, f.Hint())
	if f.Cause != cause || f.Level != level {
		t.Errorf("found %s (%s), want %s (%s)", f.Cause, f.Level, cause, level)
	}
	for _, w := range append(words, f.From.Host, f.From.Interface, f.From.Addr.String(), f.To.Host) {
		if !strings.Contains(f.Error(), w) {
			t.Errorf("%q does not say %q", f.Error(), w)
		}
	}
	if f.Hint() == "" {
		t.Error("no hint")
	}
}
