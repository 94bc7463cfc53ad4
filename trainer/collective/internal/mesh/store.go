package mesh

import "math/bits"

// Of the memory of messages that nobody has asked for yet, maxKept bounds what is in use,
// maxIdle what stays for the next ones.
const (
	maxKept = 1 << 30
	maxIdle = 32 * MaxSegment
)

// leastUsedAgain is the smallest memory in bytes that is used again: less is soon made.
const leastUsedAgain = 8 << 10

// store is memory for messages that nobody has asked for yet: less than twice their
// bytes. The zero value is ready.
type store struct {
	kept, idle int              // bytes
	free       map[int][][]byte // by their length, a power of two
}

// take returns n bytes for a message; nil if there are too many already.
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

// give takes back what take has returned.
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
