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

// Stream is work in order on one GPU. The zero stream is CUDA's NULL.
type Stream struct{ stream cu.Stream }

// NewStream makes a stream of the bound GPU that does not wait for the NULL stream.
// Of two streams, the GPU prefers blocks of the one with the lower priority: 0 is the
// highest number, and [StreamPriorities] tells the lowest.
func NewStream(priority int) (Stream, error) {
	s, err := cu.MakeStreamWithPriority(priority, cu.NonBlocking)
	return Stream{s}, wrap("cuStreamCreateWithPriority", err, nil)
}

// StreamPriorities returns the number of the least and of the most urgent streams.
func StreamPriorities() (least, greatest int, err error) {
	least, greatest, err = cu.StreamPriorityRange()
	return least, greatest, wrap("cuCtxGetStreamPriorityRange", err, nil)
}

// Handle is the CUstream, which is a cudaStream_t, for libraries that take one.
func (s Stream) Handle() uintptr { return uintptr(unsafe.Pointer(streamHandle(s.stream))) }

// Close destroys the stream; work in it goes on to its end.
func (s Stream) Close() error { return wrap("cuStreamDestroy", s.stream.Destroy(), nil) }

// Synchronize waits until all work in the stream is done. Errors of kernels that were
// launched before appear here.
func (s Stream) Synchronize() error {
	return wrap("cuStreamSynchronize", s.stream.Synchronize(), nil)
}

// Done says whether all work in the stream is done.
func (s Stream) Done() (bool, error) { return ready("cuStreamQuery", s.stream.Query()) }

// Wait has work that is asked of the stream from now on wait for the event, of any
// GPU. The host does not wait.
func (s Stream) Wait(e Event) error {
	return wrap("cuStreamWaitEvent", s.stream.Wait(e.event, 0), nil)
}

// Capturing says whether what is asked of the stream is recorded in a graph.
func (s Stream) Capturing() (bool, error) {
	var status C.CUstreamCaptureStatus
	err := failed("cuStreamIsCapturing", C.cuStreamIsCapturing(streamHandle(s.stream), &status), nil)
	return status != C.CU_STREAM_CAPTURE_STATUS_NONE, err
}

// Event is a place in a stream.
type Event struct{ event cu.Event }

// NewEvent makes an event: one that only orders streams, or also one that keeps the
// time at which it came by.
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

// Record puts the event at this place in the stream.
func (s Stream) Record(e Event) error { return wrap("cuEventRecord", e.event.Record(s.stream), nil) }

// Synchronize waits until the event has come by.
func (e Event) Synchronize() error { return wrap("cuEventSynchronize", e.event.Synchronize(), nil) }

// Done says whether the event has come by.
func (e Event) Done() (bool, error) { return ready("cuEventQuery", e.event.Query()) }

// Since returns the time from the other event to this one, on the GPU. Both keep
// time and have come by.
func (e Event) Since(start Event) (time.Duration, error) {
	ms, err := start.event.Elapsed(e.event)
	return time.Duration(ms * float64(time.Millisecond)), wrap("cuEventElapsedTime", err, nil)
}

// ready takes an answer that is no error when it is "not yet".
func ready(op string, err error) (bool, error) {
	err = wrap(op, err, nil)
	if errors.Is(err, NotReady) {
		return false, nil
	}
	return err == nil, err
}
