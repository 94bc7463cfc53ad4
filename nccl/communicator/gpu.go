package communicator

import "unsafe"

// GPU is what a communicator asks of the one that it works on. All but ID may only be
// called from threads that have called Use.
type GPU interface {
	// ID tells the GPUs of a host apart: a UUID or a bus address.
	ID() string
	// Use makes the GPU's primary context the calling thread's, for ever: the thread is
	// the caller's, which ends with it.
	Use() error
	// NewStream makes a stream that does not wait for the null stream, of the highest
	// priority.
	NewStream() (Stream, error)
	// NewEvent makes an event without times.
	NewEvent() (Event, error)
	Alloc(bytes int) (unsafe.Pointer, error)
	// Free may wait for all that the GPU does.
	Free(p unsafe.Pointer) error
	// AllocHost makes memory of the host that the GPU reads and writes by itself.
	AllocHost(bytes int) (Host, error)
}

// Stream is a sequence of work on a GPU.
type Stream interface {
	// Handle is CUDA's.
	Handle() uintptr
	// Record has an event happen when the stream comes to this point.
	Record(e Event) error
	// Wait has the stream wait for an event's last record.
	Wait(e Event) error
	// Upload copies the first bytes of src, and Download to those of dst.
	Upload(dst unsafe.Pointer, src Host, bytes int) error
	Download(dst Host, src unsafe.Pointer, bytes int) error
	Close() error
}

// Event is a point in a stream.
type Event interface {
	// Done reports whether the last record was reached.
	Done() (bool, error)
	Close() error
}

// Host is memory that [GPU.AllocHost] has made.
type Host interface {
	Bytes() []byte
	Free() error
}
