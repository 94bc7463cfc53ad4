package jobs

import (
	"slices"
	"strings"
	"unicode"
)

// An EnvName is the name of an environment variable: a letter or "_", followed by letters,
// digits, and "_". Names that Slurm or ddpbatch sets are rejected, because a rank would then
// have other values than its launcher.
type EnvName string

// reservedPrefixes are the prefixes of variables that describe the job.
var reservedPrefixes = []string{"SLURM_", "SBATCH_", "SRUN_", "DDPBATCH_"}

// reservedEnv are the variables that torch.distributed uses for rendezvous (PyTorch,
// "Environment variable initialization", and the list of torchrun).
var reservedEnv = []string{
	"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
}

// UnmarshalTOML accepts the name of a variable, which the decoder passes as a string.
func (e *EnvName) UnmarshalTOML(v any) error {
	const allowed = "allowed: letters, digits and _, not starting with a digit"
	s, err := stringValue(v)
	if err != nil {
		return err
	}
	if s == "" {
		return valueErrorf(allowed, "is empty")
	}
	for i, r := range s {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return valueErrorf(allowed, "%q is not the name of an environment variable", s)
		}
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(s, p) {
			return valueErrorf("", "%q is reserved: %s* variables are set for each rank", s, p)
		}
	}
	for _, name := range reservedEnv {
		if s == name {
			return valueErrorf("", "%q is reserved: it is set for each rank", s)
		}
	}
	*e = EnvName(s)
	return nil
}

// An InterfaceName is the name of a network interface. Linux requires 1 to 15 bytes without
// white space, "/", or ":" (dev_valid_name in net/core/dev.c). In network.interface, it may be
// [InterfaceAuto].
type InterfaceName string

// InterfaceAuto means that ddpbatch selects the interface.
const InterfaceAuto InterfaceName = "auto"

const maxInterfaceBytes = 15 // IFNAMSIZ minus the terminating NUL

// UnmarshalTOML accepts a TOML string.
func (n *InterfaceName) UnmarshalTOML(v any) error {
	const allowed = `allowed: "auto" or an interface's name such as "eth0": 1 to 15 characters, no spaces, "/" or ":"`
	s, err := printableValue(v, allowed)
	if err != nil {
		return err
	}
	switch {
	case s == "":
		return valueErrorf(allowed, "is empty")
	case len(s) > maxInterfaceBytes:
		return valueErrorf(allowed, "%q is longer than %d bytes", s, maxInterfaceBytes)
	case strings.ContainsAny(s, "/:"), strings.ContainsFunc(s, unicode.IsSpace), s == ".", s == "..":
		return valueErrorf(allowed, "%q is not the name of an interface", s)
	}
	*n = InterfaceName(s)
	return nil
}

// A Dependency is a condition on another run, in the form "afterok:RUN", or "singleton". The
// condition is a type of sbatch --dependency. RUN is a run directory, a run's name, or a job ID.
type Dependency string

// dependencyKinds are the types of sbatch --dependency that refer to jobs.
var dependencyKinds = []string{"after", "afterok", "afterany", "afternotok"}

// Singleton is the condition that all earlier jobs of the user with the same name have ended.
const Singleton Dependency = "singleton"

const dependencyForms = `allowed: "afterok:RUN", "afterany:RUN", "afternotok:RUN", or "after:RUN", where RUN is a run's name, directory, or job ID; or "singleton"`

// Parts returns the condition and the run. The run of Singleton is empty.
func (d Dependency) Parts() (kind, run string) {
	kind, run, _ = strings.Cut(string(d), ":")
	return kind, run
}

// UnmarshalTOML accepts a TOML string.
func (d *Dependency) UnmarshalTOML(v any) error {
	s, err := stringValue(v)
	if err != nil {
		return valueErrorf(dependencyForms, "%s", err)
	}
	if err := checkControl(s); err != nil {
		return err
	}
	if s == string(Singleton) {
		*d = Singleton
		return nil
	}
	kind, run, ok := strings.Cut(s, ":")
	if !ok || run == "" {
		return valueErrorf(dependencyForms, "%q does not name a run", s)
	}
	if !slices.Contains(dependencyKinds, kind) {
		return valueErrorf(dependencyForms, "%q is not a condition", kind)
	}
	*d = Dependency(s)
	return nil
}
