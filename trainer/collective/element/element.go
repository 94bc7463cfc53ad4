// Package element is the arithmetic of collective operations: the types of numbers
// that ranks exchange, and sums, products, extremes and means of them over raw
// memory, so that one implementation of an operation serves every type.
//
// It promises: the same bits for the same operands in the same order, on every
// processor and whatever the alignment. float16 and bfloat16 are computed in float32
// and rounded after each operation, to nearest and to even in the middle; integers
// wrap around; the extreme of anything and NaN is NaN; a mean is the sum times 1/n,
// for integers the sum divided by n and cut towards zero.
//
// It does not choose the order of a sum, does not check lengths beyond a panic, and
// holds nothing.
package element

import (
	"fmt"
	"unsafe"
)

// Type is what the elements of a buffer are.
type Type uint8

// The types of elements, all in the byte order of the machine.
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

// Types are all of them.
func Types() []Type {
	return []Type{Float32, Float64, BFloat16, Float16, Int8, Uint8, Int32, Uint32, Int64, Uint64}
}

var typeNames = [...]string{"", "float32", "float64", "bfloat16", "float16", "int8", "uint8", "int32", "uint32", "int64", "uint64"}

var typeSizes = [...]int{0, 4, 8, 2, 2, 1, 1, 4, 4, 8, 8}

// Valid reports whether t is one of [Types].
func (t Type) Valid() bool { return t >= Float32 && t <= Uint64 }

// Size is the bytes of one element.
func (t Type) Size() int { return typeSizes[t] }

// String is the type's name in messages.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return typeNames[t]
}

// BF16 is the bits of a bfloat16 number: the upper half of a float32.
type BF16 uint16

// F16 is the bits of an IEEE 754 binary16 number.
type F16 uint16

// Number is a Go type that stands for a [Type].
type Number interface {
	float32 | float64 | BF16 | F16 | int8 | uint8 | int32 | uint32 | int64 | uint64
}

// Of is the type that T stands for.
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

// Bytes is the memory of s.
func Bytes[T Number](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// View is the elements that b holds, which must begin at an address that suits T and
// hold whole elements.
func View[T Number](b []byte) []T {
	size := int(unsafe.Sizeof(*new(T)))
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b)%size != 0 || uintptr(p)%uintptr(size) != 0 {
		panic(fmt.Sprintf("element: %d bytes at %p are not whole elements of %d bytes", len(b), p, size))
	}
	return unsafe.Slice((*T)(p), len(b)/size)
}
