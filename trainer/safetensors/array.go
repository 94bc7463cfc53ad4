package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// DType is the format's name for an element type.
type DType string

// The types that this package converts. A header may have others.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	U8   DType = "U8"
	I32  DType = "I32"
	I64  DType = "I64"
)

// bits returns the size of an element in bits, or 0 for a type that the format does not have. The
// types are those of Hugging Face's crate safetensors.
func (t DType) bits() int {
	switch t {
	case "F4":
		return 4
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "BOOL", U8, "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return 8
	case F16, BF16, "I16", "U16":
		return 16
	case F32, I32, "U32":
		return 32
	case "F64", I64, "U64", "C64":
		return 64
	}
	return 0
}

// Size returns the size of an element in bytes. It returns 0 for a type that the format does not
// have, and for types of less than a byte.
func (t DType) Size() int { return t.bits() / 8 }

// byteSize returns the size of n elements in bytes, rounded up.
func (t DType) byteSize(n int64) int64 {
	bits := int64(t.bits())
	return n/8*bits + (n%8*bits+7)/8 // n * bits could overflow
}

// Array is a named array of any type and its position in the file: the bytes from Begin up to but
// not including End, row-major and little-endian.
type Array struct {
	Name       string
	DType      DType
	Shape      []int
	Begin, End int64
}

// Len returns the number of elements between Begin and End, which can be a part of the array. For
// types of less than a byte, it includes the padding of the last byte.
func (a Array) Len() int { return int((a.End - a.Begin) * 8 / int64(a.DType.bits())) }

// Read reads the array's bytes from the file that the header was read from.
func (a Array) Read(file io.ReaderAt) ([]byte, error) {
	raw := make([]byte, a.End-a.Begin)
	if n, err := file.ReadAt(raw, a.Begin); n < len(raw) {
		return nil, fmt.Errorf("read tensor %q: at byte %d: %w", a.Name, a.Begin+int64(n), describeEOF(err))
	}
	return raw, nil
}

// Float32s reads an array of F32, F16, BF16, or U8 as float32, which represents all their values
// exactly. Other types are errors.
func (a Array) Float32s(file io.ReaderAt) ([]float32, error) {
	switch a.DType {
	case F32, F16, BF16, U8:
	default:
		return nil, fmt.Errorf("at byte %d: tensor %q has type %s, want %s, %s, %s or %s", a.Begin, a.Name, a.DType, F32, F16, BF16, U8)
	}
	values := make([]float32, a.Len())
	if a.DType == F32 {
		return values, a.ReadFloat32s(file, values)
	}
	raw, err := a.Read(file)
	if err != nil {
		return nil, err
	}
	for i := range values {
		switch a.DType {
		case F16:
			values[i] = element.F16(binary.LittleEndian.Uint16(raw[2*i:])).Float32()
		case BF16:
			values[i] = element.BF16(binary.LittleEndian.Uint16(raw[2*i:])).Float32()
		case U8:
			values[i] = float32(raw[i])
		}
	}
	return values, nil
}

// ReadFloat32s reads an array of F32 into values, which must have the same number of elements.
// Other types are errors.
func (a Array) ReadFloat32s(file io.ReaderAt, values []float32) error {
	if a.DType != F32 {
		return fmt.Errorf("at byte %d: tensor %q has type %s, want %s", a.Begin, a.Name, a.DType, F32)
	}
	if len(values) != a.Len() {
		panic(fmt.Sprintf("safetensors: tensor %q of %d elements is read into %d", a.Name, a.Len(), len(values)))
	}
	if n, err := file.ReadAt(memory(values), a.Begin); n < 4*len(values) {
		return fmt.Errorf("read tensor %q: at byte %d: %w", a.Name, a.Begin+int64(n), describeEOF(err))
	}
	return nil
}

// Int64s reads an array of I64, I32, or U8. Other types are errors.
func (a Array) Int64s(file io.ReaderAt) ([]int64, error) {
	switch a.DType {
	case I64, I32, U8:
	default:
		return nil, fmt.Errorf("at byte %d: tensor %q has type %s, want %s, %s or %s", a.Begin, a.Name, a.DType, I64, I32, U8)
	}
	raw, err := a.Read(file)
	if err != nil {
		return nil, err
	}
	values := make([]int64, a.Len())
	for i := range values {
		switch a.DType {
		case I64:
			values[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		case I32:
			values[i] = int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		case U8:
			values[i] = int64(raw[i])
		}
	}
	return values, nil
}
