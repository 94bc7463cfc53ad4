//go:build cuda

package communicator_test

import (
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/nccl/gpu"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestOrder checks that an operation waits for another stream's computation.
func TestOrder(t *testing.T) {
	const n, elements = 2, 100_000
	comms, _ := ranks(t, n, setting{library.NCCL, true, time.Minute})
	type part struct {
		stream driver.Stream
		buf    []float32 // GPU memory
		host   driver.Host
	}
	release := make(chan struct{})
	var ahead sync.WaitGroup // ranks whose operation has started
	ahead.Add(n)
	go func() { ahead.Wait(); close(release) }()
	results := conformance.Every(t, n, func(r int) (part, error) {
		var p part
		g, err := driver.Open(r)
		if err != nil {
			return p, err
		}
		unbind, err := g.Bind()
		if err != nil {
			return p, err
		}
		defer unbind()
		address, err := driver.Alloc(4 * elements)
		if err != nil {
			return p, err
		}
		p.buf = unsafe.Slice((*float32)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), elements)
		if p.host, err = driver.AllocHost(4 * elements); err != nil {
			return p, err
		}
		for i := range elements {
			driver.View[float32](p.host)[i] = float32(r + 1)
		}
		if p.stream, err = driver.NewStream(0); err != nil {
			return p, err
		}
		ready, err := driver.NewEvent(false)
		if err != nil {
			return p, err
		}
		slow := driver.NewHostFunc(func() { <-release }) // otherwise it would end first
		t.Cleanup(slow.Close)
		if err := p.stream.Call(slow); err != nil {
			return p, err
		}
		if err := p.stream.Upload(address, p.host); err != nil {
			return p, err
		}
		if err := p.stream.Record(ready); err != nil {
			return p, err
		}
		comms[r].After(gpu.Event{Event: ready})
		result := make(chan error, 1)
		go func() { result <- run(t.Context())(comms[r].AllReduce(t.Context(), device.Host(p.buf))) }()
		for comms[r].Started() == 0 {
			time.Sleep(time.Millisecond)
		}
		select {
		case <-result:
			t.Errorf("rank %d: the operation did not wait", r)
		default:
		}
		ahead.Done()
		if err := <-result; err != nil {
			return p, err
		}
		if err := p.stream.Download(p.host, address); err != nil {
			return p, err
		}
		return p, p.stream.Synchronize()
	})
	for r, p := range results {
		for i, v := range driver.View[float32](p.host) {
			if v != 3 {
				t.Fatalf("rank %d: element %d is %v, want 3", r, i, v)
			}
		}
	}
	conformance.Every(t, n, func(r int) (struct{}, error) { return struct{}{}, comms[r].Close() })
}
