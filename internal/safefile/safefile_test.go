package safefile_test

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// TestRead checks that files that another user could have prepared do not block a read or redirect
// it: links, pipes, sockets, and files with a lease.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", at("link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	leased, err := os.Create(at("leased"))
	if err != nil {
		t.Fatal(err)
	}
	defer leased.Close()
	if _, err := unix.FcntlInt(leased.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name  string
		path  string
		limit int64
		flags int
		want  error
	}{
		{name: "file", path: at("file"), limit: 8},
		{name: "file above the limit", path: at("file"), limit: 7, want: safefile.ErrTooLarge},
		{name: "link", path: at("link"), limit: 8},
		{name: "link with NoFollow", path: at("link"), limit: 8, flags: safefile.NoFollow, want: safefile.ErrLink},
		{name: "FIFO", path: at("fifo"), limit: 8, want: safefile.ErrNotRegular},
		{name: "socket", path: at("socket"), limit: 8, want: safefile.ErrNotRegular},
		{name: "device", path: "/dev/zero", limit: 8, want: safefile.ErrNotRegular},
		{name: "directory", path: dir, limit: 8, want: unix.EISDIR},
		{name: "missing", path: at("missing"), limit: 8, want: fs.ErrNotExist},
		{name: "lease that is not returned", path: at("leased"), limit: 8, want: safefile.ErrLeased},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(kind string, read func() ([]byte, error)) {
				t.Helper()
				done := make(chan struct{})
				go func() {
					defer close(done)
					text, err := read()
					var perr *fs.PathError
					switch {
					case c.want == nil && (err != nil || string(text) != "12345678"):
						t.Errorf("%s: %q, %v", kind, text, err)
					case c.want != nil && (!errors.Is(err, c.want) || !errors.As(err, &perr)):
						t.Errorf("%s: %v, want a PathError of %v", kind, err, c.want)
					}
				}()
				select {
				case <-done:
				case <-time.After(40 * time.Second): // an opened lease would wait for 45 s
					t.Fatalf("%s blocks", kind)
				}
			}
			check("Read", func() ([]byte, error) { return safefile.Read(c.path, c.limit, c.flags) })
			if filepath.Dir(c.path) != dir {
				return
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			check("ReadIn", func() ([]byte, error) {
				return safefile.ReadIn(root, filepath.Base(c.path), c.limit, c.flags)
			})
		})
	}
}

// TestCheckPrivate checks that only files of this user that others cannot access are accepted.
func TestCheckPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		name string
		mode fs.FileMode
		uid  int
		ok   bool
	}{
		{"private", 0o600, os.Geteuid(), true},
		{"readable by the group", 0o640, os.Geteuid(), false},
		{"writable by others", 0o602, os.Geteuid(), false},
		{"of another user", 0o600, os.Geteuid() + 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(path)
			if err := errors.Join(os.Chmod(path, c.mode), os.Chown(path, c.uid, -1)); err != nil {
				t.Fatal(err) // the suite runs as root
			}
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := safefile.CheckPrivate(info); (err == nil) != c.ok {
				t.Errorf("CheckPrivate: %v", err)
			}
		})
	}
}

// TestOpenWaitsForOwnLease checks a file for which an NFS server has a lease, because a client may
// cache writes. The server returns the lease when the kernel asks for it, which the first attempt
// to open the file does.
func TestOpenWaitsForOwnLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leased")
	for _, c := range []struct {
		name string
		open func() (*os.File, error)
	}{
		{"Open", func() (*os.File, error) { return safefile.Open(path, safefile.NoFollow) }},
		{"OpenIn", func() (*os.File, error) {
			root, err := os.OpenRoot(filepath.Dir(path))
			if err != nil {
				return nil, err
			}
			defer root.Close()
			return safefile.OpenIn(root, filepath.Base(path), safefile.NoFollow)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			returnWhenBroken(t, f)
			opened, err := c.open()
			if err != nil {
				t.Fatal(err)
			}
			opened.Close()
		})
	}
}

// returnWhenBroken takes a lease on f, and returns it when the kernel breaks it.
func returnWhenBroken(t *testing.T, f *os.File) {
	t.Helper()
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGIO)
	t.Cleanup(func() { signal.Stop(broken) })
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	go func() {
		<-broken
		f.Close()
	}()
}

// TestOpenInDuringReplacement checks that a file that another process replaces by a rename is not
// treated as a symbolic link.
func TestOpenInDuringReplacement(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done, replaced := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-done:
				replaced <- nil
				return
			default:
			}
			if err := errors.Join(root.WriteFile("new", nil, 0o600), root.Rename("new", "file")); err != nil {
				replaced <- err
				return
			}
		}
	}()
	for range 20_000 {
		f, err := safefile.OpenIn(root, "file", safefile.NoFollow)
		if err != nil {
			t.Error(err)
			break
		}
		f.Close()
	}
	close(done)
	if err := <-replaced; err != nil {
		t.Error(err)
	}
}

// TestOpenFileIn checks names and flags for files that are opened without following links.
func TestOpenFileIn(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(root.Mkdir("dir", 0o700), root.Symlink("dir", "link"), root.Symlink("file", "dir/other"),
		root.WriteFile("dir/file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		file  string
		flags int
		want  error // nil for success
	}{
		{name: "file", file: "dir/file"},
		{name: "path that is not clean", file: "dir//../dir/./file"},
		{name: "link in a directory above", file: "link/file"},
		{name: "link", file: "dir/other", want: safefile.ErrLink},
		{name: "link to a directory", file: "link", want: safefile.ErrLink},
		{name: "new file", file: "dir/new", flags: os.O_WRONLY | os.O_CREATE | os.O_EXCL},
		{name: "existing file", file: "dir/file", flags: os.O_WRONLY | os.O_CREATE | os.O_EXCL, want: fs.ErrExist},
		{name: "directory", file: ".", want: unix.EISDIR},
		{name: "missing directory", file: "missing/file", want: fs.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := safefile.OpenFileIn(root, tt.file, tt.flags|safefile.NoFollow, 0o600)
			if err == nil {
				if want := filepath.Join(root.Name(), tt.file); f.Name() != want {
					t.Errorf("got name %q, want %q", f.Name(), want)
				}
				f.Close()
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
	for _, name := range []string{"..", "dir/../..", "../x", "/etc/passwd", ""} {
		if f, err := safefile.OpenFileIn(root, name, safefile.NoFollow, 0); err == nil {
			f.Close()
			t.Errorf("%q was opened", name)
		}
	}
}

// TestReadSomeIn checks the limit, the order, and that a FIFO is an error.
func TestReadSomeIn(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		if err := root.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{0, 1, 3, 4, 5, 5000} {
		entries, err := safefile.ReadSomeIn(root, ".", limit)
		if err != nil || len(entries) != min(limit, len(names)) || !slices.IsSortedFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }) {
			t.Errorf("limit %d: got %v, %v", limit, entries, err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root.Name(), "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := safefile.ReadSomeIn(root, "fifo", 1); err == nil {
		t.Error("no error for a FIFO")
	}
}

// TestOpenOwnersRoot checks which links to a directory are followed.
func TestOpenOwnersRoot(t *testing.T) {
	const another = 61001
	for _, c := range []struct {
		name                 string
		around, link, target int // owners
		ok                   bool
	}{
		{"links of this user", 0, 0, 0, true},
		{"links of another user", another, another, another, true},
		{"another user's link to a directory of this user", another, another, 0, false},
		{"another user's link in a directory of this user", 0, another, 0, false},
		{"this user's link to a directory of another user", 0, 0, another, true},
		{"another user's link in a shared directory", 0, another, another, true},
		{"this user's link in a directory of another user", another, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			around, target := t.TempDir(), t.TempDir()
			link := filepath.Join(around, "link")
			if err := errors.Join(os.Symlink(target, link), os.Lchown(link, c.link, -1), os.Chown(around, c.around, -1),
				os.Chown(target, c.target, -1)); err != nil {
				t.Fatal(err) // the suite runs as root
			}
			root, err := safefile.OpenOwnersRoot(link)
			if err == nil {
				root.Close()
			}
			if (err == nil) != c.ok || err != nil && !errors.Is(err, safefile.ErrLink) {
				t.Errorf("got %v", err)
			}
			root, err = safefile.OpenOwnersRoot(target)
			if err != nil {
				t.Fatal(err)
			}
			root.Close()
		})
	}
}

// TestOpenNamed checks that a pipe of this user is read to its end, and that a pipe of another user, for
// whose writer the caller would wait, is an error.
func TestOpenNamed(t *testing.T) {
	own, foreign, file := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "foreign"), filepath.Join(t.TempDir(), "file")
	if err := errors.Join(unix.Mkfifo(own, 0o600), unix.Mkfifo(foreign, 0o666), os.Chown(foreign, 61001, -1), os.WriteFile(file, []byte("text"), 0o600)); err != nil {
		t.Fatal(err) // the suite runs as root
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(own, []byte("text"), 0) }()
	for _, path := range []string{own, file} {
		f, err := safefile.OpenNamed(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(f)
		f.Close()
		if err != nil || string(text) != "text" {
			t.Errorf("%s: got %q, %v", path, text, err)
		}
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	if f, err := safefile.OpenNamed(foreign); !errors.Is(err, safefile.ErrNotRegular) {
		t.Errorf("opened %v, %v, want %v", f, err, safefile.ErrNotRegular)
	}
	if f, err := safefile.OpenNamed(file + ".missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened %v, %v, want %v", f, err, fs.ErrNotExist)
	}
	if f, err := safefile.OpenNamed(os.DevNull); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}

// TestIsTrusted checks that only root and this user are trusted.
func TestIsTrusted(t *testing.T) {
	for _, tt := range []struct {
		name    string
		uid     int
		trusted bool
	}{
		{name: "root", uid: 0, trusted: true},
		{name: "this user", uid: os.Geteuid(), trusted: true},
		{name: "another user", uid: os.Geteuid() + 1},
	} {
		if got := safefile.IsTrusted(tt.uid); got != tt.trusted {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.trusted)
		}
	}
}
