package mesh

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/crc32c"
)

// BenchmarkTag and BenchmarkChecksum measure the cost of protecting a large message on one core.
func BenchmarkTag(b *testing.B) {
	tags, err := newTagger(make([]byte, 32))
	if err != nil {
		b.Fatal(err)
	}
	payload, tag := make([]byte, MaxSegment), make([]byte, tagSize)
	b.SetBytes(MaxSegment)
	for b.Loop() {
		tags.put(tag, payloadPart, payload)
		tags.frame++
	}
}

func BenchmarkChecksum(b *testing.B) {
	payload := make([]byte, MaxSegment)
	b.SetBytes(MaxSegment)
	for b.Loop() {
		crc32c.Update(0, payload)
	}
}

// TestTagsDoNotAllocate checks that a tag does not allocate memory, because each message needs
// one.
func TestTagsDoNotAllocate(t *testing.T) {
	tags, err := newTagger(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	payload, tag := make([]byte, 1000), make([]byte, tagSize)
	if n := testing.AllocsPerRun(100, func() {
		tags.put(tag, payloadPart, payload)
		if !tags.isValid(tag, payloadPart, payload) {
			t.Error("a good tag is rejected")
		}
	}); n > 0 {
		t.Errorf("%v allocations for each tag", n)
	}
}
