package hint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hint"
)

type silent struct{ error }

func (silent) Hint() string    { return "" }
func (s silent) Unwrap() error { return s.error }

func TestOf(t *testing.T) {
	inner := hint.Errorf("create it", "open %q: %w", "x", fs.ErrNotExist)
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
		{name: "outer hint precedes", err: hint.Add(inner, "choose another"), want: "choose another"},
		{name: "empty hint is not added", err: hint.Add(inner, ""), want: "create it"},
		{name: "outer error without a hint", err: silent{inner}, want: "create it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := hint.Of(c.err); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestErrorf(t *testing.T) {
	err := hint.Errorf("create it", "open %q: %w", "x", fs.ErrNotExist)
	if got, want := err.Error(), `open "x": file does not exist`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is not wrapped")
	}
}

func TestAddNil(t *testing.T) {
	if err := hint.Add(nil, "create it"); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
