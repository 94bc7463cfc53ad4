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

	"github.com/ddpbatch/ddpbatch/internal/capped"
	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

const (
	// gitTimeout is the timeout of a git command. It allows for a large work tree on a slow
	// file system with a cold cache.
	gitTimeout = time.Minute
	// maxGitOutput is sufficient for the paths of several hundred thousand files.
	maxGitOutput = 32 << 20
	maxGitError  = 4 << 10
)

// git is the path and the environment of the git executable.
type git struct {
	path string
	env  []string
}

// findGit searches the PATH in env for git. The result is for commands in dir.
func findGit(env []string, dir string) (git, bool) {
	path, err := environ.LookPath(env, "git")
	if err != nil {
		return git{}, false
	}
	g := git{path: path, env: gitEnviron(env)}
	if public := findPublicRepository(dir); public != "" {
		const name = "GIT_CEILING_DIRECTORIES"
		ceilings, _ := environ.Lookup(g.env, name)
		g.env = append(g.env, name+"="+strings.TrimSuffix(public+":"+ceilings, ":"))
	}
	return g, true
}

// findPublicRepository returns the directory above dir, such as /tmp, in which every user can
// create files and another user has created a repository: .git, or HEAD of a bare repository.
// Git would otherwise reject dir as a part of that user's repository. findPublicRepository
// returns an empty string if there is none, or if a repository of this user is closer to dir.
func findPublicRepository(dir string) string {
	dir, err := filepath.EvalSymlinks(dir) // git compares real paths
	if err != nil {
		return ""
	}
	for child := ""; dir != child; child, dir = dir, filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return ""
		}
		public := child != "" && info.Mode().Perm()&0o002 != 0
		for _, name := range []string{".git", "HEAD"} {
			entry, err := os.Lstat(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			if uid, ok := safefile.Owner(entry); ok && public && !safefile.IsTrusted(uid) {
				return dir
			}
			if name == ".git" {
				return ""
			}
		}
	}
	return ""
}

// gitEnviron returns an environment in which git inspects its working directory. In a hook,
// GIT_DIR and similar variables name another repository. GIT_ALLOW_PROTOCOL prevents git from
// fetching the missing objects of a partial clone, which would start programs that the
// repository names. GIT_NO_LAZY_FETCH has the same purpose in git 2.44 and later.
func gitEnviron(environ []string) []string {
	var env []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		switch {
		case strings.HasPrefix(name, "LC_"), name == "LANG", name == "LANGUAGE":
		case name == "GIT_CONFIG", name == "GIT_CONFIG_PARAMETERS":
		case strings.HasPrefix(name, "GIT_") &&
			// These variables contain settings of users and sites, such as safe.directory.
			!strings.HasPrefix(name, "GIT_CONFIG_") &&
			name != "GIT_EXEC_PATH" && name != "GIT_CEILING_DIRECTORIES" && name != "GIT_DISCOVERY_ACROSS_FILESYSTEM":
		default:
			env = append(env, e)
		}
	}
	return append(env, "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1")
}

// gitError is a failed git command with its error output.
type gitError struct {
	command string
	stderr  string
	err     error
}

func (e *gitError) Error() string {
	word, _, _ := strings.Cut(strings.TrimSpace(e.stderr), "\n")
	if word = strings.TrimPrefix(word, "fatal: "); word == "" {
		word = e.err.Error()
	}
	return fmt.Sprintf("git %s: %s", e.command, word)
}

func (e *gitError) Unwrap() error { return e.err }

// isNoRepository reports whether git found no repository. A corrupt repository is a different
// error.
func (e *gitError) isNoRepository() bool {
	return strings.Contains(e.stderr, "not a git repository (or any")
}

// withHint adds a hint if the repository belongs to another user (safe.directory,
// git-config(1); "unsafe repository" in git 2.35).
func (e *gitError) withHint(dir string) error {
	if !strings.Contains(e.stderr, "dubious ownership") && !strings.Contains(e.stderr, "unsafe repository") {
		return e
	}
	if _, rest, ok := strings.Cut(e.stderr, "safe.directory "); ok {
		dir, _, _ = strings.Cut(rest, "\n")
	}
	// The message of git has a quoted path. Trust in a repository is more than it seems.
	return hints.Errorf("git runs programs that the repository names; if you trust its owner with your account, run `git config --global --add safe.directory "+dir+"`", "%w", e)
}

// safeOptions are options that prevent git from starting programs that the repository's settings
// name. The repository may come from another user: a directory that was received as an archive
// contains its .git. For filters, see [git.withoutFilters]. An empty core.fsmonitor disables
// it in all versions of git.
var safeOptions = []string{"-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false", "--no-pager"}

// run runs git in a directory and returns its output. The command must not read the content of
// files in the work tree, which may start filters, unless args start with the result of
// [git.withoutFilters].
func (g git) run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, g.path, append(slices.Clone(safeOptions), args...)...)
	command := subcommand(args)
	stdout, stderr := &limitedBuffer{max: maxGitOutput}, &capped.Buffer{Limit: maxGitError}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, g.env, stdout, stderr, time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.text.Bytes(), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case stdout.exceeded: // git then ends with a broken pipe
		return nil, fmt.Errorf("git %s: %w", command, errOutputTooLarge)
	case limited.Err() != nil:
		return nil, hints.Errorf("check how long `git status` takes in that directory; the file system may be slow",
			"git %s: timed out after %s", command, gitTimeout)
	}
	return nil, (&gitError{command, stderr.String(), err}).withHint(dir)
}

// subcommand returns the name of the git command, for messages.
func subcommand(args []string) string {
	for len(args) > 2 && args[0] == "-c" {
		args = args[2:]
	}
	return args[0]
}

var errOutputTooLarge = fmt.Errorf("output exceeds %d MiB", maxGitOutput>>20)

// limitedBuffer is a buffer with a maximum size. Writes beyond it fail, which ends git. The
// [bytes.Buffer] is not embedded, because io.Copy would use its ReadFrom, which ignores the limit.
type limitedBuffer struct {
	text     bytes.Buffer
	max      int
	exceeded bool
}

func (c *limitedBuffer) Write(p []byte) (int, error) {
	if len(p) > c.max-c.text.Len() {
		c.exceeded = true
		return 0, errOutputTooLarge
	}
	return c.text.Write(p)
}

// maxSubmodules is the maximum nesting depth of submodules that status inspects.
const maxSubmodules = 16

// status returns the commit and the branch of a work tree, and whether the directory has
// changes. Excluded paths are relative to the directory. For each submodule, status calls git
// separately. Otherwise, git would inspect the submodule with the submodule's own settings,
// and start the programs that they name.
func (g git) status(ctx context.Context, dir string, exclude []string, depth int) (Git, error) {
	filters, err := g.withoutFilters(ctx, dir)
	if err != nil {
		return Git{}, err
	}
	paths := []string{"--", "."}
	for _, path := range exclude {
		paths = append(paths, ":(exclude,literal)"+path)
	}
	args := append(filters, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=dirty",
		"--no-renames", "--no-ahead-behind")
	text, err := g.run(ctx, dir, append(args, paths...)...)
	if err != nil {
		return Git{}, err
	}
	found := parseStatus(text)
	if found.Dirty || depth == maxSubmodules {
		return found, nil
	}
	index, err := g.run(ctx, dir, append([]string{"ls-files", "-z", "--stage"}, paths...)...)
	if err != nil {
		return Git{}, err
	}
	for entry := range bytes.SplitSeq(index, []byte{0}) {
		about, name, _ := strings.Cut(string(entry), "\t")
		if !strings.HasPrefix(about, "160000 ") {
			continue
		}
		submodule := filepath.Join(dir, name)
		if _, err := os.Lstat(filepath.Join(submodule, ".git")); err != nil {
			continue // not checked out
		}
		inside, err := g.status(ctx, submodule, nil, depth+1)
		if err != nil {
			return Git{}, err
		}
		if found.Dirty = inside.Dirty; found.Dirty {
			break
		}
	}
	return found, nil
}

// withoutFilters returns git options that disable the filters in the settings of a repository.
// git status starts filter.NAME.clean and filter.NAME.process for files that .gitattributes
// names. Filters in the user's own settings, such as the filters of Git LFS, remain enabled, unless
// the repository names programs that they start: see [namesProgramOfFilter].
//
// The option --attr-source would be simpler but requires git 2.41.
func (g git) withoutFilters(ctx context.Context, dir string) ([]string, error) {
	all, err := g.run(ctx, dir, "config", "-z", "--list")
	if err != nil {
		return nil, err
	}
	outside := g
	outside.env = append(outside.env[:len(outside.env):len(outside.env)], "GIT_DIR=/dev/null/none") // outside all repositories
	trustedText, err := outside.run(ctx, "/", "config", "-z", "--list")
	if err != nil {
		return nil, err
	}
	trusted := map[string]bool{}
	for setting := range strings.SplitSeq(string(trustedText), "\x00") {
		trusted[setting] = true
	}
	for setting := range strings.SplitSeq(string(all), "\x00") {
		if key, _, _ := strings.Cut(setting, "\n"); namesProgramOfFilter(key) && !trusted[setting] {
			clear(trusted)
			break
		}
	}
	var options []string
	off := map[string]bool{}
	for setting := range strings.SplitSeq(string(all), "\x00") {
		key, _, _ := strings.Cut(setting, "\n")
		rest, isFilter := strings.CutPrefix(key, "filter.")
		dot := strings.LastIndexByte(rest, '.')
		if !isFilter || dot < 0 || trusted[setting] || off[rest[:dot]] {
			continue
		}
		name := rest[:dot]
		if strings.Contains(name, "=") { // git -c would set a different key
			return nil, hints.Errorf("remove the filter from the configuration of the repository", "the name of git filter %q contains \"=\"", name)
		}
		off[name] = true
		for _, off := range []string{".clean=", ".smudge=", ".process=", ".required=false"} {
			options = append(options, "-c", "filter."+name+off)
		}
	}
	return options, nil
}

// namesProgramOfFilter reports whether a setting names a program that the filter of Git LFS or
// git-annex starts. Both read the settings of the repository.
func namesProgramOfFilter(key string) bool {
	key = strings.ToLower(key) // as Git LFS does
	isProgram := strings.HasSuffix(key, "command") || strings.HasSuffix(key, "hook")
	return strings.HasPrefix(key, "lfs.extension.") ||
		isProgram && (strings.HasPrefix(key, "annex.") || strings.HasPrefix(key, "remote.") && strings.Contains(key, ".annex-"))
}
