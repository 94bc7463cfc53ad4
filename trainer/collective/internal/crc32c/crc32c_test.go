package crc32c

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestUpdateEqualsStandardLibrary compares Update with hash/crc32 for sizes around the boundaries
// of its loops, at several alignments.
func TestUpdateEqualsStandardLibrary(t *testing.T) {
	t.Logf("folding: %v", wide)
	random := rand.New(rand.NewPCG(1, 2))
	memory := make([]byte, 70_000)
	for i := range memory {
		memory[i] = byte(random.Uint32())
	}
	for _, size := range []int{0, 1, 255, 256, 257, 511, 512, 513, 767, 768, 4096, 65_536, 65_537} {
		for _, at := range []int{0, 1, 63} {
			b := memory[at:][:size]
			for _, sum := range []uint32{0, 1, 0xdeadbeef, ^uint32(0)} {
				if got, want := Update(sum, b), crc32.Update(sum, table, b); got != want {
					t.Fatalf("%d bytes at %d after %08x: %08x, want %08x", size, at, sum, got, want)
				}
			}
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	memory := make([]byte, 1<<20)
	b.SetBytes(int64(len(memory)))
	for b.Loop() {
		Update(0, memory)
	}
}
