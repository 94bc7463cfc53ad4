package slurm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// commandTimeout bounds a call whose context has no earlier deadline. Slurm's
	// own clients give up after MessageTimeout, 10 s by default, and retry.
	commandTimeout = 60 * time.Second

	// pipeGrace is how long the output of a killed program is waited for, should
	// a child of it keep the pipe open.
	pipeGrace = time.Second

	maxStdout = 64 << 20 // squeue --json writes some 10 KiB for each job
	maxStderr = 64 << 10
)

// Client runs Slurm's client programs.
type Client struct {
	// Environ is the caller's environment. The programs are looked up in its PATH
	// and get it without what [Scrub] removes, and without the variables that
	// change the answers of the client programs (SQUEUE_FORMAT and the like).
	Environ []string

	// Version is the cluster's version of Slurm, such as "23.11.4", where it is
	// known; it decides only whether squeue is asked for JSON. It may be empty.
	Version string

	// Remember tells what the caller knows of a job, for those that Slurm has
	// forgotten: a controller without accounts forgets a job five minutes after its
	// end, and 22.05 an element of an array at once that is cancelled before it
	// has started. May be nil.
	Remember func(id string) (JobState, bool)
}

// clientPrefixes are variables by which a user steers the client programs:
// filters and formats, and with SCANCEL_INTERACTIVE even a question.
var clientPrefixes = []string{"SQUEUE_", "SACCT_", "SCONTROL_", "SCANCEL_"}

// run starts argv in dir with nothing to read and returns its standard output.
// Every error is a [*CommandError].
func (c Client) run(ctx context.Context, dir string, argv ...string) (string, error) {
	out, _, err := c.runWith(ctx, dir, nil, argv...)
	return out, err
}

// runWith is run with something to read, and returns standard error, too.
func (c Client) runWith(ctx context.Context, dir string, stdin io.Reader, argv ...string) (string, string, error) {
	start := time.Now()
	var stdout, stderr limitedBuffer
	stdout.limit, stderr.limit = maxStdout, maxStderr
	fail := func(err error) (string, string, error) {
		return stdout.String(), stderr.String(), &CommandError{Argv: argv, Err: err, After: time.Since(start), Stderr: stderr.String()}
	}
	environ := c.environ()
	if argv[0] == "squeue" || argv[0] == "sacct" {
		// The pending elements of an array are told as an expression, which is
		// cut off after 64 bytes otherwise.
		environ = append(environ, "SLURM_BITSTR_LEN=0")
	}
	path, err := lookPath(argv[0], environ)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Dir = dir
	cmd.Env = environ
	cmd.Stdin = stdin
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// Its own process group: a Ctrl-C for us does not cut an answer short, and
	// a program that hangs goes together with its children.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipeGrace
	err = cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		// ErrWaitDelay is a program that succeeded and left a child behind, as a
		// site's wrapper may do. Its answer counts.
		return stdout.String(), stderr.String(), nil
	case ctx.Err() != nil:
		return fail(ctx.Err())
	}
	return fail(err)
}

// environ is what the programs get to see.
func (c Client) environ() []string {
	kept, _ := Scrub(c.Environ)
	out := kept[:0]
	for _, entry := range kept {
		if !hasAnyPrefix(entry, clientPrefixes) {
			out = append(out, entry)
		}
	}
	return out
}

// lookPath finds a program in the PATH of an environment. Relative entries of
// PATH are passed over: what a folder holds must not decide what is run.
func lookPath(program string, environ []string) (string, error) {
	var path string
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, program)
		info, err := os.Stat(file)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file, nil
		}
	}
	return "", exec.ErrNotFound
}

// limitedBuffer keeps the first limit bytes written to it.
type limitedBuffer struct {
	buf   bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := b.limit - b.buf.Len(); room < len(p) {
		b.buf.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return b.buf.Write(p)
}

func (b *limitedBuffer) String() string { return b.buf.String() }
