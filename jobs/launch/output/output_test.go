package output_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/tests/terminal"
)

// buffer is a writer that can be read while other goroutines write.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// digest counts and hashes written bytes.
type digest struct {
	hash.Hash
	n int
}

func (d *digest) Write(p []byte) (int, error) {
	d.n += len(p)
	return d.Hash.Write(p)
}

func pipe(t *testing.T, c *output.Copier, w io.Writer) *os.File {
	t.Helper()
	f, err := c.Pipe(w)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestCopierKeepsBinaryOutput checks that bytes without structure arrive unchanged, in the log
// and in the destination.
func TestCopierKeepsBinaryOutput(t *testing.T) {
	const size = 20 << 20
	log, to, want := &digest{Hash: sha256.New()}, &digest{Hash: sha256.New()}, sha256.New()
	c := output.NewCopier(log)
	f := pipe(t, c, to)
	if _, err := io.Copy(io.MultiWriter(f, want), io.LimitReader(rand.New(rand.NewSource(1)), size)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for name, d := range map[string]*digest{"log": log, "destination": to} {
		if d.n != size || !bytes.Equal(d.Sum(nil), want.Sum(nil)) {
			t.Errorf("%s: got %d bytes, want the %d that were written", name, d.n, size)
		}
	}
}

// fickle is a disk that is full for a while.
type fickle struct {
	buffer
	full bool
}

func (f *fickle) Write(p []byte) (int, error) {
	if f.full {
		return 0, errors.New("no space left on device")
	}
	return f.buffer.Write(p)
}

// TestLogOnAFullDisk checks that a log that cannot be written causes one warning, and later
// records the number of lost bytes.
func TestLogOnAFullDisk(t *testing.T) {
	disk := &fickle{}
	var warnings []string
	var log *output.Log
	log = output.NewLog(disk, func(err error) {
		warnings = append(warnings, err.Error())
		_, _ = io.WriteString(log, "a warning comes back to the log\n")
	})
	write := func(s string) {
		t.Helper()
		if n, err := io.WriteString(log, s); n != len(s) || err != nil {
			t.Errorf("write: %d, %v, want %d and no error", n, err, len(s))
		}
	}
	write("one\n")
	disk.full = true
	write("two\n")
	write("three\n")
	disk.full = false
	write("four\n")
	if len(warnings) != 1 || !strings.Contains(warnings[0], "no space left") {
		t.Errorf("got warnings %q, want one", warnings)
	}
	lost := len("two\nthree\na warning comes back to the log\n")
	if got := disk.String(); !strings.HasPrefix(got, "one\n") || !strings.HasSuffix(got, "four\n") || !strings.Contains(got, " 42 bytes are missing") || lost != 42 {
		t.Errorf("got %q, want a gap of %d bytes", got, lost)
	}
}

// TestCopierOutlivesItsReader checks that a destination with a closed reader does not stop the
// program, and that the log is complete.
func TestCopierOutlivesItsReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	log := &buffer{}
	c := output.NewCopier(log)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo one; echo two")
	cmd.Stdout = pipe(t, c, w)
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	c.Close()
	if got := log.String(); got != "one\ntwo\n" {
		t.Errorf("the log has %q", got)
	}
}

// gate is a destination that blocks all writes until it is opened.
type gate struct {
	buffer
	open chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.buffer.Write(p)
}

// TestCloseWaitsForASlowReader checks that a slow destination, such as a pager, receives all
// output before Close returns.
func TestCloseWaitsForASlowReader(t *testing.T) {
	slow := &gate{open: make(chan struct{})}
	c := output.NewCopier(io.Discard)
	f := pipe(t, c, slow)
	for range 3 {
		if _, err := f.Write(bytes.Repeat([]byte("x"), 20<<10)); err != nil {
			t.Fatal(err)
		}
	}
	time.AfterFunc(2*time.Second, func() { close(slow.open) }) // longer than closeGrace
	c.Close()
	if got := len(slow.String()); got != 60<<10 {
		t.Errorf("got %d bytes, want %d", got, 60<<10)
	}
}

// TestCloseLeavesOtherProcessesAlone checks that Close does not wait for a process that the
// ranks left behind.
func TestCloseLeavesOtherProcessesAlone(t *testing.T) {
	to := &buffer{}
	c := output.NewCopier(io.Discard)
	f := pipe(t, c, to)
	behind := exec.CommandContext(t.Context(), "sh", "-c", "echo begun; exec sleep 600")
	behind.Stdout = f
	if err := behind.Start(); err != nil {
		t.Fatal(err)
	}
	for to.String() == "" {
		time.Sleep(time.Millisecond)
	}
	c.Close()
	if err := behind.Process.Signal(os.Kill); err != nil {
		t.Errorf("it ended before: %v", err)
	}
	_ = behind.Wait()
}

// TestCopierLeavesTerminals checks that a program still prints to a terminal if it would do so
// without the copy. The terminal has the same size, also after a resize, and line ends do not
// change.
func TestCopierLeavesTerminals(t *testing.T) {
	x := terminal.New(t, 70, 12)
	log := &buffer{}
	c := output.NewCopier(log)
	f, err := c.Like(x.TTY)
	if err != nil {
		t.Fatal(err)
	}
	run := func(script string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.Stdout, cmd.Stderr = f, f
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
	}
	run(`test -t 1 && echo terminal; stty size <&1`)
	x.Await("terminal\n12 70")
	x.Resize(50, 12)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// The kernel signals the processes of the terminal, but this process is not one of them.
	if err := self.Signal(syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(x.Screen(), "12 50"); {
		if time.Now().After(end) {
			t.Fatalf("the program's terminal still has another size:\n%s", x.Screen())
		}
		run("stty size <&1")
	}
	run(`printf '10%%\r20%%\n'; head -c 100000 /dev/zero | tr '\0' x`)
	c.Close()
	got := log.String()
	if !strings.HasPrefix(got, "terminal\n12 70\n") || !strings.Contains(got, "10%\r20%\nxxx") || !strings.HasSuffix(got, strings.Repeat("x", 100000)) {
		t.Errorf("the log has %d bytes, from %.80q", len(got), got)
	}
	plain, err := output.NewCopier(io.Discard).Like(os.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := plain.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("for what is not a terminal: %v, %v, want a pipe", info, err)
	}
}

// TestHoldKeepsAPipeWritable checks that a program can print after the launcher was killed.
func TestHoldKeepsAPipeWritable(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	release := output.Hold(w)
	r.Close()
	echo := func() error {
		cmd := exec.CommandContext(t.Context(), "echo", "saved")
		cmd.Stdout = w
		return cmd.Run()
	}
	if err := echo(); err != nil {
		t.Errorf("held: %v", err)
	}
	release()
	if err := echo(); err == nil {
		t.Error("released: there is no reader, but the program could print")
	}
}

// TestParseComponentBase checks which names are the names of files of components.
func TestParseComponentBase(t *testing.T) {
	for _, tt := range []struct {
		file, name    string
		node, restart int
		ok            bool
	}{
		{output.Parts(output.ComponentBase("ray-head", 12, 3))[0], "ray-head", 12, 3, true},
		{output.Parts(output.ComponentBase("ray-head", 12, 3))[1], "", 0, 0, false},
		{"component-x.00000.0.ready", "", 0, 0, false},
		{"component-x.00000.-1.out", "", 0, 0, false},
		{"component-x.0.out", "", 0, 0, false},
		{"rank-00000.out", "", 0, 0, false},
	} {
		name, node, restart, ok := output.ParseComponentBase(tt.file)
		if ok != tt.ok || ok && (name != tt.name || node != tt.node || restart != tt.restart) {
			t.Errorf("%s: got %q, %d, %d, %v", tt.file, name, node, restart, ok)
		}
		if _, _, isRank := output.ParseBase(tt.file); isRank && output.IsComponent(tt.file) {
			t.Errorf("%s is the output of a rank and of a component", tt.file)
		}
	}
}
