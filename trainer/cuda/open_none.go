//go:build !cuda

package cuda

import "github.com/ddpbatch/ddpbatch/trainer/device"

// Open returns [ErrNotBuilt].
func Open(int, func(names ...string) []string) (device.Device, error) { return nil, ErrNotBuilt }
