package snapshot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGitStartsNoProgramOfTheRepository checks that Provenance and Take do not start any program
// that the repository's settings name. A directory and its .git may come from another user.
func TestGitStartsNoProgramOfTheRepository(t *testing.T) {
	const program = "PROGRAM" // replaced by a command that creates a file
	for _, c := range []struct {
		name     string
		settings map[string]string
		user     string // clean filter in the user's own settings
		files    map[string]string
		before   func(t *testing.T, top string)
		// Whether plain git status starts the program. Without this check, the test could pass
		// without testing anything.
		fires bool
	}{
		{name: "filter.clean", fires: true, settings: map[string]string{"filter.x.clean": program}},
		{name: "filter.process", fires: true, settings: map[string]string{"filter.x.process": program, "filter.x.required": "true"}},
		{name: "filter in an included file", fires: true, settings: map[string]string{"include.path": "more"},
			files: map[string]string{".git/more": "[filter \"x\"]\nclean = \"" + program + "\"\n"}},
		{name: "filter in an included file under a condition", fires: true, settings: map[string]string{"includeIf.gitdir:**/.path": "more"},
			files: map[string]string{".git/more": "[filter \"x\"]\nclean = \"" + program + "\"\n"}},
		{name: "filter of the work tree's settings", fires: true, settings: map[string]string{"extensions.worktreeConfig": "true"},
			files: map[string]string{".git/config.worktree": "[filter \"x\"]\nclean = \"" + program + "\"\n"}},
		{name: "filter with a dot in its name", fires: true, settings: map[string]string{"filter.a.b.clean": program},
			files: map[string]string{".gitattributes": "* filter=a.b\n"}},
		{name: "extension of Git LFS", fires: true, user: "sh -c \"$(git config lfs.extension.x.clean)\"; cat",
			settings: map[string]string{"lfs.extension.x.clean": program}},
		{name: "extension of Git LFS in capitals", fires: true, user: "sh -c \"$(git config LFS.Extension.x.clean)\"; cat",
			settings: map[string]string{"LFS.Extension.x.clean": program}},
		{name: "command of git-annex", fires: true, user: "sh -c \"$(git config annex.freezecontent-command)\"; cat",
			settings: map[string]string{"annex.freezecontent-command": program}},
		{name: "core.fsmonitor", fires: true, settings: map[string]string{"core.fsmonitor": program}},
		{name: "hooks", settings: map[string]string{"core.untrackedCache": "true"}, files: map[string]string{".git/hooks/post-index-change+": "#!/bin/sh\n" + program + "\n"}},
		{name: "core.hooksPath", settings: map[string]string{"core.hooksPath": ".git/more"},
			files: map[string]string{".git/more/post-index-change+": "#!/bin/sh\n" + program + "\n"}},
		{name: "diff", settings: map[string]string{"diff.external": program, "diff.x.textconv": program, "diff.x.command": program},
			files: map[string]string{".gitattributes": "* diff=x filter=x\n"}},
		{name: "programs of other commands", settings: map[string]string{"core.pager": program, "pager.status": "true", "core.editor": program, "core.askPass": program,
			"core.gitProxy": program, "credential.helper": "!" + program, "gpg.program": program, "alias.status": "!" + program, "alias.ls-files": "!" + program,
			"merge.x.driver": program, "sequence.editor": program, "core.alternateRefsCommand": program, "status.submoduleSummary": "true"}},
		{name: "partial clone by ssh", fires: true, settings: map[string]string{"core.repositoryFormatVersion": "1", "extensions.partialClone": "origin",
			"remote.origin.url": "ssh://nowhere.invalid/x", "remote.origin.promisor": "true", "core.sshCommand": program}, before: dropTree},
		{name: "partial clone by a command", fires: true, settings: map[string]string{"core.repositoryFormatVersion": "1", "extensions.partialClone": "origin",
			"remote.origin.url": "ext::" + program, "remote.origin.promisor": "true", "protocol.ext.allow": "always", "protocol.allow": "always"}, before: dropTree},
		{name: "submodule", fires: true, before: func(t *testing.T, top string) {
			other := t.TempDir()
			gitIn(t, other, "init")
			fill(t, other, map[string]string{"b.py": "1\n", ".gitattributes": "* filter=x\n"})
			gitIn(t, other, "add", ".")
			gitIn(t, other, "commit", "-m", "1")
			gitIn(t, top, "submodule", "add", other, "sub")
			gitIn(t, top, "commit", "-m", "sub")
			gitIn(t, filepath.Join(top, "sub"), "config", "filter.x.clean", filepath.Join(top, ".git", "canary.sh"))
			gitIn(t, filepath.Join(top, "sub"), "config", "core.fsmonitor", filepath.Join(top, ".git", "canary.sh"))
			touch(t, filepath.Join(top, "sub", "b.py"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			top, env := t.TempDir(), gitTestEnviron(t)
			gitIn(t, top, "init")
			fill(t, top, map[string]string{"a.py": "1\n", ".gitattributes": "* filter=x\n"})
			gitIn(t, top, "add", ".")
			gitIn(t, top, "commit", "-m", "1")
			if c.user != "" {
				env = append(env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=filter.x.clean", "GIT_CONFIG_VALUE_0="+c.user)
			}
			canary, command := filepath.Join(t.TempDir(), "fired"), filepath.Join(top, ".git", "canary.sh")
			fill(t, top, map[string]string{".git/canary.sh+": "#!/bin/sh\ntouch " + canary + "\n"})
			for name, text := range c.files {
				fill(t, top, map[string]string{name: strings.ReplaceAll(text, program, command)})
			}
			if c.before != nil {
				c.before(t, top)
			}
			for key, value := range c.settings {
				gitIn(t, top, "config", key, strings.ReplaceAll(value, program, command))
			}
			touch(t, filepath.Join(top, "a.py"))
			must(t, os.RemoveAll(canary)) // created by the preparation

			dst := filepath.Join(t.TempDir(), "copy")
			if c.before == nil || c.name == "submodule" {
				if g := about(t, top, env); g.Commit == "" {
					t.Errorf("got %+v", g)
				}
				if _, err := takeAt(t.Context(), top, dst, Options{Environ: env}); err != nil {
					t.Error(err)
				}
			} else { // a missing object is an error
				_, _ = Provenance(t.Context(), top, env)
				_, _ = takeAt(t.Context(), top, dst, Options{Environ: env})
			}
			if _, err := os.Lstat(canary); err == nil {
				t.Error("a program was started")
			}
			cmd := exec.CommandContext(t.Context(), "git", "status", "--ignore-submodules=none")
			cmd.Dir, cmd.Env = top, env
			out, _ := cmd.CombinedOutput()
			if _, err := os.Lstat(canary); c.fires && err != nil {
				t.Errorf("git status starts no program, so that the test shows nothing:\n%s", out)
			}
		})
	}
}

// dropTree removes the tree of HEAD, so git would have to fetch it.
func dropTree(t *testing.T, top string) {
	tree := gitIn(t, top, "rev-parse", "HEAD^{tree}")
	must(t, os.Remove(filepath.Join(top, ".git", "objects", tree[:2], tree[2:])))
}

// touch changes a file's time, so git compares its content.
func touch(t *testing.T, path string) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(path, then, then))
}

// TestProvenanceUsesFiltersOfTheUser checks that a filter in the user's own settings still affects
// whether a file counts as changed.
func TestProvenanceUsesFiltersOfTheUser(t *testing.T) {
	top, env := t.TempDir(), gitTestEnviron(t)
	gitIn(t, top, "init")
	fill(t, top, map[string]string{"a.py": "aaaa\n", ".gitattributes": "*.py filter=rot\n"})
	gitIn(t, top, "-c", "filter.rot.clean=tr a b", "add", ".")
	gitIn(t, top, "-c", "filter.rot.clean=tr a b", "commit", "-m", "1")
	touch(t, filepath.Join(top, "a.py"))
	if !about(t, top, env).Dirty {
		t.Error("without the filter the file differs")
	}
	user := append(env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=filter.rot.clean", "GIT_CONFIG_VALUE_0=tr a b")
	if about(t, top, user).Dirty {
		t.Error("the filter of the user was not used")
	}
}

// TestProvenanceOfSubmodules checks that a change in a submodule makes the work tree dirty.
func TestProvenanceOfSubmodules(t *testing.T) {
	top, other, env := t.TempDir(), t.TempDir(), gitTestEnviron(t)
	gitIn(t, other, "init")
	fill(t, other, map[string]string{"b.py": "1\n"})
	gitIn(t, other, "add", ".")
	gitIn(t, other, "commit", "-m", "1")
	gitIn(t, top, "init")
	gitIn(t, top, "submodule", "add", other, "in/sub")
	gitIn(t, top, "commit", "-m", "sub")
	if about(t, top, env).Dirty {
		t.Error("dirty without a change")
	}
	for _, c := range []struct{ name, file string }{{"changed", "b.py"}, {"untracked", "new.py"}} {
		t.Run(c.name, func(t *testing.T) {
			sub := filepath.Join(top, "in", "sub")
			fill(t, sub, map[string]string{c.file: "22\n"})
			if !about(t, top, env).Dirty {
				t.Error("not dirty")
			}
			gitIn(t, sub, "checkout", ".")
			gitIn(t, sub, "clean", "-f")
		})
	}
	fill(t, filepath.Join(top, "in", "sub"), map[string]string{"b.py": "22\n"})
	gitIn(t, filepath.Join(top, "in", "sub"), "commit", "-a", "-m", "2")
	if !about(t, top, env).Dirty {
		t.Error("another commit of the submodule: not dirty")
	}
}
