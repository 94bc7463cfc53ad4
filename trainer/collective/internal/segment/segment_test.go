//go:build linux

package segment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMappingsShareMemory checks that two mappings of a segment share memory after its name is
// removed, and that its mode is private.
func TestMappingsShareMemory(t *testing.T) {
	const n = 100_000
	a, err := Create(n)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Unmap()
	path := filepath.Join(directory, a.Name)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	b, err := Open(a.Name, n)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Unmap()
	if err := a.Unlink(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the name is still there: %v", err)
	}
	if len(a.Bytes()) != n || len(b.Bytes()) != n {
		t.Fatalf("%d and %d bytes", len(a.Bytes()), len(b.Bytes()))
	}
	a.Bytes()[n-1] = 7
	if b.Bytes()[n-1] != 7 || b.Bytes()[0] != 0 {
		t.Error("the mappings differ")
	}
}

// TestOpenRejectsOtherFiles checks that Open rejects a file of a different size, with a different
// content, or outside of the directory.
func TestOpenRejectsOtherFiles(t *testing.T) {
	s, err := Create(1000)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Unmap()
	digits := strings.TrimPrefix(s.Name, prefix)
	other := prefix + strings.Repeat("0", len(digits))
	if err := os.Link(filepath.Join(directory, s.Name), filepath.Join(directory, other)); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(directory, other))
	for _, tt := range []struct {
		name string
		n    int
		want string
	}{
		{s.Name, 1001, "not a file of this user with 1065 bytes"},
		{other, 1000, "a different file has this name"},
		{"../" + s.Name, 1000, "invalid segment name"},
		{prefix + "../../etc/passwd", 1000, "invalid segment name"},
		{prefix + digits[1:], 1000, "invalid segment name"},
		{prefix + strings.Repeat("f", len(digits)), 1000, "no such file"},
	} {
		if _, err := Open(tt.name, tt.n); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q of %d bytes: %v, want %q", tt.name, tt.n, err, tt.want)
		}
	}
}

// TestCreateTooLarge checks that a segment larger than the free memory is an error and leaves no
// file. Otherwise the process would receive SIGBUS when it writes.
func TestCreateTooLarge(t *testing.T) {
	var of syscall.Statfs_t
	if err := syscall.Statfs(directory, &of); err != nil {
		t.Fatal(err)
	}
	n := int(of.Bavail)*int(of.Bsize) + 1<<30
	if _, err := Create(n); err == nil || !strings.Contains(err.Error(), "MiB are free") {
		t.Errorf("got %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(directory, prefix+"*"))
	for end := time.Now().Add(2 * time.Minute); len(left) > 0; time.Sleep(10 * time.Millisecond) {
		// Segments of other processes on this machine disappear on their own.
		left = slices.DeleteFunc(left, func(name string) bool {
			_, err := os.Stat(name)
			return err != nil
		})
		if len(left) > 0 && time.Now().After(end) {
			t.Fatalf("%v are left", left)
		}
	}
}

// TestSweepRemovesAbandonedSegments checks that old segments without a process are removed, and
// that new segments and segments in use stay.
func TestSweepRemovesAbandonedSegments(t *testing.T) {
	living, err := Create(10)
	if err != nil {
		t.Fatal(err)
	}
	defer living.Unmap()
	dead := filepath.Join(directory, prefix+"left-by-a-test")
	fresh := filepath.Join(directory, prefix+"fresh-by-a-test")
	for _, path := range []string{dead, fresh} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path)
	}
	old := time.Now().Add(-2 * abandoned)
	for _, path := range []string{dead, filepath.Join(directory, living.Name)} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	sweep(directory, maxSweepNames)
	for path, want := range map[string]bool{dead: false, fresh: true, filepath.Join(directory, living.Name): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: there is %v, want %v", path, err == nil, want)
		}
	}
}

// TestSweepIsBounded checks that sweep reads no more names than the limit. Other users can create
// many files.
func TestSweepIsBounded(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * abandoned)
	for i := range 20 {
		path := filepath.Join(dir, fmt.Sprintf("%s%d", prefix, i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{13, 6, 0} {
		sweep(dir, 7)
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != want {
			t.Fatalf("got %d files, want %d (%v)", len(left), want, err)
		}
	}
}

// TestCreateIgnoresFilesOfOtherUsers checks that another user who holds a lease on a file with a
// segment's name does not delay this user. Opening the file would wait for lease-break-time, 45 s
// by default.
func TestCreateIgnoresFilesOfOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root, to run a process of another user")
		}
		t.Skip("needs root, to run a process of another user")
	}
	const nobody = 65534
	holder := exec.Command(os.Args[0], "-test.run=^TestHelperHoldLeases$")
	holder.Env = append(os.Environ(), "SEGMENT_TEST_HOLD_LEASES=1")
	holder.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	// The other user may not have access to the directory of the test binary.
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	holder.Path, holder.ExtraFiles = "/proc/self/fd/3", []*os.File{program}
	holder.Dir = "/"
	held, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stop, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop.Close()
		if err := holder.Wait(); err != nil {
			t.Error(err)
		}
	}()
	line, err := bufio.NewReader(held).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(line)

	opens := make(chan error, 2)
	go func() {
		s, err := Create(100)
		if err == nil {
			err = s.Unmap()
		}
		opens <- err
	}()
	// A peer could also trick this process into opening the file by name.
	go func() {
		if _, err := Open(name, 100); err == nil {
			opens <- errors.New("opened a segment of another user")
			return
		}
		opens <- nil
	}()
	for range 2 {
		select {
		case err := <-opens:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("waited for the lease of another user")
		}
	}
}

// TestHelperHoldLeases is not a test: TestCreateIgnoresFilesOfOtherUsers runs it as another user.
// It holds leases until its standard input ends, and renews broken leases.
func TestHelperHoldLeases(t *testing.T) {
	if os.Getenv("SEGMENT_TEST_HOLD_LEASES") == "" {
		return
	}
	signal.Ignore(syscall.SIGIO)
	unix.Umask(0)
	var name string
	var files []*os.File
	for i := range 2 {
		name = fmt.Sprintf("%s%032x", prefix, i)
		f, err := os.OpenFile(filepath.Join(directory, name), os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(f.Name())
		if err := os.Chtimes(f.Name(), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	fmt.Println(name)
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, f := range files {
		f.Close()
	}
}
