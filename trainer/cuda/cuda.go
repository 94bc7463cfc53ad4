// Package cuda is the door to NVIDIA GPUs, through the driver binding
// gorgonia.org/cu. That binding needs C, the CUDA headers and libcuda to build,
// so it stands behind the build tag cuda; without the tag this package says
// that the program was built without it.
//
// It promises that importing it costs nothing on a machine without a GPU. It
// does not train yet: it only tells which devices there are.
package cuda

import "errors"

// ErrNotBuilt says that this program was built without the tag cuda.
var ErrNotBuilt = errors.New("this program was built without GPU support (build tag cuda)")

// Device is a GPU as the driver describes it.
type Device struct {
	Name         string
	Major, Minor int   // compute capability
	Memory       int64 // bytes
}
