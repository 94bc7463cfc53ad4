package doctor

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// leastShared is the minimum free shared memory in bytes, for communication between ranks of a
// node and for PyTorch's workers.
const leastShared = 1 << 30

// tmpfsMagic is the type of tmpfs (statfs(2)).
const tmpfsMagic = 0x01021994

// sharedMemory checks the file system for shared memory at path.
func sharedMemory(path string) Finding {
	const part = "/dev/shm"
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return bad(part, err.Error(), "ranks of a node share memory there: mount a tmpfs, or --ipc=host of a container")
	}
	total, free := int64(s.Blocks)*blockSize(&s), int64(s.Bavail)*blockSize(&s)
	text := fmt.Sprintf("%s, %s free", format.Bytes(total), format.Bytes(free))
	switch {
	case unix.Access(path, unix.W_OK) != nil:
		return bad(part, text+": it cannot be written", "ranks of a node share memory there: ask the centre")
	case int64(s.Type) != tmpfsMagic:
		return look(part, text+": it is no tmpfs", "what ranks share goes to a disk: mount a tmpfs there")
	case free < leastShared:
		return look(part, text, "PyTorch's data loaders, NCCL and ranks share memory there: give a container more (--ipc=host, --shm-size), or remove what dead jobs have left (nccl-*, torch_*)")
	}
	return good(part, text)
}

// processor checks the CPU features that the trainer's kernels need, and reports the number of
// CPUs that this process may use.
func processor() Finding {
	var features []string
	for _, f := range []struct {
		name string
		has  bool
	}{{"AVX2", cpu.X86.HasAVX2}, {"FMA", cpu.X86.HasFMA}, {"AVX-512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL}, {"AVX-512 BF16", cpu.X86.HasAVX512BF16}, {"NEON", cpu.ARM64.HasASIMD}} {
		if f.has {
			features = append(features, f.name)
		}
	}
	var set unix.CPUSet
	ours := runtime.NumCPU()
	if unix.SchedGetaffinity(0, &set) == nil {
		ours = set.Count()
	}
	text := fmt.Sprintf("%s, %d processors for this process: %s", runtime.GOARCH, ours, strings.Join(features, ", "))
	if runtime.GOARCH == "amd64" && !(cpu.X86.HasAVX2 && cpu.X86.HasFMA) {
		return look("processor", text, "without AVX2 the built-in trainer computes on processors some ten times slower")
	}
	return good("processor", text)
}

// kernel reports the version of the kernel, for comparison between nodes.
func kernel() Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return look("kernel", err.Error(), "uname -r tells it")
	}
	return good("kernel", unix.ByteSliceToString(u.Release[:]))
}

// staUnsync is STA_UNSYNC of adjtimex(2): the clock is not synchronized.
const staUnsync = 0x0040

// clock checks whether the kernel reports that the clock is synchronized.
func clock() Finding {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return look("clock", err.Error(), "timedatectl tells whether it is synchronised")
	}
	if t.Status&staUnsync != 0 {
		return look("clock", "the kernel says that nothing synchronises it", "logs of several nodes cannot be compared, and make and Slurm's tokens may fail: the centre should run chrony or ntpd (a container or virtual machine may not see that its host does)")
	}
	return good("clock", fmt.Sprintf("synchronised, within %s", (time.Duration(t.Maxerror)*time.Microsecond).Round(time.Millisecond)))
}

// hostname returns the name of this node.
func hostname() string {
	name, _ := os.Hostname()
	return name
}
