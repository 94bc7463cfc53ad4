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
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// ConnectThroughHost connects GPUs from [Open] through host memory, for machines without NCCL: it
// copies data to the host, communicates there, and copies the result back. Sums have the order, and
// so the bits, of the host communicator. The result must be closed before the GPU.
func ConnectThroughHost(d *GPU, host collective.Communicator) (ddp.Communicator, error) {
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
	c := &hostStagedComm{host: host, gpu: d.gpu, stream: stream}
	order := driver.NewOrder(d.gpu, d, func(e driver.Event) { c.after = &e })
	return hostStaged{ddp.NewDeviceCommunicator(c, host, order.Mark), c, order}, nil
}

type hostStaged struct {
	ddp.Communicator
	comm  *hostStagedComm
	order *driver.Order
}

func (b hostStaged) Close() error {
	if !b.comm.mu.TryLock() {
		return errors.New("an operation through host memory is still in progress") // it still uses the memory
	}
	defer b.comm.mu.Unlock()
	return errors.Join(b.comm.close(), b.order.Close())
}

// hostStagedComm performs operations on GPU memory with a host communicator.
type hostStagedComm struct {
	host   collective.Communicator
	gpu    *driver.GPU
	stream driver.Stream
	after  *driver.Event // event that the next call must wait for
	mu     sync.Mutex    // held by the call in progress
	memory [2]driver.Host
}

func (c *hostStagedComm) Rank() int { return c.host.Rank() }

func (c *hostStagedComm) Size() int { return c.host.Size() }

func (c *hostStagedComm) AllReduce(ctx context.Context, buf device.Tensor) (ddp.Work, error) {
	return nil, c.do(buf, buf, func(send, recv device.Tensor) (ddp.Work, error) {
		return ddp.NewCommunicator(c.host).AllReduce(ctx, send)
	})
}

func (c *hostStagedComm) ReduceScatter(ctx context.Context, part, whole device.Tensor) (ddp.Work, error) {
	return nil, c.do(whole, part, func(send, recv device.Tensor) (ddp.Work, error) {
		return ddp.NewCommunicator(c.host).ReduceScatter(ctx, recv, send)
	})
}

func (c *hostStagedComm) AllGather(ctx context.Context, whole, part device.Tensor) (ddp.Work, error) {
	return nil, c.do(part, whole, func(send, recv device.Tensor) (ddp.Work, error) {
		return ddp.NewCommunicator(c.host).AllGather(ctx, recv, send)
	})
}

// do copies send to the host, calls f with copies of the buffers, and copies the result to recv. If
// send and recv are the same tensor, so are the copies.
func (c *hostStagedComm) do(send, recv device.Tensor, f func(send, recv device.Tensor) (ddp.Work, error)) error {
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
	out, err := c.pinnedBuffer(0, send.Bytes())
	if err != nil {
		return err
	}
	in := out
	if send != recv {
		if in, err = c.pinnedBuffer(1, recv.Bytes()); err != nil {
			return err
		}
	}
	err = c.stream.Download(out, driver.Ptr(send.Addr()))
	if err == nil {
		err = c.stream.Synchronize()
	}
	if err != nil {
		return fmt.Errorf("copy %d bytes of GPU %d (%s) to the host: %w", send.Bytes(), c.gpu.Ordinal, c.gpu.UUID, err)
	}
	if _, err := f(pinnedTensor(out, send), pinnedTensor(in, recv)); err != nil {
		return err
	}
	err = c.stream.Upload(driver.Ptr(recv.Addr()), in)
	if err == nil {
		err = c.stream.Synchronize()
	}
	if err != nil {
		return fmt.Errorf("copy %d bytes to GPU %d (%s): %w", recv.Bytes(), c.gpu.Ordinal, c.gpu.UUID, err)
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

// pinnedTensor returns the copy of t in pinned memory.
func pinnedTensor(h driver.Host, t device.Tensor) device.Tensor {
	return device.At(t.Type(), unsafe.Pointer(unsafe.SliceData(h.Bytes())), t.Len())
}
