package data

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// zipf returns n random tokens with a frequency that is roughly inverse to the token ID, as with a
// tokenizer.
func zipf(n, vocabulary int) []uint32 {
	g := random.New(uint64(vocabulary))
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(math.Pow(float64(vocabulary), float64(g.Float32()))) - 1
	}
	return tokens
}

// uniform returns n uniformly distributed random tokens.
func uniform(n, vocabulary int) []uint32 {
	g := random.New(uint64(vocabulary))
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(g.Float32() * float32(vocabulary))
	}
	return tokens
}

// characters returns the bytes of prose as tokens.
func characters(n int) []uint32 {
	var tokens []uint32
	for len(tokens) < n {
		for _, b := range []byte("First Citizen:\nBefore we proceed any further, hear me speak.\n") {
			tokens = append(tokens, uint32(b))
		}
	}
	return tokens[:n]
}

// plausible returns realistic tokens, all below 1<<16.
func plausible(n int) map[string][]uint32 {
	return map[string][]uint32{
		"GPT-2":              zipf(n, 50257),
		"32,000 tokens":      zipf(n, 32000),
		"1000 tokens":        zipf(n, 1000),
		"300 tokens":         zipf(n, 300),
		"bytes":              characters(n),
		"65 characters":      uniform(n, 65),
		"random bytes":       uniform(n, 256),
		"bases":              uniform(n, 4),
		"bits":               uniform(n, 2),
		"all GPT-2's evenly": uniform(n, 50257),
	}
}

// TestTokensAreAccepted checks that tokens are never detected as another format.
func TestTokensAreAccepted(t *testing.T) {
	preallocated := make([]uint32, 5000)
	preallocated[0] = 50256
	events := zipf(5000, 112) // a value, and the index of one of a few instruments
	for i := range events {
		if events[i] += 16; i%2 == 1 {
			events[i] %= 16
		}
	}
	for _, n := range []int{8, 16, 100, 1000, 5000, 70000} {
		narrow := plausible(n)
		narrow["all of 16 bits evenly"] = uniform(n, 1<<16)
		narrow["all of 16 bits"] = zipf(n, 1<<16)
		narrow["only preallocated"] = preallocated
		narrow["in pairs"] = events
		wide := plausible(n)
		wide["Llama 3"] = zipf(n, 128256)
		wide["a million"] = uniform(n, maxVocabulary)
		for width, all := range map[int]map[string][]uint32{uint16Width: narrow, uint32Width: wide} {
			for name, tokens := range all {
				if what, _ := detectOtherFormat(tokenBytes(width, tokens...), width); what != "" {
					t.Errorf("%d tokens of %d bytes, %s: %s", n, width, name, what)
				}
			}
		}
	}
}

// TestOtherFormatsAreRejected checks that a file that is not a list of tokens of the given type is
// rejected, with the reason and the fix.
func TestOtherFormatsAreRejected(t *testing.T) {
	const wide, signed, swapped = "the values have 32 bits, with zero or small upper bits", "the values have 64 bits, with zero upper bits", "the values are big-endian"
	type refusal struct {
		name    string
		content []byte
		dtype   string
		want    string
		hint    string // part of it
	}
	prose := []byte(strings.Repeat("Ein schöner Tag.\n", 10000))
	refusals := []refusal{
		{"npy", append([]byte("\x93NUMPY\x01\x00v\x00{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n"), 1, 0, 2, 0, 3, 0), "", "the file is an array of NumPy, not a list of tokens", "tofile"},
		{"gzip", gzipped(t, tokenBytes(2, upTo(100)...)), "", "the file is compressed by gzip, not a list of tokens", "gunzip"},
		{"gzip of 32 bits", gzipped(t, tokenBytes(4, upTo(100)...)), DTypeUint32, "the file is compressed by gzip, not a list of tokens", "gunzip"},
		{"zip", []byte("PK\x03\x04\x14\x00\x00\x00\x08\x00"), "", "the file is a zip archive, as NumPy's .npz and PyTorch's .pt are, not a list of tokens", "tofile"},
		{"text", prose, "", "the file is text, not tokens", `kind = "text"`},
		{"text for 32 bits", prose, DTypeUint32, "the file is text, not tokens", `kind = "text"`},
		{"short text of odd length", []byte("forty-two bytes of text that is no tokens.\n"), "", "the file is text, not tokens", `kind = "text"`},
		{"Llama 3's tokens", tokenBytes(4, uniform(1000, 128256)...), "", wide, `dtype = "uint32"`},
	}
	for _, n := range []int{100, 70000} {
		all := plausible(n)
		all["Llama 3"] = zipf(n, 128256)
		for name, tokens := range all {
			raw64 := []byte{}
			for _, v := range tokens {
				raw64 = binary.LittleEndian.AppendUint64(raw64, uint64(v))
			}
			name = fmt.Sprintf("%d, %s, ", n, name)
			refusals = append(refusals,
				refusal{name + "32 bits", tokenBytes(4, tokens...), DTypeUint16, wide, `dtype = "uint32"`},
				refusal{name + "64 bits", raw64, DTypeUint16, signed, "numpy.uint16"},
				refusal{name + "64 bits for 32", raw64, DTypeUint32, signed, "numpy.uint32"})
		}
	}
	for n, names := range map[int][]string{
		200:  {"bytes", "65 characters", "random bytes", "bases"},
		5000: {"GPT-2", "32,000 tokens", "1000 tokens", "300 tokens", "all GPT-2's evenly", "bytes", "65 characters"},
	} {
		for _, name := range names {
			raw := tokenBytes(2, plausible(n)[name]...)
			for i := 0; i < len(raw); i += 2 {
				raw[i], raw[i+1] = raw[i+1], raw[i]
			}
			refusals = append(refusals, refusal{fmt.Sprintf("%d, %s, big-endian", n, name), raw, "", swapped, `"<u2"`})
		}
	}
	path := filepath.Join(t.TempDir(), "train.bin")
	for _, c := range refusals {
		write(t, path, c.content)
		_, _, err := Open(t.Context(), Options{Kind: KindTokens, Path: path, Context: 1, DType: c.dtype})
		if want := fmt.Sprintf("read %q: at byte 0: %s", path, c.want); err == nil || err.Error() != want || !strings.Contains(hint(err), c.hint) {
			t.Errorf("%s: error %v, hint %q;\nwant  %s", c.name, err, hint(err), want)
		}
	}
}

// TestTokensAfterHeaderAreNotChecked checks that tokens after a header are used whatever they look
// like.
func TestTokensAfterHeaderAreNotChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "train.bin")
	write(t, path, llmcBytes(llmcGPT2, 1, 500, bytes.Repeat([]byte{'a', 'b'}, 500)))
	if _, _, err := Open(t.Context(), Options{Kind: KindTokens, Path: path, Context: 8}); err != nil {
		t.Error(err)
	}
}
