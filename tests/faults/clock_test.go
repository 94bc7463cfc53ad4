package faults

import (
	"debug/elf"
	bits "encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

// shim is machine code that calls the vDSO's clock_gettime, whose address follows the code. If the
// caller requested CLOCK_REALTIME, it adds the seconds that follow the address. Linux has no time
// namespace for that clock, so a single process cannot have its own.
var shim = []byte{
	0x57, 0x56, // push rdi, rsi
	0x48, 0x83, 0xec, 0x08, // align the stack for the C calling convention
	0xff, 0x15, 28, 0, 0, 0, // call [rip+28]
	0x48, 0x83, 0xc4, 0x08, // add rsp, 8
	0x5e, 0x5f, // pop rsi, rdi
	0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
	0x75, 10, // jne to the end
	0x48, 0x8b, 0x0d, 19, 0, 0, 0, // mov rcx, [rip+19]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
	0, 0, 0, 0, 0, 0, 0,
}

// clocks changes the wall clock of processes of the program under test. The shim overwrites a
// function that only debuggers call, and Go's runtime calls it instead of the vDSO.
type clocks struct {
	t           *testing.T
	shim, calls int64          // addresses of that function, and of the variable through which Go calls the vDSO
	real        map[int][]byte // original value of that variable, by process ID
}

func newClocks(t *testing.T) *clocks {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("a process's clock is moved by code for amd64")
	}
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	c := &clocks{t: t, real: map[int][]byte{}}
	for _, s := range symbols {
		switch {
		case s.Name == "runtime.debugCallV2" && int(s.Size) >= len(shim)+16 && s.Value%8 == 0:
			c.shim = int64(s.Value)
		case s.Name == "runtime.vdsoClockgettimeSym":
			c.calls = int64(s.Value)
		}
	}
	if f.Type != elf.ET_EXEC || c.shim == 0 || c.calls == 0 {
		t.Fatalf("%v without what is needed of Go's runtime", f.Type)
	}
	return c
}

// jump sets the offset of a process's clock from the machine's clock.
func (c *clocks) jump(pid int, to time.Duration) {
	c.t.Helper()
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer memory.Close()
	write := func(at int64, b []byte) {
		if _, err := memory.WriteAt(b, at); err != nil {
			c.t.Fatalf("the memory of process %d: %v", pid, err)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	program.WaitUntil(c.t, "the process to stand still", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return strings.Contains(string(text), ") T ")
	})
	if c.real[pid] == nil {
		real := make([]byte, 8)
		if _, err := memory.ReadAt(real, c.calls); err != nil || native.Uint64(real) == 0 {
			c.t.Fatalf("process %d does not call the vDSO: %v", pid, err)
		}
		c.real[pid] = real
		write(c.shim, append(append([]byte(nil), shim...), real...))
		write(c.calls, native.AppendUint64(nil, uint64(c.shim)))
	}
	write(c.shim+int64(len(shim))+8, native.AppendUint64(nil, uint64(int64(to/time.Second))))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
}

var native = bits.LittleEndian // of amd64

// clockJumps moves the clocks of all processes of a run, one after the other, by hours back and
// ahead, while the timeouts are much shorter than the jumps.
func clockJumps(t *testing.T, row row) {
	c := newClocks(t)
	r := startEndless(t, "[network]\nheartbeat_timeout = \"20s\"\nprogress_timeout = \"20s\"\ncollective_timeout = \"20s\"\n")
	for _, to := range []time.Duration{-20 * time.Hour, 3 * time.Hour} {
		c.jump(r.launcher.Process.Pid, to)
		for _, p := range r.ranks() {
			c.jump(p.pid, to)
		}
		time.Sleep(time.Second) // several heartbeat checks of the launcher
		r.waitForCheckpoint(r.newest() + 50)
		f := program.Figures(t, r.dir)
		if off := time.Until(f[len(f)-1].Time.Add(-to)); off.Abs() > time.Minute {
			t.Errorf("the clock of rank 0 is %v from where it should be", off)
		}
	}
	r.signal(syscall.SIGINT)
	if o := r.end(); o.Code != 3 || strings.Contains(strings.ToLower(o.Stderr), "warning") {
		t.Error(o)
	}
}
