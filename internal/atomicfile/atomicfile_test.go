package atomicfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/atomicfile"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// checkFiles fails the test unless the directory has exactly these files, with these
// contents.
func checkFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if wanted, ok := want[e.Name()]; err != nil || !ok || string(got) != wanted {
			t.Errorf("%s: got %q, %v, want %q", e.Name(), got, err, wanted)
		}
	}
	if len(entries) != len(want) {
		t.Errorf("got %d files, want %d", len(entries), len(want))
	}
}

// TestWrite checks that a file is replaced atomically, with the right permissions.
func TestWrite(t *testing.T) {
	errWrite := errors.New("write fails")
	for _, c := range []struct {
		name    string
		old     string // empty: no file
		options atomicfile.Options
		write   func(io.Writer) error
		want    string
		perm    fs.FileMode
		err     error
	}{
		{name: "new file", write: text("new"), want: "new", perm: 0o600},
		{name: "permissions", options: atomicfile.Options{Perm: 0o640}, write: text("new"), want: "new", perm: 0o640},
		{name: "replace", old: "old", write: text("new"), want: "new", perm: 0o600},
		{name: "replace without sync", old: "old", options: atomicfile.Options{NoSync: true}, write: text("new"), want: "new", perm: 0o600},
		{name: "must be new", options: atomicfile.Options{New: true}, write: text("new"), want: "new", perm: 0o600},
		{name: "must be new and exists", old: "old", options: atomicfile.Options{New: true}, write: text("new"), want: "old", perm: 0o644, err: fs.ErrExist},
		{name: "prepare fails", old: "old", options: atomicfile.Options{Prepare: func(*os.File) error { return errWrite }}, write: text("new"), want: "old", perm: 0o644, err: errWrite},
		{name: "mode and temporary name", options: atomicfile.Options{Temp: "temp", Prepare: func(f *os.File) error {
			if filepath.Base(f.Name()) != "temp" {
				return errWrite
			}
			return f.Chmod(0o400)
		}}, write: text("new"), want: "new", perm: 0o400},
		{name: "writer fails", old: "old", write: func(w io.Writer) error { return errors.Join(text("half")(w), errWrite) }, want: "old", perm: 0o644, err: errWrite},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if c.old != "" {
				if err := os.WriteFile(path, []byte(c.old), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := atomicfile.Write(path, c.options, c.write); !errors.Is(err, c.err) {
				t.Errorf("got %v, want %v", err, c.err)
			}
			checkFiles(t, filepath.Dir(path), map[string]string{"file": c.want})
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != c.perm {
				t.Errorf("got mode %v, %v, want %v", info.Mode(), err, c.perm)
			}
		})
	}
}

// TestWriteNewRace creates the file during the write.
func TestWriteNewRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	err := atomicfile.Write(path, atomicfile.Options{New: true}, func(w io.Writer) error {
		return errors.Join(text("mine")(w), os.WriteFile(path, []byte("theirs"), 0o600))
	})
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want fs.ErrExist of %s", err, path)
	}
	checkFiles(t, filepath.Dir(path), map[string]string{"file": "theirs"})
}

// TestWriteReplacesLink checks that Write replaces a symbolic link and does not change its target.
func TestWriteReplacesLink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, []byte("private"), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(link, atomicfile.Options{}, text("new")); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, dir, map[string]string{"target": "private", "link": "new"})
}

// TestWriteNamesMissingDirectory checks that the error names the directory, not the temporary
// file.
func TestWriteNamesMissingDirectory(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	err := atomicfile.Write(filepath.Join(missing, "file"), atomicfile.Options{}, text("new"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) || strings.Contains(err.Error(), atomicfile.TempSuffix) {
		t.Errorf("got %v, want an error about %s", err, missing)
	}
}

// TestWriteIntoAPipe checks that Write does not wait for the writer of a FIFO in place of the
// directory.
func TestWriteIntoAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(filepath.Join(pipe, "file"), atomicfile.Options{}, text("new")); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("got %v, want %v", err, unix.ENOTDIR)
	}
}
