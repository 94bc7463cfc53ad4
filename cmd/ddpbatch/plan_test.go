package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPlanExampleIsCurrent checks that docs/plan.md shows what its example prints, apart from the
// width of lines.
func TestPlanExampleIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```\n$ ddpbatch ")
	example, _, _ = strings.Cut(example, "```")
	command, want, ok := strings.Cut(strings.ReplaceAll(example, "\\\n", ""), "\n")
	if !ok {
		t.Fatal("docs/plan.md has no example")
	}
	args := strings.Fields(command)
	args[1] = "../../" + args[1] // the job file
	var out, errs bytes.Buffer
	p := &program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Dir: t.TempDir()}
	if code := p.run(t.Context(), args); code != exitDone || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if !slices.Equal(strings.Fields(out.String()), strings.Fields(want)) {
		t.Errorf("docs/plan.md shows\n%s\nbut %q prints\n%s", want, command, out.String())
	}
}
