package conformance

import (
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// Processes connects n ranks over the loopback interface as if each were a process, and closes them
// when the test ends. It sets the rank, the addresses, the secret, and the default timeout in the
// options.
func Processes(t testing.TB, n int, o collective.Options) []collective.Communicator {
	t.Helper()
	var err error
	if o.Secret, err = wire.NewSecret(); err != nil {
		t.Fatal(err)
	}
	o.Source, o.ConnectTimeout = net.IPv4(127, 0, 0, 1), long
	if o.Timeout == 0 {
		o.Timeout = long
	}
	listeners := make([]net.Listener, n)
	o.Addrs = make([]string, n)
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		o.Addrs[i] = listeners[i].Addr().String()
	}
	comms := Every(t, n, func(rank int) (collective.Communicator, error) {
		options := o
		options.Rank = rank
		return collective.Connect(t.Context(), listeners[rank], options)
	})
	t.Cleanup(func() {
		for _, c := range comms {
			_ = c.Close()
		}
	})
	return comms
}

// Every runs f on n ranks concurrently and fails the test if one fails.
func Every[T any](t testing.TB, n int, f func(rank int) (T, error)) []T {
	t.Helper()
	out, errs := make([]T, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { out[i], errs[i] = f(i) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return out
}
