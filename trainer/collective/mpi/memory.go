package mpi

import (
	"fmt"
	"math/bits"
	"sync"
	"syscall"
	"unsafe"
)

// arena is the memory that MPI accesses. It is mapped outside Go's heap and never unmapped: a
// fabric may keep it registered, and a failed operation may still write to it.
type arena struct {
	mu      sync.Mutex
	regions [][]byte
	free    map[int][][]byte // by size
}

// smallest is the size of the smallest allocation, and a multiple of every element size.
const smallest = 4 << 10

// alloc returns at least n bytes, aligned to pages, with undefined contents.
func (a *arena) alloc(n int) ([]byte, error) {
	size := max(smallest, 1<<bits.Len(uint(max(n, 1)-1)))
	a.mu.Lock()
	if list := a.free[size]; len(list) > 0 {
		b := list[len(list)-1]
		a.free[size] = list[:len(list)-1]
		a.mu.Unlock()
		return b, nil
	}
	a.mu.Unlock()
	return a.mapped(size)
}

// release releases memory that alloc returned. No operation may use it.
func (a *arena) release(b []byte) {
	if b == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.free == nil {
		a.free = map[int][][]byte{}
	}
	a.free[len(b)] = append(a.free[len(b)], b)
}

// mapped returns n new zero bytes.
func (a *arena) mapped(n int) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for MPI: %w", n, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.regions = append(a.regions, b)
	return b, nil
}

// holds reports whether b is in the arena.
func (a *arena) holds(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.regions {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(r)))
		if first >= start && first+uintptr(len(b)) <= start+uintptr(len(r)) {
			return true
		}
	}
	return false
}
