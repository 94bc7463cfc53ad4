// Package exitcode defines the exit codes of ddpbatch. Scripts and Slurm settings depend on
// them, so they never change. The help text and docs/reference/exit-codes.md describe them.
//
// An error can carry its exit code: [Add] attaches one, and an error type can have a method
// ExitCode() int. The package does not exit, and does not choose codes for other errors.
package exitcode

import "github.com/ddpbatch/ddpbatch/internal/hints"

// The exit codes of all commands and of ranks. A rank of a [command] job has the exit code of
// the user's program.
const (
	Done         = 0   // finished, or nothing to do
	Failed       = 1   // any other failure
	Usage        = 2   // usage error or invalid job file
	Stopped      = 3   // stopped early on request; the run can resume
	Lost         = 4   // a rank was lost, hung, did not join, or received corrupt data
	NoCheckpoint = 5   // no usable checkpoint for the job
	Canceled     = 130 // by a second Control-C, as shells report SIGINT
)

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

// Usagef returns an error with the code [Usage] and a hint, which may be empty. It passes format and
// args to [fmt.Errorf].
func Usagef(hint, format string, args ...any) error {
	return Add(Usage, hints.Errorf(hint, format, args...))
}
