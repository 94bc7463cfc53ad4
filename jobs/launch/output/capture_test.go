package output

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs/process"
	"github.com/ddpbatch/ddpbatch/tests/terminal"
)

// testDir is a directory for the files of a capture.
type testDir string

func (d testDir) Create(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(string(d), name), os.O_CREATE|os.O_WRONLY, 0o600)
}

func (d testDir) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(string(d), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// collector collects what is written to its file.
type collector struct {
	file *os.File
	text chan string
}

func collect(t *testing.T) *collector {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{w, make(chan string, 1)}
	go func() {
		text, _ := io.ReadAll(r)
		r.Close()
		c.text <- string(text)
	}()
	return c
}

// end returns what was written.
func (c *collector) end() string {
	c.file.Close()
	return <-c.text
}

// capture runs a shell script with captured output. It returns the forwarded output.
func capture(t *testing.T, o Options, script string) (stdout, stderr string) {
	t.Helper()
	out, errors := collect(t), collect(t)
	o.Stdout, o.Stderr = out.file, errors.file
	if o.Warn == nil {
		o.Warn = func(m string) { t.Error(m) }
	}
	c, err := StartCapture(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	err = cmd.Run()
	c.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out.end(), errors.end()
}

// TestCaptureModes checks which output of a rank is forwarded, and that its file has all of it.
func TestCaptureModes(t *testing.T) {
	for _, tt := range []struct {
		mode           Mode
		rank           int
		stdout, stderr string
	}{
		{Merged, 3, "one\ntwo\n", "three\n"},
		{Labeled, 3, "[rank 3] one\n[rank 3] two\n", "[rank 3] three\n"},
		{PerRank, 3, "", ""},
		{Rank0, 3, "", ""},
		{Rank0, 0, "one\ntwo\n", "three\n"},
	} {
		t.Run(fmt.Sprintf("%s %d", tt.mode, tt.rank), func(t *testing.T) {
			dir := testDir(t.TempDir())
			stdout, stderr := capture(t, Options{Mode: tt.mode, Rank: tt.rank, Dir: dir}, "echo one; echo two; echo three >&2")
			if stdout != tt.stdout || stderr != tt.stderr {
				t.Errorf("forwarded %q and %q, want %q and %q", stdout, stderr, tt.stdout, tt.stderr)
			}
			lines := strings.Fields(dir.read(t, RankBase(tt.rank)+".out"))
			slices.Sort(lines)
			if got := strings.Join(lines, " "); got != "one three two" {
				t.Errorf("the file has %q", got)
			}
			if info, err := os.Stat(filepath.Join(string(dir), RankBase(tt.rank)+".out")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the file is accessible to others: %v, %v", info.Mode(), err)
			}
		})
	}
}

// TestCaptureOfWorkers checks that the output of workers below one program is separated by their
// variable RANK, and that the output of the program itself is always forwarded.
func TestCaptureOfWorkers(t *testing.T) {
	// Each worker waits until its first line is in its file, because the rank of a process that has
	// ended cannot be read.
	const script = `echo agent; for r in 4 5; do RANK=$r sh -c 'echo line 0 of $RANK; until test -e $DIR/rank-0000$RANK.out -o $MODE = merged; do sleep 0.05; done; i=1; while test $i -lt 200; do echo "line $i of $RANK"; i=$((i+1)); done; :' & done; wait`
	lines := func(rank int) (text string) {
		for i := range 200 {
			text += fmt.Sprintf("line %d of %d\n", i, rank)
		}
		return text
	}
	for _, tt := range []struct {
		mode Mode
		want string
	}{
		{PerRank, "agent\n"},
		{Labeled, "[rank 4] line 199 of 4\n"},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			dir := testDir(t.TempDir())
			t.Setenv("DIR", string(dir))
			t.Setenv("MODE", string(tt.mode))
			stdout, _ := capture(t, Options{Mode: tt.mode, Workers: true, Rank: 2, Dir: dir}, script)
			if tt.mode == PerRank && stdout != tt.want || !strings.Contains(stdout, tt.want) {
				t.Errorf("forwarded %.1000q, want %q", stdout, tt.want)
			}
			for rank := 4; rank <= 5; rank++ {
				if got := dir.read(t, RankBase(rank)+".out"); got != lines(rank) {
					t.Errorf("rank %d: the file has %q", rank, got)
				}
			}
			if got := dir.read(t, NodeBase(2)+".out"); got != "agent\n" {
				t.Errorf("the file of the node has %q", got)
			}
		})
	}
	dir := testDir(t.TempDir())
	t.Setenv("MODE", "merged")
	capture(t, Options{Mode: Merged, Workers: true, Rank: 2, Dir: dir}, script)
	if got := dir.read(t, NodeBase(2)+".out"); strings.Count(got, "\n") != 1+2*200 {
		t.Errorf("merged: the file of the node has %q", got)
	}
}

// TestRankOfAProcess checks that a process below a worker belongs to the rank of the worker, and
// that the rank of a worker is known after its end.
func TestRankOfAProcess(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "env -u RANK sh -c 'echo $$; exec sleep 600'; :")
	cmd.Env = append(os.Environ(), "RANK=7")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() }()
	var below int
	if _, err := fmt.Fscan(out, &below); err != nil {
		t.Fatal(err)
	}
	w := newWorkerNames()
	if got := w.rankOf(below); got != 7 {
		t.Errorf("process below the worker: got rank %d, want 7", got)
	}
	if got := w.rankOf(os.Getpid()); got != agent {
		t.Errorf("this process: got rank %d, want none", got)
	}
	ended := exec.Command("true") // a zombie until Wait
	out, err = ended.StdoutPipe()
	if err == nil {
		err = ended.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ended.Wait() }()
	for { // the pipe closes before the process becomes a zombie
		_, _ = io.Copy(io.Discard, out)
		if stat, err := process.Read(ended.Process.Pid); err != nil || stat.Ended {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := w.rankOf(ended.Process.Pid); got != agent {
		t.Errorf("a process that has ended: got rank %d, want none", got)
	}
	w.known[ended.Process.Pid] = workerName{rank: 3} // read long ago
	if got := w.rankOf(ended.Process.Pid); got != 3 {
		t.Errorf("a worker that has ended: got rank %d, want 3", got)
	}
}

// TestWholeLines checks that lines of several ranks, which share one pipe, are not mixed, that the
// order of each rank is kept, and that each file has all lines of its rank.
func TestWholeLines(t *testing.T) {
	const ranks, lines = 4, 20_000
	// On a busy machine, the end of a line may come late.
	defer func(delay time.Duration) { lineDelay = delay }(lineDelay)
	lineDelay = time.Hour
	out := collect(t)
	dir := testDir(t.TempDir())
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			c, err := StartCapture(Options{Mode: Merged, Rank: rank, Dir: dir, Stdout: out.file, Stderr: out.file, Shared: true, Warn: func(m string) { t.Error(m) }})
			if err != nil {
				t.Error(err)
				return
			}
			// Blocks that end inside lines, as buffered programs write them.
			var text bytes.Buffer
			for i := range lines {
				fmt.Fprintf(&text, "rank %d line %d %s\n", rank, i, strings.Repeat("x", i%200))
			}
			for text.Len() > 0 {
				if _, err := c.Stdout.Write(text.Next(1000)); err != nil {
					t.Error(err)
				}
			}
			c.Close(t.Context())
		})
	}
	all.Wait()
	check := func(name, text string) (count int) {
		next := map[string]int{}
		for line := range strings.Lines(text) {
			var rank, i int
			if n, _ := fmt.Sscanf(line, "rank %d line %d", &rank, &i); n != 2 {
				t.Fatalf("%s: line %q is mixed", name, line)
			}
			key := fmt.Sprint(rank)
			if want := fmt.Sprintf("rank %d line %d %s\n", rank, next[key], strings.Repeat("x", i%200)); line != want {
				t.Fatalf("%s: got line %q, want %q", name, line, want)
			}
			next[key]++
			count++
		}
		return count
	}
	if n := check("log", out.end()); n != ranks*lines {
		t.Errorf("the log has %d lines, want %d", n, ranks*lines)
	}
	for rank := range ranks {
		if n := check("file", dir.read(t, RankBase(rank)+".out")); n != lines {
			t.Errorf("the file of rank %d has %d lines, want %d", rank, n, lines)
		}
	}
}

// TestCaptureOfBinaryOutput checks that output without lines passes unchanged.
func TestCaptureOfBinaryOutput(t *testing.T) {
	dir := testDir(t.TempDir())
	stdout, _ := capture(t, Options{Mode: Merged, Rank: 1, Dir: dir}, `head -c 3000000 /dev/zero; printf '\377\000end'`)
	want := strings.Repeat("\x00", 3000000) + "\xff\x00end"
	if stdout != want || dir.read(t, RankBase(1)+".out") != want {
		t.Errorf("forwarded %d bytes, want %d", len(stdout), len(want))
	}
}

// TestLabelsOfShortLines checks that many short lines, which labels make several times as long, pass in
// order.
func TestLabelsOfShortLines(t *testing.T) {
	const lines = 500_000
	stdout, _ := capture(t, Options{Mode: Labeled, Rank: 1}, fmt.Sprintf("yes x | head -n %d", lines))
	if want := strings.Repeat("[rank 1] x\n", lines); stdout != want {
		t.Errorf("forwarded %d bytes, want %d", len(stdout), len(want))
	}
}

// TestMemoryIsBounded checks that a capture allocates little memory for large output of any form.
func TestMemoryIsBounded(t *testing.T) {
	const most = 32 << 20
	for _, tt := range []struct {
		name   string
		o      Options
		script string
	}{
		{"no lines", Options{Mode: Merged}, "head -c 200000000 /dev/zero"},
		{"no lines, labeled", Options{Mode: Labeled}, "head -c 200000000 /dev/zero"},
		{"empty lines, labeled", Options{Mode: Labeled}, "yes '' | head -c 20000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			tt.o.Dir, tt.o.Limit, tt.o.Stdout, tt.o.Stderr = testDir(t.TempDir()), 4<<20, null, null
			tt.o.Warn = func(m string) { t.Error(m) }
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c, err := StartCapture(tt.o)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/bin/sh", "-c", tt.script)
			cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
			err = cmd.Run()
			c.Close(t.Context())
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; err != nil || allocated > most {
				t.Errorf("allocated %d bytes, want at most %d; %v", allocated, most, err)
			}
		})
	}
}

// TestOutputLimit checks that a file keeps the start and the end of its output, that its lines are
// whole, and that the second part begins with its position.
func TestOutputLimit(t *testing.T) {
	const limit, lines = 64 << 10, 50_000
	dir := testDir(t.TempDir())
	capture(t, Options{Mode: PerRank, Rank: 1, Dir: dir, Limit: limit}, fmt.Sprintf("i=0; while test $i -lt %d; do echo line $i; i=$((i+1)); done", lines))
	var text bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	all := text.String()
	parts := Parts(RankBase(1))
	first := dir.read(t, parts[0])
	head := string(cutHead([]byte(first)))
	if head == first || !strings.HasPrefix(all, head) || !strings.HasSuffix(head, "\n") {
		t.Errorf("the first part ends with %q", first[max(0, len(first)-100):])
	}
	type tail struct {
		offset int64
		text   string
	}
	var tails []tail
	size := len(head)
	for _, name := range parts[1:] {
		offset, text, ok := parseTail([]byte(dir.read(t, name)))
		if !ok || !strings.HasPrefix(all[offset:], string(text)) {
			t.Fatalf("%s: got %d bytes from byte %d (%v), want the output from there", name, len(text), offset, ok)
		}
		tails = append(tails, tail{offset, string(text)})
		size += len(text)
	}
	slices.SortFunc(tails, func(a, b tail) int { return int(a.offset - b.offset) })
	if want := all[tails[0].offset:]; tails[0].text+tails[1].text != want {
		t.Errorf("the last parts have %d bytes, want the last %d bytes of the output", len(tails[0].text)+len(tails[1].text), len(want))
	}
	if tails[0].offset <= int64(len(head)) || size > limit+1024 || size < limit/2 {
		t.Errorf("the parts have %d bytes and continue at byte %d, want at most %d bytes", size, tails[0].offset, limit)
	}
}

// TestTailOfAKilledRank checks that older output behind the newest output of a rank that could not
// close its file is not read.
func TestTailOfAKilledRank(t *testing.T) {
	dir := testDir(t.TempDir())
	f := &rankFile{dir: dir, base: RankBase(1), limit: 4000}
	for i := range 1000 {
		if _, err := fmt.Fprintf(f, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	var last string
	for _, name := range Parts(RankBase(1))[1:] {
		_, text, ok := parseTail([]byte(dir.read(t, name)))
		if lines := strings.Fields(string(text)); !ok || len(lines) == 0 || !strings.HasPrefix(string(text), "line ") {
			t.Errorf("%s: got %q", name, text)
		}
		if strings.HasSuffix(string(text), "line 999\n") {
			last = string(text)
		}
	}
	if last == "" || strings.Count(last, "line 998\n") != 1 {
		t.Errorf("the newest output ends with %q", last)
	}
}

// blocked is a destination that blocks until it is released.
type blocked struct {
	release chan struct{}
	mu      sync.Mutex
	text    []byte
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.release
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	return len(p), nil
}

// TestHungFileSystem checks that a destination that hangs does not stop the producer, that memory
// is bounded, and that a line counts the dropped bytes after the destination continues.
func TestHungFileSystem(t *testing.T) {
	to := &blocked{release: make(chan struct{})}
	s := newSink(to, time.Millisecond, func(err error) { t.Error(err) })
	line := bytes.Repeat([]byte("x"), 1023)
	line = append(line, '\n')
	const lines = 4 * maxPending / 1024
	for range lines {
		s.write(1, line, nil)
	}
	s.mu.Lock()
	pending, lost := s.size, s.lost
	s.mu.Unlock()
	if pending > maxPending || lost == 0 {
		t.Errorf("%d bytes wait and %d are dropped, want at most %d waiting", pending, lost, maxPending)
	}
	s.close(t.Context(), time.Millisecond) // gives up
	close(to.release)
	<-s.done
	text := string(to.text)
	want := fmt.Sprintf("\nddpbatch: %d bytes are missing here: they could not be written\n", lost)
	if !strings.HasSuffix(text, want) || strings.Count(text, "x\n")*1024+int(lost) != lines*1024 {
		t.Errorf("the end is %q, want %q", text[max(0, len(text)-100):], want)
	}
}

// TestCloseWarnsAboutLostOutput checks that Close warns once if nothing reads the end of the output,
// and that the file has it nevertheless.
func TestCloseWarnsAboutLostOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	dir := testDir(t.TempDir())
	warned := make(chan string, 10)
	c, err := StartCapture(Options{Mode: Merged, Rank: 1, Dir: dir, Stdout: w, Stderr: w, Warn: func(m string) { warned <- m }})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", 3000) // exceeds the capacity of the pipe
	if _, err := c.Stdout.WriteString(text); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // does not wait for the whole timeout
	c.Close(ctx)
	if len(warned) != 1 {
		t.Fatalf("got %d warnings, want 1", len(warned))
	}
	if got := <-warned; !strings.Contains(got, "was not forwarded") {
		t.Errorf("got warning %q", got)
	}
	if got := dir.read(t, RankBase(1)+".out"); got != text {
		t.Errorf("the file has %d bytes, want %d", len(got), len(text))
	}
}

// TestCloseIgnoresProcessesThatPrint checks that Close does not wait for a process that the program left
// behind and that prints again and again.
func TestCloseIgnoresProcessesThatPrint(t *testing.T) {
	out := collect(t)
	c, err := StartCapture(Options{Mode: Merged, Stdout: out.file, Stderr: out.file, Warn: func(m string) { t.Error(m) }})
	if err != nil {
		t.Fatal(err)
	}
	behind := exec.CommandContext(t.Context(), "/bin/sh", "-c", "while echo x; do sleep 0.05; done")
	behind.Stdout = c.Stdout
	if err := behind.Start(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { defer close(closed); c.Close(t.Context()) }()
	select {
	case <-closed:
	case <-time.After(20 * closeGrace):
		t.Error("Close waits for the process")
	}
	_ = behind.Process.Kill()
	_ = behind.Wait()
	<-closed
	out.end()
}

// full is a disk that is full until it is freed.
type full struct {
	mu   sync.Mutex
	full bool
	text []byte
}

func (f *full) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full {
		return 0, unix.ENOSPC
	}
	f.text = append(f.text, p...)
	return len(p), nil
}

// TestFullDisk checks that a full disk causes one warning, and that the missing bytes are counted
// when there is space again.
func TestFullDisk(t *testing.T) {
	disk := &full{full: true}
	warned := make(chan error, 10)
	s := newSink(disk, time.Minute, func(err error) { warned <- err })
	s.write(1, []byte("one\n"), nil)
	if err := <-warned; err != unix.ENOSPC {
		t.Errorf("got warning %v", err)
	}
	s.write(1, []byte("two\n"), nil)
	for { // until the second line is lost
		s.mu.Lock()
		empty := len(s.pending) == 0
		s.mu.Unlock()
		if empty {
			break
		}
		time.Sleep(time.Millisecond)
	}
	disk.mu.Lock()
	disk.full = false
	disk.mu.Unlock()
	s.write(1, []byte("three\n"), nil)
	s.close(t.Context(), time.Minute)
	got := string(disk.text)
	// The second line may be in transit when the disk is freed.
	if !strings.HasSuffix(got, "three\n") || !strings.HasPrefix(got, "\nddpbatch: 8 bytes are missing") && !strings.HasPrefix(got, "\nddpbatch: 4 bytes are missing") {
		t.Errorf("got %q", got)
	}
	if len(warned) > 0 {
		t.Errorf("got a second warning: %v", <-warned)
	}
}

// TestPromptsAppear checks that the start of a line is forwarded without its end, and that output of
// another stream begins on a new line of the file.
func TestPromptsAppear(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	other := collect(t)
	dir := testDir(t.TempDir())
	c, err := StartCapture(Options{Mode: Merged, Rank: 1, Dir: dir, Stdout: w, Stderr: other.file, Warn: func(m string) { t.Error(m) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stdout.WriteString("continue? "); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n, err := r.Read(buffer)
	if got := string(buffer[:n]); err != nil || got != "continue? " {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := c.Stderr.WriteString("problem\n"); err != nil {
		t.Fatal(err)
	}
	c.Close(t.Context())
	w.Close()
	if got := other.end(); got != "problem\n" {
		t.Errorf("forwarded %q", got)
	}
	if got := dir.read(t, RankBase(1)+".out"); got != "continue? \nproblem\n" {
		t.Errorf("the file has %q", got)
	}
}

// TestCaptureOnATerminal checks that a program whose launcher prints to a terminal finds a
// terminal.
func TestCaptureOnATerminal(t *testing.T) {
	slave := terminal.New(t, 80, 24).TTY
	dir := testDir(t.TempDir())
	c, err := StartCapture(Options{Mode: Merged, Rank: 1, Dir: dir, Stdout: slave, Stderr: slave, Warn: func(m string) { t.Error(m) }})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "test -t 1 && test -t 2 && echo yes")
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	err = cmd.Run()
	c.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := dir.read(t, RankBase(1)+".out"); got != "yes\n" {
		t.Errorf("the file has %q", got)
	}
}

// TestPace checks the pauses between reads. A program that prints 1 GB per minute must count as one
// that prints much, so that its output is collected in whole blocks.
func TestPace(t *testing.T) {
	for _, tt := range []struct {
		name    string
		n       int
		printed time.Duration
		pause   time.Duration
		busy    bool
	}{
		{name: "nothing", n: 0, printed: time.Second},
		{name: "a line", n: 100, printed: time.Second, pause: batchDelay},
		{name: "1 GB per minute", n: 512 << 10, printed: 31250 * time.Microsecond, pause: 23437500, busy: true},
		{name: "a burst after a long time", n: 100_000, printed: time.Hour, pause: batchDelay, busy: true},
		{name: "a full pipe", n: 1 << 20, printed: 8 * time.Millisecond, pause: 3 * time.Millisecond, busy: true},
		{name: "as fast as possible", n: 1 << 20, printed: time.Millisecond, busy: true},
	} {
		s := &capturedStream{pipe: 1 << 20}
		if pause, busy := s.pace(tt.n, tt.printed); pause != tt.pause || busy != tt.busy {
			t.Errorf("%s: got a pause of %s, %v, want %s, %v", tt.name, pause, busy, tt.pause, tt.busy)
		}
	}
	if pause, busy := new(capturedStream).pace(1<<20, time.Second); pause != 0 || busy {
		t.Errorf("without a pipe: got %s, %v", pause, busy)
	}
}

// TestParseBase checks which file names belong to the output of a rank or of a node.
func TestParseBase(t *testing.T) {
	for _, tt := range []struct {
		name     string
		number   int
		rank, ok bool
	}{
		{"rank-00007.out", 7, true, true},
		{"node-00012.out", 12, false, true},
		{"rank-123456.out", 123456, true, true},
		{"rank-00007.tail.out", 0, true, false},
		{"rank-00007.jsonl", 0, true, false},
		{"rank--0001.out", 0, true, false},
		{"other.out", 0, false, false},
	} {
		number, rank, ok := ParseBase(tt.name)
		if ok != tt.ok || ok && (number != tt.number || rank != tt.rank) {
			t.Errorf("%s: got %d, %v, %v", tt.name, number, rank, ok)
		}
	}
}
