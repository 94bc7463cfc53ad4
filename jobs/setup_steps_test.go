package jobs

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/environ"
)

// expansionVariables are the variables of the tests of expansion.
var expansionVariables = []string{"HOME=/home/me", "EMPTY=", "A=a b", "Q=$(touch pwned)\"'`"}

// TestExpandVariables checks the expansion of texts, and that bash expands the words of the script to
// the same values.
func TestExpandVariables(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"plain text", "plain text"},
		{"~", "/home/me"},
		{"~/x:~/y", "/home/me/x:~/y"},
		{"~user/x", "~user/x"},
		{"$HOME/bin:${A}x$A", "/home/me/bin:a bxa b"},
		{"$$HOME costs 5$$", "$HOME costs 5$"},
		{"${UNSET-1}${UNSET:-2}${EMPTY-3}${EMPTY:-4}", "124"},
		{"${UNSET+1}${UNSET:+2}${EMPTY+3}${EMPTY:+4}${A+5}${A:+6}", "356"},
		{"x${A:+:${EMPTY:-$HOME}}y", "x:/home/mey"},
		{"${UNSET:-a \"b\" \\d}", `a "b" \d`},
		{"'$A'", "'a b'"},
		{"$Q `id` $$(id) \\ ! *", "$(touch pwned)\"'` `id` $(id) \\ ! *"},
		{"}{", "}{"},
	} {
		var e Expandable
		if err := e.UnmarshalTOML(tt.text); err != nil {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		checkExpansion(t, e, tt.want)
	}
	for _, text := range []string{"$", "$1", "a$", "$(id)", "${A", "${A:=x}", "${#A}", "${A:-", "$ A", "${}", "${A+'}", "${A:-it's}", "a\nb"} {
		var e Expandable
		if err := e.UnmarshalTOML(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestExpandCombinations checks that bash and [Expandable.Expand] agree on all combinations of
// three special characters and variables.
func TestExpandCombinations(t *testing.T) {
	tokens := []string{"$A", "${A:-", "${EMPTY:-", "${A+", "}", "'", "\"", "`", "\\", "$$", "{", "(", "!", "~/", "#", "x", "$Q"}
	var all []Expandable
	var script strings.Builder
	var combine func(text string, more int)
	combine = func(text string, more int) {
		var e Expandable
		if e.UnmarshalTOML(text) == nil {
			all = append(all, e)
			// A word that is not complete would end the script without eval.
			script.WriteString("X=invalid; eval " + ShellQuote("X="+e.shellWord()) + "; printf '%s\\0' \"$X\"\n")
		}
		for _, token := range tokens {
			if more > 0 {
				combine(text+token, more-1)
			}
		}
	}
	combine("", 3)
	cmd := exec.CommandContext(t.Context(), "bash", "-s")
	cmd.Stdin, cmd.Env, cmd.Dir = strings.NewReader(script.String()), expansionVariables, t.TempDir()
	out, err := cmd.Output()
	values := strings.Split(string(out), "\x00")
	if err != nil || len(values) != len(all)+1 || len(all) < 1000 {
		t.Fatalf("got %d values of %d texts, %v", len(values), len(all), err)
	}
	lookup := func(name string) (string, bool) { return environ.Lookup(expansionVariables, name) }
	for i, e := range all {
		if want := e.Expand(lookup); values[i] != want {
			t.Errorf("%q: bash expands %s to %q, want %q", e, e.shellWord(), values[i], want)
		}
	}
}

func checkExpansion(t *testing.T, e Expandable, want string) {
	t.Helper()
	lookup := func(name string) (string, bool) { return environ.Lookup(expansionVariables, name) }
	if got := e.Expand(lookup); got != want {
		t.Errorf("%q: got %q, want %q", e, got, want)
	}
	if got := bashExpansion(t, e); got != want {
		t.Errorf("%q: bash expands %s to %q, want %q", e, e.shellWord(), got, want)
	}
}

// bashExpansion returns the value of the word of a script.
func bashExpansion(t *testing.T, e Expandable) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "X="+e.shellWord()+"; printf %s \"$X\"")
	cmd.Env, cmd.Dir = expansionVariables, t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %s: %v", e, e.shellWord(), err)
	}
	return string(out)
}

// FuzzExpandVariables checks that bash and [Expandable.Expand] agree on every text.
func FuzzExpandVariables(f *testing.F) {
	for _, s := range []string{"~/x", "${A:-$B}", "$$", "`id`", `\"'`, "${A:+${HOME}}}", "${A+'00}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var e Expandable
		if strings.ContainsRune(s, 0xfffd) || e.UnmarshalTOML(s) != nil {
			return
		}
		lookup := func(name string) (string, bool) { return environ.Lookup(expansionVariables, name) }
		for _, special := range []string{"PATH", "PWD", "IFS", "_", "BASH", "SHLVL", "PP", "UID", "EUID", "RANDOM", "SECONDS", "LINENO", "OPT", "HOST", "MACH", "OS", "TERM", "SHELL", "DIR", "EPOCH", "GROUPS", "COMP", "FUNC", "PS", "X"} {
			if strings.Contains(s, special) {
				return // bash sets these variables itself
			}
		}
		if got, want := e.Expand(lookup), bashExpansion(t, e); got != want {
			t.Errorf("%q: got %q, but bash %q", s, got, want)
		}
	})
}

// stepsJob returns a job with the given steps.
func stepsJob(t *testing.T, steps string) *Job {
	t.Helper()
	job, err := Parse("job.toml", []byte("name = \"x\"\n[setup]\nsteps = ["+steps+"]\n[command]\nargv = [\"true\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// TestSetupScript runs the code of steps with bash: in their order, with an error that names
// the step that fails.
func TestSetupScript(t *testing.T) {
	const fakes = `{ run = "module() { echo module $*; }; conda() { [ \"$1\" = shell.bash ] && echo 'hook=1' || echo conda $* hook=$hook; }" }, `
	for _, tt := range []struct {
		name, steps, out, err string
		code                  int
	}{
		{name: "order", steps: fakes + `{ env = { A = "1" } }, { run = "echo run $A; A=2" }, { modules = ["gcc", "cuda"] }, { conda = "my $A" }, { run = "echo end" }`,
			out: "run 1\nmodule load gcc\nmodule load cuda\nconda activate my 2 hook=1\nend\nset e\n"},
		{name: "several lines", steps: `{ run = """
for x in a b; do
	cat <<EOF
$x
EOF
done""" }`, out: "a\nb\nset e\n"},
		{name: "failure", steps: `{ run = "true" }, { run = "echo first; (exit 7); echo not" }, { run = "echo not" }`, out: "first\n", code: 7,
			err: "ddpbatch: error: setup.steps[1] failed with exit code 7: echo first; (exit 7); echo not\n"},
		{name: "exit", steps: `{ run = "exit 3" }`, code: 3, err: "ddpbatch: error: setup.steps[0] failed with exit code 3: exit 3\n"},
		{name: "may fail", steps: `{ run = "false; echo on", may_fail = true }, { run = "echo e" }, { run = "false" }`, out: "on\ne\n", code: 1,
			err: "ddpbatch: error: setup.steps[2] failed with exit code 1: false\n"},
		{name: "option of a step", steps: `{ run = "set +e" }, { source = "/nowhere/$A" }`, code: 1,
			err: "ddpbatch: error: setup.steps[1] failed with exit code 1: source /nowhere/$A\n"},
		{name: "inside", steps: `{ run = "echo not", where = "inside" }, { run = "echo yes", where = "outside" }`, out: "yes\nset e\n"},
		{name: "hostile values", steps: `{ env = { A = "\";echo pwned;\"` + "`echo pwned`" + `$$(echo pwned)" } }, { run = "echo \"$A\"" }`,
			out: "\";echo pwned;\"`echo pwned`$(echo pwned)\nset e\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			script := stepsJob(t, tt.steps).Setup.SetupScript(WhereOutside)
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script+"case $- in *e*) echo set e ;; esac\n")
			cmd.Env = []string{"PATH=/usr/bin:/bin"}
			cmd.Dir = t.TempDir()
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, _ := cmd.Output()
			got := stderr.String()
			if i := strings.Index(got, "ddpbatch:"); i > 0 {
				got = got[i:] // after a message of bash
			}
			if string(out) != tt.out || got != tt.err || cmd.ProcessState.ExitCode() != tt.code {
				t.Errorf("got %q, %q, code %d, want %q, %q, %d\n%s", out, got, cmd.ProcessState.ExitCode(), tt.out, tt.err, tt.code, script)
			}
		})
	}
}

// TestApplySteps checks the environment of ranks that start without a batch script.
func TestApplySteps(t *testing.T) {
	job := stepsJob(t, `{ env = { A = "1" } }, { venv = "/v" }, { env = { B = "$A:$PATH" } }, { env = { A = "3" }, where = "inside" }`)
	got, applied := job.Setup.ApplySteps([]string{"PATH=/bin", "A=0", "PYTHONHOME=/x"})
	want := []string{"A=1", "VIRTUAL_ENV=/v", "PATH=/v/bin:/bin", "B=1:/v/bin:/bin"}
	if !slices.Equal(got, want) || !applied {
		t.Errorf("got %q, %v, want %q", got, applied, want)
	}
	got, _ = stepsJob(t, `{ venv = "/v" }`).Setup.ApplySteps(nil)
	if want := []string{"VIRTUAL_ENV=/v", "PATH=/v/bin"}; !slices.Equal(got, want) {
		t.Errorf("without PATH: got %q, want %q", got, want)
	}
	if _, applied := stepsJob(t, `{ run = "true" }`).Setup.ApplySteps(nil); applied {
		t.Error("a shell command counts as applied")
	}
}

// TestResolveSteps checks that relative paths start at the directory of the job file.
func TestResolveSteps(t *testing.T) {
	job := stepsJob(t, `{ source = "env.sh" }, { source = "$HOME/env.sh" }, { venv = "~/v" }, { venv = "v" }, { conda = "base" }, { conda = "./c" }`)
	job.ResolvePaths("/base $x")
	s := job.Setup.Steps
	got := []Expandable{s[0].Source, s[1].Source, s[2].Venv, s[3].Venv, s[4].Conda, s[5].Conda}
	if want := []Expandable{"/base $$x/env.sh", "$HOME/env.sh", "~/v", "/base $$x/v", "base", "/base $$x/c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
