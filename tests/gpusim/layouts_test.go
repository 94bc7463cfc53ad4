//go:build cuda

package gpusim_test

import (
	"os/exec"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
)

// TestLayoutsOfMatrices checks that the simulator finds the elements of a matrix at the locations
// that the PTX ISA defines.
func TestLayoutsOfMatrices(t *testing.T) {
	gpusim.Require(t)
	program := t.TempDir() + "/layouts"
	for _, args := range [][]string{{gpusim.Compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", program, "machine/testdata/layouts.cc"}, {program}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}
