// Package hints attaches advice to errors: one imperative sentence that says what the user
// can do, such as "set slurm.mem to at least 64G".
//
// A hint is separate from the error's text, so that a program that prints errors decides
// where the hint goes. Any error type can have one: see [Hinter]. The package does not print
// anything.
package hints

import (
	"errors"
	"fmt"
)

// A Hinter is an error with a hint. An empty hint is no hint.
type Hinter interface {
	error
	Hint() string
}

// Errorf returns an error with a hint. Format and args are those of [fmt.Errorf]; %w wraps.
func Errorf(hint, format string, args ...any) error {
	return &hinted{fmt.Errorf(format, args...), hint}
}

// Add returns err with a hint that takes precedence over the hints of wrapped errors. It
// returns nil if err is nil, and err itself if the hint is empty.
func Add(err error, hint string) error {
	if err == nil || hint == "" {
		return err
	}
	return &hinted{err, hint}
}

// Of returns the hint of err: that of the first error in its tree that has one. It returns
// "" if there is none.
func Of(err error) string {
	var h Hinter
	for errors.As(err, &h) {
		if text := h.Hint(); text != "" {
			return text
		}
		// An outer error without a hint must not conceal an inner one.
		if err = errors.Unwrap(h); err == nil {
			break
		}
	}
	return ""
}

type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }
func (h *hinted) Hint() string  { return h.hint }
