// Package hints attaches hints to errors. A hint is one imperative sentence with the fix, such as
// "set slurm.mem to at least 64G".
//
// The text of the error does not contain the hint, so that programs can print both separately.
// Any error type can have a hint: see [Hinter]. The package does not print anything.
package hints

import "fmt"

// A Hinter is an error with a hint. Hint returns "" if the error does not have a hint.
type Hinter interface {
	error
	Hint() string
}

// Errorf returns an error with a hint. It passes format and args to [fmt.Errorf], so %w wraps.
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

// Of returns the hint of the first error in err's tree that has a hint, or "". It searches the tree
// in the order of [errors.As].
func Of(err error) string {
	if h, ok := err.(Hinter); ok && h.Hint() != "" {
		return h.Hint()
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return Of(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if hint := Of(err); hint != "" {
				return hint
			}
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
