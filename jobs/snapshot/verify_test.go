package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestChanged tests the changes that can happen to a file between the listing and the end of
// the copy.
func TestChanged(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"grown":    func(path string) error { return os.WriteFile(path, []byte("12345"), 0o644) },
		"cut":      func(path string) error { return os.Truncate(path, 1) },
		"touched":  func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) },
		"removed":  os.Remove,
		"chmod":    func(path string) error { return os.Chmod(path, 0o755) },
		"replaced": func(path string) error { return errors.Join(os.Rename(path+".other", path)) },
		"link":     func(path string) error { return errors.Join(os.Remove(path), os.Symlink("f.other", path)) },
		"FIFO":     func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o644)) },
	} {
		for _, after := range []bool{false, true} {
			dir, to := t.TempDir(), t.TempDir()
			fill(t, dir, map[string]string{"f": "1234", "f.other": "1234"})
			path := filepath.Join(dir, "f")
			info, err := os.Lstat(path)
			must(t, err)
			must(t, os.Chtimes(path+".other", time.Time{}, info.ModTime()))
			e := &entry{path: "f", info: info}
			from, err := os.OpenRoot(dir)
			must(t, err)
			defer from.Close()
			copied, err := os.OpenRoot(to)
			must(t, err)
			defer copied.Close()
			if after {
				must(t, copyEntry(from, copied, e))
				must(t, checkUnchanged(from, e))
			}
			must(t, change(path))
			if !after {
				err = copyEntry(from, copied, e)
			}
			if err == nil {
				err = checkUnchanged(from, e)
			}
			t.Run(name, func(t *testing.T) { wants(t, err, `"f" changed while it was copied`, "submit again") })
		}
	}
}

// TestVerify checks that each kind of change of a copy is detected.
func TestVerify(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dst string) error
		want   string
	}{
		"content": {func(d string) error { return os.WriteFile(d+"/b", []byte("x"), 0o600) }, `"b" has changed`},
		"size":    {func(d string) error { return os.WriteFile(d+"/b", nil, 0o600) }, `"b" has changed`},
		"mode":    {func(d string) error { return os.Chmod(d+"/b", 0o700) }, `"b" has a different mode`},
		"missing": {func(d string) error { return os.Remove(d + "/c/d") }, `"c/d" is missing`},
		"first":   {func(d string) error { return errors.Join(os.Remove(d+"/c/d"), os.Remove(d+"/b")) }, `"b" is missing`},
		"folder":  {func(d string) error { return errors.Join(os.RemoveAll(d+"/c"), os.WriteFile(d+"/c", nil, 0o600)) }, `"c/d" is missing`},
		"leads": {func(d string) error { return errors.Join(os.Remove(d+"/l"), os.Symlink("c", d+"/l")) },
			`"l" has a different target`},
		"link for file": {func(d string) error { return errors.Join(os.Remove(d+"/b"), os.Symlink("c/d", d+"/b")) },
			`"b" has a different file type`},
		"file for link": {func(d string) error { return errors.Join(os.Remove(d+"/l"), os.WriteFile(d+"/l", nil, 0o600)) },
			`"l" has a different file type`},
		"FIFO": {func(d string) error { return errors.Join(os.Remove(d+"/b"), unix.Mkfifo(d+"/b", 0o600)) },
			`"b" has a different file type`},
		"list":    {func(d string) error { return os.WriteFile(d+"/"+listName, nil, 0o600) }, "has changed"},
		"no list": {func(d string) error { return os.Remove(d + "/" + listName) }, "is missing"},
		"list FIFO": {func(d string) error {
			return errors.Join(os.Remove(d+"/"+listName), unix.Mkfifo(d+"/"+listName, 0o600))
		}, "has changed"},
		"nothing": {os.RemoveAll, "no such file"},
		"added":   {func(d string) error { return os.WriteFile(d+"/new", nil, 0o600) }, ""},
		"touched": {func(d string) error { return os.Chtimes(d+"/b", time.Unix(1, 0), time.Unix(1, 0)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := t.TempDir(), filepath.Join(t.TempDir(), "code")
			fill(t, src, map[string]string{"a+": "1", "b": "2", "c/d": "2", "l": "->b"})
			m, err := takeAt(t.Context(), src, dst, Options{})
			must(t, err)
			must(t, c.change(dst))
			err = Verify(t.Context(), dst, m)
			if c.want == "" {
				must(t, err)
				return
			}
			wants(t, err, c.want, "")
		})
	}
	wants(t, Verify(t.Context(), "code", Manifest{}), "not absolute", "")
}
