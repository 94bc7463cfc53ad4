//go:build cuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// ByHost connects GPUs from [Open] through host memory, for machines without NCCL: it copies data
// to the host, communicates there, and copies the result back. Sums have the order, and so the
// bits, of the host communicator. The result must be closed before the GPU.
func ByHost(d *GPU, host collective.Communicator) (ddp.Communicator, error) {
	entered, err := d.gpu.Enter()
	if err != nil {
		return nil, err
	}
	defer entered.Leave()
	_, greatest, err := driver.StreamPriorities()
	if err != nil {
		return nil, err
	}
	stream, err := driver.NewStream(greatest)
	if err != nil {
		return nil, err
	}
	c := &hostStagedComm{Communicator: host, gpu: d.gpu, stream: stream}
	order := driver.NewOrder(d.gpu, d, func(e driver.Event) { c.after = &e })
	return byHost{ddp.NewDeviceCommunicator(c, host, order.Mark), c, order}, nil
}

type byHost struct {
	ddp.Communicator
	comm  *hostStagedComm
	order *driver.Order
}

func (b byHost) Close() error {
	if !b.comm.mu.TryLock() {
		return nil // an operation hangs between ranks: its memory must remain allocated, and the process exits
	}
	defer b.comm.mu.Unlock()
	return errors.Join(b.comm.close(), b.order.Close())
}

// hostStagedComm performs calls on GPU memory with a host communicator.
type hostStagedComm struct {
	collective.Communicator
	gpu    *driver.GPU
	stream driver.Stream
	after  *driver.Event // event that the next call must wait for
	mu     sync.Mutex    // held by the call in progress
	memory [2]driver.Host
}

// Do performs a call whose buffers are GPU memory.
func (c *hostStagedComm) Do(ctx context.Context, call collective.Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	entered, err := c.gpu.Enter()
	if err != nil {
		return err
	}
	defer entered.Leave()
	if c.after != nil {
		if err := c.stream.Wait(*c.after); err != nil {
			return err
		}
		c.after = nil
	}
	send, recv := call.Send, call.Recv
	out, err := c.pinnedBuffer(0, len(send))
	if err != nil {
		return err
	}
	in := out
	if unsafe.SliceData(send) != unsafe.SliceData(recv) || len(send) != len(recv) {
		if in, err = c.pinnedBuffer(1, len(recv)); err != nil {
			return err
		}
	}
	err = c.stream.Download(out, at(send))
	if err == nil {
		err = c.stream.Synchronize()
	}
	if err != nil {
		return fmt.Errorf("copy %d bytes of GPU %d (%s) to the host: %w", len(send), c.gpu.Ordinal, c.gpu.UUID, err)
	}
	call.Send, call.Recv = out.Bytes(), in.Bytes()
	if err := c.Communicator.Do(ctx, call); err != nil {
		return err
	}
	err = c.stream.Upload(at(recv), in)
	if err == nil {
		err = c.stream.Synchronize()
	}
	if err != nil {
		return fmt.Errorf("copy %d bytes to GPU %d (%s): %w", len(recv), c.gpu.Ordinal, c.gpu.UUID, err)
	}
	return nil
}

// pinnedBuffer returns n bytes of pinned memory, which grows during the first step.
func (c *hostStagedComm) pinnedBuffer(which, n int) (driver.Host, error) {
	m := &c.memory[which]
	if m.Len() < int64(n) {
		if err := free(m); err != nil {
			return driver.Host{}, err
		}
		var err error
		if *m, err = driver.AllocHost(int64(n)); err != nil {
			return driver.Host{}, fmt.Errorf("allocate pinned memory for communication: %w", err)
		}
	}
	return m.Part(0, int64(n)), nil
}

func free(m *driver.Host) error {
	if m.Len() == 0 {
		return nil
	}
	was := *m
	*m = driver.Host{}
	return was.Free()
}

func (c *hostStagedComm) close() error {
	entered, err := c.gpu.Enter()
	if err != nil {
		return err
	}
	defer entered.Leave()
	return errors.Join(free(&c.memory[0]), free(&c.memory[1]), c.stream.Close())
}

// at returns the GPU address of a buffer.
func at(b []byte) driver.Ptr { return driver.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
