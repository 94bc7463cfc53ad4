package jobs

import (
	"slices"
	"strings"
	"testing"
)

// TestExpand checks which braces are placeholders, and that JSON, templates, and shell variables
// stay unchanged.
func TestExpand(t *testing.T) {
	values := map[string]string{"run_dir": "/runs/a b", "attempt": "3", "checkpoint_dir": "/ckpt"}
	for _, tt := range []struct{ name, text, want string }{
		{"whole word", "{run_dir}", "/runs/a b"},
		{"part of a word", "--out={checkpoint_dir}/{attempt}.pt", "--out=/ckpt/3.pt"},
		{"escaped", "{{run_dir}}", "{run_dir}"},
		{"value without a placeholder's name", "{run_id}", "{run_id}"},
		{"JSON", `{"a": {"attempt": 1}, "b": {}}`, `{"a": {"attempt": 1}, "b": {}}`},
		{"JSON without spaces", `{"x":{"run_dir":"{run_dir}"}}`, `{"x":{"run_dir":"/runs/a b"}}`},
		{"Python format", "{epoch:02d}-{val_loss:.2f}", "{epoch:02d}-{val_loss:.2f}"},
		{"template", "{{ run_dir }} {% if x %}", "{{ run_dir }} {% if x %}"},
		{"variable of a shell", "echo ${attempt} ${run_dir}", "echo ${attempt} ${run_dir}"},
		{"set", "{1, 2}", "{1, 2}"},
		{"braces", "}{ {} {{}} {{{attempt}}}", "}{ {} {{}} {{attempt}}"},
		{"value with a placeholder", "{attempt}{", "3{"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Expand(tt.text, values); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	// A value is not expanded again.
	if got := Expand("{run_dir}", map[string]string{"run_dir": "{attempt}", "attempt": "1"}); got != "{attempt}" {
		t.Errorf("value with a placeholder: got %q", got)
	}
}

// TestCheckPlaceholders checks that only words similar to a placeholder cause a warning.
func TestCheckPlaceholders(t *testing.T) {
	warnings := func(arg string) string {
		t.Helper()
		job, err := Parse("job.toml", []byte("name = \"x\"\n[command]\nargv = [\"true\", '"+arg+"']\n"))
		if err != nil {
			t.Fatal(err)
		}
		_, all := job.CheckProgram(t.TempDir())
		return all.Error()
	}
	for _, arg := range []string{"{rundir}/x", "--out={run_dirs}", "{checkpoint}", "{checkpointdir}"} {
		if got := warnings(arg); !strings.Contains(got, "is not a placeholder") || !strings.Contains(got, "{run_dir}") {
			t.Errorf("%s: got %q", arg, got)
		}
	}
	for _, arg := range []string{"{run_dir}", "{epoch}", `{"run": 1}`, "{loss}", "${rundir}", "{{rundir}}", "{}", "{epoch:02d}"} {
		if got := warnings(arg); strings.Contains(got, "placeholder") {
			t.Errorf("%s: got %q", arg, got)
		}
	}
}

// TestPlaceholderUse checks that the hint names a variable for every placeholder.
func TestPlaceholderUse(t *testing.T) {
	for _, name := range componentPlaceholderNames {
		if got := placeholderUse(name); strings.Contains(got, `"$"`) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// TestCheckpointDir checks the directory of a run, and the warning for sweeps.
func TestCheckpointDir(t *testing.T) {
	job, err := Parse("job.toml", []byte("name = \"x\"\n[command]\nargv = [\"true\"]\ncheckpoint_dir = \"c/{run_id}\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	job.ResolvePaths("/base")
	if got := job.Command.CheckpointDirIn("/run", "ab12"); got != "/base/c/ab12" {
		t.Errorf("got %q", got)
	}
	c := Command{CheckpointDir: "{run_dir}/ckpt"}
	c.resolveCheckpointDir("/base")
	if got := c.CheckpointDirIn("/run", ""); got != "/run/ckpt" {
		t.Errorf("got %q", got)
	}
	const sweep = "name = \"x\"\n[command]\nargv = [\"true\"]\ncheckpoint_dir = \"%s\"\n[sweep]\ngrid = { \"setup.env.A\" = [\"1\", \"2\"] }\n"
	for dir, want := range map[string]bool{"ckpt": true, "ckpt/{run_id}": false} {
		job, err := Parse("job.toml", []byte(strings.Replace(sweep, "%s", dir, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(job.Warnings().Error(), "same directory"); got != want {
			t.Errorf("%s: warning %v, want %v", dir, got, want)
		}
	}
}

// FuzzExpand checks that text without placeholders stays unchanged.
func FuzzExpand(f *testing.F) {
	f.Add("{run_dir} {{attempt}} ${run_id} {\"a\": 1}")
	f.Fuzz(func(t *testing.T, text string) {
		got := Expand(text, map[string]string{"run_dir": ""})
		if !strings.Contains(text, "run_dir}") && !strings.Contains(text, "{{") && got != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// TestExpandArgvRejectsCode checks that the path of a run directory cannot become code, and that paths
// with harmless characters still work.
func TestExpandArgvRejectsCode(t *testing.T) {
	for _, tt := range []struct {
		name, dir string
		argv      []string
		rejected  bool
	}{
		{"plain argument", "/runs/a; $(id) 'b", []string{"prog", "{run_dir}"}, false},
		{"argument of a shell's script", "/runs/a b", []string{"bash", "train.sh", "{run_dir}"}, false},
		{"positional argument of code", "/runs/$(id)", []string{"sh", "-c", `echo "$1"`, "sh", "{run_dir}"}, false},
		{"harmless path in a shell", "/runs/a-1_b.c+d@e", []string{"sh", "-c", "ls {run_dir}"}, false},
		{"code without the placeholder", "/runs/a b", []string{"sh", "-c", `ls "$DDPBATCH_RUN_DIR"`}, false},
		{"escaped placeholder", "/runs/a b", []string{"sh", "-c", "echo {{run_dir}}"}, false},
		{"variable", "/runs/a b", []string{"sh", "-c", "echo ${run_dir}"}, false},
		{"space in a shell", "/runs/a b", []string{"sh", "-c", "ls {run_dir}"}, true},
		{"command substitution", "/runs/$(id)", []string{"/bin/bash", "-lc", "ls '{run_dir}'"}, true},
		{"quotes", "/runs/a'; id; '", []string{"env", "X=1", "bash", "-ec", "ls '{run_dir}'"}, true},
		{"options after -c", "/runs/$(id)", []string{"bash", "-cx", "-o", "pipefail", "ls {run_dir}"}, true},
		{"options with -c", "/runs/$(id)", []string{"sh", "-ce", "ls {run_dir}"}, true},
		{"option of a script", "/runs/a b", []string{"bash", "-x", "train.sh", "-ckpt", "{run_dir}"}, false},
		{"line break", "/runs/a\nid", []string{"sh", "-c", "ls {run_dir}"}, true},
		{"checkpoints", "/runs/a;id", []string{"sh", "-c", "ls {checkpoint_dir}"}, true},
		{"Python with a space", "/runs/a b", []string{"python3", "-c", "print('{run_dir}')"}, false},
		{"Python with a quote", "/runs/a')+x('", []string{"python3", "-c", "print('{run_dir}')"}, true},
		{"string of Python with code", "/runs/{__import__(chr(111)+chr(115))}", []string{"python3", "-Ic", "print(f'{run_dir}')"}, true},
		{"string of Ruby with code", "/runs/#{exit}", []string{"ruby", "-e", `puts "{run_dir}"`}, true},
		{"Perl", "/runs/a`id`", []string{"perl", "-e", "print `ls {run_dir}`"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := map[string]string{PlaceholderRunDir: tt.dir, PlaceholderCheckpoint: tt.dir, PlaceholderAttempt: "1"}
			got, err := ExpandArgv(tt.argv, values)
			if tt.rejected {
				if err == nil || !strings.Contains(err.Error(), "could be code") {
					t.Errorf("got %q, %v, want an error", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, word := range tt.argv {
				if want := Expand(word, values); got[i] != want {
					t.Errorf("word %d: got %q, want %q", i, got[i], want)
				}
			}
		})
	}
}

// TestExpandArgvOfManyWords checks that the time to expand a command line is linear: the words of 1 MiB took
// half an hour when each word was compared with all words before it.
func TestExpandArgvOfManyWords(t *testing.T) {
	const words = 200_000 // of a job file with 1 MiB
	for _, argv := range [][]string{
		slices.Repeat([]string{"-c"}, words),
		append([]string{"bash"}, slices.Repeat([]string{"-x"}, words)...),
		append([]string{"python3"}, slices.Repeat([]string{"-ao", "x"}, words/2)...),
	} {
		argv = append(argv, "-c", "{run_dir}")
		got, err := ExpandArgv(argv, map[string]string{PlaceholderRunDir: "/runs/a"})
		if err != nil || len(got) != len(argv) || got[len(got)-1] != "/runs/a" {
			t.Errorf("%.20q ...: got %d words, %v", argv, len(got), err)
		}
	}
	if _, err := ExpandArgv([]string{"bash", "-o", "pipefail", "a", "-c", "{run_dir}"}, map[string]string{PlaceholderRunDir: "/a b"}); err == nil {
		t.Error("got no error for code after an argument of a shell")
	}
}
