package data

import (
	"encoding/binary"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// Types of tokens in files without a header, for Options.DType. All are little-endian.
const (
	DTypeUint16 = "uint16"
	DTypeUint32 = "uint32"
)

const (
	uint16Width = 2 // bytes
	uint32Width = 4
)

// llm.c's files begin with 256 32-bit integers. The first three are in use: magic number, version,
// number of tokens (dev/data/data_common.py). A file without a header does not begin like this: the
// magic numbers are larger than any token, and as two 16-bit tokens the first one is not in GPT-2's
// vocabulary.
const (
	llmcHeader = 256 * 4 // bytes

	llmcGPT2          = 20240520 // 16-bit tokens
	llmcGPT2Version   = 1
	llmcLlama3        = 20240801 // 32-bit tokens
	llmcLlama3Version = 7
	llmcQuestions     = 20240522
	llmcWeights       = 20240326
)

// tokenFile is a mapped file whose tokens, of width bytes each, start at offset.
type tokenFile struct {
	*mapping
	offset, width int
}

// parseTokenFile finds the tokens in a file with llm.c's header, or without a header, with rawWidth
// bytes per token. A file without a header is rejected if its content looks like a different
// format.
func parseTokenFile(m *mapping, rawWidth int) (tokenFile, error) {
	fail := func(at int, format string, args ...any) (tokenFile, error) {
		return tokenFile{}, fmt.Errorf("read %q: at byte %d: %w", m.path, at, fmt.Errorf(format, args...))
	}
	size := len(m.content)
	var magic, wantVersion uint32
	if size >= 4 {
		magic = binary.LittleEndian.Uint32(m.content)
	}
	width := 0
	switch magic {
	case llmcGPT2:
		width, wantVersion = uint16Width, llmcGPT2Version
	case llmcLlama3:
		width, wantVersion = uint32Width, llmcLlama3Version
	case llmcQuestions:
		return fail(0, "the file has questions with several answers (llm.c's magic %d), not tokens to train on", magic)
	case llmcWeights:
		return fail(0, "the file has a model's weights (llm.c's magic %d), not tokens", magic)
	default:
		if what, hint := detectOtherFormat(m.content, rawWidth); what != "" {
			return tokenFile{}, hints.Errorf(hint, "read %q: at byte 0: %s", m.path, what)
		}
		if excess := size % rawWidth; excess != 0 {
			return fail(size-excess, "the file ends in %d bytes of a token of %d", excess, rawWidth)
		}
		return tokenFile{m, 0, rawWidth}, nil
	}
	if size < llmcHeader {
		return fail(size, "llm.c's header of %d bytes is truncated", llmcHeader)
	}
	if version := binary.LittleEndian.Uint32(m.content[4:]); version != wantVersion {
		return fail(4, "version %d of llm.c's tokens with magic %d, want %d", version, magic, wantVersion)
	}
	// At most 2^32 tokens of 4 bytes, so nothing below overflows 64 bits.
	count := int(binary.LittleEndian.Uint32(m.content[8:]))
	switch end := llmcHeader + count*width; {
	case count == 0:
		return fail(8, "no tokens")
	case end > size:
		return fail(size, "the file ends after %d of %d tokens", (size-llmcHeader)/width, count)
	case end < size:
		return fail(end, "%d bytes after the last of %d tokens", size-end, count)
	}
	return tokenFile{m, llmcHeader, width}, nil
}
