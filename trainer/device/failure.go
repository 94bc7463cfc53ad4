package device

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// A Failure reports that a device cannot continue, for example because it is out of memory or lost.
// Operations return no errors, because models and optimizers could not handle them. Instead, the
// call that detects a failure panics with a *Failure. It may be a later call than the one that
// failed. The device cannot be used afterwards.
type Failure struct {
	Device    string // name of the device
	Operation string // operation with its shapes
	Err       error
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s: %v", f.Device, f.Operation, f.Err) }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Hint returns the hint of the cause, if it has one.
func (f *Failure) Hint() string { return hints.Of(f.Err) }

// Recover turns a panic with a *Failure into the error of the deferring function. Other panics
// continue. The owner of a device defers it once, where errors can be returned.
func Recover(err *error) {
	switch v := recover().(type) {
	case nil:
	case *Failure:
		*err = v
	default:
		panic(v)
	}
}
