package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// maxSecretDelay is how long a rank waits for the file with the secret. With NFS, changes from
// other nodes may become visible only after 60 s (acdirmax in nfs(5)). Names that a node has
// never looked up become visible immediately.
const maxSecretDelay = 90 * time.Second

// secretPollInterval is the time between two attempts to read the file.
const secretPollInterval = 200 * time.Millisecond

// loadSecret returns the secret of the attempt. Ranks on the launcher's machine have it in
// their environment. Ranks of a step have the name of a file in the run directory, and
// loadSecret waits for that file.
func loadSecret(ctx context.Context, o JoinOptions) (wire.Secret, error) {
	name, inFile := o.Lookup(envSecretIn)
	if !inFile {
		text, _ := o.Lookup(envSecret)
		secret, err := wire.ParseSecret(text)
		if err != nil {
			return secret, fmt.Errorf("variable %s: %w", envSecret, err)
		}
		return secret, nil
	}
	// The launcher must receive the error before it stops waiting for this rank.
	delay := min(maxSecretDelay, time.Duration(o.Job.Network.JoinTimeout)/2)
	ctx, cancel := context.WithTimeoutCause(ctx, delay, fmt.Errorf("waited for %s", delay))
	defer cancel()
	for {
		secret, complete, err := readSecret(o, name)
		if err == nil {
			return secret, nil
		}
		err = &secretError{host: o.Info.Host, path: filepath.Join(o.Dir.Path, name), err: err}
		if complete {
			return secret, err
		}
		select {
		case <-ctx.Done():
			return secret, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-time.After(secretPollInterval):
		}
	}
}

// readSecret reads the file with the secret. If it returns an error, complete reports whether
// the error is final. An error is not final if this node may see the file or its content later
// than other nodes.
func readSecret(o JoinOptions, name string) (secret wire.Secret, complete bool, err error) {
	text, err := o.Dir.ReadSecret(name)
	if err != nil {
		return secret, !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESTALE), err
	}
	secret, err = wire.ParseSecret(string(text))
	return secret, false, err
}

// A secretError reports that a rank cannot read the secret of its attempt.
type secretError struct {
	host, path string
	err        error
}

// Error names the host and the file.
func (e *secretError) Error() string {
	return fmt.Sprintf("read the secret of the attempt on %s from %q: %v", e.host, e.path, e.err)
}

// Unwrap returns the cause.
func (e *secretError) Unwrap() error { return e.err }

// Hint returns what to check.
func (e *secretError) Hint() string {
	return fmt.Sprintf("check that %s and the node of the launcher see the same run directory, with the same owner and modes", e.host)
}
