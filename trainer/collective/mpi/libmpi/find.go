package libmpi

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// These are the file names of the libraries, by flavor. The dynamic linker searches
// LD_LIBRARY_PATH, then its cache (ldconfig).
var (
	openMPINames = []string{"libmpi.so.40", "libmpi.so.80"}
	mpichNames   = []string{"libmpich.so.12", "libmpi.so.12", "libmpi_gnu.so.12", "libmpi_cray.so.12", "libmpi_gnu_123.so.12",
		"libmpi_gnu_112.so.12", "libmpi_gnu_91.so.12"}
	otherNames = []string{"libmpi.so"}
)

// notFound returns the error if no library was found: each name with the error of the dynamic linker.
func notFound(tried []string) error {
	return hints.Errorf("load the center's MPI module with setup.modules, or set network.mpi_library to the path of the library",
		"no MPI library found: %s", strings.Join(tried, "; "))
}

// Open finds and loads the library. If path is not empty, it is the path or name of the library.
// Otherwise Open tries the known names, starting with the names of the MPI whose launcher started
// this process, which it detects from environment variables.
func Open(path string, lookup func(string) (string, bool)) (*Library, error) {
	if path != "" {
		if strings.Contains(path, "/") && !filepath.IsAbs(path) {
			return nil, fmt.Errorf("MPI library %q is neither an absolute path nor a name", path)
		}
		l, err := open(path)
		if err != nil {
			return nil, fmt.Errorf("load the MPI library %q: %w", path, err)
		}
		return l, nil
	}
	var tried []string
	for _, name := range candidates(lookup) {
		l, err := open(name)
		if err == nil {
			return l, nil
		}
		tried = append(tried, err.Error())
	}
	return nil, notFound(tried)
}

// candidates returns the names in the order to try.
func candidates(lookup func(string) (string, bool)) []string {
	if StartedBy(lookup) == LauncherPMI {
		return slices.Concat(mpichNames, openMPINames, otherNames)
	}
	return slices.Concat(openMPINames, mpichNames, otherNames)
}

// Launcher is the interface through which MPI processes find each other.
type Launcher string

// The launchers are:
const (
	LauncherNone Launcher = ""     // no launcher: MPI would treat each process as the only one
	LauncherPMIx Launcher = "PMIx" // Open MPI's mpirun, srun --mpi=pmix
	LauncherPMI  Launcher = "PMI"  // MPICH's and Intel's mpirun, srun --mpi=pmi2 and --mpi=cray_shasta
)

// StartedBy detects the launcher from its environment variables. Open MPI's mpirun sets the
// variables of PMIx.
func StartedBy(lookup func(string) (string, bool)) Launcher {
	for _, known := range []struct {
		name string
		is   Launcher
	}{{"PMIX_NAMESPACE", LauncherPMIx}, {"OMPI_COMM_WORLD_SIZE", LauncherPMIx},
		{"PMI_FD", LauncherPMI}, {"PMI_PORT", LauncherPMI}, {"PMI_RANK", LauncherPMI}, {"PMI_CONTROL_PORT", LauncherPMI}} {
		if v, ok := lookup(known.name); ok && v != "" {
			return known.is
		}
	}
	return LauncherNone
}
