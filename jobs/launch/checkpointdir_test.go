package launch

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// TestCheckpointDirOfAnotherUser checks that a program does not resume from checkpoints that
// another user could have placed, in a directory such as /scratch.
func TestCheckpointDirOfAnotherUser(t *testing.T) {
	needsRoot(t)
	for _, tt := range []struct {
		name string
		make func(path string) error
		want string // part of the error; empty for none
	}{
		{"new", func(string) error { return nil }, ""},
		{"own", func(path string) error { return os.Mkdir(path, 0o700) }, ""},
		{"own, writable by a private group", func(path string) error { return mkdirMode(path, 0o770) }, ""},
		{"own link", func(path string) error { return os.Symlink(filepath.Dir(path), path) }, ""},
		{"of another user", func(path string) error {
			if err := os.Mkdir(path, 0o755); err != nil {
				return err
			}
			return os.Chown(path, otherID, otherID)
		}, "belongs to user 61099"},
		{"link of another user", func(path string) error {
			if err := os.Symlink(filepath.Dir(path), path); err != nil {
				return err
			}
			return os.Lchown(path, otherID, otherID)
		}, "belongs to user 61099"},
		{"writable by every user", func(path string) error { return mkdirMode(path, 0o777) }, "mode 0777"},
		{"like /tmp", func(path string) error { return mkdirMode(path, 0o777|os.ModeSticky) }, "mode 1777"},
		{"file", func(path string) error { return os.WriteFile(path, nil, 0o600) }, "not a directory"},
		{"new, in a directory that another user has prepared in a place such as /tmp", func(path string) error {
			parent := filepath.Dir(path)
			return errors.Join(os.Chmod(filepath.Dir(parent), 0o777|os.ModeSticky), os.Chown(parent, otherID, otherID), os.Chmod(parent, 0o777))
		}, "belongs to user 61099"},
		{"new, in a directory in such a place that another user shares with an access control list", func(path string) error {
			parent := filepath.Dir(path)
			return errors.Join(os.Chmod(filepath.Dir(parent), 0o777|os.ModeSticky), os.Chown(parent, otherID, otherID), os.Chmod(parent, 0o770))
		}, "user 61099 can replace it"},
		{"new, behind a link of another user in such a place", func(path string) error {
			target := t.TempDir()
			return errors.Join(os.Chown(target, otherID, otherID), os.Chmod(target, 0o777), replaceByLink(filepath.Dir(path), target))
		}, "user 61099 can replace it"},
		{"new, further below a directory that another user has prepared in such a place", func(path string) error {
			parent := filepath.Dir(path)
			above := filepath.Dir(parent)
			return errors.Join(os.Chmod(filepath.Dir(above), 0o777|os.ModeSticky), os.Chown(above, otherID, otherID), os.Chown(parent, otherID, otherID), os.Chmod(parent, 0o777))
		}, "user 61099"},
		{"own, in a directory that another user has prepared in such a place", func(path string) error {
			parent := filepath.Dir(path)
			return errors.Join(mkdirMode(path, 0o700), os.Chmod(filepath.Dir(parent), 0o777|os.ModeSticky), os.Chown(parent, otherID, otherID), os.Chmod(parent, 0o777))
		}, "user 61099"},
		{"own, behind a link further below a directory that another user has prepared in such a place", func(path string) error {
			parent, target := filepath.Dir(path), t.TempDir()
			above := filepath.Dir(parent)
			return errors.Join(mkdirMode(filepath.Join(target, filepath.Base(path)), 0o700), os.Remove(parent), os.Symlink(target, parent), os.Lchown(parent, otherID, otherID),
				os.Chmod(filepath.Dir(above), 0o777|os.ModeSticky), os.Chown(above, otherID, otherID), os.Chmod(above, 0o755))
		}, "user 61099 can replace it"},
		{"own, behind a link of another user in such a place", func(path string) error {
			target := t.TempDir()
			return errors.Join(os.Mkdir(filepath.Join(target, filepath.Base(path)), 0o700), replaceByLink(filepath.Dir(path), target))
		}, "user 61099 can replace it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "above", "parent", "checkpoints")
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), tt.make(path)); err != nil {
				t.Fatal(err)
			}
			_, err := makeCheckpointDir(&jobs.Command{CheckpointDir: jobs.Text(path)}, newRun(t), "ab", func(line string) { t.Error(line) })
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(hints.Of(err), "command.checkpoint_dir")) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	// A user who can write to a directory above the run directory can replace it.
	dir := newRun(t)
	if held, release, err := dir.Hold(); err != nil {
		t.Fatal(err)
	} else {
		defer release()
		dir = held
	}
	for _, err := range []error{
		os.Rename(dir.Path, dir.Path+".old"), os.MkdirAll(dir.ProgramCheckpoints(), 0o755), os.Chown(dir.ProgramCheckpoints(), otherID, otherID),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := makeCheckpointDir(&jobs.Command{}, dir, "ab", func(string) {}); err == nil || !strings.Contains(err.Error(), "belongs to user 61099") {
		t.Errorf("replaced run directory: %v", err)
	}
	// No other user can write to a new directory, for any umask.
	path := filepath.Join(t.TempDir(), "a", "b")
	if _, err := makeCheckpointDir(&jobs.Command{CheckpointDir: jobs.Text(path)}, newRun(t), "ab", func(line string) { t.Error(line) }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o022 != 0 {
		t.Errorf("new directory: %v, %v", info.Mode(), err)
	}
}

// joinGroup makes this process a member of a group during a test, and returns the group.
func joinGroup(t *testing.T) (group int) {
	t.Helper()
	groups, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	group = 61098
	if err := syscall.Setgroups([]int{group}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setgroups(groups) })
	return group
}

// TestCheckpointDirOfAGroup checks the warning about a directory in which members of a group can create
// files, also with the sticky bit.
func TestCheckpointDirOfAGroup(t *testing.T) {
	needsRoot(t)
	shared := joinGroup(t)
	for mode, want := range map[os.FileMode]bool{0o750: false, 0o770: true, 0o770 | os.ModeSticky: true} {
		path := filepath.Join(t.TempDir(), "checkpoints")
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, -1, shared), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		warned := false
		if _, err := makeCheckpointDir(&jobs.Command{CheckpointDir: jobs.Text(path)}, newRun(t), "ab", func(string) { warned = true }); err != nil || warned != want {
			t.Errorf("mode %v: warning %v, %v, want %v", mode, warned, err, want)
		}
	}
}

// TestCheckpointDirThatAnotherUserPrepared checks the warning about a directory of another user in a place such as
// /tmp that is accepted: it is writable for a group of this user, or this user owns the directory in between.
func TestCheckpointDirThatAnotherUserPrepared(t *testing.T) {
	needsRoot(t)
	shared := joinGroup(t)
	for _, tt := range []struct {
		name  string
		above os.FileMode // of the directory around the prepared one
		owner int
		path  string // below the prepared directory
		warn  bool
	}{
		{"of a member of the group", 0o777 | os.ModeSticky, otherID, "ab", true},
		{"with an own directory in between", 0o777 | os.ModeSticky, otherID, "own/ab", true},
		{"of this user", 0o777 | os.ModeSticky, os.Geteuid(), "ab", false},
		{"not in a public place", 0o755, otherID, "ab", false},
	} {
		public := t.TempDir()
		prepared := filepath.Join(public, "ckpt")
		path := filepath.Join(prepared, tt.path)
		err := errors.Join(os.Chmod(public, tt.above), os.Mkdir(prepared, 0o700), os.Chown(prepared, tt.owner, shared), os.Chmod(prepared, 0o770))
		if dir := filepath.Dir(path); dir != prepared {
			err = errors.Join(err, os.Mkdir(dir, 0o700))
		}
		if err != nil {
			t.Fatal(err)
		}
		for where, use := range map[string]func(say func(string)) error{
			"launcher": func(say func(string)) error {
				_, err := makeCheckpointDir(&jobs.Command{CheckpointDir: jobs.Text(path)}, newRun(t), "ab", say)
				return err
			},
			"another node": func(say func(string)) error {
				r := &Rank{Info: RankInfo{Rank: 1, WorldSize: 2, NodeRank: 1, Nodes: 2}, dir: newRun(t), say: say,
					job: &jobs.Job{Command: &jobs.Command{CheckpointDir: jobs.Text(path)}}}
				environ := []string{LauncherVariable + "=127.0.0.1:1", programCheckpoints + "=" + path}
				return r.setContext(func(string, string) {}, lookupIn(environ), lookupIn(nil))
			},
		} {
			warnings := ""
			if err := use(func(line string) { warnings += line }); err != nil {
				t.Errorf("%s: %s: %v", tt.name, where, err)
			}
			if warned := strings.Contains(warnings, "user 61099 can replace it"); warned != tt.warn {
				t.Errorf("%s: %s: got warnings %q, want one: %v", tt.name, where, warnings, tt.warn)
			}
		}
	}
}

// TestCheckpointDirOnAnotherNode checks that a rank does not use a directory of another user on a node other
// than the launcher's, and leaves no directory for another user to create.
func TestCheckpointDirOnAnotherNode(t *testing.T) {
	needsRoot(t)
	readOnly := t.TempDir()
	if err := syscall.Mount("tmpfs", readOnly, "tmpfs", syscall.MS_RDONLY, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(readOnly, syscall.MNT_DETACH) })
	for _, tt := range []struct {
		name    string
		path    string // empty for a path in a temporary directory
		make    func(path string) error
		created bool   // whether the directory exists afterward
		want    string // part of the error; empty for none
	}{
		{name: "missing", created: true},
		{name: "missing with its parent", path: filepath.Join(t.TempDir(), "a/b"), created: true},
		{name: "missing and impossible to create", path: "/sys/ddpbatch/checkpoints"},
		{name: "missing below a virtual file system", path: "/proc/ddpbatch/checkpoints"},
		{name: "own", make: func(path string) error { return mkdirMode(path, 0o755) }, created: true},
		{name: "of root outside of a container", make: func(path string) error {
			return errors.Join(mkdirMode(path, 0o755), os.Chown(path, safefile.OverflowUser(), -1))
		}, created: true},
		{name: "of another user", make: func(path string) error {
			return errors.Join(mkdirMode(path, 0o755), os.Chown(path, otherID, -1))
		}, created: true, want: "belongs to user 61099"},
		{name: "link of another user to a missing directory", make: func(path string) error {
			return errors.Join(os.Symlink(path+"-later", path), os.Lchown(path, otherID, -1))
		}, want: "no such file or directory"},
		{name: "writable by every user", make: func(path string) error { return mkdirMode(path, 0o777) }, created: true, want: "mode 0777"},
		{name: "impossible to create behind a link of another user in a place such as /tmp", make: func(path string) error {
			return replaceByLink(filepath.Dir(path), readOnly)
		}, want: "user 61099 can replace it"},
		{name: "on a read-only file system", path: filepath.Join(readOnly, "checkpoints")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := cmp.Or(tt.path, filepath.Join(t.TempDir(), "checkpoints"))
			if tt.make != nil {
				if err := tt.make(path); err != nil {
					t.Fatal(err)
				}
			}
			r := &Rank{Info: RankInfo{Rank: 1, WorldSize: 2, NodeRank: 1, Nodes: 2}, dir: newRun(t), job: &jobs.Job{Command: &jobs.Command{}}}
			environ := []string{LauncherVariable + "=127.0.0.1:1", programCheckpoints + "=" + path}
			err := r.setContext(func(string, string) {}, lookupIn(environ), lookupIn(nil))
			if (err != nil) != (tt.want != "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(hints.Of(err), "command.checkpoint_dir")) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if _, err := os.Stat(path); (err == nil) != tt.created {
				t.Errorf("directory: got %v, want existing %v", err, tt.created)
			}
		})
	}
}

// mkdirMode creates a directory with a mode for any umask.
func mkdirMode(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// replaceByLink puts a link of another user at the path of an empty directory, and lets every user create
// files next to it.
func replaceByLink(dir, target string) error {
	return errors.Join(os.Chmod(filepath.Dir(dir), 0o777|os.ModeSticky), os.Remove(dir), os.Symlink(target, dir), os.Lchown(dir, otherID, otherID))
}
