package checkpoint

import (
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// sumKey is the prefix of the metadata keys that hold the checksums of tensors; the name of the
// tensor follows. The checksums are in the file and not in the manifest, because each rank writes
// its own file: a manifest with all tensors of thousands of ranks would be large.
const sumKey = "crc32c:"

// castagnoli is the polynomial of CRC-32C (RFC 3720, appendix B.4). CPUs have an instruction for
// it, so its cost is negligible compared with the SHA-256 of the file. Only the SHA-256 decides
// whether a file is valid; the checksums locate the corruption.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bufferBytes is the size of the buffers for file I/O.
const bufferBytes = 64 << 10

func formatChecksum(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// metadataWith returns the metadata of a file: the entry that readers written for PyTorch expect,
// and the checksums. Equal tensors make equal files.
func metadataWith(sums map[string]uint32) map[string]string {
	m := maps.Clone(metadata)
	for name, sum := range sums {
		m[sumKey+name] = formatChecksum(sum)
	}
	return m
}

func checksumsOf(tensors []safetensors.Tensor) map[string]uint32 {
	sums := map[string]uint32{}
	for _, t := range tensors {
		sums[t.Name] = crc32.Checksum(t.Bytes(), castagnoli)
	}
	return sums
}

// checksumOf returns the checksum of file[begin:end]. It reads through the given buffer, so that
// thousands of tensors share one.
func checksumOf(file io.ReaderAt, begin, end int64, through []byte) (uint32, error) {
	sum := crc32.New(castagnoli)
	_, err := io.CopyBuffer(sum, io.NewSectionReader(file, begin, end-begin), through)
	return sum.Sum32(), err
}

// maxNamed is the maximum number of corrupt tensors that an error names.
const maxNamed = 3

// locateCorruption returns a text that locates the corruption in a file of size bytes: in the
// header, or in the first tensors whose checksums do not match. It returns "" if the location is
// unknown, as for files of older versions.
func (want File) locateCorruption(file io.ReaderAt, size int64) string {
	if want.HeaderCRC == "" {
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
		if sum, err = checksumOf(file, 0, begin, through); err == nil && formatChecksum(sum) != want.HeaderCRC {
			err = fmt.Errorf("its CRC-32C is %08x, the manifest has %s", sum, want.HeaderCRC)
		}
	}
	if err != nil {
		return fmt.Sprintf(": invalid header: %v", err)
	}
	var found []string
	for _, a := range arrays {
		if a.End > size {
			found = append(found, fmt.Sprintf("it is truncated in tensor %q", a.Name))
			break
		}
		sum, err := checksumOf(file, a.Begin, a.End, through)
		if wanted := metadata[sumKey+a.Name]; err != nil || wanted != formatChecksum(sum) {
			found = append(found, fmt.Sprintf("tensor %q has CRC-32C %08x, its file has %s", a.Name, sum, wanted))
		}
	}
	if more := len(found) - maxNamed; more > 0 {
		found = append(found[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	if len(found) == 0 {
		return ""
	}
	return ": " + strings.Join(found, "; ")
}
