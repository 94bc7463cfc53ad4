package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// TestAbove checks that the directories of all links on the way to a file are found, also of a link that
// leads to another link.
func TestAbove(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(base, name) }
	for _, dir := range []string{"first", "second/deep", "third/files"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("../second/deep/link", at("first/link")), os.Symlink(at("third/files"), at("second/deep/link")),
		os.Symlink("first/link/file", at("file")),
		os.Symlink("first/link/../files/file", at("up")), os.Symlink("missing/../file", at("nowhere")), os.WriteFile(at("third/files/file"), nil, 0o644), os.Symlink("loop/loop", at("loop"))); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		path string
		want []string // names of directories below base
		err  error
	}{
		{name: "file", path: "third/files/file", want: []string{"third", "third/files"}},
		{name: "directory that is a link to a link", path: "first/link/file", want: []string{"first", "second", "second/deep", "third", "third/files", "second/deep/link", "first/link"}},
		{name: "link", path: "file", want: []string{"first", "second", "second/deep", "third", "third/files", "second/deep/link", "first/link"}},
		{name: "link with .. after a link", path: "up", want: []string{"first", "second", "second/deep", "third", "third/files", "second/deep/link", "first/link"}},
		{name: "link with .. after a missing directory", path: "nowhere", want: []string{"missing"}, err: fs.ErrNotExist},
		{name: "missing file", path: "first/missing", want: []string{"first"}, err: fs.ErrNotExist},
		{name: "missing directory", path: "missing/file", want: []string{"missing"}, err: fs.ErrNotExist},
	} {
		got, err := safefile.Above(at(tt.path))
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: got error %v, want %v", tt.name, err, tt.err)
		}
		for i, dir := range got {
			got[i], _ = filepath.Rel(base, dir)
		}
		got = slices.DeleteFunc(got, func(dir string) bool { return !filepath.IsLocal(dir) || dir == "." })
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if dirs, err := safefile.Above(at("loop")); err == nil {
		t.Errorf("loop: got %q", dirs)
	}
}
