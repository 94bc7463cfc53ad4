package hints_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

type silent struct{ error }

func (silent) Hint() string    { return "" }
func (s silent) Unwrap() error { return s.error }

// TestOf checks that Of finds the outermost hint of an error.
func TestOf(t *testing.T) {
	inner := hints.Errorf("create it", "open %q: %w", "x", fs.ErrNotExist)
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{name: "nil"},
		{name: "no hint", err: fs.ErrNotExist},
		{name: "hint", err: inner, want: "create it"},
		{name: "wrapped", err: fmt.Errorf("read job: %w", inner), want: "create it"},
		{name: "joined", err: errors.Join(fs.ErrClosed, inner), want: "create it"},
		{name: "outer hint precedes", err: hints.Add(inner, "choose another"), want: "choose another"},
		{name: "empty hint is not added", err: hints.Add(inner, ""), want: "create it"},
		{name: "outer error without a hint", err: silent{inner}, want: "create it"},
		{name: "joined after an error without a hint", err: errors.Join(silent{fs.ErrClosed}, inner), want: "create it"},
		{name: "joined inside an error without a hint", err: silent{fmt.Errorf("%w, %w", fs.ErrClosed, inner)}, want: "create it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := hints.Of(c.err); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestErrorf checks that Errorf wraps the cause and does not print the hint.
func TestErrorf(t *testing.T) {
	err := hints.Errorf("create it", "open %q: %w", "x", fs.ErrNotExist)
	if got, want := err.Error(), `open "x": file does not exist`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is not wrapped")
	}
}

// TestAddNil checks that a hint on a nil error remains nil.
func TestAddNil(t *testing.T) {
	if err := hints.Add(nil, "create it"); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
