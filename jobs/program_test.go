package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckProgram checks which programs and scripts are reported as missing or wrong. A mistake that
// is certain is an error, others are warnings.
func TestCheckProgram(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"train.py": 0o600, "tool": 0o700, "plain": 0o600, "a b": 0o700} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, argv, keys string
		err, warning     string // substrings; empty for none
	}{
		{name: "script", argv: `"python3", "train.py"`},
		{name: "missing script", argv: `"python3", "none.py"`, err: "command.argv[1]: no such file"},
		{name: "missing script after options", argv: `"python3", "-X", "dev", "-u", "none.py"`, err: "command.argv[4]: no such file"},
		{name: "module", argv: `"python3", "-m", "none"`},
		{name: "missing absolute script", argv: `"python3", "/none/x.py"`, warning: "no such file on this machine"},
		{name: "two words in one", argv: `"python3 train.py"`, err: "is one word"},
		{name: "three words in one", argv: `"python3 -u train.py"`, err: "is one word"},
		{name: "path and option in one", argv: `"./tool -x"`, err: "is one word"},
		{name: "file with a space", argv: `"./a b"`},
		{name: "program", argv: `"./tool"`},
		{name: "missing program", argv: `"./none"`, err: "no such file"},
		{name: "missing absolute program", argv: `"/none/tool"`, warning: "no such file on this machine"},
		{name: "program in the working directory", argv: `"tool"`, warning: "is not in PATH"},
		{name: "directory", argv: `"./data"`, err: "is a directory"},
		{name: "not executable", argv: `"./plain"`, err: "is not executable"},
		{name: "shell script", argv: `"sh", "none.sh"`, err: "command.argv[1]: no such file"},
		{name: "shell code", argv: `"sh", "-c", "none.sh"`},
		{name: "script after env", argv: `"env", "A=1", "python3", "none.py"`, err: "command.argv[3]: no such file"},
		{name: "script after a wrapper", argv: `"nice", "python3", "none.py"`, warning: "command.argv[2]: no such file"},
		{name: "arguments of a program", argv: `"./tool", "python3", "none.py"`},
		{name: "script of torchrun", argv: `"train.py"`, keys: `launcher = "torchrun"`},
		{name: "missing script of torchrun", argv: `"none.py"`, keys: `launcher = "torchrun"`, err: "command.argv[0]: no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := parse(t, "name = \"x\"\n[command]\nargv = ["+tt.argv+"]\n"+tt.keys+"\n")
			errs, warnings := job.CheckProgram(dir)
			for _, got := range []struct {
				found Diagnostics
				want  string
			}{{errs, tt.err}, {warnings, tt.warning}} {
				if (len(got.found) == 1) != (got.want != "") || len(got.found) > 1 || !strings.Contains(got.found.Error(), got.want) {
					t.Errorf("got %v, want %q", got.found, got.want)
				}
			}
		})
	}
}
