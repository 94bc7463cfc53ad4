package data

// hintError is an error that also says, in one line, what to do.
type hintError struct {
	error
	hint string
}

func (e *hintError) Hint() string  { return e.hint }
func (e *hintError) Unwrap() error { return e.error }
