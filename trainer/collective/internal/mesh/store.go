package mesh

import "math/bits"

// maxEarlyBytes limits the memory of messages that were not requested yet. maxIdleBytes limits the
// memory that is retained for later messages.
const (
	maxEarlyBytes = 1 << 30
	maxIdleBytes  = 32 * MaxSegment
)

// minReusedBytes is the size in bytes of the smallest buffer that is reused: smaller ones are cheap
// to allocate.
const minReusedBytes = 8 << 10

// store allocates memory for messages that were not requested yet: less than twice their size. The
// zero value is ready to use.
type store struct {
	inUse, idle int              // bytes
	free        map[int][][]byte // free buffers by length, a power of two
}

// alloc returns n bytes for a message, or nil if the limit is reached.
func (s *store) alloc(n int) []byte {
	capacity := n
	if n >= minReusedBytes {
		capacity = 1 << bits.Len(uint(n-1))
	}
	if s.inUse+capacity > maxEarlyBytes {
		return nil
	}
	s.inUse += capacity
	free := s.free[capacity]
	last := len(free) - 1
	if last < 0 {
		return make([]byte, n, capacity)
	}
	s.free[capacity] = free[:last]
	s.idle -= capacity
	return free[last][:n]
}

// release releases memory that alloc returned.
func (s *store) release(b []byte) {
	capacity := cap(b)
	s.inUse -= capacity
	if capacity < minReusedBytes || s.idle+capacity > maxIdleBytes {
		return
	}
	if s.free == nil {
		s.free = map[int][][]byte{}
	}
	s.free[capacity] = append(s.free[capacity], b[:capacity])
	s.idle += capacity
}
