package exitcode

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// TestAdd checks that the outer exit code of an error counts, and that the error's text and cause
// stay.
func TestAdd(t *testing.T) {
	plain := errors.New("disk full")
	err := Add(Usage, fmt.Errorf("save: %w", Add(Lost, plain)))
	var coded interface{ ExitCode() int }
	if !errors.As(err, &coded) || coded.ExitCode() != Usage {
		t.Errorf("got %v, want exit code %d", err, Usage)
	}
	if !errors.Is(err, plain) || err.Error() != "save: disk full" {
		t.Errorf("got %q, want the wrapped error", err)
	}
	if err := Add(Failed, nil); err != nil {
		t.Errorf("nil error: got %v", err)
	}
}

// TestUsagef checks the exit code, the text, and the hint of a usage error.
func TestUsagef(t *testing.T) {
	cause := errors.New("none")
	err := Usagef("use one", "find %q: %w", "x", cause)
	var coded interface{ ExitCode() int }
	if !errors.As(err, &coded) || coded.ExitCode() != Usage || !errors.Is(err, cause) || err.Error() != `find "x": none` || hints.Of(err) != "use one" {
		t.Errorf("got %q with hint %q", err, hints.Of(err))
	}
	if hint := hints.Of(Usagef("", "none")); hint != "" {
		t.Errorf("got hint %q, want none", hint)
	}
}
