package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

// noExit and exitNotChecked replace an exit code: noExit for a run that does not exit, and
// exitNotChecked for a test that checks only a part of the program.
const (
	noExit         = -1
	exitNotChecked = -2
)

// A row is a fault and its result for a run.
type row struct {
	fault, happens string
	// within is the maximum time until the result. It is 0 if the result is at the next start, or
	// if there is nothing to wait for.
	within time.Duration
	exit   int
	// message is the expected output, where "..." matches any text.
	message string
	// prove runs the test of the row. If it is nil, the tests in shown cover the row, as
	// "directory: TestName".
	prove func(t *testing.T, r row)
	shown string
}

// A group is a list of rows under one heading.
type group struct {
	title string
	rows  []row
}

// parts returns the literal parts of the message.
func (r row) parts() []string { return strings.Split(r.message, "...") }

// checkMessage checks that the message was printed.
func (r row) checkMessage(t *testing.T, o program.Outcome) {
	t.Helper()
	for _, p := range r.parts() {
		if !strings.Contains(o.Stdout+o.Stderr, p) {
			t.Errorf("%q is missing in:\n%v", p, o)
		}
	}
}

// checkEnd checks that the run ends as the row says, within its time limit since began, and leaves
// no process.
func (r row) checkEnd(t *testing.T, run *training, began time.Time) {
	t.Helper()
	o := run.end()
	if took := time.Since(began); took > r.within {
		t.Errorf("it took %v, want at most %v", took, r.within)
	}
	if o.Code != r.exit {
		t.Errorf("%v, want %d", o, r.exit)
	}
	r.checkMessage(t, o)
	if left := program.Processes(t, run.dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// TestFaults runs the rows that have a test here.
func TestFaults(t *testing.T) {
	for _, g := range matrix {
		for _, r := range g.rows {
			if r.prove != nil {
				t.Run(strings.ReplaceAll(r.fault, "/", " "), func(t *testing.T) { r.prove(t, r) })
			}
		}
	}
}

// TestShownElsewhere checks that the tests that rows name exist, run, and look for the message of
// the row.
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
