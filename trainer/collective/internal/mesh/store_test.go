package mesh

import (
	"testing"
	"unsafe"
)

// TestMemoryOfEarlyMessages checks that a message that was not requested yet uses less than twice
// its size, and that its memory is reused or released.
func TestMemoryOfEarlyMessages(t *testing.T) {
	for _, size := range []int{0, 1, 4097, 8191, 8192, 8193, 100_000, MaxSegment - 1, MaxSegment} {
		var s store
		var buffers [][]byte
		for range 100 {
			b := s.alloc(size)
			if len(b) != size || size > 0 && cap(b) >= 2*size {
				t.Fatalf("a message of %d bytes has %d of %d", size, len(b), cap(b))
			}
			buffers = append(buffers, b)
		}
		if size > 0 && (s.inUse < 100*size || s.inUse >= 200*size) {
			t.Errorf("100 messages of %d bytes count as %d", size, s.inUse)
		}
		for _, b := range buffers {
			s.release(b)
		}
		idle := 0
		for _, free := range s.free {
			for _, b := range free {
				idle += cap(b)
			}
		}
		if s.inUse != 0 || s.idle != idle || idle > maxIdleBytes {
			t.Errorf("of messages of %d bytes, %d are in use and %d (%d) idle", size, s.inUse, idle, s.idle)
		}
		if size >= minReusedBytes {
			if again := s.alloc(size); unsafe.SliceData(again) != unsafe.SliceData(buffers[min(100, maxIdleBytes/cap(buffers[0]))-1]) {
				t.Errorf("memory of %d bytes is not used again", size)
			}
		}
	}
}

// TestEarlyMessagesAreBounded checks that the memory of messages that were not requested yet is
// limited, including messages in transfer.
func TestEarlyMessagesAreBounded(t *testing.T) {
	x := newInbox()
	x.store.inUse = maxEarlyBytes - MaxSegment
	if _, _, err := x.arrive(1, head(1), MaxSegment); err != nil {
		t.Error(err)
	}
	if _, _, err := x.arrive(1, head(2), 1); err == nil {
		t.Error("there is no end to what is kept")
	}
}
