package measure

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// connect connects ranks in this process like the processes of one node.
func connect(ctx context.Context, ranks int) ([]collective.Communicator, error) {
	secret, err := wire.NewSecret()
	if err != nil {
		return nil, err
	}
	listeners := make([]net.Listener, ranks)
	addrs := make([]string, ranks)
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			for _, l := range listeners[:i] {
				l.Close()
			}
			return nil, err
		}
		addrs[i] = listeners[i].Addr().String()
	}
	const timeout = 10 * time.Second
	comms, errs := make([]collective.Communicator, ranks), make([]error, ranks)
	var wait sync.WaitGroup
	for i := range ranks {
		wait.Go(func() {
			comms[i], errs[i] = collective.Connect(ctx, listeners[i], collective.Options{
				Rank: i, Addrs: addrs, Nodes: make([]int, ranks), Memory: true, Secret: secret,
				Source: net.IPv4(127, 0, 0, 1), ConnectTimeout: timeout, Timeout: timeout,
			})
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		closeAll(comms)
		return nil, err
	}
	return comms, nil
}
