package sbatch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// testOptions describe the surroundings of the scripts in tests.
var testOptions = Options{Home: "/home/ada", User: "ada", Dir: "/home/ada/project"}

var update = flag.Bool("update", false, "rewrite golden files")

// TestScripts converts scripts from the documentation of centers. The job files must be valid,
// and the notes must cover everything that they do not contain.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.sh")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d scripts (%v)", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sh")
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Read(filepath.Base(file), src, testOptions)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jobs.Parse("job.toml", got.TOML); err != nil {
				t.Errorf("%v\n%s", err, got.TOML)
			}
			text := string(got.TOML) + "---\n"
			for _, n := range got.Notes {
				text += fmt.Sprintf("line %d: %s: %s", n.Line, n.Text, n.Reason)
				if n.Changes {
					text += " (changes what runs)"
				}
				text += "\n"
			}
			if got.Script != nil {
				text += "---\n" + string(got.Script)
			}
			golden := strings.TrimSuffix(file, ".sh") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || text != string(want) {
				t.Errorf("got:\n%s\nwant (%v):\n%s\n(go test ./jobs/sbatch -update rewrites it)", text, err, want)
			}
		})
	}
}

// TestDeepNestingDoesNotOverflowTheStack checks that nesting is limited: Go terminates a program
// whose stack exceeds 1 GB, and the program cannot recover. The results do not matter: some of
// these scripts are valid.
func TestDeepNestingDoesNotOverflowTheStack(t *testing.T) {
	for _, tt := range []struct{ opening, closing string }{
		{"$(", ")"}, {`"$(`, `)"`}, {"$((", "))"}, {"(", ")"}, {"<(", ")"}, {"`", ""}, {"${a:-", "}"},
		{"{ ", ";}"}, {"if ", ""}, {"while ", ""}, {"f() ", ""}, {"case a in a) ", ";;esac"},
	} {
		t.Run(tt.opening, func(t *testing.T) {
			for _, command := range []string{"", "srun python3 train.py ", "A="} {
				head := "#!/bin/bash\n#SBATCH -N 1\n" + command
				open := strings.Repeat(tt.opening, (maxScript-len(head))/len(tt.opening))
				n := (maxScript - len(head)) / len(tt.opening+tt.closing)
				balanced := strings.Repeat(tt.opening, n) + strings.Repeat(tt.closing, n)
				for _, nested := range []string{open, balanced} {
					_, _ = Read("deep.sh", []byte(head+nested), testOptions)
				}
			}
		})
	}
	if _, err := Read("large.sh", make([]byte, maxScript+1), testOptions); err == nil || !strings.Contains(err.Error(), "64 KiB") {
		t.Errorf("got %v, want the limit", err)
	}
}

// TestNoCommand checks that scripts without a program have a job file and a note.
func TestNoCommand(t *testing.T) {
	for _, tt := range []struct{ name, script, note string }{
		{name: "nothing", script: "#!/bin/sh\n#SBATCH -N 2\necho hello\n", note: "no line starts a program"},
		{name: "syntax error", script: "#!/bin/sh\n#SBATCH -N 2\nsrun python 'x\n", note: "bash cannot parse it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Read("x.sh", []byte(tt.script), testOptions)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(got.TOML), "nodes = 2") || !strings.Contains(string(got.TOML), `argv = ["false"]`) {
				t.Errorf("got %s", got.TOML)
			}
			if got.Changes() == 0 || !strings.Contains(got.Notes[0].Reason, tt.note) || got.Script != nil {
				t.Errorf("got %+v", got.Notes)
			}
		})
	}
}

// FuzzRead checks that the job file is valid for every script.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.sh")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := Read("job.sh", src, testOptions)
		if err != nil {
			return
		}
		if _, err := jobs.Parse("job.toml", got.TOML); err != nil {
			t.Errorf("%v\nof\n%s\nfrom\n%s", err, got.TOML, src)
		}
		for _, n := range got.Notes {
			if n.Reason == "" || strings.ContainsAny(n.Text, "\n\r") {
				t.Errorf("note %+v", n)
			}
		}
	})
}
