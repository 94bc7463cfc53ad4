package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// stackFile matches the name of a file to which a program prints its stacks when it receives a
// signal. The name of the signal is part of the name of the file, so a signal that means something
// else to the program is never sent.
var stackFile = lazyregexp.New(`(?:^|[/:])ddpbatch-stacks-(SIG[A-Z0-9]+)-[^/]*$`)

var errNoStackFile = errors.New("the program has not registered faulthandler")

// faulthandlerPoll is the time between two checks whether a process has printed its stacks.
const faulthandlerPoll = 20 * time.Millisecond

// A stackPrinter is a process that prints its stacks to a file when it receives a signal.
type stackPrinter struct {
	pid    int
	start  uint64 // of the process, see process.Stat
	signal syscall.Signal
	out    *os.File
}

// faulthandler returns the stacks that Python's faulthandler module prints on a signal.
//
// A signal ends a process that does not handle it. So the signal is sent only to a process that
// has opened a file with the name of the signal, and that handles this signal now.
func (r *Rank) faulthandler(ctx context.Context) (string, error) {
	p, err := findStackPrinter(r.PID)
	if err != nil {
		return "", err
	}
	defer p.out.Close()
	ctx, cancel := context.WithTimeout(ctx, stackTimeout)
	defer cancel()
	stack, err := p.print(ctx)
	if err != nil {
		return "", fmt.Errorf("faulthandler: %w", err)
	}
	return stack, nil
}

// findStackPrinter returns the file and the signal with which a process prints its stacks.
func findStackPrinter(pid int) (*stackPrinter, error) {
	stat, err := process.Read(pid)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		link, err := os.Readlink(path)
		if err != nil {
			continue
		}
		m := stackFile().FindStringSubmatch(strings.TrimSuffix(link, " (deleted)"))
		if m == nil || !isOpenForWriting(pid, e.Name()) {
			continue
		}
		signal := unix.SignalNum(m[1])
		if signal == 0 {
			return nil, fmt.Errorf("faulthandler: unknown signal %s in the file name %q", m[1], filepath.Base(link))
		}
		if signal == unix.SIGINT || signal == unix.SIGTERM {
			return nil, fmt.Errorf("faulthandler: %s in the file name %q stops programs", m[1], filepath.Base(link))
		}
		if !handles(pid, signal) {
			return nil, fmt.Errorf("faulthandler: the program does not handle %s", m[1])
		}
		out, err := openStackFile(path)
		if err != nil {
			return nil, fmt.Errorf("faulthandler: open %q: %w", link, err)
		}
		return &stackPrinter{pid, stat.Start, signal, out}, nil
	}
	return nil, errNoStackFile
}

// isOpenForWriting reports whether a process can write to one of its open files. A file that it only reads,
// such as its input, can have any name.
func isOpenForWriting(pid int, descriptor string) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "fdinfo", descriptor))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if octal, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(octal), 8, 64)
			return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY
		}
	}
	return false
}

// openStackFile opens a file that a process has open. It returns an error unless this user owns the
// file, and it never waits for a FIFO.
func openStackFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is %s", safefile.Kind(info.Mode()))
	}
	if err := safefile.CheckOwner(info); err != nil {
		return nil, err
	}
	// A descriptor stays the same file, because the process holds it open.
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// print requests the stacks and returns them when they are complete.
func (p *stackPrinter) print(ctx context.Context) (string, error) {
	before, err := p.out.Stat()
	if err != nil {
		return "", err
	}
	blocked := threadsBlocking(p.pid, p.signal)
	if err := process.Signal(p.pid, p.start, p.signal); err != nil {
		return "", err
	}
	tick := time.NewTicker(faulthandlerPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", errors.New("the process has not printed its stacks in time")
		case <-tick.C:
		}
		info, err := p.out.Stat()
		if err != nil {
			return "", err
		}
		// The kernel blocks the signal in the thread that handles it until the handler returns.
		if info.Size() == before.Size() || !isSubset(threadsBlocking(p.pid, p.signal), blocked) {
			continue
		}
		if info, err = p.out.Stat(); err != nil {
			return "", err
		}
		text := make([]byte, min(info.Size()-before.Size(), maxStack))
		n, err := p.out.ReadAt(text, before.Size())
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		return string(text[:n]), nil
	}
}

// threadsBlocking returns the threads of a process that block a signal.
func threadsBlocking(pid int, s syscall.Signal) map[string]bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "task")
	entries, _ := os.ReadDir(dir)
	blocking := map[string]bool{}
	for _, e := range entries {
		if signals, err := process.ReadSignals(filepath.Join(dir, e.Name(), "status")); err == nil && signals.Blocked&process.Mask(s) != 0 {
			blocking[e.Name()] = true
		}
	}
	return blocking
}

func isSubset(some, all map[string]bool) bool {
	for name := range some {
		if !all[name] {
			return false
		}
	}
	return true
}

// handles reports whether a process has a handler for a signal.
func handles(pid int, s syscall.Signal) bool {
	signals, err := process.ReadSignals(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && signals.Caught&process.Mask(s) != 0
}
