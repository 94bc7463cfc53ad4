package libmpi

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

func lookup(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := variables[name]; return v, ok }
}

// TestStartedBy checks that the environment of a launcher determines which MPI library is tried
// first.
func TestStartedBy(t *testing.T) {
	for _, tt := range []struct {
		variables map[string]string
		want      Launcher
		first     string // first library to try
	}{
		{nil, LauncherNone, "libmpi.so.40"},
		{map[string]string{"PMIX_NAMESPACE": "1.0"}, LauncherPMIx, "libmpi.so.40"},
		{map[string]string{"PMI_RANK": "0"}, LauncherPMI, "libmpich.so.12"},
		{map[string]string{"PMI_RANK": ""}, LauncherNone, "libmpi.so.40"},
		{map[string]string{"PMI_CONTROL_PORT": "20177"}, LauncherPMI, "libmpich.so.12"},
		// Open MPI's mpirun in a job step of srun --mpi=pmi2.
		{map[string]string{"OMPI_COMM_WORLD_SIZE": "2", "PMI_RANK": "0"}, LauncherPMIx, "libmpi.so.40"},
	} {
		if got := StartedBy(lookup(tt.variables)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.variables, got, tt.want)
		}
		names := candidates(lookup(tt.variables))
		if names[0] != tt.first || len(names) != len(openMPINames)+len(mpichNames)+len(otherNames) {
			t.Errorf("%v: %v, want %s first and all", tt.variables, names, tt.first)
		}
	}
}

// TestOpenRefuses checks the error for a missing library and for a library that is not MPI.
func TestOpenRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libmpi.so")
	for _, tt := range []struct{ path, want string }{
		{"lib/libmpi.so", "neither an absolute path nor a name"},
		{missing, missing},
		{"libc.so.6", "is not an MPI library: it has no MPI_Get_library_version"},
	} {
		if l, err := Open(tt.path, lookup(nil)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v, want %q", tt.path, l, err, tt.want)
		}
	}
}

// TestNotFound checks that the error for a missing MPI library lists the attempts, and that its
// hint gives the fix.
func TestNotFound(t *testing.T) {
	err := notFound([]string{"libmpi.so.40: no such file", "libmpi.so: no such file"})
	if got := err.Error(); got != "no MPI library found: libmpi.so.40: no such file; libmpi.so: no such file" {
		t.Errorf("it says %q", got)
	}
	if !strings.Contains(hints.Of(err), "network.mpi_library") {
		t.Error("it has no hint about network.mpi_library")
	}
}

// TestVersion checks the short version text of each MPI implementation.
func TestVersion(t *testing.T) {
	for text, want := range map[string]string{
		"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4\x00": "Open MPI v4.1.4",
		"MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7\n":   "MPICH 4.0.2",
		"Intel(R) MPI Library 2021.9 for Linux* OS\n":                "Intel(R) MPI Library 2021.9 for Linux* OS",
		"": "unknown version",
	} {
		if got := version(text); got != want {
			t.Errorf("version(%q) is %q, want %q", text, got, want)
		}
	}
}
