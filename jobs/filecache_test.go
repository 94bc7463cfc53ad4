package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrialsShareReadScripts checks that a script is read once for all trials of a sweep.
func TestTrialsShareReadScripts(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "train.py")
	if err := os.WriteFile(script, []byte("os.environ['MASTER_PORT'] = '29500'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	job, err := Parse("job.toml", []byte("name = \"x\"\n[command]\nargv = [\"python3\", \"train.py\"]\n[sweep.grid]\n\"setup.env.X\" = [\"1\", \"2\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, trial := range job.Sweep.Trials {
		if _, warnings := trial.Job.CheckProgram(dir); !strings.Contains(fmt.Sprint(warnings), "sets MASTER_PORT") {
			t.Errorf("trial %d: got %v, want a warning about the port", i, warnings)
		}
		if err := os.WriteFile(script, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScriptsAreLimited checks the total size of the scripts that the checks of a job file read.
func TestScriptsAreLimited(t *testing.T) {
	dir, c := t.TempDir(), newFileCache()
	text := "putenv('MASTER_PORT')\n" + strings.Repeat("#", maxScript-100)
	const most = maxScriptBytes/maxScript + 1
	for i := range most + 1 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, want := c.script(path).setsPort, i < most; got != want {
			t.Errorf("script %d of %d bytes: got a warning %v, want %v", i, len(text), got, want)
		}
	}
}

// TestPatternsAreLimited checks that the names of a directory are read once for all trials with the same
// pattern, and that the number of names is limited.
func TestPatternsAreLimited(t *testing.T) {
	dir, c := t.TempDir(), newFileCache()
	if err := os.WriteFile(filepath.Join(dir, "a.bin"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.checkFileOrPattern(filepath.Join(dir, "*.bin")); err != nil || c.names != 1 {
			t.Errorf("a pattern: got %v after %d names, want success after 1", err, c.names)
		}
	}
	if err := c.checkFileOrPattern(filepath.Join(dir, "*.npy")); err == nil || !strings.Contains(err.Error(), "matches") {
		t.Errorf("a pattern without a file: got %v", err)
	}
	c.names = maxPatternNames
	if err := c.checkFileOrPattern(filepath.Join(dir, "*.txt")); err != nil || c.names != maxPatternNames {
		t.Errorf("a pattern above the limit: got %v after %d names, want no check", err, c.names)
	}
}
