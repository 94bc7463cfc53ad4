// Package element implements the arithmetic of collectives: element types, and sums, products,
// maxima, minima, and means over raw memory, so that one implementation of a collective serves
// every type.
//
// Guarantees:
//   - The same operands in the same order give the same bits, on every CPU and for every
//     alignment.
//   - float16 and bfloat16 are computed in float32 and rounded after each operation, to nearest
//     even.
//   - Integers wrap around.
//   - The maximum or minimum of any value and NaN is NaN.
//   - A mean is the sum times 1/n; for integers, it is the sum divided by n, truncated towards
//     zero.
//
// The package does not choose the order of a sum, panics on buffers of different lengths, and has
// no state.
package element

import (
	"fmt"
	"unsafe"
)

// A Type is the type of the elements of a buffer.
type Type uint8

// The element types use the byte order of the machine.
const (
	Float32 Type = iota + 1
	Float64
	BFloat16
	Float16
	Int8
	Uint8
	Int32
	Uint32
	Int64
	Uint64
)

// Types returns all types.
func Types() []Type {
	return []Type{Float32, Float64, BFloat16, Float16, Int8, Uint8, Int32, Uint32, Int64, Uint64}
}

var typeNames = [...]string{"", "float32", "float64", "bfloat16", "float16", "int8", "uint8", "int32", "uint32", "int64", "uint64"}

var typeSizes = [...]int{0, 4, 8, 2, 2, 1, 1, 4, 4, 8, 8}

// Valid reports whether t is one of [Types].
func (t Type) Valid() bool { return t >= Float32 && t <= Uint64 }

// Size returns the size of one element in bytes.
func (t Type) Size() int { return typeSizes[t] }

// String returns the name of the type for messages.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return typeNames[t]
}

// BF16 holds the bits of a bfloat16 value: the upper half of a float32.
type BF16 uint16

// F16 holds the bits of an IEEE 754 binary16 value.
type F16 uint16

// Number is the set of Go types that represent a [Type].
type Number interface {
	float32 | float64 | BF16 | F16 | int8 | uint8 | int32 | uint32 | int64 | uint64
}

// Of returns the type that T represents.
func Of[T Number]() Type {
	var zero T
	switch any(zero).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case BF16:
		return BFloat16
	case F16:
		return Float16
	case int8:
		return Int8
	case uint8:
		return Uint8
	case int32:
		return Int32
	case uint32:
		return Uint32
	case int64:
		return Int64
	}
	return Uint64
}

// Bytes returns the memory of s.
func Bytes[T Number](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// View returns the elements in b. The address of b must be aligned for T, and its length must be a
// multiple of the size of T.
func View[T Number](b []byte) []T {
	size := int(unsafe.Sizeof(*new(T)))
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b)%size != 0 || uintptr(p)%uintptr(size) != 0 {
		panic(fmt.Sprintf("element: %d bytes at %p are not whole elements of %d bytes", len(b), p, size))
	}
	return unsafe.Slice((*T)(p), len(b)/size)
}
