package doctor

import (
	"fmt"
	"os"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// NCCLHint is the hint for a missing NCCL.
const NCCLHint = "NCCL comes with the site's module, with `pip install nvidia-nccl-cu12`, and with PyTorch's wheels (activate the environment that has it); or set LD_LIBRARY_PATH to the directory of " + library.NCCL

// checkGPUs checks everything that training on GPUs needs. Lookup reads the environment. A node
// with AMD GPUs only does not need a CUDA driver.
func checkGPUs(lookup func(string) (string, bool), inventory *netif.Inventory) []Finding {
	if inventory.HasOnlyAMD() {
		return []Finding{checkAMD(len(inventory.GPUs))}
	}
	found, err := cuda.Discover()
	list := []Finding{checkDriver(lookup, found, err)}
	for _, d := range found.Devices {
		list = append(list, describeGPU(d))
	}
	missing := Warn // not needed without GPUs
	if len(found.Devices) > 0 {
		missing = Fail
	}
	const user = "only the built-in trainer on GPUs needs this, because the wheels of PyTorch have their own: "
	return append(list,
		checkLibrary(lookup, missing, "cublaslt", library.CUBLASLt(found.Version/1000),
			user+"cuBLASLt comes with the CUDA toolkit (load the site's module, or set CUDA_HOME) and with PyTorch's wheels (activate the environment that has it)"),
		checkLibrary(lookup, Warn, "nccl", []string{library.NCCL}, user+NCCLHint))
}

// checkAMD returns the finding for a node with AMD GPUs only.
func checkAMD(n int) Finding {
	return warn("gpu", fmt.Sprintf("%s from AMD; the GPU code of the built-in trainer needs CUDA", format.Count(n, "GPU")),
		"run PyTorch for ROCm or another program with [command]; the built-in trainer uses CPUs on this node")
}

func checkDriver(lookup func(string) (string, bool), found cuda.Found, err error) Finding {
	f := Finding{Part: "driver", Level: OK, Kernel: kernelModule()}
	if found.Version > 0 {
		f.Version = fmt.Sprintf("CUDA %d.%d", found.Version/1000, found.Version%1000/10)
	}
	switch {
	case err != nil:
		f.Level, f.Detail, f.Hint = Fail, err.Error(), hints.Of(err)
		if f.Kernel == "" {
			f.Level = Warn // the machine may have no GPU
		}
		if visible, set := lookup("CUDA_VISIBLE_DEVICES"); set {
			f.Detail += fmt.Sprintf("; CUDA_VISIBLE_DEVICES=%q", visible)
		}
	case f.Kernel != "":
		f.Detail = "kernel module " + f.Kernel
	}
	return f
}

var moduleVersion = lazyregexp.New(`Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s`)

// kernelModule returns the version of NVIDIA's kernel module. It returns an empty string if
// the module is not loaded, and "unknown" if the version cannot be parsed.
func kernelModule() string {
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	m := moduleVersion().FindSubmatch(text)
	if m == nil {
		return "unknown"
	}
	return string(m[1])
}

func describeGPU(d cuda.Device) Finding {
	f := Finding{Part: fmt.Sprintf("gpu %d", d.Ordinal), Level: OK, Version: fmt.Sprintf("%d.%d", d.Major, d.Minor), GPU: &d,
		Detail: fmt.Sprintf("%s, %s, %.1f GiB, %d multiprocessors, at %s", d.Name, d.UUID, float64(d.Memory)/(1<<30), d.Processors, d.PCI)}
	if d.Major < cuda.OldestMajor {
		f.Level = Fail
		f.Hint = fmt.Sprintf("use a newer GPU: compute capability is %s, and the built-in trainer needs %d.0 (A100 or newer)", f.Version, cuda.OldestMajor)
	}
	return f
}

// checkLibrary checks a library. Missing is the level if no usable library is found.
func checkLibrary(lookup func(string) (string, bool), missing Level, part string, names []string, hint string) Finding {
	l, err := library.Open(library.Find(lookup, names...))
	if err != nil {
		return Finding{Part: part, Level: missing, Detail: err.Error(), Hint: hint}
	}
	version, err := library.Version(l)
	if err != nil {
		return Finding{Part: part, Level: missing, Path: l.Path, Detail: err.Error(), Hint: hint}
	}
	return Finding{Part: part, Level: OK, Version: version, Path: l.Path}
}
