// Package tensorboard writes and reads scalars in event files for TensorBoard: TFRecords
// (tensorflow/core/lib/io/record_writer.h) with Event messages (tensorflow/core/util/event.proto),
// encoded by hand.
//
// It guarantees that each record is written in one system call. So if the process is killed, the
// file is readable up to its last record. If a run resumes at a step, a SessionLog.START record
// makes TensorBoard discard later steps, which will be written again.
//
// It writes scalars only, to a new file for each [Create]; TensorBoard merges the files of a
// directory. A [Reader] reads the scalars in event files of any program, and skips everything else.
package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A Scalar is a named value.
type Scalar struct {
	Tag   string // such as "train/loss"; the part before the slash groups charts
	Value float64
}

// A File is an open event file.
type File struct{ f *os.File }

// Create creates an event file in dir for a run that resumes after the given step; 0 is a new run.
// It creates dir with mode 0700 if it is missing. The host and the process ID are part of the file
// name, as with TensorBoard's own writer.
func Create(dir, host string, step int, now time.Time) (*File, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create event file: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("create event file: %w", err)
	}
	defer root.Close()
	return create(root, host, step, now)
}

// CreateIn creates an event file like [Create], in a directory of an open directory. No link leads
// it out of the open directory.
func CreateIn(root *os.Root, dir, host string, step int, now time.Time) (*File, error) {
	if err := root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create event file: %w", err)
	}
	below, err := root.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("create event file: %w", err)
	}
	defer below.Close()
	return create(below, host, step, now)
}

func create(dir *os.Root, host string, step int, now time.Time) (*File, error) {
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d", now.Unix(), filepath.Base(host), os.Getpid())
	// The file is new, unless the process ID occurs twice within a second. A link or a FIFO at the
	// name is an error.
	f, err := dir.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NONBLOCK, 0o600)
	if err == nil {
		var info, named fs.FileInfo
		if info, err = f.Stat(); err == nil {
			named, err = dir.Lstat(name)
		}
		if err == nil && (!info.Mode().IsRegular() || !os.SameFile(info, named)) {
			err = fmt.Errorf("%q is not a regular file", name)
		}
		if err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create event file: %w", err)
	}
	w := &File{f}
	err = w.record(event(now, 0).text(fieldFileVersion, "brain.Event:2"))
	if err == nil && step > 0 {
		start := message{}.number(fieldStatus, statusStart)
		err = w.record(event(now, step+1).bytes(fieldSessionLog, start))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("create event file: %w", err)
	}
	return w, nil
}

// Write appends the scalars of a step.
func (w *File) Write(now time.Time, step int, scalars ...Scalar) error {
	var summary message
	for _, s := range scalars {
		summary = summary.bytes(fieldValue, message{}.text(fieldTag, s.Tag).float(fieldSimpleValue, float32(s.Value)))
	}
	if err := w.record(event(now, step).bytes(fieldSummary, summary)); err != nil {
		return fmt.Errorf("write event file: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *File) Close() error { return w.f.Close() }

// Field numbers of Event, SessionLog, Summary, and Summary.Value.
const (
	fieldWallTime    = 1
	fieldStep        = 2
	fieldFileVersion = 3
	fieldSummary     = 5
	fieldSessionLog  = 7

	fieldStatus = 1
	statusStart = 1

	fieldValue = 1

	fieldTag         = 1
	fieldSimpleValue = 2
)

func event(now time.Time, step int) message {
	return message{}.double(fieldWallTime, float64(now.UnixNano())/1e9).number(fieldStep, uint64(step))
}

// message is a protocol buffer message under construction.
type message []byte

// The wire types (protobuf.dev/programming-guides/encoding).
const (
	varint  = 0
	fixed64 = 1
	length  = 2
	fixed32 = 5
)

func (m message) key(field, wire uint64) message { return binary.AppendUvarint(m, field<<3|wire) }

func (m message) number(field, v uint64) message {
	return binary.AppendUvarint(m.key(field, varint), v)
}

func (m message) double(field uint64, v float64) message {
	return binary.LittleEndian.AppendUint64(m.key(field, fixed64), math.Float64bits(v))
}

func (m message) float(field uint64, v float32) message {
	return binary.LittleEndian.AppendUint32(m.key(field, fixed32), math.Float32bits(v))
}

func (m message) bytes(field uint64, v []byte) message {
	return append(binary.AppendUvarint(m.key(field, length), uint64(len(v))), v...)
}

func (m message) text(field uint64, v string) message { return m.bytes(field, []byte(v)) }

// record writes a TFRecord: the length and its checksum, the data and its checksum.
func (w *File) record(data message) error {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, len(data)+16), uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, data...)
	b = binary.LittleEndian.AppendUint32(b, masked(data))
	_, err := w.f.Write(b)
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns a masked CRC-32C, which may be stored in data that has a CRC itself
// (tsl/lib/hash/crc32c.h).
func masked(b []byte) uint32 {
	sum := crc32.Checksum(b, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}
