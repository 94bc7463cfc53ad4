package data

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	headBytes = 1 << 17 // bytes at the beginning of a file: 64K tokens of 16 bits
	minText   = 32      // bytes that are unlikely to be text by chance
)

// fromNumPy explains how to write tokens.
const fromNumPy = "from NumPy with tokens.astype(numpy.uint16).tofile(\"train.bin\")"

// formats are file formats whose magic number would be an unlikely sequence of two or more tokens.
var formats = []struct{ magic, what, hint string }{
	{"\x93NUMPY", "an array of NumPy", "write only its values, " + fromNumPy},
	{"\x1f\x8b\x08", "compressed by gzip", "decompress it: gunzip --keep"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd", "decompress it: unzstd"},
	{"\xfd7zXZ\x00", "compressed by xz", "decompress it: unxz --keep"},
	{"BZh91AY&SY", "compressed by bzip2", "decompress it: bunzip2 --keep"},
	{"PK\x03\x04", "a zip archive, as NumPy's .npz and PyTorch's .pt are", "write only its values, " + fromNumPy},
	{"\x89HDF\r\n\x1a\n", "in HDF5", "write only its values, " + fromNumPy},
	{"PAR1", "in Parquet", "write only its values, " + fromNumPy},
}

// detectOtherFormat describes the content of a file without a header if it is certainly not tokens
// of width bytes, and returns a hint. Otherwise what is empty. Any content that may be tokens is
// accepted: few or all values, in any order.
func detectOtherFormat(content []byte, width int) (what, hint string) {
	for _, f := range formats {
		if bytes.HasPrefix(content, []byte(f.magic)) {
			return "the file is " + f.what + ", not a list of tokens", f.hint
		}
	}
	head := content[:min(len(content), headBytes)]
	if isText(head[:min(len(head), headBytes/2)]) {
		return "the file is text, not tokens", "kind = \"" + KindText + "\" reads text"
	}
	l := layoutOf(head)
	switch {
	case len(content)%8 == 0 && l.int64s():
		return "the values have 64 bits, with zero upper bits", "write them with fewer bits, " + fromNumPy + ", or with numpy.uint32 and dtype = \"" + DTypeUint32 + "\""
	case width == uint16Width && len(content)%4 == 0 && l.uint32s():
		return "the values have 32 bits, with zero or small upper bits", "dtype = \"" + DTypeUint32 + "\" reads them"
	case width == uint16Width && l.bigEndian():
		return "the values are big-endian", "write them little-endian, from NumPy with tokens.astype(\"<u2\").tofile(\"train.bin\")"
	}
	return "", ""
}

// isText reports whether head, the beginning of a file, is UTF-8 without control characters. Token
// files contain control characters: one byte in eight is below 32, and one in two if all tokens are
// below 8192.
func isText(head []byte) bool {
	if len(head) < minText {
		return false
	}
	for len(head) > 0 {
		r, size := utf8.DecodeRune(head)
		switch {
		case r == utf8.RuneError && size == 1:
			return !utf8.FullRune(head) // head ends within a character
		case unicode.IsControl(r) && !strings.ContainsRune("\t\n\v\f\r", r):
			return false
		}
		head = head[size:]
	}
	return true
}

// layout holds statistics of a file's content as 16-bit integers.
type layout struct {
	groups    int       // number of groups of four integers
	nonzero   [4]int    // by position in the group
	most      [4]uint16 // by position in the group
	low, high [256]bool // lower and upper bytes that occur
}

// layoutOf analyzes whole groups of 8 bytes.
func layoutOf(head []byte) layout {
	l := layout{groups: len(head) / 8}
	for i := range 4 * l.groups {
		v, position := binary.LittleEndian.Uint16(head[2*i:]), i%4
		if v != 0 {
			l.nonzero[position]++
		}
		l.most[position] = max(l.most[position], v)
		l.low[v&0xff], l.high[v>>8] = true, true
	}
	return l
}

const (
	minGroups  = 32                  // minimum number of groups that is not due to chance
	upperLimit = maxVocabulary >> 16 // the upper 16 bits of a token are below
)

// varied reports whether the given positions have enough nonzero values that zeros in other
// positions are not due to a file of zeros.
func (l *layout) varied(positions ...int) bool {
	n := 0
	for _, p := range positions {
		n += l.nonzero[p]
	}
	return l.groups >= minGroups && n >= len(positions)*l.groups/8
}

// int64s reports whether the upper halves of 64-bit integers are all zero.
func (l *layout) int64s() bool {
	return l.varied(0) && l.most[1] < upperLimit && l.most[2] == 0 && l.most[3] == 0
}

// uint32s reports whether the upper halves of 32-bit integers are all zero, or all small while the
// lower halves are so large that lower and upper halves are unlikely to be alternating tokens of
// one vocabulary.
func (l *layout) uint32s() bool {
	lower, upper := max(l.most[0], l.most[2]), max(l.most[1], l.most[3])
	return l.varied(0, 2) && (upper == 0 || upper < upperLimit && lower >= 1<<15)
}

// bigEndian reports whether the bytes of 16-bit integers must be swapped. With a large vocabulary,
// the lower byte of a token has nearly all values, and the upper byte only some. If the bytes are
// swapped, the upper byte has nearly all values. With up to 256 tokens, one byte is always zero.
func (l *layout) bigEndian() bool {
	const (
		many      = 4096 / 4 // groups, enough for a lower byte to have nearly all values
		nearlyAll = 200      // values; the upper bytes of GPT-2's 50,257 tokens have 197
		few       = 224
	)
	mostLow, highs := 0, 0
	for b := range 256 {
		if l.low[b] {
			mostLow = b
		}
		if l.high[b] {
			highs++
		}
	}
	if mostLow == 0 {
		return l.varied(0, 1, 2, 3)
	}
	return l.groups >= many && highs >= nearlyAll && mostLow < few
}
