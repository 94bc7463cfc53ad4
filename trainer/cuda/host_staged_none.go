//go:build !cuda

package cuda

import (
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// ByHost returns [ErrNotBuilt].
func ByHost(device.Device, collective.Communicator) (ddp.Communicator, error) {
	return nil, ErrNotBuilt
}
