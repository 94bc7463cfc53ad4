//go:build !cuda

package cuda

import (
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// ConnectThroughHost returns [ErrNotBuilt].
func ConnectThroughHost(*GPU, collective.Communicator) (ddp.Communicator, error) {
	return nil, ErrNotBuilt
}
