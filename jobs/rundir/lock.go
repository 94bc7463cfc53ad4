package rundir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Lock keeps a second launcher of this machine out of the directory until
// unlock is called or this process ends.
func (d Dir) Lock() (unlock func(), err error) {
	path := filepath.Join(d.Path, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock run directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock run directory %q: %w", d.Path, err)
		}
		who, _ := io.ReadAll(io.LimitReader(f, 200))
		return nil, problem{fmt.Errorf("run directory %q is in use by %s", d.Path, strings.TrimSpace(string(who))),
			"wait for it, stop it, or choose another place with --run-dir"}
	}
	host, err := os.Hostname()
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(f, "process %d on %s\n", os.Getpid(), host)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock run directory %q: %w", d.Path, err)
	}
	return func() { f.Close() }, nil
}
