package communicator

import "time"

// A GPU provides the operations that a communicator needs. All methods except ID must be
// called on threads that have called Use.
type GPU interface {
	// ID returns a unique ID among the GPUs of a host: a UUID or a bus address.
	ID() string
	// Use makes the GPU's primary context current on the calling thread, permanently. The
	// caller locks the thread until it exits.
	Use() error
	// NewStream creates a stream of the highest priority that does not synchronize with the
	// null stream.
	NewStream() (Stream, error)
	// NewEvent creates an event that records the time.
	NewEvent() (Event, error)
}

// A Stream is a sequence of work on a GPU.
type Stream interface {
	// Handle returns CUDA's handle.
	Handle() uintptr
	// Record records an event at this point of the stream.
	Record(e Event) error
	// Wait makes the stream wait for the last record of an event.
	Wait(e Event) error
	Close() error
}

// An Event is a point in a stream.
type Event interface {
	// Done reports whether the stream has reached the last record.
	Done() (bool, error)
	// Since returns the GPU time from another event to this one. Both must have completed.
	Since(start Event) (time.Duration, error)
	Close() error
}
