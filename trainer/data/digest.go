package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
)

// digest hashes a dataset in a fixed form: a line with kind and shape, then the values in order,
// little-endian.
type digest struct {
	hash  hash.Hash
	block [4096]byte
}

func newDigest(kind string, samples, inputs, outputs int) *digest {
	d := &digest{hash: sha256.New()}
	fmt.Fprintf(d.hash, "%s %d %d %d\n", kind, samples, inputs, outputs)
	return d
}

func (d *digest) bytes(b []byte) { d.hash.Write(b) }

func (d *digest) floats(values []float32) {
	d.words(len(values), func(i int) uint32 { return math.Float32bits(values[i]) })
}

func (d *digest) labels(values []int32) {
	d.words(len(values), func(i int) uint32 { return uint32(values[i]) })
}

// words writes n 32-bit words in blocks.
func (d *digest) words(n int, word func(int) uint32) {
	used := 0
	for i := range n {
		binary.LittleEndian.PutUint32(d.block[used:], word(i))
		if used += 4; used == len(d.block) {
			d.hash.Write(d.block[:])
			used = 0
		}
	}
	d.hash.Write(d.block[:used])
}

// String returns the digest in hexadecimal.
func (d *digest) String() string { return hex.EncodeToString(d.hash.Sum(nil)) }
