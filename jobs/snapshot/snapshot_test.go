package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// gitTestEnviron returns an environment with git but without settings of the user who runs the
// test.
func gitTestEnviron(t *testing.T) []string {
	t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + filepath.Dir(path) + ":/usr/bin:/bin", "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES=" + os.TempDir()}
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{
		"-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always",
	}, args...)...)
	cmd.Dir, cmd.Env = dir, gitTestEnviron(t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill writes files by path. A path that ends in + is executable, and text that starts with ->
// is a symbolic link.
func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		mode := fs.FileMode(0o644)
		if cut, ok := strings.CutSuffix(name, "+"); ok {
			name, mode = cut, 0o755
		}
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(text, "->"); ok {
			must(t, os.Symlink(target, path))
			continue
		}
		must(t, os.WriteFile(path, []byte(text), mode))
	}
}

// contents returns the files of a directory in the format of fill, without the file list.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == listName {
			return err
		}
		name, err := filepath.Rel(dir, path)
		must(t, err)
		if e.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			files[name] = "->" + target
			return err
		}
		info, err := e.Info()
		must(t, err)
		switch info.Mode() {
		case 0o600:
		case 0o700:
			name += "+"
		default:
			t.Errorf("%q has mode %v", name, info.Mode())
		}
		text, err := os.ReadFile(path)
		files[name] = string(text)
		return err
	}))
	return files
}

// same takes a snapshot and compares its content with want.
func same(t *testing.T, src string, o Options, want map[string]string) Manifest {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "code")
	m, err := takeAt(t.Context(), src, dst, o)
	must(t, err)
	if got := contents(t, dst); !reflect.DeepEqual(got, want) {
		t.Errorf("copied\n%q, want\n%q", got, want)
	}
	if m.Files != len(want) {
		t.Errorf("%d files, want %d", m.Files, len(want))
	}
	must(t, Verify(t.Context(), dst, m))
	if info, err := os.Stat(dst); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(dst)); len(left) != 1 {
		t.Errorf("beside it: %v", left)
	}
	return m
}

// wants fails the test unless err contains text and, if hint is not empty, has that hint.
func wants(t *testing.T, err error, text, hint string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("error %v, want one with %q", err, text)
	}
	if !strings.Contains(hints.Of(err), hint) {
		t.Errorf("error %v has no hint with %q", err, hint)
	}
}

// refused fails the test unless Take returns an error and leaves no file behind.
func refused(t *testing.T, src string, o Options, text, hint string) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "code")
	m, err := takeAt(t.Context(), src, dst, o)
	wants(t, err, text, hint)
	if left, _ := os.ReadDir(filepath.Dir(dst)); len(left) > 0 || !reflect.DeepEqual(m, Manifest{}) {
		t.Errorf("left behind: %v, %+v", left, m)
	}
}

// TestTakeFolder checks which files of a directory without git are copied.
func TestTakeFolder(t *testing.T) {
	src := t.TempDir()
	fill(t, src, map[string]string{
		"train.py": "x", "run.sh+": "#!", "pkg/a/b.py": "y", "empty": "", "new\nline": "n", "\xff.py": "f", ".env": "e",
		".git/config": "", "pkg/__pycache__/b.pyc": "", ".pytest_cache/x": "", ".cache/y": "", "runs/demo/log": "", "out": "",
		".ddpbatch-123/train.py": "", ".ddpbatch-snapshot": "",
	})
	must(t, os.Mkdir(filepath.Join(src, "hollow"), 0o755))
	want := map[string]string{"train.py": "x", "run.sh+": "#!", "pkg/a/b.py": "y", "empty": "", "new\nline": "n", "\xff.py": "f", ".env": "e"}
	// The .git is not a repository, so the result is the same with and without git.
	m := same(t, src, Options{Environ: gitTestEnviron(t), Exclude: []string{"runs", filepath.Join(src, "out"), "/elsewhere", "none"}}, want)
	if m.Bytes != 7 || m.Git != (Git{}) || len(m.SHA256) != 64 {
		t.Errorf("%+v", m)
	}
	if again := same(t, src, Options{Exclude: []string{"runs", "out"}}, want); !reflect.DeepEqual(again, m) {
		t.Errorf("%+v, want %+v", again, m)
	}
	// Take the snapshot through a symbolic link, with one more executable file.
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(src, link))
	must(t, os.Chmod(filepath.Join(src, "empty"), 0o744))
	delete(want, "empty")
	want["empty+"] = ""
	if other := same(t, link, Options{Exclude: []string{filepath.Join(link, "runs"), "out"}}, want); other.SHA256 == m.SHA256 {
		t.Error("the digest is the same with another mode")
	}
}

// TestTakeWorkTree checks which files of a git work tree are copied.
func TestTakeWorkTree(t *testing.T) {
	sub := t.TempDir()
	fill(t, sub, map[string]string{"lib.py": "lib", ".gitignore": "*.o"})
	gitIn(t, sub, "init")
	gitIn(t, sub, "add", ".")
	gitIn(t, sub, "commit", "-m", "1")

	top := t.TempDir()
	src := filepath.Join(top, "job")
	fill(t, top, map[string]string{"other.py": "", ".gitignore": "*.pt\ndata/\n"})
	fill(t, src, map[string]string{"train.py": "1", "gone.py": "", "kept.pt": "forced", "run+": "", "was/file": "", ".cache/mine": "tracked", "swap": "", "at/x": ""})
	gitIn(t, top, "init")
	gitIn(t, top, "add", "-f", ".")
	gitIn(t, top, "submodule", "add", sub, "job/sub")
	gitIn(t, top, "submodule", "add", sub, "job/away")
	gitIn(t, top, "commit", "-m", "1")
	gitIn(t, top, "submodule", "deinit", "-f", "job/away")

	fill(t, src, map[string]string{
		"new.py": "new", "model.pt": "ignored", "data/x": "ignored", "__pycache__/x.pyc": "", "runs/x": "",
		"sub/lib.py": "changed", "sub/x.o": "ignored", "sub/more.py": "m",
		"nested/.gitignore": "secret", "nested/a.py": "a", "nested/secret": "ignored",
	})
	gitIn(t, filepath.Join(src, "nested"), "init")
	must(t, os.WriteFile(filepath.Join(src, "train.py"), []byte("2"), 0o644))
	must(t, os.Remove(filepath.Join(src, "gone.py")))
	// A directory became a symbolic link, and a file became a directory.
	must(t, os.RemoveAll(filepath.Join(src, "was")))
	must(t, os.Symlink("data", filepath.Join(src, "was")))
	must(t, os.Remove(filepath.Join(src, "swap")))
	fill(t, src, map[string]string{"swap/in.py": "in"})
	must(t, os.RemoveAll(filepath.Join(src, "at")))

	o := Options{Environ: gitTestEnviron(t), Exclude: []string{"runs"}}
	want := map[string]string{
		"train.py": "2", "kept.pt": "forced", "run+": "", "new.py": "new", ".cache/mine": "tracked", "swap/in.py": "in",
		"was":        "->" + filepath.Join(src, "data"),
		"sub/lib.py": "changed", "sub/.gitignore": "*.o", "sub/more.py": "m",
		"nested/.gitignore": "secret", "nested/a.py": "a",
	}
	m := same(t, src, o, want)
	if m.Git != (Git{WorkTree: true, Subdir: "job", Commit: gitIn(t, top, "rev-parse", "HEAD"), Branch: "main", Dirty: true}) {
		t.Errorf("%+v", m.Git)
	}
	if !slices.Equal(m.Outside, []string{"was"}) {
		t.Errorf("outside: %q", m.Outside)
	}
	fill(t, src, map[string]string{"away/unseen.py": ""})
	refused(t, src, o, `submodule "away" has files`, "submodule update --init")

	// The surrounding repository ignores this directory.
	same(t, filepath.Join(src, "data"), o, map[string]string{"x": "ignored"})
}

// TestTakeLinks checks that links within the directory stay within the copy, and that links to
// other files are kept and reported.
func TestTakeLinks(t *testing.T) {
	parent := t.TempDir()
	src := filepath.Join(parent, "src")
	fill(t, parent, map[string]string{"data/x": "", "lib/y.py": "", "data/back": "->" + src + "/a"})
	fill(t, src, map[string]string{
		"a/file": "", "a/near": "->file", "b/up": "->../a/file", "folder": "->a", "chain": "->folder/file",
		"absolute": "->" + src + "/a/file", "deep/er/absolute": "->" + src + "/a", "self": "->.", "round": "->../src/a",
		"data": "->" + parent + "/data", "lib": "->../lib", "through": "->data/back/file", "skipped": "->.cache/z", ".cache/z": "",
		".#lock": "->user@host.1", "lost": "->/no/where", "lost near": "->../no/where", "loop": "->loop",
	})
	m := same(t, src, Options{}, map[string]string{
		"a/file": "", "a/near": "->file", "b/up": "->../a/file", "folder": "->a", "chain": "->a/file",
		"absolute": "->a/file", "deep/er/absolute": "->../../a", "self": "->.", "round": "->a",
		"data": "->" + parent + "/data", "lib": "->" + parent + "/lib", "through": "->a/file", "skipped": "->" + src + "/.cache/z",
		".#lock": "->user@host.1", "lost": "->/no/where", "lost near": "->" + parent + "/no/where", "loop": "->loop",
	})
	if want := []string{"data", "lib", "lost", "lost near", "skipped"}; !slices.Equal(m.Outside, want) {
		t.Errorf("outside: %q, want %q", m.Outside, want)
	}
}

// TestTakeRefuses checks the errors for empty, missing, and large directories.
func TestTakeRefuses(t *testing.T) {
	src := t.TempDir()
	refused(t, src, Options{}, "has no files", "directory of the code")
	refused(t, src, Options{Exclude: []string{"."}}, "which is excluded", "separate directory")
	refused(t, src, Options{Exclude: []string{filepath.Dir(src)}}, "which is excluded", "separate directory")
	refused(t, "src", Options{}, "not absolute", "")
	refused(t, src+"/no", Options{}, "no such file", "")
	refused(t, src+"/no", Options{Environ: gitTestEnviron(t)}, "no such file", "")

	fill(t, src, map[string]string{"data/1": "12345678", "data/2": "1234", "data/3": "123", "train.py": "1"})
	refused(t, filepath.Join(src, "train.py"), Options{}, "not a directory", "")
	refused(t, src, Options{MaxFiles: 3}, `more than 3 files; most of those found are in "data/" (`, ".gitignore")
	refused(t, src, Options{MaxBytes: 15},
		`16 bytes of files, more than the limit of 15 bytes; the largest files are "data/1" (8 bytes), "data/2" (4 bytes), "data/3" (3 bytes)`, ".gitignore")
	same(t, src, Options{MaxFiles: 4, MaxBytes: 16}, map[string]string{"data/1": "12345678", "data/2": "1234", "data/3": "123", "train.py": "1"})
	must(t, os.Truncate(filepath.Join(src, "data/2"), defaultMaxBytes))
	refused(t, src, Options{}, `256 MiB of files, more than the limit of 256 MiB; the largest files are "data/2" (256 MiB), `, "checkpoints")

	dst := filepath.Join(src, "train.py")
	_, err := takeAt(t.Context(), src, dst, Options{})
	wants(t, err, `train.py" already exists`, "different path")
	_, err = takeAt(t.Context(), src, src+"/a/b", Options{MaxBytes: defaultMaxBytes * 2})
	wants(t, err, "no such file", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = takeAt(ctx, src, src+"/dst", Options{})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestTakeRefusesSpecial checks that pipes and sockets are rejected.
func TestTakeRefusesSpecial(t *testing.T) {
	for what, create := range map[string]func(path string) error{
		"pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"socket": func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		},
	} {
		src := t.TempDir()
		fill(t, src, map[string]string{"train.py": ""})
		must(t, create(filepath.Join(src, "odd")))
		refused(t, src, Options{}, `"odd" is a `+what, "remove it")
	}
	// The same for a tracked file in a work tree.
	src := t.TempDir()
	fill(t, src, map[string]string{"pipe": ""})
	gitIn(t, src, "init")
	gitIn(t, src, "add", ".")
	must(t, os.Remove(filepath.Join(src, "pipe")))
	must(t, unix.Mkfifo(filepath.Join(src, "pipe"), 0o600))
	refused(t, src, Options{Environ: gitTestEnviron(t)}, `"pipe" is a pipe`, "remove it")
}

// TestPipeInsteadOfADirectory checks that no function waits for the writer of a FIFO in place of the
// directory of the code or of the snapshot.
func TestPipeInsteadOfADirectory(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	if _, err := takeAt(t.Context(), pipe, filepath.Join(t.TempDir(), "copy"), Options{}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("take: got %v, want %v", err, unix.ENOTDIR)
	}
	if err := Verify(t.Context(), pipe, Manifest{}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("verify: got %v, want %v", err, unix.ENOTDIR)
	}
}

// TestTakeInside takes snapshots inside their source directory.
func TestTakeInside(t *testing.T) {
	src := t.TempDir()
	fill(t, src, map[string]string{"train.py": ""})
	first, err := takeAt(t.Context(), src, src+"/one", Options{})
	must(t, err)
	second, err := takeAt(t.Context(), src, src+"/two", Options{Exclude: []string{"one"}})
	must(t, err)
	if !reflect.DeepEqual(first, second) || first.Files != 1 {
		t.Errorf("%+v, %+v", first, second)
	}
	// A snapshot of a snapshot has the same content.
	third, err := takeAt(t.Context(), src+"/one", src+"/three", Options{})
	must(t, err)
	if !reflect.DeepEqual(first, third) {
		t.Errorf("%+v, %+v", first, third)
	}
}

// TestRenameReplacesNothing checks that a copy does not replace an existing directory.
func TestRenameReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/temp", 0o700))
	must(t, os.Mkdir(dir+"/dst", 0o700))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	wants(t, rename(root, "temp", "dst"), "already exists", "different path")
	wants(t, rename(root, "none", "new"), "no such file", "")
}

// TestTakeIgnoresExchangedDirectory checks that a snapshot is created, and removed after a failure,
// only in the open directory.
func TestTakeIgnoresExchangedDirectory(t *testing.T) {
	src, dir := t.TempDir(), filepath.Join(t.TempDir(), "code")
	fill(t, src, map[string]string{"train.py": "1"})
	must(t, os.Mkdir(dir, 0o700))
	parent, err := os.OpenRoot(dir)
	must(t, err)
	defer parent.Close()
	must(t, os.Rename(dir, dir+".moved"))
	must(t, os.Mkdir(dir, 0o700))
	m, err := Take(t.Context(), src, parent, "one", Options{})
	must(t, err)
	must(t, Verify(t.Context(), dir+".moved/one", m))
	_, err = Take(t.Context(), src, parent, "one", Options{})
	wants(t, err, "already exists", "different path")
	must(t, unix.Mkfifo(filepath.Join(src, "pipe"), 0o600))
	_, err = Take(t.Context(), src, parent, "two", Options{})
	wants(t, err, "pipe", "")
	for path, want := range map[string]int{dir: 0, dir + ".moved": 1} {
		if left, _ := os.ReadDir(path); len(left) != want {
			t.Errorf("%s: %v, want %d entries", path, left, want)
		}
	}
}

// takeAt calls [Take] for the path of the new directory.
func takeAt(ctx context.Context, src, dst string, o Options) (Manifest, error) {
	parent, err := os.OpenRoot(filepath.Dir(dst))
	if err != nil {
		return Manifest{}, err
	}
	defer parent.Close()
	return Take(ctx, src, parent, filepath.Base(dst), o)
}
