package collective

import "unsafe"

// asBytes is the memory of s. The machines that this runs on (amd64, arm64) are
// little-endian, and so is what goes over the wire.
func asBytes[T float32 | float64](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*sizeOf[T]())
}

func sizeOf[T float32 | float64]() int { return int(unsafe.Sizeof(T(0))) }

// add adds the elements that src holds to dst. src must be aligned for T.
func add[T float32 | float64](dst []T, src []byte) {
	if len(dst) == 0 {
		return
	}
	for i, v := range unsafe.Slice((*T)(unsafe.Pointer(&src[0])), len(dst)) {
		dst[i] += v
	}
}
