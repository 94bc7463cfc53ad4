package sites

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// An Address is the https URL of a document.
type Address string

// A Date is a date in the format "2026-01-31".
type Date string

// A Key is a key of a job's [slurm] table.
type Key string

// An Option is one option of sbatch, srun, or a container runtime: "--name" or "--name=value".
type Option string

// A GPURequest is the way to request GPUs: see [GPURequest.Options].
type GPURequest string

// A Vendor is the manufacturer of a center's GPUs.
type Vendor string

// Values of Vendor.
const (
	VendorNVIDIA Vendor = "nvidia"
	VendorAMD    Vendor = "amd"
	VendorIntel  Vendor = "intel"
)

// vendorNames are the names of the vendors in messages.
var vendorNames = map[Vendor]string{VendorNVIDIA: "NVIDIA", VendorAMD: "AMD", VendorIntel: "Intel"}

// A StepGPUs selects the GPUs of the node that a rank can access.
type StepGPUs string

// Values of StepGPUs.
const (
	StepGPUsAll     StepGPUs = "all"      // all GPUs of the node
	StepGPUsPerTask StepGPUs = "per-task" // one GPU, with --gpus-per-task=1
)

// required are the keys of [slurm] that a center may require.
var required = []string{"account", "time", "partition", "qos", "constraint", "mem", "gpus_per_node", "reservation"}

// ours are the options that ddpbatch sets in the script and the step.
var ours = []string{"--nodes", "--ntasks", "--ntasks-per-node", "--cpus-per-task", "--job-name", "--output", "--open-mode", "--requeue", "--no-kill",
	"--export", "--signal", "--kill-on-bad-exit", "--wait", "--mpi", "--gres", "--gpus", "--gpus-per-node", "--gpus-per-task",
	"--gpu-bind", "--cpu-bind", "--input", "--comment", "--dependency", "--array", "--label", "--het-group"}

// UnmarshalTOML accepts an https URL.
func (a *Address) UnmarshalTOML(v any) error {
	s, err := text(v)
	if err != nil {
		return err
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not an https address", s)
	}
	*a = Address(s)
	return nil
}

// UnmarshalTOML accepts a date in a string.
func (d *Date) UnmarshalTOML(v any) error {
	s, err := text(v)
	if err != nil {
		return err
	}
	if _, err := time.Parse(time.DateOnly, s); err != nil {
		return fmt.Errorf("%q is not a date such as \"2026-01-31\"", s)
	}
	*d = Date(s)
	return nil
}

// UnmarshalTOML accepts the name of a key.
func (k *Key) UnmarshalTOML(v any) error {
	s, err := text(v)
	if err != nil {
		return err
	}
	if !slices.Contains(required, s) {
		return fmt.Errorf("%q is not one of %s", s, strings.Join(required, ", "))
	}
	*k = Key(s)
	return nil
}

// UnmarshalTOML accepts one option.
func (o *Option) UnmarshalTOML(v any) error {
	s, err := text(v)
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(s, "=")
	switch {
	case len(name) < 2 || name[0] != '-' || strings.ContainsAny(name, " \t\"'\\#"):
		return fmt.Errorf("%q is not an option such as \"--name=value\"", s)
	case slices.Contains(ours, name):
		return fmt.Errorf("%q is given by ddpbatch itself", name)
	}
	*o = Option(s)
	return nil
}

// UnmarshalTOML accepts "gres", "gres:TYPE", "gpus-per-node", "gpus-per-node:TYPE", "gpus", and
// "none".
func (g *GPURequest) UnmarshalTOML(v any) error {
	s, err := text(v)
	if err != nil {
		return err
	}
	kind, gpu, typed := strings.Cut(s, ":")
	if !slices.Contains([]string{"gres", "gpus-per-node", "gpus", "none"}, kind) || typed && (kind != "gres" && kind != "gpus-per-node" || !plainWord(gpu)) {
		return fmt.Errorf("%q is not one of gres, gres:TYPE, gpus-per-node, gpus-per-node:TYPE, gpus, none", s)
	}
	*g = GPURequest(s)
	return nil
}

func plainWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// A HostPattern is a host name in which * matches any characters, ? matches one character, and
// [a-c] matches one of several.
type HostPattern string

// UnmarshalTOML accepts a pattern.
func (h *HostPattern) UnmarshalTOML(v any) error {
	s, err := text(v)
	if err != nil {
		return err
	}
	if _, err := path.Match(s, ""); err != nil || s == "" || strings.ContainsAny(s, "/ ") {
		return fmt.Errorf("%q is not a pattern of host names such as \"login*\"", s)
	}
	*h = HostPattern(s)
	return nil
}

func (h HostPattern) matches(host string) bool {
	ok, _ := path.Match(string(h), host) // decoding rejects malformed patterns
	return ok
}

// UnmarshalTOML accepts "nvidia", "amd", and "intel".
func (v *Vendor) UnmarshalTOML(value any) error {
	s, err := text(value)
	if err != nil {
		return err
	}
	if _, known := vendorNames[Vendor(s)]; !known {
		return fmt.Errorf("%q is not one of nvidia, amd, intel", s)
	}
	*v = Vendor(s)
	return nil
}

// UnmarshalTOML accepts "all" and "per-task".
func (g *StepGPUs) UnmarshalTOML(v any) error {
	s, err := text(v)
	if err != nil {
		return err
	}
	if *g = StepGPUs(s); *g != StepGPUsAll && *g != StepGPUsPerTask {
		return fmt.Errorf("%q is not one of all, per-task", s)
	}
	return nil
}

// text returns v if it is a string without control characters.
func text(v any) (string, error) {
	if _, ok := v.(string); !ok {
		return "", errors.New("must be a string in quotes")
	}
	var t jobs.Text
	err := t.UnmarshalTOML(v)
	return string(t), err
}

// Options returns the options of sbatch for a job with the given numbers of nodes and GPUs per
// node. A type of the job, such as "a100", replaces the type of the site.
func (g GPURequest) Options(nodes, gpusPerNode int, gpuType string) []string {
	kind, gpu, typed := strings.Cut(string(g), ":")
	if gpuType != "" {
		gpu, typed = gpuType, true
	}
	count := func(n int) string {
		if typed {
			return fmt.Sprintf("%s:%d", gpu, n)
		}
		return strconv.Itoa(n)
	}
	switch {
	case gpusPerNode == 0 || kind == "none":
		return nil
	case kind == "gpus-per-node":
		return []string{"--gpus-per-node=" + count(gpusPerNode)}
	case kind == "gpus":
		return []string{"--gpus=" + count(nodes*gpusPerNode)}
	}
	// Do not use --gpus-per-node, which requires select/cons_tres. --gres has the same meaning
	// in all versions from 22.05 to 26.05, and a step gets all of these GPUs by default.
	return []string{"--gres=gpu:" + count(gpusPerNode)}
}
