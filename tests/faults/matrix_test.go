package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

// These stand for exit codes: of a run that does not end, and of one whose test looks at
// a part of the program only.
const (
	goesOn = -1
	unsaid = -2
)

// row is a fault and what becomes of the run.
type row struct {
	fault, happens string
	// within is how long that may take at most; 0 where it is at the next start or there
	// is nothing to wait for.
	within time.Duration
	exit   int
	// message is what is printed; "..." stands for anything.
	message string
	// prove shows it. Without it the tests of shown do, as "folder: TestName".
	prove func(t *testing.T, r row)
	shown string
}

// group is rows under a heading.
type group struct {
	title string
	rows  []row
}

// parts are what the message has between its dots.
func (r row) parts() []string { return strings.Split(r.message, "...") }

// said checks that the message was printed.
func (r row) said(t *testing.T, o program.Outcome) {
	t.Helper()
	for _, p := range r.parts() {
		if !strings.Contains(o.Stdout+o.Stderr, p) {
			t.Errorf("%q is missing in:\n%v", p, o)
		}
	}
}

// ends checks that the run ends as the row has it, counted from began, and leaves nothing.
func (r row) ends(t *testing.T, run *training, began time.Time) {
	t.Helper()
	o := run.end()
	if took := time.Since(began); took > r.within {
		t.Errorf("it took %v, want at most %v", took, r.within)
	}
	if o.Code != r.exit {
		t.Errorf("%v, want %d", o, r.exit)
	}
	r.said(t, o)
	if left := program.Processes(t, run.dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// TestFaults has each fault come that no other test has.
func TestFaults(t *testing.T) {
	for _, g := range matrix {
		for _, r := range g.rows {
			if r.prove != nil {
				t.Run(strings.ReplaceAll(r.fault, "/", " "), func(t *testing.T) { r.prove(t, r) })
			}
		}
	}
}

// TestShownElsewhere: the tests that rows name are run, and have what a row quotes among
// what they look for.
func TestShownElsewhere(t *testing.T) {
	named := 0
	for _, g := range matrix {
		for _, r := range g.rows {
			if (r.prove == nil) == (r.shown == "") {
				t.Errorf("%s: a row is proven here or elsewhere", r.fault)
				continue
			}
			if r.shown == "" {
				continue
			}
			var all string
			for _, test := range strings.Split(r.shown, ", ") {
				folder, name, _ := strings.Cut(test, ": ")
				text, has := program.HasTest(t, "../../"+folder, name)
				if !has {
					t.Errorf("%s: there is no %s in %s", r.fault, name, folder)
				}
				all += text
				named++
			}
			for _, p := range r.parts() {
				if !strings.Contains(all, p) {
					t.Errorf("%s: no test of %s has %q", r.fault, r.shown, p)
				}
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d tests are named", named)
	}
}
