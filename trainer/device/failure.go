package device

import "fmt"

// Failure is a device that cannot go on: its memory is used up, say, or it is lost.
// Operations have no errors to return, as models and optimisers could do nothing about
// them; so the call that learns of a failure panics with a *Failure. That may be a
// later call than the one whose work failed. Nothing works on the device after it.
type Failure struct {
	Device    string // its name
	Operation string // what was asked for, with its shapes
	Err       error
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s: %v", f.Device, f.Operation, f.Err) }

// Unwrap gives errors.Is and errors.As what is behind it.
func (f *Failure) Unwrap() error { return f.Err }

// Hint is that of what is behind it, if there is one.
func (f *Failure) Hint() string {
	if h, ok := f.Err.(interface{ Hint() string }); ok {
		return h.Hint()
	}
	return ""
}

// Recover makes a failure that panics the error of the function that defers it. Other
// panics go on. Whoever owns a device defers it once, where errors can be returned.
func Recover(err *error) {
	switch v := recover().(type) {
	case nil:
	case *Failure:
		*err = v
	default:
		panic(v)
	}
}
