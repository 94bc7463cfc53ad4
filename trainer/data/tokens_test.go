package data

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// tokenBytes stores tokens in width bytes each.
func tokenBytes(width int, tokens ...uint32) []byte {
	var raw []byte
	for _, v := range tokens {
		raw = append(raw, binary.LittleEndian.AppendUint32(nil, v)[:width]...)
	}
	return raw
}

// llmcBytes returns tokens with llm.c's header.
func llmcBytes(magic, version, count uint32, raw []byte) []byte {
	header := make([]byte, llmcHeader)
	for i, v := range []uint32{magic, version, count} {
		binary.LittleEndian.PutUint32(header[4*i:], v)
	}
	return append(header, raw...)
}

func upTo(n uint32) []uint32 {
	var tokens []uint32
	for v := range n {
		tokens = append(tokens, v)
	}
	return tokens
}

// files writes files to a temporary directory.
func files(t *testing.T, contents map[string][]byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range contents {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

// firsts returns the first token and the last label of every sample.
func firsts(d Dataset) (tokens, labels []int32) {
	b := NewBatch(d, 1)
	for i := range d.Len() {
		d.Read([]int{i}, b)
		tokens = append(tokens, b.Tokens[0])
		labels = append(labels, b.Labels[d.Tokens()-1])
	}
	return tokens, labels
}

// TestOpenTokens checks samples of raw tokens and of llm.c's files, in one file or several that
// match a pattern.
func TestOpenTokens(t *testing.T) {
	dir := files(t, map[string][]byte{
		"raw16.bin":     tokenBytes(2, upTo(10)...),
		"raw32.bin":     tokenBytes(4, 7, 70000, 3),
		"gpt2.bin":      llmcBytes(llmcGPT2, 1, 10, tokenBytes(2, upTo(10)...)),
		"llama3.bin":    llmcBytes(llmcLlama3, 7, 3, tokenBytes(4, 7, 100000, 3)),
		"part_2.bin":    tokenBytes(2, 20, 21, 22, 23, 24, 25),
		"part_1.bin":    tokenBytes(2, 10, 11, 12, 13, 14, 15, 16),
		"part_3.bin":    tokenBytes(2, 99), // shorter than a sample
		"part_4.bin":    tokenBytes(2, 30, 31, 32, 33),
		"part_[12].bin": tokenBytes(2, 50, 51, 52, 53),
	})
	for _, c := range []struct {
		path           string
		o              Options
		outputs        int
		tokens, labels []int32 // the first and the last of each sample
	}{
		{"raw16.bin", Options{Context: 3}, 10, []int32{0, 3, 6}, []int32{3, 6, 9}},
		{"raw16.bin", Options{Context: 3, VocabularySize: 50257}, 50257, []int32{0, 3, 6}, []int32{3, 6, 9}},
		{"raw16.bin", Options{Context: 9}, 10, []int32{0}, []int32{9}},
		{"raw32.bin", Options{Context: 1, DType: DTypeUint32}, 70001, []int32{7, 70000}, []int32{70000, 3}},
		{"gpt2.bin", Options{Context: 3, DType: DTypeUint16}, 10, []int32{0, 3, 6}, []int32{3, 6, 9}},
		{"llama3.bin", Options{Context: 2, DType: DTypeUint16}, 100001, []int32{7}, []int32{3}},
		{"part_?.bin", Options{Context: 3}, 100, []int32{10, 13, 20, 30}, []int32{13, 16, 23, 33}},
		{"part_[12].bin", Options{Context: 3}, 54, []int32{50}, []int32{53}}, // a file with that name exists
		{"part_[1-2].bin", Options{Context: 3}, 26, []int32{10, 13, 20}, []int32{13, 16, 23}},
	} {
		t.Run(c.path, func(t *testing.T) {
			c.o.Kind, c.o.Path = KindTokens, filepath.Join(dir, c.path)
			d, none, err := Open(t.Context(), c.o)
			if err != nil || none != nil {
				t.Fatal(none, err)
			}
			checkDataset(t, d)
			tokens, labels := firsts(d)
			if d.Outputs() != c.outputs || !slices.Equal(tokens, c.tokens) || !slices.Equal(labels, c.labels) {
				t.Errorf("first tokens %v, last labels %v of %d; want %v, %v of %d", tokens, labels, d.Outputs(), c.tokens, c.labels, c.outputs)
			}
		})
	}
}

// TestTokensHeldOut checks held-out tokens from a separate file and from the end of the training
// files.
func TestTokensHeldOut(t *testing.T) {
	dir := files(t, map[string][]byte{
		"train_1.bin": tokenBytes(2, upTo(10)...),
		"train_2.bin": llmcBytes(llmcGPT2, 1, 10, tokenBytes(2, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)),
		"val.bin":     tokenBytes(2, 500, 1, 2),
	})
	open := func(o Options) (train, eval Dataset) {
		o.Kind, o.Context = KindTokens, 2
		train, eval, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		checkDataset(t, train)
		checkDataset(t, eval)
		return train, eval
	}
	train, eval := open(Options{Path: filepath.Join(dir, "train_*"), EvalPath: filepath.Join(dir, "val.bin")})
	if train.Len() != 8 || eval.Len() != 1 || train.Outputs() != 501 || eval.Outputs() != 501 {
		t.Errorf("files: %d and %d samples of %d and %d tokens", train.Len(), eval.Len(), train.Outputs(), eval.Outputs())
	}
	// 13 of 20 tokens stay; the cut is in the second file.
	train, eval = open(Options{Path: filepath.Join(dir, "train_*"), Holdout: 0.35})
	first, last := firsts(train)
	if !slices.Equal(first, []int32{0, 2, 4, 6, 10}) || !slices.Equal(last, []int32{2, 4, 6, 8, 12}) {
		t.Errorf("trained on %v, %v", first, last)
	}
	if first, last = firsts(eval); !slices.Equal(first, []int32{13, 15, 17}) || !slices.Equal(last, []int32{15, 17, 19}) {
		t.Errorf("held out %v, %v", first, last)
	}
}

// TestTokensErrors checks that errors name the byte, for invalid files and for tokens outside of
// the vocabulary.
func TestTokensErrors(t *testing.T) {
	good := tokenBytes(2, upTo(10)...)
	for _, c := range []struct {
		name    string
		content []byte
		o       Options
		want    string // after the path
	}{
		{"empty", nil, Options{}, `at byte 0: the file is empty`},
		{"half a token", good[:9], Options{}, `at byte 8: the file ends in 1 bytes of a token of 2`},
		{"half a token of 32 bits", good[:7], Options{DType: DTypeUint32}, `at byte 4: the file ends in 3 bytes of a token of 4`},
		{"short", good[:4], Options{}, `2 tokens are less than one sample of 2 and the token after it`},
		{"token of another vocabulary", good, Options{VocabularySize: 7}, `at byte 14: token 7, but the vocabulary has 7`},
		{"token of another vocabulary, held out", good, Options{VocabularySize: 9, Holdout: 0.4}, `at byte 18: token 9, but the vocabulary has 9`},
		{"16 bits read as 32", good, Options{DType: DTypeUint32}, `at byte 0: token 65536, but the vocabulary has 50257`},
		{"token of no vocabulary", tokenBytes(4, 0, 0, 1<<20), Options{DType: DTypeUint32, VocabularySize: -1}, `at byte 8: token 1048576, but the vocabulary has 1048576`},
		{"header cut", llmcBytes(llmcGPT2, 1, 10, good)[:1000], Options{}, `at byte 1000: llm.c's header of 1024 bytes is truncated`},
		{"version", llmcBytes(llmcGPT2, 2, 10, good), Options{}, `at byte 4: version 2 of llm.c's tokens with magic 20240520, want 1`},
		{"version of llama", llmcBytes(llmcLlama3, 1, 5, good), Options{}, `at byte 4: version 1 of llm.c's tokens with magic 20240801, want 7`},
		{"no tokens", llmcBytes(llmcGPT2, 1, 0, nil), Options{}, `at byte 8: no tokens`},
		{"cut", llmcBytes(llmcGPT2, 1, 10, good[:13]), Options{}, `at byte 1037: the file ends after 6 of 10 tokens`},
		{"huge claim", llmcBytes(llmcLlama3, 7, 1<<32-1, good), Options{}, `at byte 1044: the file ends after 5 of 4294967295 tokens`},
		{"more than it says", llmcBytes(llmcGPT2, 1, 8, good), Options{}, `at byte 1040: 4 bytes after the last of 8 tokens`},
		{"token behind a header", llmcBytes(llmcGPT2, 1, 10, good), Options{VocabularySize: 3}, `at byte 1030: token 3, but the vocabulary has 3`},
		{"questions", llmcBytes(llmcQuestions, 1, 8, good), Options{}, `at byte 0: the file has questions with several answers (llm.c's magic 20240522), not tokens to train on`},
		{"weights", llmcBytes(llmcWeights, 3, 8, good), Options{}, `at byte 0: the file has a model's weights (llm.c's magic 20240326), not tokens`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(files(t, map[string][]byte{"f.bin": c.content}), "f.bin")
			c.o.Kind, c.o.Path, c.o.Context = KindTokens, path, 2
			switch c.o.VocabularySize {
			case 0:
				c.o.VocabularySize = 50257
			case -1:
				c.o.VocabularySize = 0
			}
			_, _, err := Open(t.Context(), c.o)
			if want := fmt.Sprintf("read %q: %s", path, c.want); err == nil || err.Error() != want {
				t.Errorf("error %v,\nwant  %s", err, want)
			}
		})
	}
}

// TestTokensThatChangeWhileRead checks the error if a token outside of the vocabulary is replaced between
// two reads of the mapped file.
func TestTokensThatChangeWhileRead(t *testing.T) {
	path := filepath.Join(files(t, map[string][]byte{"f.bin": tokenBytes(2, upTo(10)...)}), "f.bin")
	d, _, err := Open(t.Context(), Options{Kind: KindTokens, Path: path, Context: 2, VocabularySize: 10})
	if err != nil {
		t.Fatal(err)
	}
	tokens := d.(*mappedTokens[uint16])
	for what, err := range map[string]error{
		"open": tokens.parts[0].findInvalid(0, tokens.parts[0].tokens, 10),
		"read": tokens.rangeError(0, []int32{0, 1, 2}),
	} {
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "changed while it was read") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// TestTokensOptionErrors checks the errors for invalid options and for files that do not match
// each other.
func TestTokensOptionErrors(t *testing.T) {
	dir := files(t, map[string][]byte{
		"a.bin":    tokenBytes(2, upTo(10)...),
		"b.bin":    llmcBytes(llmcLlama3, 7, 3, tokenBytes(4, 1, 2, 3)),
		"c.bin.gz": gzipped(t, tokenBytes(2, upTo(10)...)),
	})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"no context", Options{Path: "a.bin"}, `open data: a context of 0 tokens, want at least 1`},
		{"dtype", Options{Path: "a.bin", Context: 2, DType: "int8"}, `open data: unknown type of tokens "int8", want "uint16" or "uint32"`},
		{"large vocabulary", Options{Path: "a.bin", Context: 2, VocabularySize: 1<<20 + 1}, `open data: a vocabulary of 1048577 tokens, want 0 to 1048576`},
		{"missing", Options{Path: "none.bin", Context: 2}, `read "DIR/none.bin": no such file or directory`},
		{"no match", Options{Path: "none*.bin", Context: 2}, `read "DIR/none*.bin": no file matches this pattern`},
		{"bad pattern", Options{Path: "[a.bin", Context: 2}, `read "DIR/[a.bin": syntax error in pattern`},
		{"folder", Options{Path: "", Context: 2}, `read "DIR": is a directory`},
		{"pipe", Options{Path: "pipe", Context: 2}, `read "DIR/pipe": not a regular file, but a pipe`},
		{"compressed", Options{Path: "c.bin.gz", Context: 2}, `read "DIR/c.bin.gz": at byte 0: the file is compressed by gzip, not a list of tokens`},
		{"types differ", Options{Path: "?.bin", Context: 2}, `read "DIR/b.bin": tokens of 4 bytes, but "DIR/a.bin" has tokens of 2 bytes`},
		{"file on both sides", Options{Path: "a.bin", EvalPath: "[a].bin", Context: 2}, `read "DIR/a.bin": the file is held out and, as "DIR/a.bin", trained on`},
		{"task", Options{Path: "a.bin", Context: 2, Task: TaskRegression}, `open data: tokens data have classes, so the task cannot be "regression"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Kind, c.o.Path = KindTokens, filepath.Join(dir, c.o.Path)
			if c.o.EvalPath != "" {
				c.o.EvalPath = filepath.Join(dir, c.o.EvalPath)
			}
			_, _, err := Open(t.Context(), c.o)
			if want := strings.ReplaceAll(c.want, "DIR", dir); err == nil || err.Error() != want {
				t.Errorf("error %v,\nwant  %s", err, want)
			}
		})
	}
}
