package exitcode

// Add returns err with an exit code, which takes precedence over the codes of wrapped errors. It
// returns nil if err is nil.
func Add(code int, err error) error {
	if err == nil {
		return nil
	}
	return codedError{code, err}
}

type codedError struct {
	code int
	err  error
}

func (e codedError) Error() string { return e.err.Error() }
func (e codedError) Unwrap() error { return e.err }
func (e codedError) ExitCode() int { return e.code }
