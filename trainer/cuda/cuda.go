// Package cuda opens NVIDIA GPUs through the driver binding gorgonia.org/cu (package driver). The
// binding requires a C compiler, so it has the build tag cuda. Without the tag, [Discover], [Open], and
// [ConnectThroughHost] return [ErrNotBuilt].
//
// Guarantees:
//   - Importing the package has no cost on a machine without a GPU or a driver.
//   - [Discover] lists the GPUs, or reports what is missing: the driver, or a GPU.
//   - [Assign] assigns each rank a different GPU, with the same result on every rank.
//
// [Open] opens a GPU for training. [ConnectThroughHost] connects GPUs through host memory. The
// package does not read environment variables.
package cuda

import (
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
)

// ErrNotBuilt reports that the program was built without the tag cuda.
var ErrNotBuilt = hints.Errorf("build it with `make build`, which needs gcc and no CUDA toolkit",
	"this program was built without GPU support (build tag cuda)")

// Device describes a GPU.
type Device = driver.Info

// OldestMajor is the minimum major compute capability: the kernels are compiled for 8.0 (Ampere).
const OldestMajor = 8

// Options configure Open.
type Options struct {
	// Libraries returns the possible paths of a library with one of the given names. If it is nil,
	// the dynamic linker searches for the library.
	Libraries func(names ...string) []string
	// Disabled contains the fusions that matrix multiplications do not use.
	Disabled engine.Fusion
	// Attention selects the instructions of attention in bfloat16.
	Attention engine.Attention
}

// A Tuner selects the algorithms of matrix multiplications. See the methods of [engine.Device].
type Tuner interface {
	Algorithms() engine.Algorithms
	UseAlgorithms(engine.Algorithms)
	StartTuning()
	StopTuning()
}

// Found describes the driver and its GPUs.
type Found struct {
	Version int      // CUDA version of the driver: 12080 is 12.8; 0 if unknown
	Devices []Device // the visible GPUs, in the order of CUDA_VISIBLE_DEVICES
}
