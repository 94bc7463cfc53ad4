package mesh

import "math/bits"

// maxKept limits the memory of messages that were not requested yet. maxIdle limits the memory that
// is retained for later messages.
const (
	maxKept = 1 << 30
	maxIdle = 32 * MaxSegment
)

// leastUsedAgain is the size in bytes of the smallest buffer that is reused: smaller ones are cheap
// to allocate.
const leastUsedAgain = 8 << 10

// store allocates memory for messages that were not requested yet: less than twice their size. The
// zero value is ready to use.
type store struct {
	kept, idle int              // bytes
	free       map[int][][]byte // free buffers by length, a power of two
}

// take returns n bytes for a message, or nil if the limit is reached.
func (s *store) take(n int) []byte {
	room := n
	if n >= leastUsedAgain {
		room = 1 << bits.Len(uint(n-1))
	}
	if s.kept+room > maxKept {
		return nil
	}
	s.kept += room
	free := s.free[room]
	last := len(free) - 1
	if last < 0 {
		return make([]byte, n, room)
	}
	s.free[room] = free[:last]
	s.idle -= room
	return free[last][:n]
}

// give releases memory that take returned.
func (s *store) give(b []byte) {
	room := cap(b)
	s.kept -= room
	if room < leastUsedAgain || s.idle+room > maxIdle {
		return
	}
	if s.free == nil {
		s.free = map[int][][]byte{}
	}
	s.free[room] = append(s.free[room], b[:room])
	s.idle += room
}
