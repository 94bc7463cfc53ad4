// Package environ looks up variables and programs in an environment: a list of NAME=VALUE
// strings, which need not be the environment of this process. It does not change any
// environment.
package environ

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Lookup returns the value of a variable. If the environment has the name several times,
// the last one counts, as in [os/exec.Cmd].
func Lookup(env []string, name string) (value string, ok bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if n, v, found := strings.Cut(env[i], "="); found && n == name {
			return v, true
		}
	}
	return "", false
}

// LookPath returns the path of a program in the PATH of an environment. A name with a slash
// is returned unchanged.
//
// Relative entries of PATH, and empty ones, are skipped: the files of the current directory
// must not decide which program runs. The error wraps [exec.ErrNotFound].
func LookPath(env []string, name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, _ := Lookup(env, "PATH")
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if file := filepath.Join(dir, name); isExecutable(file) {
			return file, nil
		}
	}
	return "", fmt.Errorf("find %q in PATH: %w", name, exec.ErrNotFound)
}

// isExecutable reports whether this user can execute the file. Mode bits are not enough:
// the group or an access list decides for other users' files.
func isExecutable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 && unix.Access(file, unix.X_OK) == nil
}
