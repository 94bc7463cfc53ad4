//go:build cuda

package driver

// #include <cuda.h>
import "C"

import (
	"errors"
	"time"
	"unsafe"

	"gorgonia.org/cu"
)

// Stream is a CUDA stream. The zero Stream is the NULL stream.
type Stream struct{ stream cu.Stream }

// NewStream creates a stream of the bound GPU that does not synchronize with the NULL stream. The
// GPU schedules blocks of the stream with the lower priority number first. The numbers range from 0
// to the greatest priority of [StreamPriorities].
func NewStream(priority int) (Stream, error) {
	s, err := cu.MakeStreamWithPriority(priority, cu.NonBlocking)
	return Stream{s}, wrap("cuStreamCreateWithPriority", err, nil)
}

// StreamPriorities returns the numbers of the least and of the greatest priority.
func StreamPriorities() (least, greatest int, err error) {
	least, greatest, err = cu.StreamPriorityRange()
	return least, greatest, wrap("cuCtxGetStreamPriorityRange", err, nil)
}

// Handle returns the CUstream, which is also a cudaStream_t, for other libraries.
func (s Stream) Handle() uintptr { return uintptr(unsafe.Pointer(streamHandle(s.stream))) }

// Close destroys the stream. Its work continues to its end.
func (s Stream) Close() error { return wrap("cuStreamDestroy", s.stream.Destroy(), nil) }

// Synchronize waits until all work in the stream is done. It returns errors of kernels that were
// launched before.
func (s Stream) Synchronize() error {
	return wrap("cuStreamSynchronize", s.stream.Synchronize(), nil)
}

// Done reports whether all work in the stream is done.
func (s Stream) Done() (bool, error) { return ready("cuStreamQuery", s.stream.Query()) }

// Wait makes later work in the stream wait for the event, which may be of any GPU. The host does
// not wait.
func (s Stream) Wait(e Event) error {
	return wrap("cuStreamWaitEvent", s.stream.Wait(e.event, 0), nil)
}

// Event is a CUDA event.
type Event struct{ event cu.Event }

// NewEvent creates an event. With timing, it also records the time.
func NewEvent(timing bool) (Event, error) {
	flags := cu.DisableTiming
	if timing {
		flags = cu.DefaultEvent
	}
	e, err := cu.MakeEvent(flags)
	return Event{e}, wrap("cuEventCreate", err, nil)
}

// Close destroys the event.
func (e Event) Close() error { return wrap("cuEventDestroy", cu.DestroyEvent(&e.event), nil) }

// Record records the event in the stream.
func (s Stream) Record(e Event) error { return wrap("cuEventRecord", e.event.Record(s.stream), nil) }

// Synchronize waits until the event has completed.
func (e Event) Synchronize() error { return wrap("cuEventSynchronize", e.event.Synchronize(), nil) }

// Done reports whether the event has completed.
func (e Event) Done() (bool, error) { return ready("cuEventQuery", e.event.Query()) }

// Since returns the GPU time from the other event to this one. Both must record the time and have
// completed.
func (e Event) Since(start Event) (time.Duration, error) {
	ms, err := start.event.Elapsed(e.event)
	return time.Duration(ms * float64(time.Millisecond)), wrap("cuEventElapsedTime", err, nil)
}

// ready converts the NotReady error to false.
func ready(op string, err error) (bool, error) {
	err = wrap(op, err, nil)
	if errors.Is(err, NotReady) {
		return false, nil
	}
	return err == nil, err
}
