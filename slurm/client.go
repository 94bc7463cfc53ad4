package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/capped"
	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/printable"
)

const (
	// commandTimeout limits a call whose context has no earlier deadline. Slurm's
	// programs give up after MessageTimeout, 10 s by default, and retry.
	commandTimeout = 60 * time.Second

	// pipeTimeout limits the wait for the output of a program that ended, if one of its
	// children keeps the pipe open.
	pipeTimeout = time.Second

	maxStdout = 64 << 20 // bytes; a line of squeue has some 150
	maxStderr = 64 << 10 // bytes
)

// A Client runs Slurm's client programs.
type Client struct {
	// Environ is the caller's environment. The programs are looked up in its PATH. They
	// run in this environment without the variables that [Scrub] removes and without
	// those that change the output of client programs, such as SQUEUE_FORMAT.
	Environ []string

	// LastKnown returns the caller's own record of a job. It is used for jobs that Slurm
	// has forgotten: without accounting, a controller forgets a job 5 minutes after its
	// end, and 22.05 immediately forgets an array task that is canceled before it
	// starts. It may be nil.
	LastKnown func(id string) (JobState, bool)
}

// clientVarPrefixes match variables that change how the client programs filter and format,
// or make them ask questions (SCANCEL_INTERACTIVE).
var clientVarPrefixes = []string{"SQUEUE_", "SACCT_", "SCONTROL_", "SCANCEL_"}

// run runs argv in dir with an empty standard input. It returns standard output. Every
// error is a [*CommandError].
func (c Client) run(ctx context.Context, dir string, argv ...string) (string, error) {
	stdout, _, err := c.runWithInput(ctx, dir, nil, argv...)
	return stdout, err
}

// runWithInput runs argv in dir with the given standard input. It returns standard output
// and standard error. Every error is a [*CommandError].
func (c Client) runWithInput(ctx context.Context, dir string, stdin io.Reader, argv ...string) (string, string, error) {
	start := time.Now()
	stdout, stderr := capped.Buffer{Limit: maxStdout}, capped.Buffer{Limit: maxStderr}
	fail := func(err error) (string, string, error) {
		return stdout.String(), stderr.String(), &CommandError{Argv: argv, Err: err, After: time.Since(start), Stderr: stderr.String()}
	}
	env := c.commandEnviron()
	if argv[0] == "squeue" || argv[0] == "sacct" {
		// Without this they cut the list of pending array tasks after 64 bytes.
		env = append(env, "SLURM_BITSTR_LEN=0")
	}
	path, err := environ.LookPath(env, argv[0])
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Dir = dir
	cmd.Env = env
	cmd.Stdin = stdin
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// The program gets its own process group. Ctrl-C does not interrupt it, and a program
	// that hangs is killed with its children.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipeTimeout
	err = cmd.Run()
	switch {
	case stdout.IsCut():
		return fail(fmt.Errorf("more than %d MiB of output", maxStdout>>20))
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		// ErrWaitDelay: the program succeeded and left a child, as a site's wrapper may
		// do. Its output is valid.
		return stdout.String(), stderr.String(), nil
	case ctx.Err() != nil:
		return fail(ctx.Err())
	}
	return fail(err)
}

// commandEnviron returns the environment of the programs.
func (c Client) commandEnviron() []string {
	env, _ := Scrub(c.Environ)
	return slices.DeleteFunc(env, func(entry string) bool { return hasAnyPrefix(entry, clientVarPrefixes) })
}

// A CommandError reports a Slurm program that could not be started, failed, timed out, or printed too much.
type CommandError struct {
	Argv   []string      // command line, with the name of the program first
	Err    error         // *exec.ExitError, exec.ErrNotFound, the context's error, or a system error
	After  time.Duration // run time of the program
	Stderr string        // standard error, at most 64 KiB
}

// Error returns the name of the program, the cause, and the program's own message.
func (e *CommandError) Error() string {
	program := e.Argv[0]
	text := fmt.Sprintf("%s failed (%v)", program, e.Err)
	switch {
	case errors.Is(e.Err, exec.ErrNotFound):
		return program + ": not found in PATH"
	case errors.Is(e.Err, context.Canceled):
		return program + ": canceled"
	case errors.Is(e.Err, context.DeadlineExceeded):
		text = fmt.Sprintf("%s: no reply within %s", program, e.After.Round(time.Second))
	}
	if message := oneLine(e.Stderr); message != "" {
		text += ": " + message
	}
	return text
}

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }

// oneLine joins the lines of a program's output and removes control characters.
func oneLine(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = printable.Line(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// stepVarPrefixes match the variables that [Scrub] removes. Each comment gives their effect
// on a different job.
var stepVarPrefixes = []string{
	"SLURM_",  // describe the caller's step; sbatch passes them to the new job despite --export
	"SLURMD_", // name the caller's node
	"SBATCH_", // silently override the #SBATCH lines of the script
	"SRUN_",   // change the task layout of the job's srun (SRUN_CPUS_PER_TASK)
	"PMI_",    // rank and sockets of a process manager: MPI would join the caller's step
	"PMI2_",
	"PMIX_",
}

// keptVars match stepVarPrefixes but are kept.
var keptVars = map[string]bool{
	"SLURM_CONF": true, // path of the cluster's configuration; the clients may need it to find the controller
}

// Scrub returns env without the variables of the caller's Slurm step, which must not
// leak into a new job. It also returns the names of the removed variables, in order. It
// does not return their values, because they may be secret.
func Scrub(env []string) (kept, dropped []string) {
	kept = make([]string, 0, len(env))
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if hasAnyPrefix(name, stepVarPrefixes) && !keptVars[name] {
			dropped = append(dropped, name)
			continue
		}
		kept = append(kept, entry)
	}
	return kept, dropped
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
