package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// makeDir creates a directory with the given owner, group, and mode. It ignores the umask.
func makeDir(t *testing.T, path string, uid, gid int, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, uid, gid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err) // the suite runs as root
	}
}

const (
	stranger = 4321
	lab      = 4322
)

// TestExposures checks which users can replace a directory above the run directory.
func TestExposures(t *testing.T) {
	for _, tt := range []struct {
		name     string
		uid, gid int
		mode     os.FileMode
		exposed  bool
		anyone   bool
		want     string // in the description
		hint     string
	}{
		{name: "own", mode: 0o755},
		{name: "private group, umask 002", mode: 0o775},
		{name: "project of a group", gid: lab, mode: 0o775 | os.ModeSetgid, exposed: true, want: "group 4322", hint: "chmod +t"},
		{name: "project of a group with the sticky bit", gid: lab, mode: 0o775 | os.ModeSticky},
		{name: "writable by everybody", mode: 0o777, exposed: true, anyone: true, want: "mode 0777", hint: "chmod o-w"},
		{name: "like /tmp", mode: 0o777 | os.ModeSticky},
		{name: "of another user", uid: stranger, mode: 0o755, exposed: true, want: "user 4321", hint: "--run-dir"},
		{name: "of another user, for everybody", uid: stranger, mode: 0o777, exposed: true, anyone: true, want: "user 4321", hint: "--run-dir"},
		{name: "of another user, like /tmp", uid: stranger, mode: 0o777 | os.ModeSticky, exposed: true, anyone: true, want: "mode 1777", hint: "--run-dir"},
		{name: "of a user without a mapping", uid: safefile.OverflowUser(), mode: 0o755},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, "dir")
			makeDir(t, dir, tt.uid, tt.gid, tt.mode)
			link := filepath.Join(base, "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{filepath.Join(dir, "run"), filepath.Join(dir, "runs", "new", "run"), filepath.Join(link, "run")} {
				all := Exposures(path)
				if len(all) == 0 && !tt.exposed {
					continue
				}
				if len(all) != 1 || !tt.exposed || all[0].Anyone != tt.anyone || !strings.Contains(all[0].String(), tt.want) || !strings.Contains(all[0].Hint(), tt.hint) {
					t.Errorf("%s: %v", path, all)
				}
			}
		})
	}
}

// TestExposuresBehindLink checks a symbolic link that leads from a safe directory into an exposed
// one.
func TestExposuresBehindLink(t *testing.T) {
	base := t.TempDir()
	open := filepath.Join(base, "open")
	makeDir(t, open, 0, 0, 0o777)
	makeDir(t, filepath.Join(open, "inner"), 0, 0, 0o755)
	link := filepath.Join(base, "link")
	if err := os.Symlink(filepath.Join(open, "inner"), link); err != nil {
		t.Fatal(err)
	}
	all := Exposures(filepath.Join(link, "run"))
	if len(all) != 1 || all[0].Path != open || !all[0].Anyone {
		t.Errorf("got %v", all)
	}
}

// TestExposuresOfLink checks a symbolic link in the path of the run directory, and a link to that link.
func TestExposuresOfLink(t *testing.T) {
	for _, tt := range []struct {
		name    string
		owner   int
		mode    os.FileMode // of the directory of the link
		exposed bool
	}{
		{name: "own, in a sticky directory", mode: 0o775 | os.ModeSticky},
		{name: "of another user, in a sticky directory", owner: stranger, mode: 0o775 | os.ModeSticky, exposed: true},
		{name: "of another user, in a private directory", owner: stranger, mode: 0o755},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := t.TempDir()
			around := filepath.Join(base, "around")
			makeDir(t, around, 0, lab, tt.mode)
			link, outer := filepath.Join(around, "link"), filepath.Join(base, "outer")
			makeDir(t, filepath.Join(base, "run"), 0, 0, 0o700)
			if err := errors.Join(os.Symlink(base, link), os.Lchown(link, tt.owner, -1), os.Symlink("around/link", outer)); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{filepath.Join(link, "run"), filepath.Join(outer, "run")} {
				all := Exposures(path)
				if tt.exposed != (len(all) == 1 && all[0].Path == link && strings.Contains(all[0].String(), "user 4321")) || !tt.exposed && len(all) > 0 {
					t.Errorf("%s: %v", path, all)
				}
				if got := (Dir{Path: path}).IsExposed(); got != tt.exposed {
					t.Errorf("%s: IsExposed is %v", path, got)
				}
			}
		})
	}
}

// TestIsExposedWithoutParent checks that a directory above the run directory that another user has moved
// away, which has no mode to check, counts as an exposure.
func TestIsExposedWithoutParent(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "shared", "run")
	if d := (Dir{Path: path}); !d.IsExposed() || len(Exposures(path)) > 0 {
		t.Errorf("missing parent: %v", Exposures(path))
	}
	makeDir(t, filepath.Join(base, "shared"), 0, 0, 0o755)
	makeDir(t, path, 0, 0, 0o700)
	if (Dir{Path: path}).IsExposed() {
		t.Errorf("own parent: %v", Exposures(path))
	}
}

// TestCreateRejectsPreparedParent checks a directory runs/ that another user created earlier in a
// public directory such as /tmp.
func TestCreateRejectsPreparedParent(t *testing.T) {
	groups, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups([]int{lab}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setgroups(groups) })
	for _, tt := range []struct {
		name   string
		around os.FileMode
		uid    int
		mode   os.FileMode
		want   string // expected in the error; empty if no error
	}{
		{"prepared in a place such as /tmp", 0o777 | os.ModeSticky, stranger, 0o777, "user 4321"},
		{"prepared with the sticky bit", 0o777 | os.ModeSticky, stranger, 0o777 | os.ModeSticky, "user 4321"},
		{"own", 0o777 | os.ModeSticky, 0, 0o777, ""},
		{"of a group", 0o777 | os.ModeSticky, stranger, 0o775, ""},
		{"writable only by its owner, or by an access control list", 0o777 | os.ModeSticky, stranger, 0o755, "user 4321"},
		{"elsewhere", 0o755, stranger, 0o777, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			around := filepath.Join(t.TempDir(), "around")
			makeDir(t, around, 0, 0, tt.around)
			runs := filepath.Join(around, "runs")
			makeDir(t, runs, tt.uid, lab, tt.mode)
			run := filepath.Join(runs, "run")
			d, err := Create(run)
			_, below := Create(filepath.Join(runs, "new", "runs", "run"))
			if tt.want == "" {
				if err := errors.Join(err, below); err != nil {
					t.Error(err)
				}
				return
			}
			wants(t, err, tt.want, "--run-dir")
			wants(t, below, tt.want, "--run-dir")
			// An existing run can be resumed.
			if err := os.Mkdir(run, 0o700); err != nil {
				t.Fatal(err)
			}
			if d, err = Create(run); err != nil || d.Path != run {
				t.Errorf("existing run: %v", err)
			}
		})
	}
}

// TestLinksInPublicDirectories checks links through which another user can redirect the path of a run or of
// checkpoints.
func TestLinksInPublicDirectories(t *testing.T) {
	for _, tt := range []struct {
		name   string
		around os.FileMode
		owner  int
		want   bool // whether the link is an error
	}{
		{"of another user in a place such as /tmp", 0o777 | os.ModeSticky, stranger, true},
		{"own", 0o777 | os.ModeSticky, 0, false},
		{"of another user in the directory of a group", 0o775 | os.ModeSticky, stranger, false},
		{"of another user in a private directory", 0o755, stranger, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			around, target := filepath.Join(t.TempDir(), "around"), t.TempDir()
			makeDir(t, around, 0, lab, tt.around)
			link, missing, outer := filepath.Join(around, "link"), filepath.Join(around, "missing"), filepath.Join(target, "outer")
			for path, to := range map[string]string{link: target, missing: filepath.Join(target, "later"), outer: link} {
				if err := errors.Join(os.Symlink(to, path), os.Lchown(path, tt.owner, -1)); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range []string{link, filepath.Join(link, "new"), filepath.Join(outer, "new"), filepath.Join(missing, "new")} {
				err := CheckLinks(path)
				if (err != nil) != tt.want {
					t.Errorf("%s: got %v", path, err)
				}
				if tt.want {
					wants(t, err, "user 4321", "target of the link")
				}
			}
			if _, err := Create(filepath.Join(link, "run")); (err != nil) != tt.want {
				t.Errorf("Create: got %v", err)
			}
		})
	}
}

// TestCanOthersCreate checks who can create a missing directory. A user can move a directory away for a
// moment, so a missing directory in a place such as /tmp counts as one of another user.
func TestCanOthersCreate(t *testing.T) {
	public := filepath.Join(t.TempDir(), "public")
	makeDir(t, public, 0, 0, 0o777|os.ModeSticky)
	makeDir(t, filepath.Join(public, "own"), 0, 0, 0o755)
	makeDir(t, filepath.Join(public, "other"), stranger, 0, 0o755)
	readOnly := t.TempDir()
	if err := unix.Mount("tmpfs", readOnly, "tmpfs", unix.MS_RDONLY, "mode=1777"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(readOnly, unix.MNT_DETACH) })
	for _, tt := range []struct {
		path string
		want bool
	}{
		{filepath.Join(t.TempDir(), "a/b"), false},
		{filepath.Join(readOnly, "a/b"), false},
		{filepath.Join(public, "own/a/b"), false},
		{filepath.Join(public, "other/a"), true},
		{filepath.Join(public, "a"), true},
		{filepath.Join(public, "a/b"), true},
	} {
		if got := CanOthersCreate(tt.path); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.path, got, tt.want)
		}
	}
}
