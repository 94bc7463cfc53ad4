package main

import (
	"context"
	"fmt"
	"os"
	"regexp"

	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

type doctorCmd struct {
	JSON bool `help:"Print the findings as JSON."`
}

func (c *doctorCmd) Help() string {
	return `Says what this machine has for training on GPUs: the NVIDIA driver, the GPUs that
CUDA_VISIBLE_DEVICES leaves visible, cuBLASLt and NCCL, each with a verdict and what
to do. Run it where ranks run: srun ddpbatch doctor.

A machine without GPUs is no failure: the exit code says only whether doctor could
look.`
}

// The verdicts.
const (
	verdictOK       = "ok"
	verdictMissing  = "missing"
	verdictUnusable = "unusable"
)

// finding is one thing that doctor looked at.
type finding struct {
	Part    string       `json:"part"` // driver, gpu 0, cublaslt, nccl
	Verdict string       `json:"verdict"`
	Version string       `json:"version,omitempty"`
	Path    string       `json:"path,omitempty"`   // of a library
	Detail  string       `json:"detail,omitempty"` // what is wrong, or the GPU in words
	Hint    string       `json:"hint,omitempty"`
	Kernel  string       `json:"kernel_module,omitempty"` // the driver's part in the kernel
	GPU     *cuda.Device `json:"gpu,omitempty"`
}

func (c *doctorCmd) Run(_ context.Context, p *program) error {
	findings := p.examineGPUs()
	if c.JSON {
		return p.printJSON(findings)
	}
	var rows [][]string
	for _, f := range findings {
		what := f.Detail
		if f.Verdict == verdictOK && f.Path != "" {
			what = f.Path
		}
		rows = append(rows, []string{f.Part, f.Verdict, f.Version, what})
	}
	p.table([]string{"PART", "VERDICT", "VERSION", "WHAT"}, rows)
	for _, f := range findings {
		if f.Hint != "" {
			p.note("%s: %s", f.Part, f.Hint)
		}
	}
	return nil
}

// ncclHint is what to do where NCCL is missing.
const ncclHint = "NCCL comes with the site's module, with `pip install nvidia-nccl-cu12`, and with PyTorch's wheels (activate the environment that has it); or set LD_LIBRARY_PATH to the folder of " + library.NCCL

// examineGPUs looks at everything that training on GPUs takes.
func (p *program) examineGPUs() []finding {
	found, err := cuda.Look()
	list := []finding{p.driverFinding(found, err)}
	for _, d := range found.Devices {
		list = append(list, gpuFinding(d))
	}
	return append(list,
		p.libraryFinding("cublaslt", library.CUBLASLt(found.Version/1000),
			"cuBLASLt comes with the CUDA toolkit (load the site's module, or set CUDA_HOME) and with PyTorch's wheels (activate the environment that has it)"),
		p.libraryFinding("nccl", []string{library.NCCL},
			ncclHint))
}

func (p *program) driverFinding(found cuda.Found, err error) finding {
	f := finding{Part: "driver", Verdict: verdictOK, Kernel: kernelModule()}
	if found.Version > 0 {
		f.Version = fmt.Sprintf("CUDA %d.%d", found.Version/1000, found.Version%1000/10)
	}
	switch {
	case err != nil:
		f.Verdict, f.Detail, f.Hint = verdictUnusable, err.Error(), hintOf(err)
		if f.Version == "" && f.Kernel == "" {
			f.Verdict = verdictMissing
		}
		if visible, set := p.lookup("CUDA_VISIBLE_DEVICES"); set {
			f.Detail += fmt.Sprintf("; CUDA_VISIBLE_DEVICES=%q", visible)
		}
	case f.Kernel != "":
		f.Detail = "kernel module " + f.Kernel
	}
	return f
}

var moduleVersion = regexp.MustCompile(`Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s`)

// kernelModule is the version of NVIDIA's kernel module; empty where none is loaded.
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

func gpuFinding(d cuda.Device) finding {
	f := finding{Part: fmt.Sprintf("gpu %d", d.Ordinal), Verdict: verdictOK, Version: fmt.Sprintf("%d.%d", d.Major, d.Minor), GPU: &d,
		Detail: fmt.Sprintf("%s, %s, %.1f GiB, %d processors, at %s", d.Name, d.UUID, float64(d.Memory)/(1<<30), d.Processors, d.PCI)}
	if d.Major < cuda.OldestMajor {
		f.Verdict = verdictUnusable
		f.Hint = fmt.Sprintf("it has compute capability %s, and the trainer's kernels need %d.0 (A100 or newer)", f.Version, cuda.OldestMajor)
	}
	return f
}

func (p *program) libraryFinding(part string, names []string, hint string) finding {
	l, err := library.Open(library.Find(p.lookup, names...))
	if err != nil {
		return finding{Part: part, Verdict: verdictMissing, Detail: err.Error(), Hint: hint}
	}
	version, err := library.Version(l)
	if err != nil {
		return finding{Part: part, Verdict: verdictUnusable, Path: l.Path, Detail: err.Error(), Hint: hint}
	}
	return finding{Part: part, Verdict: verdictOK, Version: version, Path: l.Path}
}
