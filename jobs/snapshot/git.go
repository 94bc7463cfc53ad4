package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

const (
	// gitPatience is for a large tree on a slow file system that nobody looked at
	// today.
	gitPatience = time.Minute
	// maxGitOutput is room for the paths of some hundred thousand files.
	maxGitOutput = 32 << 20
	maxGitError  = 4 << 10
)

// git is the program, and the environment to run it in.
type git struct {
	path string
	env  []string
}

// findGit looks for git in the PATH of an environment.
func findGit(environ []string) (git, bool) {
	for _, dir := range filepath.SplitList(value(environ, "PATH")) {
		path := filepath.Join(dir, "git")
		info, err := os.Stat(path)
		// A relative folder in PATH would mean another program in every folder.
		if filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
			return git{path: path, env: gitEnviron(environ)}, true
		}
	}
	return git{}, false
}

func value(environ []string, name string) string {
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// gitEnviron returns an environment in which git inspects the directory that it is started
// in: in a hook, GIT_DIR and similar variables name another repository. GIT_ALLOW_PROTOCOL
// keeps git from fetching the missing objects of a partial clone, which starts programs
// that the repository names; GIT_NO_LAZY_FETCH does so too, from git 2.44 on.
func gitEnviron(environ []string) []string {
	var env []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		switch {
		case strings.HasPrefix(name, "LC_"), name == "LANG", name == "LANGUAGE":
		case name == "GIT_CONFIG", name == "GIT_CONFIG_PARAMETERS":
		case strings.HasPrefix(name, "GIT_") &&
			// Where people and sites keep their settings, like safe.directory.
			!strings.HasPrefix(name, "GIT_CONFIG_") &&
			name != "GIT_EXEC_PATH" && name != "GIT_CEILING_DIRECTORIES" && name != "GIT_DISCOVERY_ACROSS_FILESYSTEM":
		default:
			env = append(env, e)
		}
	}
	return append(env, "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1")
}

// gitFailure is git's own word on why it failed.
type gitFailure struct {
	command string
	stderr  string
	err     error
}

func (e *gitFailure) Error() string {
	word, _, _ := strings.Cut(strings.TrimSpace(e.stderr), "\n")
	if word = strings.TrimPrefix(word, "fatal: "); word == "" {
		word = e.err.Error()
	}
	return fmt.Sprintf("git %s: %s", e.command, word)
}

func (e *gitFailure) Unwrap() error { return e.err }

// noWorkTree says whether git found no repository at all; one that is damaged is
// something else.
func (e *gitFailure) noWorkTree() bool {
	return strings.Contains(e.stderr, "not a git repository (or any")
}

// explain adds the hint for a repository of another owner (safe.directory,
// git-config(1); "unsafe repository" in 2.35).
func (e *gitFailure) explain(dir string) error {
	if !strings.Contains(e.stderr, "dubious ownership") && !strings.Contains(e.stderr, "unsafe repository") {
		return e
	}
	if _, rest, ok := strings.Cut(e.stderr, "safe.directory "); ok {
		dir, _, _ = strings.Cut(rest, "\n")
	}
	return hints.Errorf("if you trust who owns it: `git config --global --add safe.directory "+dir+"`", "%w", e)
}

// harmless are settings that keep git from starting a program that the settings of a
// repository name. The repository may be from someone else: a folder that was received as
// an archive keeps its .git. For filters see [git.withoutFilters]. An empty
// core.fsmonitor switches it off in every version of git.
var harmless = []string{"-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false", "--no-pager"}

// run runs git in a directory and returns its output. The command must not read the content
// of files of the work tree, which may start filters, unless args begin with the result of
// [git.withoutFilters].
func (g git) run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	patient, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	cmd := exec.CommandContext(patient, g.path, append(slices.Clone(harmless), args...)...)
	command := subcommand(args)
	stdout, stderr := &capped{room: maxGitOutput}, &capped{room: maxGitError, cut: true}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, g.env, stdout, stderr, time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.text.Bytes(), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case stdout.full: // and so git ended by a broken pipe
		return nil, fmt.Errorf("git %s: %w", command, errTooMuch)
	case patient.Err() != nil:
		return nil, hints.Errorf("see how long `git status` takes there; a slow file system may be at fault",
			"git %s: not done after %s", command, gitPatience)
	}
	return nil, (&gitFailure{command, stderr.text.String(), err}).explain(dir)
}

// subcommand returns the name of git's command, for messages.
func subcommand(args []string) string {
	for len(args) > 2 && args[0] == "-c" {
		args = args[2:]
	}
	return args[0]
}

var errTooMuch = fmt.Errorf("it prints more than %d MiB", maxGitOutput>>20)

// capped is a buffer with an end: what is more fails, or is cut off. The buffer
// is not embedded: io.Copy would use its ReadFrom, which knows no end.
type capped struct {
	text bytes.Buffer
	room int
	cut  bool
	full bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := c.room - c.text.Len()
	if len(p) <= room {
		return c.text.Write(p)
	}
	c.full = true
	if !c.cut {
		return 0, errTooMuch
	}
	c.text.Write(p[:room])
	return len(p), nil
}
