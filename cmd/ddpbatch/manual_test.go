package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/cmd/ddpbatch/manual"
	"github.com/ddpbatch/ddpbatch/jobs"
)

func describedProgram(t *testing.T) manual.Program {
	t.Helper()
	parser, err := newParser(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	return manual.Describe(parser.Model, description, exitMeanings)
}

// The reference is that of this program.
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

// The help of every command reads well on a terminal of 80 columns, and says what each
// command and flag is.
func TestHelpReadsWell(t *testing.T) {
	artefact := regexp.MustCompile(`,\.\.\.,|\$\{|=""|\(\$|context-sensitive`)
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
	}
}
