package mesh

import (
	"bytes"
	"testing"
)

var place1 = stream{mark: 0x1234567890abcdef, next: 7}

// encoded is a frame at place1.
func encoded() []byte {
	at, payload := place1, []byte("gradients")
	f := frame{class: classDirect, Head: Head{Key{1, 2, 3, 4, true}, Signature{5, 6, 7, -8, 9}}}
	var b [frameHead]byte
	at.encode(&f, &b, payload)
	return append(b[:], payload...)
}

func readAll(at stream, b []byte) error {
	var f frame
	return at.read(bytes.NewReader(b), &f, func(f *frame) ([]byte, error) { return make([]byte, f.size), nil })
}

// Every altered bit is noticed, and every end before the end.
func TestDamagedFrameIsRefused(t *testing.T) {
	whole := encoded()
	if err := readAll(place1, whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		if readAll(place1, whole[:i]) == nil {
			t.Errorf("cut to %d bytes: accepted", i)
		}
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			if readAll(place1, bad) == nil {
				t.Errorf("bit %d of byte %d altered: accepted", bit, i)
			}
		}
	}
}

// A frame is good in one place of one direction of one connection.
func TestFrameOfAnotherPlaceIsRefused(t *testing.T) {
	for name, at := range map[string]stream{
		"again":              {place1.mark, place1.next + 1},
		"one left out":       {place1.mark, place1.next - 1},
		"other direction":    {^place1.mark, place1.next},
		"another connection": {99, place1.next},
	} {
		if readAll(at, encoded()) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(encoded())
	f.Fuzz(func(t *testing.T, b []byte) {
		at, fr := place1, frame{}
		var payload []byte
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
		var again [frameHead]byte
		at = place1
		at.encode(&fr, &again, payload)
		var back frame
		at = place1
		if err := at.decode(&back, &again); err != nil || back != fr {
			t.Fatalf("%+v came back as %+v, %v", fr, back, err)
		}
	})
}
