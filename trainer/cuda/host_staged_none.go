//go:build !cuda

package cuda

import (
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// ByHost returns [ErrNotBuilt].
func ByHost(*GPU, collective.Communicator) (ddp.Communicator, error) {
	return nil, ErrNotBuilt
}
