package tensorboard

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// eventFile returns an event file that this package has written.
func eventFile(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	f, err := Create(dir, "host", 0, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		if err := f.Write(time.Unix(2, 0), step, Scalar{"train/loss", 0.5 * float64(step)}, Scalar{"train/lr", 0.25}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	text, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestReaderReadsGrowingFile reads a file that grows by one byte at a time.
func TestReaderReadsGrowingFile(t *testing.T) {
	text := eventFile(t)
	var got []Point
	var r Reader
	for size := range len(text) + 1 {
		if _, err := r.Read(bytes.NewReader(text[:size]), int64(size), func(p Point) { got = append(got, p) }); err != nil {
			t.Fatal(err)
		}
	}
	want := []Point{{0, "train/loss", 0}, {0, "train/lr", 0.25}, {1, "train/loss", 0.5}, {1, "train/lr", 0.25}, {2, "train/loss", 1}, {2, "train/lr", 0.25}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReaderReadsTensors reads scalars as TensorFlow 2 and PyTorch's add_scalar(new_style=True)
// write them.
func TestReaderReadsTensors(t *testing.T) {
	tensor := func(m message) []byte {
		value := message{}.text(fieldTag, "loss").bytes(fieldTensor, m)
		return event(time.Unix(1, 0), 7).bytes(fieldSummary, message{}.bytes(fieldValue, value))
	}
	for _, tt := range []struct {
		name   string
		tensor message
		ok     bool
	}{
		{"float content", message{}.number(fieldType, typeFloat).bytes(fieldContent, []byte{0, 0, 0, 0x3f}), true},
		{"packed floats", message{}.number(fieldType, typeFloat).bytes(fieldFloats, []byte{0, 0, 0, 0x3f}), true},
		{"float", message{}.number(fieldType, typeFloat).float(fieldFloats, 0.5), true},
		{"double content", message{}.number(fieldType, typeDouble).bytes(fieldContent, []byte{0, 0, 0, 0, 0, 0, 0xe0, 0x3f}), true},
		{"double", message{}.number(fieldType, typeDouble).double(fieldDoubles, 0.5), true},
		{"two floats", message{}.number(fieldType, typeFloat).bytes(fieldContent, make([]byte, 8)), false},
		{"text", message{}.number(fieldType, 7).bytes(8, []byte("x")), false},
		{"without type", message{}.bytes(fieldContent, make([]byte, 4)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []Point
			readEvent(tensor(tt.tensor), func(p Point) { got = append(got, p) })
			var want []Point
			if tt.ok {
				want = []Point{{7, "loss", 0.5}}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestReaderRejectsCorruptFiles checks that a wrong checksum is an error, and that a large
// record is skipped.
func TestReaderRejectsCorruptFiles(t *testing.T) {
	for _, at := range []int{0, 9, 14, 40} {
		text := eventFile(t)
		text[at] ^= 1
		var r Reader
		if _, err := r.Read(bytes.NewReader(text), int64(len(text)), func(Point) {}); !errors.Is(err, ErrCorrupt) && at < 12 {
			t.Errorf("byte %d: %v", at, err)
		} else if err == nil {
			t.Errorf("byte %d: no error", at)
		}
	}
	path := filepath.Join(t.TempDir(), "events")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := File{f}
	image := event(time.Unix(1, 0), 1).bytes(fieldSummary, make([]byte, maxRecord+1))
	if err := errors.Join(w.record(image), w.Write(time.Unix(1, 0), 2, Scalar{"loss", 1})); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var r Reader
	var got []Point
	if _, err := r.Read(f, info.Size(), func(p Point) { got = append(got, p) }); err != nil || !slices.Equal(got, []Point{{2, "loss", 1}}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// FuzzReader checks that a reader survives any file and never goes back.
func FuzzReader(f *testing.F) {
	f.Add(eventFile(f))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Reader
		for {
			before := r.Offset
			more, err := r.Read(bytes.NewReader(text), int64(len(text)), func(Point) {})
			if r.Offset < before || r.Offset > int64(len(text)) {
				t.Fatalf("offset %d after %d in %d bytes", r.Offset, before, len(text))
			}
			if err != nil || !more {
				break
			}
		}
		readEvent(text, func(Point) {})
	})
}
