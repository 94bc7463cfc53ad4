package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func about(t *testing.T, dir string, environ []string) Git {
	t.Helper()
	g, err := Provenance(t.Context(), dir, environ)
	must(t, err)
	return g
}

// TestProvenance checks the recorded commit, branch, and remote, without passwords.
func TestProvenance(t *testing.T) {
	top, env := t.TempDir(), gitTestEnviron(t)
	if got := about(t, top, env); got != (Git{}) {
		t.Errorf("no repository: %+v", got)
	}
	gitIn(t, top, "init")
	if got, want := about(t, top, env), (Git{WorkTree: true, Branch: "main"}); got != want {
		t.Errorf("no commit: %+v", got)
	}
	fill(t, top, map[string]string{"a.py": "1", "in/b.py": "", ".gitignore": "*.pt"})
	gitIn(t, top, "add", ".")
	gitIn(t, top, "commit", "-m", "1")
	gitIn(t, top, "remote", "add", "origin", "https://me:s3cret@example.org/code.git")
	commit := gitIn(t, top, "rev-parse", "HEAD")
	clean := Git{WorkTree: true, Commit: commit, Branch: "main", Remote: "https://example.org/code.git"}
	fill(t, top, map[string]string{"x.pt": "ignored"})
	if got := about(t, top, env); got != clean {
		t.Errorf("clean: %+v", got)
	}
	for _, none := range [][]string{nil, {"PATH=/nowhere:relative:"}, {"PATH=" + top}} {
		if got := about(t, top, none); got != (Git{}) {
			t.Errorf("no git in %q: %+v", none, got)
		}
	}
	if got := about(t, filepath.Join(top, ".git"), env); got != (Git{}) {
		t.Errorf("in .git: %+v", got)
	}

	// A change outside the directory does not make it dirty. Any change inside does.
	in := clean
	in.Subdir = "in"
	fill(t, top, map[string]string{"a.py": "2"})
	if got := about(t, filepath.Join(top, "in"), env); got != in {
		t.Errorf("in: %+v", got)
	}
	dirty := clean
	dirty.Dirty = true
	if got := about(t, top, env); got != dirty {
		t.Errorf("changed: %+v", got)
	}
	gitIn(t, top, "checkout", "a.py")
	fill(t, top, map[string]string{"new dir/new.py": ""})
	if got := about(t, top, env); got != dirty {
		t.Errorf("untracked: %+v", got)
	}
	// Changes to excluded paths are ignored.
	if got, err := provenance(t.Context(), top, env, []string{"new dir"}); err != nil || got != clean {
		t.Errorf("left out: %+v, %v", got, err)
	}
	// In a hook, the environment names another repository.
	other := t.TempDir()
	gitIn(t, other, "init")
	hook := append(env, "GIT_DIR="+other+"/.git", "GIT_WORK_TREE="+other, "GIT_INDEX_FILE=x", "LC_ALL=de_DE.UTF-8")
	if got := about(t, top, hook); got != dirty {
		t.Errorf("in a hook: %+v", got)
	}

	gitIn(t, top, "checkout", "--detach")
	if got := about(t, top, env); got.Branch != "" || got.Commit != commit {
		t.Errorf("detached: %+v", got)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	gitIn(t, top, "worktree", "add", tree, "-b", "side")
	if got := about(t, tree, env); got.Branch != "side" || got.Commit != commit || got.Dirty {
		t.Errorf("worktree: %+v", got)
	}
	must(t, os.RemoveAll(filepath.Join(top, ".git", "worktrees")))
	_, err := Provenance(t.Context(), tree, env)
	wants(t, err, "not a git repository", "")

	fill(t, filepath.Join(top, ".git"), map[string]string{"config": "[broken"})
	_, err = Provenance(t.Context(), top, env)
	wants(t, err, "bad config line", "")
	_, err = Provenance(t.Context(), filepath.Join(top, "a.py"), env)
	wants(t, err, "not a directory", "")
	_, err = Provenance(t.Context(), ".", env)
	wants(t, err, "not absolute", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = Provenance(ctx, other, env); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestProvenanceOfOthers checks that a repository of another user is rejected, because its
// configuration could run programs.
func TestProvenanceOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	top, env := t.TempDir(), gitTestEnviron(t)
	gitIn(t, top, "init")
	must(t, os.Chown(filepath.Join(top, ".git"), 65534, 65534))
	must(t, os.Chown(top, 65534, 65534))
	_, err := Provenance(t.Context(), top, env)
	wants(t, err, "dubious ownership", "safe.directory "+top+"`")
	fill(t, top, map[string]string{"a.py": ""})
	refused(t, top, Options{Environ: env}, "dubious ownership", "safe.directory")
	// The settings in the environment trust the repository.
	env = append(env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0="+top)
	if got := about(t, top, env); !got.WorkTree {
		t.Errorf("trusted: %+v", got)
	}
}

// TestRepositoryInAPublicDirectory checks that a .git of another user in a directory like /tmp does
// not concern the code below it.
func TestRepositoryInAPublicDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	top, env := t.TempDir(), gitTestEnviron(t)
	code := filepath.Join(top, "mine", "code")
	fill(t, code, map[string]string{"a.py": ""})
	gitIn(t, top, "init")
	must(t, os.Chown(filepath.Join(top, ".git"), 65534, 65534))
	must(t, os.Chmod(top, 0o1777))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(code, link))
	for _, dir := range []string{code, filepath.Dir(code), link} {
		if got := about(t, dir, env); got != (Git{}) {
			t.Errorf("%s: %+v", dir, got)
		}
	}
	if _, err := takeAt(t.Context(), code, filepath.Join(t.TempDir(), "copy"), Options{Environ: env}); err != nil {
		t.Error(err)
	}
	// A bare repository has no .git.
	must(t, os.Rename(filepath.Join(top, ".git"), filepath.Join(top, "git")))
	for _, name := range []string{"HEAD", "objects", "refs", "config"} {
		must(t, os.Rename(filepath.Join(top, "git", name), filepath.Join(top, name)))
		must(t, os.Chown(filepath.Join(top, name), 65534, 65534))
	}
	if got := about(t, code, env); got != (Git{}) {
		t.Errorf("bare repository: %+v", got)
	}
	for _, name := range []string{"HEAD", "objects", "refs", "config"} {
		must(t, os.Rename(filepath.Join(top, name), filepath.Join(top, "git", name)))
	}
	must(t, os.Rename(filepath.Join(top, "git"), filepath.Join(top, ".git")))
	// A repository of this user below it counts.
	gitIn(t, code, "init")
	if got := about(t, code, env); !got.WorkTree {
		t.Errorf("own repository: %+v", got)
	}
	// The public directory itself, and a directory of a project that only its owner changes.
	_, err := Provenance(t.Context(), top, env)
	wants(t, err, "dubious ownership", "safe.directory")
	must(t, os.Chmod(top, 0o755))
	must(t, os.Chown(top, 65534, 65534))
	_, err = Provenance(t.Context(), filepath.Dir(code), env)
	wants(t, err, "dubious ownership", "safe.directory")
}

// TestGitIsBounded runs a fake git that never ends or that fails.
func TestGitIsBounded(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	ask := func(script string) error {
		must(t, os.WriteFile(bin+"/git", []byte("#!/bin/sh\n"+script), 0o755))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err := Provenance(ctx, dir, []string{"PATH=" + bin + ":/usr/bin:/bin"})
		return err
	}
	wants(t, ask("exec yes"), "output exceeds 32 MiB", "")
	wants(t, ask("yes >&2 & sleep 0.1; kill $!; exit 3"), "git rev-parse: y", "")
	wants(t, ask("exit 3"), "git rev-parse: exit status 3", "")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	must(t, os.WriteFile(bin+"/git", []byte("#!/bin/sh\nsleep 300"), 0o755))
	start := time.Now()
	_, err := Provenance(ctx, dir, []string{"PATH=" + bin + ":/usr/bin:/bin"})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 2*time.Minute {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// TestRemote checks which remote is recorded.
func TestRemote(t *testing.T) {
	setting := func(pairs ...string) []byte {
		var b strings.Builder
		for i := 0; i < len(pairs); i += 2 {
			b.WriteString(pairs[i] + "\n" + pairs[i+1] + "\x00")
		}
		return []byte(b.String())
	}
	for name, c := range map[string]struct {
		config []byte
		want   string
	}{
		"none":     {setting("core.bare", "false"), ""},
		"upstream": {setting("remote.origin.url", "o", "remote.a.b.url", "u", "branch.main.remote", "a.b"), "u"},
		"origin":   {setting("remote.x.url", "x", "remote.origin.url", "o", "branch.side.remote", "x"), "o"},
		"only":     {setting("remote.x.url", "x", "remote.x.pushurl", "p"), "x"},
		"several":  {setting("remote.x.url", "x", "remote.y.url", "y"), ""},
		"two URLs": {setting("remote.x.url", "x", "remote.x.url", "y"), "x"},
		"local":    {setting("remote.x.url", "x", "branch.main.remote", "."), "x"},
	} {
		if got := findRemote(c.config, "main"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestBare checks that user names, passwords, and tokens are removed from an address.
func TestBare(t *testing.T) {
	for address, want := range map[string]string{
		"":                                    "",
		"https://example.org/a.git":           "https://example.org/a.git",
		"https://me@example.org/a.git":        "https://example.org/a.git",
		"https://me:pw@example.org:8443/a":    "https://example.org:8443/a",
		"https://a@b:pw@example.org/a":        "https://example.org/a",
		"https://token:@example.org/a":        "https://example.org/a",
		"https://example.org/a?token=pw#pw":   "https://example.org/a",
		"https://example.org/a@v2":            "",
		"https://me:1?w@example.org/a":        "",
		"https:/me:pw@example.org/a":          "",
		"https://me:p/w@example.org/a":        "",
		"https://me:1/w@example.org/a":        "",
		"https://me:p%w@example.org/a":        "",
		"ssh://git:pw@example.org:22/a":       "ssh://example.org:22/a",
		"git@example.org:me/a.git":            "git@example.org:me/a.git",
		"me:pw@example.org:a":                 "",
		"/srv/git/a@2.git":                    "/srv/git/a@2.git",
		"../a":                                "../a",
		"file:///srv/a":                       "file:///srv/a",
		"codecommit::https://me:pw@aws/a":     "codecommit::https://aws/a",
		"x::y::https://me:pw@aws/a":           "x::y::https://aws/a",
		"ext::ssh -o password=pw example.org": "",
		"https://me:pw@example.org/a\x00pw":   "",
	} {
		if got := stripCredentials(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// FuzzBare checks that no result contains a password, and that stripCredentials does not change
// its own results.
func FuzzBare(f *testing.F) {
	for _, scheme := range []string{"https://", "", "x::ssh://", "https:/"} {
		f.Add(scheme, "me", "pw", "example.org/a")
		f.Add(scheme, "a/b", "p/w", "h:22/a?b#c")
		f.Add(scheme, "x:/", "", "y://z")
	}
	f.Fuzz(func(t *testing.T, scheme, user, password, rest string) {
		const canary = "s3cr3t"
		if strings.Contains(scheme+user+rest, canary) {
			return
		}
		address := scheme + user + ":" + canary + password + "@" + rest
		got := stripCredentials(address)
		if strings.Contains(got, canary) {
			t.Fatalf("%q: %q", address, got)
		}
		if again := stripCredentials(got); again != got {
			t.Fatalf("%q, then %q", got, again)
		}
	})
}

// FuzzParseStatus checks that headers never make a directory dirty and that entries always do.
func FuzzParseStatus(f *testing.F) {
	f.Add("# branch.oid (initial)\x00# branch.head main\x00")
	f.Add("# branch.oid 12ab\x00# branch.head (detached)\x001 .M N... 100644 100644 100644 a b x.py\x00? new\x00")
	f.Fuzz(func(t *testing.T, text string) {
		got := parseStatus([]byte(text))
		entries := 0
		for _, line := range strings.Split(text, "\x00") {
			if line != "" && !strings.HasPrefix(line, "# ") {
				entries++
			}
		}
		if got.Dirty != (entries > 0) || got.Commit == "(initial)" || got.Branch == "(detached)" || strings.ContainsRune(got.Commit+got.Branch, 0) {
			t.Fatalf("%q: %+v", text, got)
		}
	})
}

// FuzzParseList checks that the paths of a parsed list are local, sorted, and unique.
func FuzzParseList(f *testing.F) {
	sum := strings.Repeat("a", 64)
	f.Add("100644 " + sum + " 3 \"a\"\n120000 " + sum + " 0 \"b/\\xff\\n\"\n")
	f.Add("100644 " + sum + " 3 \"../a\"\n")
	f.Add("100644 " + sum + " -3 `a`\n")
	f.Add("100755 x 1 \"a\"")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseList(text)
		if err != nil {
			return
		}
		if len(all) != strings.Count(text, "\n") {
			t.Fatalf("%q: %d files", text, len(all))
		}
		for i, e := range all {
			if !filepath.IsLocal(e.path) || e.size < 0 || i > 0 && all[i-1].path >= e.path {
				t.Fatalf("%q: %+v", text, e)
			}
		}
	})
}

// TestProvenanceExcludes checks that files that a program created in the directory are not changes
// by the user.
func TestProvenanceExcludes(t *testing.T) {
	top, env := t.TempDir(), gitTestEnviron(t)
	gitIn(t, top, "init")
	fill(t, top, map[string]string{"a.py": "", "runs/x/record.json": ""})
	gitIn(t, top, "add", "a.py")
	gitIn(t, top, "commit", "-m", "first")
	for want, exclude := range map[bool][]string{true: {"/elsewhere", top}, false: {filepath.Join(top, "runs")}} {
		if got, err := Provenance(t.Context(), top, env, exclude...); err != nil || got.Dirty != want {
			t.Errorf("without %q: %+v (%v), want dirty %v", exclude, got, err, want)
		}
	}
}
