package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFilesThatOthersCanWriteAreSkipped checks that Load rejects files that other users own or can
// write to, names them, and uses the previous checkpoint.
func TestFilesThatOthersCanWriteAreSkipped(t *testing.T) {
	for name, c := range map[string]struct {
		change func(path string) error
		want   string
		root   bool
	}{
		"a file the group writes":    {func(p string) error { return os.Chmod(filepath.Join(p, ModelFile), 0o660) }, ModelFile + `" has mode 0660`, false},
		"a manifest all write":       {func(p string) error { return os.Chmod(filepath.Join(p, manifestName), 0o606) }, manifestName + `" has mode 0606`, false},
		"a folder the group writes":  {func(p string) error { return os.Chmod(p, 0o770) }, `step-00000002" has mode 0770`, false},
		"a file of another user":     {func(p string) error { return os.Chown(filepath.Join(p, OptimizerFile), 12345, -1) }, OptimizerFile + `" belongs to user 12345`, true},
		"a folder of another user":   {func(p string) error { return os.Chown(p, 12345, -1) }, `step-00000002" belongs to user 12345`, true},
		"a manifest of another user": {func(p string) error { return os.Chown(filepath.Join(p, manifestName), 12345, -1) }, manifestName + `" belongs to user 12345`, true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				if os.Getenv("CI") != "" {
					t.Fatal("CI must run as root")
				}
				t.Skip("only root gives files away")
			}
			dir := t.TempDir()
			save(t, dir, 1)
			if err := c.change(save(t, dir, 2)); err != nil {
				t.Fatal(err)
			}
			s, skipped, err := Load(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if s.Manifest.Step != 1 || len(skipped) != 1 || !strings.Contains(skipped[0].Error(), c.want) {
				t.Errorf("step %d, passed over %v, want %q", s.Manifest.Step, skipped, c.want)
			}
		})
	}
}

// TestCheckpointOfAnotherUserIsRead checks that Load reads a checkpoint that belongs completely to
// another user, if only that user can write to it. Save rejects its directory.
func TestCheckpointOfAnotherUserIsRead(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("CI must run as root")
		}
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	save(t, dir, 1)
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = os.Chown(path, 12345, -1)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s, skipped, err := Load(t.Context(), dir)
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	s.Close()
	m, files := state(2)
	if _, err := Save(dir, m, files); err == nil || !strings.Contains(err.Error(), "belongs to user 12345, not to user 0") {
		t.Errorf("saved there: %v", err)
	}
}

// TestSaveRejectsUnsafeDirectory checks that Save writes nothing into a directory that others can
// write to, or through a symbolic link.
func TestSaveRejectsUnsafeDirectory(t *testing.T) {
	shared, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{shared: "has mode 0777", link: "is a symbolic link"} {
		m, files := state(1)
		_, err := Save(dir, m, files)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if found, _ := os.ReadDir(dir); len(found) > 0 {
			t.Errorf("left: %v", found)
		}
	}
}

// TestManifestOfAnotherUserIsNotOwn checks a manifest that another user has put at the path of the
// checkpoints while it was read. The other files are the ones of this user again.
func TestManifestOfAnotherUserIsNotOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	dir := t.TempDir()
	path := save(t, dir, 1)
	read := func(uid int) Entry {
		t.Helper()
		for _, name := range []string{dir, path, filepath.Join(path, manifestName)} {
			if err := os.Chown(name, uid, -1); err != nil {
				t.Fatal(err)
			}
		}
		entries, err := List(dir)
		if err != nil || len(entries) != 1 || entries[0].Err != nil {
			t.Fatal(entries, err)
		}
		return entries[0]
	}
	foreign := read(61001)
	own := read(0)
	for _, tt := range []struct {
		name string
		e    Entry
		want bool
	}{{"own", own, true}, {"of another user", foreign, false}} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := tt.e.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.CheckOwn(); (err == nil) != tt.want || tt.e.IsOwn() != tt.want {
				t.Errorf("own %v, %v, want %v", tt.e.IsOwn(), err, tt.want)
			}
		})
	}
}

// TestManifestLimitsFiles checks that a manifest of another user cannot have any number of files.
func TestManifestLimitsFiles(t *testing.T) {
	text := `{"format":1,"files":[` + strings.Repeat("{},", maxFiles) + `{}]}`
	if _, err := decodeManifest([]byte(text)); err == nil || !strings.Contains(err.Error(), "more than 200000") {
		t.Errorf("got %v", err)
	}
}

// TestManifestLimitsShardedFiles checks that a manifest of another user cannot have any number of sharded
// files: opening a checkpoint joins the parts of each.
func TestManifestLimitsShardedFiles(t *testing.T) {
	for _, n := range []int{maxSharded, maxSharded + 1} {
		m := Manifest{Format: Format, Files: fileList{{Name: "a"}}, Sharded: map[string]map[string][]int{}}
		for i := range n {
			m.Sharded[strconv.Itoa(i)] = nil
		}
		text, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(text); (err == nil) != (n <= maxSharded) {
			t.Errorf("%d sharded files: got %v", n, err)
		}
	}
}

// TestPipeInsteadOfADirectory checks that a save and a prune do not wait for the writer of a FIFO that
// has replaced the directory of checkpoints after its check.
func TestPipeInsteadOfADirectory(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openOwn(pipe); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("got %v, want %v", err, unix.ENOTDIR)
	}
}
