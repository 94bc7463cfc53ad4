// Package cuda is the door to NVIDIA GPUs, through the driver binding
// gorgonia.org/cu (package driver). That binding needs a C compiler to build, so it
// stands behind the build tag cuda; without the tag this package says that the program
// was built without it.
//
// It promises that importing it costs nothing on a machine without a GPU or a driver,
// that [Look] says exactly what is missing there, and that [Assign] gives each rank a
// GPU of its own, the same on every rank.
//
// [Open] makes one ready to train on. The package does not read the environment.
package cuda

import "github.com/ddpbatch/ddpbatch/trainer/cuda/driver"

// ErrNotBuilt says that this program was built without the tag cuda.
var ErrNotBuilt error = notBuilt{}

type notBuilt struct{}

func (notBuilt) Error() string { return "this program was built without GPU support (build tag cuda)" }

// Hint says what to do about it.
func (notBuilt) Hint() string {
	return "build it with `make build`, which needs gcc and no CUDA toolkit"
}

// Device is a GPU as the driver describes it.
type Device = driver.Info

// OldestMajor is the major compute capability that a GPU needs at least: the kernels
// are compiled for 8.0 (Ampere).
const OldestMajor = 8

// Options are how Open opens a GPU.
type Options struct {
	// Libraries says where a library of one of some names may be; nil is where the
	// dynamic linker looks.
	Libraries func(names ...string) []string
	// WGMMA asks for attention in bfloat16 by the instructions that only Hopper has.
	WGMMA bool
}

// Found is what the driver has.
type Found struct {
	Version int      // of the driver's CUDA: 12080 is 12.8; 0: not known
	Devices []Device // that CUDA_VISIBLE_DEVICES leaves visible, in that order
}
