package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// A Point is a scalar of a step in an event file.
type Point struct {
	Step  int64
	Tag   string
	Value float64
}

const (
	recordHeader = 12 // length and its checksum
	recordFooter = 4  // checksum of the data
	// maxRecord is the maximum size in bytes of a record that a [Reader] reads. It skips larger
	// records, which contain images or histograms.
	maxRecord = 1 << 20
	// maxReaderBytes is the number of bytes after which [Reader.Read] returns. The last record can
	// exceed it.
	maxReaderBytes = 4 << 20
	// maxPoints is the maximum number of scalars in a record.
	maxPoints = 10000
)

// ErrCorrupt means that a file is not an event file, or that it is corrupt.
var ErrCorrupt = errors.New("not a valid event file")

// A Reader reads the scalars that a program appends to an event file.
type Reader struct {
	// Offset is the position of the next record.
	Offset int64
}

// Read calls f for each scalar in the records after Offset, in a file of size bytes. It stops after
// about 4 MiB, and then reports true, because more records may follow. The last record may be
// incomplete; a later call reads it. Read returns [ErrCorrupt] if a checksum is wrong.
func (r *Reader) Read(file io.ReaderAt, size int64, f func(Point)) (more bool, err error) {
	var header [recordHeader]byte
	for read := int64(0); size-r.Offset >= recordHeader+recordFooter; {
		if read > maxReaderBytes {
			return true, nil
		}
		if _, err := file.ReadAt(header[:], r.Offset); err != nil {
			return false, err
		}
		length := binary.LittleEndian.Uint64(header[:8])
		if binary.LittleEndian.Uint32(header[8:]) != masked(header[:8]) || length > math.MaxInt64/2 {
			return false, fmt.Errorf("%w: record at byte %d", ErrCorrupt, r.Offset)
		}
		end := r.Offset + recordHeader + int64(length) + recordFooter
		if end > size {
			return false, nil
		}
		if length <= maxRecord {
			data := make([]byte, length+recordFooter)
			if _, err := file.ReadAt(data, r.Offset+recordHeader); err != nil {
				return false, err
			}
			if binary.LittleEndian.Uint32(data[length:]) != masked(data[:length]) {
				return false, fmt.Errorf("%w: record at byte %d", ErrCorrupt, r.Offset)
			}
			readEvent(data[:length], f)
			read += int64(length)
		}
		read += recordHeader
		r.Offset = end
	}
	return false, nil
}

// readEvent calls f for the scalars of an Event message. It ignores malformed messages.
func readEvent(event []byte, f func(Point)) {
	var step int64
	var summary []byte
	if !eachField(event, func(field, number uint64, data []byte) {
		switch field {
		case fieldStep:
			step = int64(number)
		case fieldSummary:
			summary = data
		}
	}) {
		return
	}
	points := 0
	eachField(summary, func(field, _ uint64, data []byte) {
		if field != fieldValue || points == maxPoints {
			return
		}
		if tag, value, ok := readValue(data); ok {
			points++
			f(Point{step, tag, value})
		}
	})
}

// Field numbers of Summary.Value and TensorProto (tensorflow/core/framework), in addition to
// the fields that this package writes.
const (
	fieldTensor = 8

	fieldType    = 1
	fieldContent = 4
	fieldFloats  = 5
	fieldDoubles = 6

	typeFloat  = 1
	typeDouble = 2
)

// readValue reads a Summary.Value message. It returns false if the value is not a scalar.
func readValue(data []byte) (tag string, value float64, ok bool) {
	eachField(data, func(field, number uint64, data []byte) {
		switch field {
		case fieldTag:
			tag = string(data)
		case fieldSimpleValue:
			value, ok = float64(math.Float32frombits(uint32(number))), true
		case fieldTensor:
			value, ok = readTensor(data)
		}
	})
	return tag, value, ok && tag != ""
}

// readTensor returns the value of a TensorProto message with one number.
func readTensor(data []byte) (value float64, ok bool) {
	kind := uint64(0)
	eachField(data, func(field, number uint64, data []byte) {
		switch {
		case field == fieldType && data == nil:
			kind = number
		case kind == typeFloat && (field == fieldContent || field == fieldFloats) && len(data) == 4:
			value, ok = float64(math.Float32frombits(binary.LittleEndian.Uint32(data))), true
		case kind == typeFloat && field == fieldFloats && data == nil:
			value, ok = float64(math.Float32frombits(uint32(number))), true
		case kind == typeDouble && (field == fieldContent || field == fieldDoubles) && len(data) == 8:
			value, ok = math.Float64frombits(binary.LittleEndian.Uint64(data)), true
		case kind == typeDouble && field == fieldDoubles && data == nil:
			value, ok = math.Float64frombits(number), true
		}
	})
	return value, ok
}

// eachField calls f for the fields of a protocol buffer message: with the number, or with the
// data of a field of variable length. It returns false if the message is malformed.
func eachField(m []byte, f func(field, number uint64, data []byte)) bool {
	for len(m) > 0 {
		key, n := binary.Uvarint(m)
		if n <= 0 {
			return false
		}
		m = m[n:]
		switch key & 7 {
		case varint:
			v, n := binary.Uvarint(m)
			if n <= 0 {
				return false
			}
			m = m[n:]
			f(key>>3, v, nil)
		case fixed64:
			if len(m) < 8 {
				return false
			}
			f(key>>3, binary.LittleEndian.Uint64(m), nil)
			m = m[8:]
		case fixed32:
			if len(m) < 4 {
				return false
			}
			f(key>>3, uint64(binary.LittleEndian.Uint32(m)), nil)
			m = m[4:]
		case length:
			v, n := binary.Uvarint(m)
			if n <= 0 || v > uint64(len(m)-n) {
				return false
			}
			f(key>>3, 0, m[n:n+int(v):n+int(v)])
			m = m[n+int(v):]
		default:
			return false
		}
	}
	return true
}
