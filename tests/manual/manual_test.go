package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

var binary string

func TestMain(m *testing.M) { program.Main(m, "../../cmd/ddpbatch", &binary) }

// output returns what the program prints.
func output(t *testing.T, args ...string) string {
	t.Helper()
	o := program.Finish(t, exec.CommandContext(t.Context(), binary, args...))
	if o.Code != 0 {
		t.Fatalf("ddpbatch %v: %s", args, o)
	}
	return o.Stdout
}

// need skips a test if a program is missing. In CI it fails the test.
func need(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("CI needs %s, which tests/setup.sh installs", name)
	}
	t.Skipf("no %s", name)
}

// TestManualPagesAreClean checks that mandoc reports nothing for any page, and that whatis finds
// the name of each page.
func TestManualPagesAreClean(t *testing.T) {
	need(t, "mandoc")
	dir := t.TempDir()
	output(t, "manual", "man", dir, "--day", "2026-01-31")
	pages, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(pages) < 25 {
		t.Fatalf("%d pages (%v)", len(pages), err)
	}
	lint := program.Finish(t, exec.CommandContext(t.Context(), "mandoc", append([]string{"-Tlint", "-Wwarning"}, pages...)...))
	var found []string
	for line := range strings.Lines(lint.Stdout + lint.Stderr) {
		found = append(found, line)
	}
	if len(found) > 0 {
		t.Errorf("mandoc says:\n%s", strings.Join(found, ""))
	}
	text := program.Finish(t, exec.CommandContext(t.Context(), "mandoc", "-Tascii", "-Owidth=78", filepath.Join(dir, "ddpbatch-submit.1"))).Stdout
	text = regexp.MustCompile(`.\x08`).ReplaceAllString(text, "") // bold text, in which a backspace overstrikes each character
	for _, want := range []string{"submit a job to Slurm", "--test-only", "2026-01-31"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestShellsComplete checks that each shell completes commands, flags, values, and runs.
func TestShellsComplete(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			need(t, shell)
			dir := t.TempDir()
			script := filepath.Join(dir, "completion")
			if err := os.WriteFile(script, []byte(output(t, "completion", shell)), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dir, "runs", "fashion"), 0o700); err != nil {
				t.Fatal(err)
			}
			cases := []struct {
				line       string
				want, none []string
			}{
				{"ddpbatch ", []string{"init", "submit", "checkpoint"}, []string{"export", "manual"}},
				{"ddpbatch su", []string{"submit"}, []string{"init"}},
				{"ddpbatch checkpoint ", []string{"ls", "verify", "export"}, []string{"submit"}},
				{"ddpbatch submit --te", []string{"--test-only"}, []string{"--wait"}},
				{"ddpbatch checkpoint export --st", []string{"--step"}, []string{"--test-only"}},
				{"ddpbatch bench allreduce --backend=", []string{"nccl", "tcp"}, []string{"--json"}},
				{"ddpbatch status runs/fa", []string{"fashion"}, nil},
			}
			var lines []string
			for _, c := range cases {
				lines = append(lines, c.line)
			}
			answers := complete(t, shell, script, dir, lines)
			for i, c := range cases {
				got := answers[i]
				for _, w := range c.want {
					if !strings.Contains(got, w) {
						t.Errorf("%q is not completed with %q:\n%s", c.line, w, got)
					}
				}
				for line := range strings.Lines(got) {
					line, _, _ = strings.Cut(line, " -- ") // zsh's descriptions
					line, _, _ = strings.Cut(line, "\t")   // fish's
					for word := range strings.FieldsSeq(line) {
						if slices.Contains(c.none, word) {
							t.Errorf("%q is completed with %q:\n%s", c.line, word, got)
						}
					}
				}
			}
		})
	}
}

// complete returns the completions of a shell for each line.
func complete(t *testing.T, shell, script, dir string, lines []string) []string {
	t.Helper()
	code := map[string]string{
		"bash": `source "$1"; shift
for line; do
	read -ra COMP_WORDS <<<"${line//=/ = }"
	case "$line" in *\ |*=) COMP_WORDS+=("") ;; esac
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line}
	_ddpbatch; printf '%s\n' "${COMPREPLY[@]}" @@@
done`,
		// Completion needs a terminal: one zsh runs a second one in a pseudo-terminal. The second
		// one lists the completions, which it does only if no more input follows.
		"zsh": `zmodload zsh/zpty; zpty -b z zsh -f -i; SCRIPT=$1; shift
zpty -w z "PS1=; stty -echo columns 200; autoload -Uz compinit; compinit -u -D; source $SCRIPT; bindkey '^T' list-choices; print READ\"\"Y"
zpty -r z out '*READY*'
for line; do
	zpty -w -n z "$line"$'\C-t'; sleep 0.4
	zpty -w z $'\C-u'"print DO\"\"NE"; zpty -r z out '*DONE*'
	print -r -- "$out"; print @@@
done
zpty -d z`,
		"fish": `source $argv[1]; for line in $argv[2..-1]; complete -C $line; echo @@@; end`,
	}[shell]
	args := append([]string{"-c", code, script}, lines...)
	switch shell {
	case "fish":
		args = append([]string{"--no-config"}, args...)
	case "zsh":
		args = append([]string{"-f", "-c", code, "zsh", script}, lines...)
	case "bash":
		args = append([]string{"-c", code, "bash", script}, lines...)
	}
	cmd := exec.CommandContext(t.Context(), shell, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "TERM=dumb")
	o := program.Finish(t, cmd)
	answers := strings.Split(o.Stdout, "@@@\n")
	if len(answers) != len(lines)+1 || o.Stderr != "" {
		t.Fatalf("%s: %s", shell, o)
	}
	return answers
}

// TestSchemaTakesEveryExample checks that jsonschema, which editors use, accepts every example and
// every starter, and rejects invalid job files.
func TestSchemaTakesEveryExample(t *testing.T) {
	need(t, "/usr/bin/python3")
	dir := t.TempDir()
	schema := filepath.Join(dir, "schema.json")
	if err := os.WriteFile(schema, []byte(output(t, "schema")), 0o600); err != nil {
		t.Fatal(err)
	}
	var good []string
	for _, pattern := range []string{"../../jobs/examples/*.toml", "../../jobs/starters/*.toml", "../../jobs/testdata/good/*.toml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		good = append(good, files...)
	}
	const validate = `
import json, sys, tomllib, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)
for path in sys.argv[2:]:
    text = open(path, "rb").read().decode("utf-8-sig").replace("\r\n", "\n")
    for error in validator.iter_errors(tomllib.loads(text)):
        print(path, "/".join(map(str, error.path)), error.message)
`
	run := func(files ...string) string {
		t.Helper()
		o := program.Finish(t, exec.CommandContext(t.Context(), "/usr/bin/python3", append([]string{"-c", validate, schema}, files...)...))
		if o.Code != 0 {
			t.Fatal(o)
		}
		return o.Stdout
	}
	if wrong := run(good...); wrong != "" {
		t.Errorf("of %d good job files jsonschema refuses:\n%s", len(good), wrong)
	}
	for _, bad := range []string{
		"name = \"a\"\n",
		"name = \"a\"\n[command]\nargv = []\nlauncher = \"mpi\"\n",
		"name = \"a\"\n[command]\nargv = [\"x\"]\n[slurm]\nnodes = 0\n",
		"name = \"a\"\n[command]\nargv = [\"x\"]\n[slurm]\nnode = 1\n",
		"name = \"a\"\n[command]\nargv = [\"x\"]\n[sweep.grid]\nslurm.nodes = [1]\n",
	} {
		file := filepath.Join(dir, "bad.toml")
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if run(file) == "" {
			t.Errorf("jsonschema takes\n%s", bad)
		}
	}
}

// TestInstall checks that make install installs all files in the directories that a system searches.
func TestInstall(t *testing.T) {
	dest := t.TempDir()
	c := exec.CommandContext(t.Context(), "make", "-s", "-C", "../..", "install", "BIN="+filepath.Dir(binary), "DESTDIR="+dest, "PREFIX=/opt/ddp batch")
	if o := program.Finish(t, c); o.Code != 0 {
		t.Fatal(o)
	}
	root := filepath.Join(dest, "opt", "ddp batch")
	if o := program.Finish(t, exec.CommandContext(t.Context(), filepath.Join(root, "bin", "ddpbatch"), "version")); o.Code != 0 {
		t.Error(o)
	}
	for _, file := range []string{"share/man/man1/ddpbatch.1", "share/man/man5/ddpbatch.toml.5", "share/bash-completion/completions/ddpbatch",
		"share/zsh/site-functions/_ddpbatch", "share/fish/vendor_completions.d/ddpbatch.fish", "share/ddpbatch/job.schema.json"} {
		if info, err := os.Stat(filepath.Join(root, file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
}
