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
	room := n
	if n >= minReusedBytes {
		room = 1 << bits.Len(uint(n-1))
	}
	if s.inUse+room > maxEarlyBytes {
		return nil
	}
	s.inUse += room
	free := s.free[room]
	last := len(free) - 1
	if last < 0 {
		return make([]byte, n, room)
	}
	s.free[room] = free[:last]
	s.idle -= room
	return free[last][:n]
}

// release releases memory that take returned.
func (s *store) release(b []byte) {
	room := cap(b)
	s.inUse -= room
	if room < minReusedBytes || s.idle+room > maxIdleBytes {
		return
	}
	if s.free == nil {
		s.free = map[int][][]byte{}
	}
	s.free[room] = append(s.free[room], b[:room])
	s.idle += room
}
