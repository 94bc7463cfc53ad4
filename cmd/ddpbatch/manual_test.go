package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/cmd/ddpbatch/manual"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
)

func describedProgram(t *testing.T) manual.Program {
	t.Helper()
	parser, err := newParser(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	return manual.Describe(parser.Model, description, exitMeanings)
}

// TestReferenceIsCurrent checks that docs/reference matches the program.
func TestReferenceIsCurrent(t *testing.T) {
	const folder = "../../docs/reference"
	known := map[string]bool{}
	for _, page := range manual.Reference(describedProgram(t), jobs.Keys()) {
		known[page.Name] = true
		text, err := os.ReadFile(filepath.Join(folder, page.Name))
		if err != nil || !bytes.Equal(text, page.Text) {
			t.Errorf("docs/reference/%s is not what the code says (%v): run `make reference` and commit what it writes", page.Name, err)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[f.Name()] {
			t.Errorf("docs/reference/%s is written by nothing", f.Name())
		}
	}
}

// TestReferenceSections checks that each key of the job file is in the section of its own table.
func TestReferenceSections(t *testing.T) {
	for _, page := range manual.Reference(describedProgram(t), jobs.Keys()) {
		if page.Name != "job-file.md" {
			continue
		}
		sections := "\n" + string(page.Text)
		for _, k := range jobs.Keys() {
			table, name := "", k.Name
			if i := strings.LastIndexByte(name, '.'); i >= 0 {
				table, name = name[:i], name[i+1:]
			}
			section := sections[:strings.Index(sections, "\n## ")]
			if table != "" {
				_, after, _ := strings.Cut(sections, "\n## ["+table+"]\n")
				section, _, _ = strings.Cut(after, "\n## ")
			}
			if !k.Table && !strings.Contains(section, "\n| `"+name+"` |") {
				t.Errorf("%s is not in the section of its table", k.Name)
			}
		}
	}
}

// TestHelpReadsWell checks that the help of every command fits 80 columns and describes each
// command and flag.
func TestHelpReadsWell(t *testing.T) {
	artefact := regexp.MustCompile(`,\.\.\.,|\$\{|=""|\(\$|context-sensitive`)
	bracketed := regexp.MustCompile(`\[\w+\]`)
	commands := describedProgram(t).Commands
	if len(commands) < 25 {
		t.Fatalf("only %d commands", len(commands))
	}
	for _, c := range append([]manual.Command{{}}, commands...) {
		var out, errs bytes.Buffer
		p := &program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Dir: t.TempDir()}
		if code := p.run(t.Context(), append(append([]string{}, c.Path...), "--help")); code != exitDone || errs.Len() > 0 {
			t.Errorf("%s --help ends with %d: %s", c.Name(), code, errs.String())
		}
		if !strings.HasPrefix(out.String(), "Usage: ddpbatch") {
			t.Errorf("%s --help prints\n%s", c.Name(), out.String())
		}
		for i, line := range strings.Split(out.String(), "\n") {
			if utf8.RuneCountInString(line) > 80 {
				t.Errorf("%s --help, line %d has more than 80 columns:\n%s", c.Name(), i+1, line)
			}
			if artefact.MatchString(line) {
				t.Errorf("%s --help, line %d: %q", c.Name(), i+1, line)
			}
		}
		if c.Path != nil && !strings.HasSuffix(c.Summary, ".") {
			t.Errorf("%s: the summary %q is no sentence", c.Name(), c.Summary)
		}
		for _, f := range c.Flags {
			if f.Help == "" {
				t.Errorf("%s --%s has no help", c.Name(), f.Name)
			}
		}
		// Kong's formatter treats some words in brackets as Go documentation links.
		for _, word := range bracketed.FindAllString(c.Detail, -1) {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%s --help lacks %s of its text", c.Name(), word)
			}
		}
	}
}

func helpOf(t *testing.T, command string) string {
	t.Helper()
	var out bytes.Buffer
	p := &program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Dir: t.TempDir()}
	if code := p.run(t.Context(), []string{command, "--help"}); code != exitDone {
		t.Fatalf("%s --help ends with %d: %s", command, code, out.String())
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// TestHelpNamesDefaultFiles checks that the help of commands with a default output file names
// the file.
func TestHelpNamesDefaultFiles(t *testing.T) {
	for command, file := range map[string]string{"report": "report.html", "trace": "trace.json"} {
		if help := helpOf(t, command); !strings.Contains(help, "default: "+file) {
			t.Errorf("%s --help does not name %s:\n%s", command, file, help)
		}
	}
}

// TestHelpSaysThatNamesAreAccepted checks the commands that accept the name of a run.
func TestHelpSaysThatNamesAreAccepted(t *testing.T) {
	for _, command := range []string{"status", "logs", "report", "trace", "wait", "cancel", "top", "sample"} {
		if help := helpOf(t, command); !strings.Contains(help, "Run name") {
			t.Errorf("%s --help does not list run names:\n%s", command, help)
		}
	}
}

// TestUsageErrorsArePlain checks that usage errors name the user's input, and neither Go types
// nor parser tokens.
func TestUsageErrorsArePlain(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
		not  string
	}{
		{"launch job.toml -n two", []string{"--ranks", "an integer", `"two"`}, "64 bit"},
		{"launch job.toml -n -3", []string{"--ranks", "negative", "-3"}, "perhaps"},
		{"launch job.toml -n", []string{"--ranks", "needs a value"}, "EOL"},
		{"check", []string{"missing argument", "<job.toml>"}, "expected"},
	} {
		var errs bytes.Buffer
		p := &program{Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs, Dir: t.TempDir()}
		if code := p.run(t.Context(), strings.Fields(c.args)); code != exitUsage {
			t.Errorf("%s: code %d", c.args, code)
		}
		for _, want := range c.want {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s: %q does not say %q", c.args, errs.String(), want)
			}
		}
		if strings.Contains(errs.String(), c.not) {
			t.Errorf("%s: %q says %q", c.args, errs.String(), c.not)
		}
	}
}

// TestTopSaysThatThereAreNoRuns checks the live table of a directory without runs.
func TestTopSaysThatThereAreNoRuns(t *testing.T) {
	p := &program{Dir: t.TempDir()}
	for _, c := range []topCmd{{}, {Which: []string{"."}}} {
		if got := strings.Join(c.page(200, 20, c.view(t.Context(), p.runStore(), p.runStore().NewPoller())), "\n"); !strings.Contains(got, "there are no runs below "+p.Dir) {
			t.Errorf("%q: %s", c.Which, got)
		}
		if got := strings.Join(c.page(200, 20, topView{}), "\n"); strings.Contains(got, "no runs") {
			t.Errorf("%q, before the first look: %s", c.Which, got)
		}
	}
}

// TestTopReportsUnreadableRunsOnItsPage checks that the live table reports that all runs are
// unreadable, and that no warning overwrites it.
func TestTopReportsUnreadableRunsOnItsPage(t *testing.T) {
	var errs bytes.Buffer
	p := &program{Dir: t.TempDir(), Stdout: io.Discard, Stderr: &errs}
	broken := filepath.Join(p.Dir, runs.DefaultDir, "broken")
	if err := os.MkdirAll(broken, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "record.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []topCmd{{}, {Which: []string{runs.DefaultDir}}, {Which: []string{"."}}} {
		ctx, stop := context.WithCancel(t.Context())
		views := c.poll(ctx, p, func() int { return 20 })
		view := <-views
		stop()
		for range views {
		}
		want := "no run below " + filepath.Join(p.Dir, runs.DefaultDir) + " can be read"
		if len(c.Which) > 0 && c.Which[0] == "." {
			want = "there are no runs below " + p.Dir
		}
		if got := strings.Join(c.page(200, 20, view), "\n"); !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q in it", c.Which, got, want)
		}
	}
	if errs.Len() > 0 {
		t.Errorf("wrote %q", errs.String())
	}
}

// TestTopShowsRunsBesideErrors checks that errors do not hide the table. Another user can cause them.
func TestTopShowsRunsBesideErrors(t *testing.T) {
	view := topView{all: []watch.Status{{Name: "mine", Phase: watch.Running}}, err: errors.New(strings.Repeat("left out: run of another user\n", 500))}
	for _, height := range []int{8, 24, 60} {
		page := pageOf(height, view)
		got := strings.Join(page, "\n")
		if len(page) > height || !strings.Contains(got, "mine") || !strings.Contains(got, "left out") || !strings.Contains(got, "more lines; `ddpbatch status` prints") {
			t.Errorf("height %d: got %q", height, got)
		}
	}
	view.err = errors.New("left out: one run")
	if got := strings.Join(pageOf(24, view), "\n"); !strings.Contains(got, "one run") || strings.Contains(got, "more line") {
		t.Errorf("one error: got %q", got)
	}
}

// pageOf returns the page of `ddpbatch top` on a terminal with 80 columns.
func pageOf(height int, view topView) []string { return (&topCmd{}).page(80, height, view) }

// TestBashCompletesValues completes the values of --site and --set in bash.
func TestBashCompletesValues(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words string // the last word is completed
		want  string
	}{
		{"init --site lum", "lumi"},
		{"init --site ''", "generic"},
		{"check --set train.bat", "train.batch="},
		{"launch job.toml --set train.optimizer.dec", "train.optimizer.decay="},
		{"submit --set ''", "slurm.nodes="},
	} {
		var script bytes.Buffer
		p := &program{Stdin: strings.NewReader(""), Stdout: &script, Stderr: &script, Dir: t.TempDir()}
		if code := p.run(t.Context(), []string{"completion", "bash"}); code != exitDone {
			t.Fatal(script.String())
		}
		fmt.Fprintf(&script, "COMP_WORDS=(ddpbatch %s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ddpbatch; printf '%%s\\n' \"${COMPREPLY[@]}\"\n", c.words)
		cmd := exec.CommandContext(t.Context(), bash, "--norc")
		cmd.Stdin = &script
		out, err := cmd.CombinedOutput()
		if err != nil || !slices.Contains(strings.Split(string(out), "\n"), c.want) {
			t.Errorf("%s: %v, want %q in\n%s", c.words, err, c.want, out)
		}
	}
}

// TestOtherShellsCompleteValues checks that the scripts for zsh and fish contain the values.
func TestOtherShellsCompleteValues(t *testing.T) {
	for shell, want := range map[string][]string{
		"zsh":  {"lumi", "compadd -S", "train.batch="},
		"fish": {"lumi", "train.batch="},
	} {
		var script bytes.Buffer
		p := &program{Stdin: strings.NewReader(""), Stdout: &script, Stderr: &script, Dir: t.TempDir()}
		if code := p.run(t.Context(), []string{"completion", shell}); code != exitDone {
			t.Fatal(script.String())
		}
		for _, text := range want {
			if !strings.Contains(script.String(), text) {
				t.Errorf("the script for %s has no %q", shell, text)
			}
		}
	}
}

// TestCompletionOmitsNamesThatShellsExpand checks that the file name of a profile cannot run a
// command when the user presses Tab. In some centers, other users can add profiles.
func TestCompletionOmitsNamesThatShellsExpand(t *testing.T) {
	sites := t.TempDir()
	for _, name := range []string{"x$(touch pwned)", "x`touch pwned`", "x(touch pwned)", "x;pwned", "x\npwned", "x pwned", "-pwned", "own_site-2.1"} {
		if err := os.WriteFile(filepath.Join(sites, name+".toml"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			var script bytes.Buffer
			p := &program{Stdin: strings.NewReader(""), Stdout: &script, Stderr: &script, Dir: t.TempDir(), Env: []string{"DDPBATCH_SITES=" + sites}}
			if code := p.run(t.Context(), []string{"completion", shell}); code != exitDone {
				t.Fatal(script.String())
			}
			if strings.Contains(script.String(), "pwned") {
				t.Error("the script contains a name that the shell expands")
			}
			if !strings.Contains(script.String(), "own_site-2.1") {
				t.Error("the script does not contain a plain name")
			}
		})
	}
}
