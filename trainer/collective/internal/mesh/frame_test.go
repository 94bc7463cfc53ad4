package mesh

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/crc32c"
)

var place1 = stream{mark: 0x1234567890abcdef, next: 7}

// tagged returns a stream with the tags of a key, before the given frame.
func tagged(t testing.TB, place stream, key byte, frame uint64) stream {
	t.Helper()
	tags, err := newTagger(bytes.Repeat([]byte{key}, 32))
	if err != nil {
		t.Fatal(err)
	}
	tags.frame = frame
	place.tags = tags
	return place
}

// encoded returns a frame at a position in a stream.
func encoded(at stream) []byte {
	payload := []byte("gradients")
	f := frame{class: classDirect, Head: Head{Key{1, 2, 3, 4, true}, Signature{5, 6, 7, -8, 9}}}
	var b [taggedHead]byte
	return append(at.encode(&f, &b, payload), payload...)
}

func readAll(at stream, b []byte) error {
	var f frame
	return at.read(bytes.NewReader(b), &f, func(f *frame) ([]byte, error) { return make([]byte, f.size), nil })
}

// TestCorruptFrameIsRejected checks that a frame with any altered bit or any truncation is
// rejected.
func TestCorruptFrameIsRejected(t *testing.T) {
	for name, place := range map[string]func() stream{
		"checksums": func() stream { return place1 },
		"tags":      func() stream { return tagged(t, place1, 1, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			whole := encoded(place())
			if err := readAll(place(), whole); err != nil {
				t.Fatal(err)
			}
			for i := range whole {
				if readAll(place(), whole[:i]) == nil {
					t.Errorf("cut to %d bytes: accepted", i)
				}
				for bit := range 8 {
					bad := bytes.Clone(whole)
					bad[i] ^= 1 << bit
					if readAll(place(), bad) == nil {
						t.Errorf("bit %d of byte %d altered: accepted", bit, i)
					}
				}
			}
		})
	}
}

// TestFrameAtWrongPositionIsRejected checks that a frame is valid only at one position in one
// direction of one connection.
func TestFrameAtWrongPositionIsRejected(t *testing.T) {
	for name, at := range map[string]stream{
		"again":              {mark: place1.mark, next: place1.next + 1},
		"one left out":       {mark: place1.mark, next: place1.next - 1},
		"other direction":    {mark: ^place1.mark, next: place1.next},
		"another connection": {mark: 99, next: place1.next},
	} {
		if readAll(at, encoded(place1)) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// With tags, the key and the position count instead of the number and the mark in the frame.
	for name, at := range map[string]stream{
		"again":                           tagged(t, place1, 1, 8),
		"one left out":                    tagged(t, place1, 1, 6),
		"other direction or connection":   tagged(t, place1, 2, 7),
		"the first frame of another rank": tagged(t, place1, 2, 0),
	} {
		if err := readAll(at, encoded(tagged(t, place1, 1, 7))); err != errAltered {
			t.Errorf("with tags, %s: %v", name, err)
		}
	}
}

// TestFrameWithoutKeyIsRejected checks that an attacker who can compute CRCs but does not have the
// key cannot create a frame with tags.
func TestFrameWithoutKeyIsRejected(t *testing.T) {
	forged := encoded(place1)
	head, payload := forged[:frameHead], forged[frameHead:]
	whole := append(append(bytes.Clone(head), make([]byte, 2*tagSize)...), payload...)
	if err := readAll(tagged(t, place1, 1, 7), whole); err != errAltered {
		t.Errorf("forged frame: %v", err)
	}
}

// repaired returns b as a frame with the expected number, mark, and checksums, so that a mutant
// reaches the code behind these checks.
func repaired(b []byte, at stream) []byte {
	if len(b) < frameHead {
		return b
	}
	b = bytes.Clone(b)
	order := binary.LittleEndian
	payload := b[frameHead:]
	if size := order.Uint32(b[40:]); uint64(size) < uint64(len(payload)) {
		payload = payload[:size]
	}
	order.PutUint32(b[44:], crc32c.Update(0, payload))
	order.PutUint32(b[48:], at.next)
	order.PutUint64(b[52:], at.mark)
	order.PutUint32(b[sumAt:], crc32c.Update(0, b[:sumAt]))
	return b
}

// FuzzFrame checks that any frame is rejected or can be encoded again, and that no frame requests
// more memory than a segment.
func FuzzFrame(f *testing.F) {
	f.Add(encoded(place1))
	f.Fuzz(func(t *testing.T, b []byte) {
		at, fr := place1, frame{}
		var payload []byte
		b = repaired(b, at)
		err := at.read(bytes.NewReader(b), &fr, func(f *frame) ([]byte, error) {
			if f.size < 0 || f.size > MaxSegment {
				t.Fatalf("%d bytes are asked for", f.size)
			}
			payload = make([]byte, f.size)
			return payload, nil
		})
		if err != nil {
			return
		}
		var again [taggedHead]byte
		at = place1
		head := at.encode(&fr, &again, payload)
		var back frame
		at = place1
		if err := at.decode(&back, head); err != nil || back != fr {
			t.Fatalf("%+v came back as %+v, %v", fr, back, err)
		}
	})
}
