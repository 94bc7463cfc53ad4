//go:build !cuda

package cuda

import "github.com/ddpbatch/ddpbatch/trainer/device"

// Open returns [ErrNotBuilt].
func Open(int, Options) (device.Device, error) { return nil, ErrNotBuilt }
