package checkpoint

import (
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// sumKey begins the keys of a file's metadata under which the checksums of its tensors
// are, before their names. They are in the file, not in the manifest, because each rank
// writes a file of its own: a manifest with all tensors of thousands of ranks would be
// large.
const sumKey = "crc32c:"

// castagnoli is the polynomial of CRC-32C (RFC 3720, appendix B.4), for which processors
// have an instruction: it costs next to nothing beside the SHA-256 of the file. That
// alone decides whether a file is good; checksums say where one is not.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bufferBytes is the size of a buffer that bytes of files come through.
const bufferBytes = 64 << 10

func sumText(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// metadataOf is what PyTorch users' readers expect, and the checksums: equal tensors
// make equal files.
func metadataOf(sums map[string]uint32) map[string]string {
	m := maps.Clone(metadata)
	for name, sum := range sums {
		m[sumKey+name] = sumText(sum)
	}
	return m
}

func sumsOf(tensors []safetensors.Tensor) map[string]uint32 {
	sums := map[string]uint32{}
	for _, t := range tensors {
		sums[t.Name] = crc32.Checksum(t.Bytes(), castagnoli)
	}
	return sums
}

// sumOf is the checksum of bytes of a file, which come through a buffer: of thousands of
// tensors none needs one of its own.
func sumOf(file io.ReaderAt, begin, end int64, through []byte) (uint32, error) {
	sum := crc32.New(castagnoli)
	_, err := io.CopyBuffer(sum, io.NewSectionReader(file, begin, end-begin), through)
	return sum.Sum32(), err
}

// mostNamed is the number of damaged tensors that a message names.
const mostNamed = 3

// where says what of a file that is not as it was written is damaged, of which there are
// size bytes: its header, or the first of its tensors that are, with the checksums. It
// is empty where that is not known, as for the files of older versions.
func (want File) where(file io.ReaderAt, size int64) string {
	if want.HeaderSum == "" {
		return ""
	}
	through := make([]byte, bufferBytes)
	arrays, metadata, err := safetensors.ReadHeader(io.NewSectionReader(file, 0, size), want.Bytes)
	begin := want.Bytes
	if len(arrays) > 0 {
		begin = arrays[0].Begin
	}
	if err == nil {
		var sum uint32
		if sum, err = sumOf(file, 0, begin, through); err == nil && sumText(sum) != want.HeaderSum {
			err = fmt.Errorf("its CRC-32C is %08x, the manifest says %s", sum, want.HeaderSum)
		}
	}
	if err != nil {
		return fmt.Sprintf(": its header is damaged: %v", err)
	}
	var found []string
	for _, a := range arrays {
		if a.End > size {
			found = append(found, fmt.Sprintf("it ends in tensor %q", a.Name))
			break
		}
		sum, err := sumOf(file, a.Begin, a.End, through)
		if wanted := metadata[sumKey+a.Name]; err != nil || wanted != sumText(sum) {
			found = append(found, fmt.Sprintf("tensor %q has CRC-32C %08x, its file says %s", a.Name, sum, wanted))
		}
	}
	if more := len(found) - mostNamed; more > 0 {
		found = append(found[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	if len(found) == 0 {
		return ""
	}
	return ": " + strings.Join(found, "; ")
}
