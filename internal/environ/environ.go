// Package environ looks up variables and programs in an environment. An environment is a list of
// NAME=VALUE strings; it may differ from the environment of this process. Files in the current
// directory never replace a program: [LookPath], and the command line of [StartArgv], skip relative
// entries of PATH. The package does not change environments.
package environ

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Lookup returns the value of a variable. If the environment contains the name several times,
// the last value takes precedence, as in [os/exec.Cmd].
func Lookup(env []string, name string) (value string, ok bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if n, v, found := strings.Cut(env[i], "="); found && n == name {
			return v, true
		}
	}
	return "", false
}

// LookPath searches the PATH of an environment for a program and returns its path. It returns a
// name with a slash unchanged.
//
// LookPath skips relative and empty entries of PATH, so that files in the current directory
// cannot replace a program. The error wraps [exec.ErrNotFound].
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

// StartArgv returns the command line with which "binary start" starts argv in a step of Slurm, where
// binary is the path of ddpbatch. Unlike srun and env, it finds the program as [LookPath] does, where
// and when the command line runs. The program starts in the directory of this process, or in "/" if
// its node does not have this directory: Slurm would start it in /tmp, where other users can create
// files.
func StartArgv(binary string, argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	dir, owner := "/", 0
	var info unix.Stat_t
	if path, err := os.Getwd(); err == nil && unix.Stat(path, &info) == nil {
		dir, owner = path, int(info.Uid)
	}
	return slices.Concat([]string{binary, "start", "--dir=" + dir, "--owner=" + strconv.Itoa(owner), "--"}, argv)
}

// PrependPath returns a value of PATH with dir in front of path. It omits an empty path, which would
// become an empty entry: the current directory.
func PrependPath(dir, path string) string {
	if path == "" {
		return dir
	}
	return dir + ":" + path
}

// isExecutable reports whether file is a regular file that this user can execute. It calls access(2),
// because groups and access lists also decide.
func isExecutable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 && unix.Access(file, unix.X_OK) == nil
}
