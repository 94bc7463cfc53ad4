package doctor

import (
	"fmt"
	"os"
	"regexp"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// NCCLHint is the hint for a missing NCCL.
const NCCLHint = "NCCL comes with the site's module, with `pip install nvidia-nccl-cu12`, and with PyTorch's wheels (activate the environment that has it); or set LD_LIBRARY_PATH to the folder of " + library.NCCL

// GPUs checks everything that training on GPUs needs. Lookup reads the environment.
func GPUs(lookup func(string) (string, bool)) []Finding {
	found, err := cuda.Look()
	list := []Finding{driver(lookup, found, err)}
	for _, d := range found.Devices {
		list = append(list, gpu(d))
	}
	missing := Look // not needed without GPUs
	if len(found.Devices) > 0 {
		missing = Bad
	}
	return append(list,
		libraryOf(lookup, missing, "cublaslt", library.CUBLASLt(found.Version/1000),
			"cuBLASLt comes with the CUDA toolkit (load the site's module, or set CUDA_HOME) and with PyTorch's wheels (activate the environment that has it)"),
		libraryOf(lookup, Look, "nccl", []string{library.NCCL}, NCCLHint))
}

func driver(lookup func(string) (string, bool), found cuda.Found, err error) Finding {
	f := Finding{Part: "driver", Verdict: OK, Kernel: kernelModule()}
	if found.Version > 0 {
		f.Version = fmt.Sprintf("CUDA %d.%d", found.Version/1000, found.Version%1000/10)
	}
	switch {
	case err != nil:
		f.Verdict, f.Detail, f.Hint = Bad, err.Error(), hints.Of(err)
		if f.Kernel == "" {
			f.Verdict = Look // the machine may have no GPU
		}
		if visible, set := lookup("CUDA_VISIBLE_DEVICES"); set {
			f.Detail += fmt.Sprintf("; CUDA_VISIBLE_DEVICES=%q", visible)
		}
	case f.Kernel != "":
		f.Detail = "kernel module " + f.Kernel
	}
	return f
}

var moduleVersion = regexp.MustCompile(`Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s`)

// kernelModule returns the version of NVIDIA's kernel module. It returns an empty string if
// the module is not loaded, and "unknown" if the version cannot be parsed.
func kernelModule() string {
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	m := moduleVersion.FindSubmatch(text)
	if m == nil {
		return "unknown"
	}
	return string(m[1])
}

func gpu(d cuda.Device) Finding {
	f := Finding{Part: fmt.Sprintf("gpu %d", d.Ordinal), Verdict: OK, Version: fmt.Sprintf("%d.%d", d.Major, d.Minor), GPU: &d,
		Detail: fmt.Sprintf("%s, %s, %.1f GiB, %d processors, at %s", d.Name, d.UUID, float64(d.Memory)/(1<<30), d.Processors, d.PCI)}
	if d.Major < cuda.OldestMajor {
		f.Verdict = Bad
		f.Hint = fmt.Sprintf("it has compute capability %s, and the trainer's kernels need %d.0 (A100 or newer)", f.Version, cuda.OldestMajor)
	}
	return f
}

// libraryOf checks a library. Missing is the level if no usable library is found.
func libraryOf(lookup func(string) (string, bool), missing Verdict, part string, names []string, hint string) Finding {
	l, err := library.Open(library.Find(lookup, names...))
	if err != nil {
		return Finding{Part: part, Verdict: missing, Detail: err.Error(), Hint: hint}
	}
	version, err := library.Version(l)
	if err != nil {
		return Finding{Part: part, Verdict: missing, Path: l.Path, Detail: err.Error(), Hint: hint}
	}
	return Finding{Part: part, Verdict: OK, Version: version, Path: l.Path}
}
