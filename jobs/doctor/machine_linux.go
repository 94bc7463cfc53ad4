package doctor

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// minShared is the minimum free shared memory in bytes, for communication between ranks of a
// node and for PyTorch's workers.
const minShared = 1 << 30

// tmpfsMagic is the type of tmpfs (statfs(2)).
const tmpfsMagic = 0x01021994

// checkSharedMemory checks the file system for shared memory at path.
func checkSharedMemory(path string) Finding {
	const part = "/dev/shm"
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return fail(part, err.Error(), "mount a tmpfs, or start the container with --ipc=host; ranks of a node share memory there")
	}
	total, free := int64(s.Blocks)*blockSize(&s), int64(s.Bavail)*blockSize(&s)
	text := fmt.Sprintf("%s, %s free", format.Bytes(total), format.Bytes(free))
	switch {
	case unix.Access(path, unix.W_OK) != nil:
		return fail(part, text+": not writable", "ask the center; ranks of a node share memory there")
	case int64(s.Type) != tmpfsMagic:
		return warn(part, text+": not a tmpfs", "mount a tmpfs; otherwise, shared memory is on a disk")
	case free < minShared:
		return warn(part, text, "enlarge it in a container (--ipc=host, --shm-size), or remove files of dead jobs (nccl-*, torch_*); ranks, NCCL, and data loaders share memory there")
	}
	return pass(part, text)
}

// checkCPU checks the CPU features that the trainer's kernels need, and reports the number of
// CPUs that this process may use.
func checkCPU() Finding {
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
	cpus := runtime.NumCPU()
	if unix.SchedGetaffinity(0, &set) == nil {
		cpus = set.Count()
	}
	text := fmt.Sprintf("%s, %d CPUs for this process: %s", runtime.GOARCH, cpus, strings.Join(features, ", "))
	if runtime.GOARCH == "amd64" && !(cpu.X86.HasAVX2 && cpu.X86.HasFMA) {
		return warn("processor", text, "use a CPU with AVX2; without it, the built-in trainer is about 10x slower on CPUs")
	}
	return pass("processor", text)
}

// kernelVersion reports the version of the kernel, for comparison between nodes.
func kernelVersion() Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return warn("kernel", err.Error(), "run `uname -r` to see the version")
	}
	return pass("kernel", unix.ByteSliceToString(u.Release[:]))
}

// staUnsync is STA_UNSYNC of adjtimex(2): the clock is not synchronized.
const staUnsync = 0x0040

// checkClock checks whether the kernel reports that the clock is synchronized.
func checkClock() Finding {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return warn("clock", err.Error(), "run `timedatectl` to see whether it is synchronized")
	}
	if t.Status&staUnsync != 0 {
		return warn("clock", "the kernel reports that it is not synchronized", "ask the center to run chrony or ntpd: log times differ between nodes, and Slurm's credentials may fail. In a container or virtual machine, the host may synchronize the clock")
	}
	return pass("clock", fmt.Sprintf("synchronized, within %s", (time.Duration(t.Maxerror)*time.Microsecond).Round(time.Millisecond)))
}
