package data

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// token is the storage type of a token.
type token interface{ uint8 | uint16 | uint32 }

// sequences is a dataset of tokens. Its samples are consecutive windows of context tokens without
// overlap. The label of a token is the next token, so a window needs one more token. No window
// crosses the end of a shard.
type sequences[T token] struct {
	shards  [][]T
	starts  []int // index of the first sample of each shard
	samples int
	context int
	outputs int // tokens in the vocabulary
	digest  string
}

// newSequences divides the shards read from path into samples. The caller sets outputs and digest.
// A shard may be shorter than a sample, but there must be at least one sample.
func newSequences[T token](path string, shards [][]T, context int) (*sequences[T], error) {
	s := &sequences[T]{shards: shards, context: context}
	tokens := 0
	for _, shard := range shards {
		s.starts = append(s.starts, s.samples)
		s.samples += max(0, len(shard)-1) / context
		tokens += len(shard)
	}
	switch {
	case s.samples == 0:
		return nil, hints.Errorf("use a shorter context or more data",
			"read %q: %d tokens are less than one sample of %d and the token after it", path, tokens, context)
	case s.samples > random.MaxPerm:
		return nil, fmt.Errorf("read %q: %d samples, want at most %d", path, s.samples, random.MaxPerm)
	}
	return s, nil
}

// checkContext validates the length of a sample.
func checkContext(o Options) error {
	if o.Context < 1 {
		return fmt.Errorf("open data: a context of %d tokens, want at least 1", o.Context)
	}
	return nil
}

// newDigest begins the digest with the shape. The caller adds the tokens of each shard and the
// vocabulary.
func (s *sequences[T]) newDigest() *digest {
	return newDigest("sequences", s.samples, s.context, int(unsafe.Sizeof(T(0))))
}

func (s *sequences[T]) Len() int       { return s.samples }
func (s *sequences[T]) Inputs() int    { return 0 }
func (s *sequences[T]) Tokens() int    { return s.context }
func (s *sequences[T]) Outputs() int   { return s.outputs }
func (s *sequences[T]) Classes() bool  { return true }
func (s *sequences[T]) Digest() string { return s.digest }

func (s *sequences[T]) Image() (channels, height, width int) { return 0, 0, 0 }

func (s *sequences[T]) Read(indices []int, into Batch) {
	for row, i := range indices {
		window := s.window(i)
		tokens := into.Tokens[row*s.context : (row+1)*s.context]
		labels := into.Labels[row*s.context : (row+1)*s.context]
		for k := range tokens {
			tokens[k], labels[k] = int32(window[k]), int32(window[k+1])
		}
	}
}

// window returns the tokens of sample i and the token after them.
func (s *sequences[T]) window(i int) []T {
	shard, at := s.locate(i)
	return s.shards[shard][at : at+s.context+1]
}

// locate returns the shard of sample i and the index of its first token there.
func (s *sequences[T]) locate(i int) (shard, at int) {
	if i < 0 || i >= s.samples {
		panic(fmt.Sprintf("data: sample %d of %d", i, s.samples))
	}
	// The last shard that begins at i or before. A shard without samples begins at the same index
	// as the next one.
	after, _ := slices.BinarySearch(s.starts, i+1)
	return after - 1, (i - s.starts[after-1]) * s.context
}

// bytesOf returns the memory of v as bytes. amd64 and arm64 are little-endian, like token files.
func bytesOf[T token](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(T(0))))
}

// tokensOf is the inverse of bytesOf. The memory must be aligned for T.
func tokensOf[T token](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(T(0))))
}
