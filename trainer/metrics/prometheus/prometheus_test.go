package prometheus

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFormat checks the text format, with special characters in labels and values that are not
// finite.
func TestFormat(t *testing.T) {
	got := string(Format([][2]string{{"run", `a "b" \c` + "\nd"}, {"host", "n1"}}, []Metric{
		{Name: "ddpbatch_steps_total", Help: `Steps \ done.`, Count: true, Value: 1e6},
		{Name: "ddpbatch_loss", Help: "Loss.", Value: math.NaN()},
		{Name: "ddpbatch_lr", Help: "Rate.", Value: math.Inf(-1)},
	}))
	const labels = `{run="a \"b\" \\c\nd",host="n1"}`
	want := `# HELP ddpbatch_steps_total Steps \\ done.
# TYPE ddpbatch_steps_total counter
ddpbatch_steps_total` + labels + ` 1e+06
# HELP ddpbatch_loss Loss.
# TYPE ddpbatch_loss gauge
ddpbatch_loss` + labels + ` NaN
# HELP ddpbatch_lr Rate.
# TYPE ddpbatch_lr gauge
ddpbatch_lr` + labels + ` -Inf
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestInvalidNamePanics checks that an invalid metric name panics.
func TestInvalidNamePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Format(nil, []Metric{{Name: "a-b"}})
}

// TestReplace checks that Replace writes a complete file that the collector can read, and leaves
// no other file.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.prom")
	for _, text := range []string{"a 1\n", "a 2\n"} {
		if err := Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	if err := Replace(filepath.Join(dir, "no", "x.prom"), nil); err == nil || !strings.Contains(err.Error(), "write metrics for Prometheus") {
		t.Errorf("a folder that is missing: %v", err)
	}
}
