package jobs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestNearestAliases checks suggestions for common names of keys in other programs.
func TestNearestAliases(t *testing.T) {
	names := []string{"batch", "epochs", "lr", "mem", "tasks_per_node", "time"}
	for word, want := range map[string]string{
		"learning_rate": "lr", "batch_size": "batch", "memory": "mem", "epoch": "epochs", "Tasks-Per-Node": "tasks_per_node",
		"tiem": "time", "zzz": "", "": "", "queue": "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// TestNearestAmbiguous checks that no suggestion is made between equally near words.
func TestNearestAmbiguous(t *testing.T) {
	for _, c := range []struct {
		word  string
		names []string
		want  string
	}{
		{"zero4", []string{"ddp", "zero1", "zero2", "zero3", "fsdp"}, ""},
		{"zer1", []string{"ddp", "zero1", "zero2", "zero3", "fsdp"}, "zero1"},
		{"ipv5", []string{"auto", "ipv4", "ipv6"}, ""},
		{"zro", []string{"zero1", "zero"}, "zero"},
		{"bogus", []string{"log", "logs", "top"}, ""},
	} {
		if got := Nearest(c.word, c.names); got != c.want {
			t.Errorf("%q: got %q, want %q", c.word, got, c.want)
		}
	}
}

// TestSbatchOptionsInOtherTables checks that an unknown key with the name of an sbatch option
// refers to slurm.options.
func TestSbatchOptionsInOtherTables(t *testing.T) {
	_, err := Parse("job.toml", []byte("name = \"x\"\n[slurm]\ntmp = \"1G\"\n[command]\nargv = [\"x\"]\n"))
	var found Diagnostics
	if !errors.As(err, &found) || len(found) != 1 {
		t.Fatal(err)
	}
	if d := found[0]; d.Key != "slurm.tmp" || d.Suggestion != "" || !strings.Contains(d.Allowed, "--tmp: add it to slurm.options") {
		t.Errorf("got suggestion %q, allowed %q", d.Suggestion, d.Allowed)
	}
}

// TestUnknownKeysAreCheap checks that the work for an unknown key does not depend on the size
// of the spec, which has hundreds of keys. A file of 1 MiB can contain a hundred thousand
// unknown keys.
func TestUnknownKeysAreCheap(t *testing.T) {
	allocations := func(keys int) float64 {
		var src strings.Builder
		for i := range keys {
			fmt.Fprintf(&src, "k%d = 1\n", i)
		}
		return testing.AllocsPerRun(1, func() {
			if _, err := Parse("job.toml", []byte(src.String())); err == nil {
				t.Error("no error")
			}
		})
	}
	const more = 1000
	perKey := (allocations(200+more) - allocations(200)) / more
	if perKey > 150 {
		t.Errorf("got %.0f allocations for each unknown key, want at most 150", perKey)
	}
	t.Logf("%.0f allocations for each key", perKey)
}
