package data

// hintError is an error with a hint.
type hintError struct {
	error
	hint string
}

func (e *hintError) Hint() string  { return e.hint }
func (e *hintError) Unwrap() error { return e.error }
