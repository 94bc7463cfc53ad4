//go:build !cuda

package cuda

import "github.com/ddpbatch/ddpbatch/trainer/device"

// A GPU does not exist without the tag cuda.
type GPU struct {
	device.Device
	Tuner
}

// Open returns [ErrNotBuilt].
func Open(int, Options) (*GPU, error) { return nil, ErrNotBuilt }
