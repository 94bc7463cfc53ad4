package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// openTextBytes writes a text to a file and opens it.
func openTextBytes(t *testing.T, content []byte, o Options) (train, eval Dataset, err error) {
	t.Helper()
	o.Kind, o.Path = KindText, filepath.Join(t.TempDir(), "f.txt")
	write(t, o.Path, content)
	return Open(t.Context(), o)
}

// textOf returns sample i and its labels as text.
func textOf(d Dataset, i int) (tokens, labels string) {
	b := NewBatch(d, 1)
	d.Read([]int{i}, b)
	v := d.(Text).Vocabulary()
	return v.Decode(b.Tokens), v.Decode(b.Labels)
}

// TestOpenText checks the windows of a text as characters and as bytes.
func TestOpenText(t *testing.T) {
	content := []byte("zäh wie käse\n")
	for _, c := range []struct {
		name       string
		content    []byte
		vocabulary string
		outputs    int
		samples    [][2]string
	}{
		{"characters", content, VocabularyChar, 10, [][2]string{{"zäh ", "äh w"}, {"wie ", "ie k"}, {"käse", "äse\n"}}},
		{"bytes", content, VocabularyByte, 256, [][2]string{{"zäh", "äh "}, {" wie", "wie "}, {" kä", "käs"}}},
		{"compressed", gzipped(t, content), "", 10, [][2]string{{"zäh ", "äh w"}, {"wie ", "ie k"}, {"käse", "äse\n"}}},
		{"one window", []byte("abcde"), "", 5, [][2]string{{"abcd", "bcde"}}},
		{"a window less its last label", []byte("abcdabcd"), "", 4, [][2]string{{"abcd", "bcda"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, none, err := openTextBytes(t, c.content, Options{Vocabulary: c.vocabulary, Context: 4})
			if err != nil || none != nil {
				t.Fatal(none, err)
			}
			checkDataset(t, d)
			if d.Len() != len(c.samples) || d.Outputs() != c.outputs || d.Tokens() != 4 {
				t.Fatalf("%d samples of %d tokens, %d in the vocabulary; want %d of 4, %d", d.Len(), d.Tokens(), d.Outputs(), len(c.samples), c.outputs)
			}
			for i, want := range c.samples {
				if tokens, labels := textOf(d, i); tokens != want[0] || labels != want[1] {
					t.Errorf("sample %d is %q, labels %q; want %q", i, tokens, labels, want)
				}
			}
		})
	}
}

// TestTextHeldOut checks that the last part of a text is held out, as in nanoGPT.
func TestTextHeldOut(t *testing.T) {
	content := []byte(strings.Repeat("abcdefghij", 10))
	train, eval, err := openTextBytes(t, content, Options{Context: 8, Holdout: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	// 90 characters and 10, as nanoGPT splits them.
	if train.Len() != 11 || eval.Len() != 1 || eval.Outputs() != 10 {
		t.Errorf("%d and %d samples of %d characters", train.Len(), eval.Len(), eval.Outputs())
	}
	if tokens, labels := textOf(eval, 0); tokens != "abcdefgh" || labels != "bcdefghi" {
		t.Errorf("held out: %q, %q", tokens, labels)
	}
}

// TestTextErrors checks that errors name the file and the byte, for invalid texts and options.
func TestTextErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		content []byte
		o       Options
		want    string
	}{
		{"empty", nil, Options{Context: 4}, `read "PATH": at byte 0: the file is empty`},
		{"compressed nothing", gzipped(t, nil), Options{Context: 4}, `read "PATH": at byte 0: the file is empty`},
		{"short", []byte("abcd"), Options{Context: 4}, `read "PATH": 4 tokens are less than one sample of 4 and the token after it`},
		{"short held-out part", []byte("abcdabcd"), Options{Context: 4, Holdout: 0.25}, `read "PATH": 2 tokens are less than one sample of 4 and the token after it`},
		{"not UTF-8", []byte("abcd\xe4h"), Options{Context: 4}, `read "PATH": at byte 4: 0xe4 is not UTF-8`},
		{"half a character", []byte("abcdä")[:5], Options{Context: 4}, `read "PATH": at byte 4: 0xc3 is not UTF-8`},
		{"a surrogate", []byte("abcd\xed\xa0\x80"), Options{Context: 4}, `read "PATH": at byte 4: 0xed is not UTF-8`},
		{"cut gzip", gzipped(t, []byte("abcdefgh"))[:20], Options{Context: 4}, `read "PATH": at byte 8: the file is truncated`},
		{"no context", []byte("abcd"), Options{}, `open data: a context of 0 tokens, want at least 1`},
		{"vocabulary", []byte("abcd"), Options{Context: 1, Vocabulary: "word"}, `open data: unknown vocabulary "word", want "char" or "byte"`},
		{"task", []byte("abcd"), Options{Context: 1, Task: TaskRegression}, `open data: text data have classes, so the task cannot be "regression"`},
		{"share", []byte("abcd"), Options{Context: 1, Holdout: 1}, `open data: holding out a share of 1, want from 0 to less than 1`},
		{"share and file", []byte("abcd"), Options{Context: 1, Holdout: 0.5, EvalPath: "e"}, `open data "PATH": held-out data are in "e", so holdout must be 0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Kind, c.o.Path = KindText, filepath.Join(t.TempDir(), "f.txt")
			write(t, c.o.Path, c.content)
			_, _, err := Open(t.Context(), c.o)
			if want := strings.ReplaceAll(c.want, "PATH", c.o.Path); err == nil || err.Error() != want {
				t.Errorf("error %v,\nwant  %s", err, want)
			}
		})
	}
	many := []byte{}
	for r := rune(0); len(many) < 4*maxChars+200; r++ {
		many = append(many, string(r)...)
	}
	if _, _, err := openTextBytes(t, []byte(strings.ReplaceAll(string(many), "\ufffd", "")), Options{Context: 1}); err == nil || !strings.Contains(err.Error(), "different characters, want at most 65536") {
		t.Errorf("more characters than tokens: %v", err)
	}
}

// TestTextMemory checks that a text with up to 256 different characters needs one byte per
// character in memory, compressed or not.
func TestTextMemory(t *testing.T) {
	const size = 16 << 20
	content := bytes.Repeat([]byte("First Citizen:\n\n"), size/16)
	for name, content := range map[string][]byte{"plain": content, "compressed": gzipped(t, content)} {
		for _, vocabulary := range []string{VocabularyChar, VocabularyByte} {
			path := filepath.Join(t.TempDir(), "f.txt")
			write(t, path, content)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, _, err := Open(t.Context(), Options{Kind: KindText, Path: path, Context: 8, Vocabulary: vocabulary, Holdout: 0.5}); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > size+2<<20 {
				t.Errorf("%s, %s: %d bytes for a text of %d", name, vocabulary, took, size)
			}
		}
	}
}

// TestTextLimit checks that a text over the limit needs less memory than the limit, whatever its
// compressed size is.
func TestTextLimit(t *testing.T) {
	const limit = 1 << 20
	path := filepath.Join(t.TempDir(), "f.txt")
	for name, compress := range map[string]func([]byte) []byte{
		"plain":      func(b []byte) []byte { return b },
		"compressed": func(b []byte) []byte { return gzipped(t, b) },
	} {
		write(t, path, compress(make([]byte, limit)))
		if content, err := readText(t.Context(), path, limit); len(content) != limit || err != nil {
			t.Errorf("%s: %d bytes, %v", name, len(content), err)
		}
		write(t, path, compress(make([]byte, limit+1)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readText(t.Context(), path, limit)
		runtime.ReadMemStats(&after)
		if want := fmt.Sprintf("read %q: at byte 1048576: more text than the limit of 1048576 bytes", path); err == nil || err.Error() != want || hint(err) == "" {
			t.Errorf("%s: error %v, hint %q;\nwant  %s", name, err, hint(err), want)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > limit/2 {
			t.Errorf("%s: %d bytes of memory", name, took)
		}
	}
}

// TestTextWithManyCharacters checks that characters are stored as tokens of the smallest type
// without loss.
func TestTextWithManyCharacters(t *testing.T) {
	for _, n := range []int{255, 256, 257} {
		var b strings.Builder
		for i := range n {
			b.WriteRune(rune(0x100 + i))
		}
		d, _, err := openTextBytes(t, []byte(b.String()), Options{Context: n - 1})
		if err != nil {
			t.Fatal(err)
		}
		runes := []rune(b.String())
		if tokens, labels := textOf(d, 0); d.Outputs() != n || tokens != string(runes[:n-1]) || labels != string(runes[1:]) {
			t.Errorf("%d characters became %q, %q of %d", n, tokens, labels, d.Outputs())
		}
		if _, small := d.(text[uint8]); small != (n <= 256) {
			t.Errorf("%d characters are %T", n, d)
		}
	}
}

// TestVocabulary checks that a vocabulary can be stored, read, and used to encode and decode
// texts, and that invalid ones are rejected.
func TestVocabulary(t *testing.T) {
	d, _, err := openTextBytes(t, []byte("b\ufffdäa\n\"aΩ😀"), Options{Context: 2})
	if err != nil {
		t.Fatal(err)
	}
	chars := d.(Text).Vocabulary()
	for _, v := range []*Vocabulary{chars, new(Vocabulary)} {
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		back := new(Vocabulary)
		if err := json.Unmarshal(encoded, back); err != nil {
			t.Fatal(err)
		}
		if back.Len() != v.Len() || !slices.Equal(back.runes, v.runes) {
			t.Errorf("%s became %v", encoded, back.runes)
		}
		tokens, err := back.Encode("aäb\ufffd😀\n")
		if err != nil {
			t.Fatal(err)
		}
		if text := v.Decode(tokens); text != "aäb\ufffd😀\n" {
			t.Errorf("%v are %q", tokens, text)
		}
	}
	if tokens, err := chars.Encode("\n\"abäΩ\ufffd😀"); err != nil || !slices.Equal(tokens, []int32{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("the sorted characters are %v, %v", tokens, err)
	}
	for text, want := range map[string]string{
		"aäxb":  `at byte 3: "x" is not among the 8 characters of the vocabulary`,
		"a\xff": `at byte 1: "\xff" is not among the 8 characters of the vocabulary`,
		"a🙂":    `at byte 1: "🙂" is not among the 8 characters of the vocabulary`,
	} {
		if _, err := chars.Encode(text); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
	for encoded, want := range map[string]string{
		"":               `vocabulary begins neither with "byte" nor with "char:"`,
		"bytes":          `vocabulary begins neither with "byte" nor with "char:"`,
		"char:":          `vocabulary without characters`,
		"char:\xff":      `vocabulary is not UTF-8`,
		"char:ba":        `vocabulary is not sorted: 'b' before 'a'`,
		"char:aa":        `vocabulary is not sorted: 'a' before 'a'`,
		"char:" + long(): `vocabulary of 65537 characters, want at most 65536`,
	} {
		if err := new(Vocabulary).UnmarshalText([]byte(encoded)); err == nil || err.Error() != want {
			t.Errorf("%.20q: error %v, want %s", encoded, err, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a token that the vocabulary has not: no panic")
		}
	}()
	chars.Decode([]int32{8})
}

// long has one character more than a vocabulary allows.
func long() string { return strings.Repeat("a", maxChars+1) }

// FuzzText checks that any file is rejected, or that its samples are its content in order.
func FuzzText(f *testing.F) {
	f.Add([]byte("zäh wie käse\n"), 3, true)
	f.Add([]byte("a\xffb"), 1, false)
	f.Add([]byte("a\xffb"), 1, true)
	path := filepath.Join(f.TempDir(), "f.txt")
	f.Fuzz(func(t *testing.T, content []byte, context int, chars bool) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Kind: KindText, Path: path, Context: context, Vocabulary: VocabularyByte}
		if chars {
			o.Vocabulary = VocabularyChar
		}
		d, _, err := Open(t.Context(), o)
		if err != nil {
			if context > 0 && !strings.Contains(err.Error(), path) {
				t.Errorf("error without the file: %v", err)
			}
			return
		}
		checkDataset(t, d)
		// All tokens, and then the last label, are the file's content in order.
		var all strings.Builder
		last := ""
		for i := range d.Len() {
			var tokens string
			tokens, last = textOf(d, i)
			all.WriteString(tokens)
		}
		v := d.(Text).Vocabulary()
		labels, err := v.Encode(last)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(v.Decode(labels[len(labels)-1:]))
		if !strings.HasPrefix(string(content), all.String()) && !isGzip(content) {
			t.Errorf("the samples are %q", all.String())
		}
	})
}

func isGzip(content []byte) bool { return strings.HasPrefix(string(content), "\x1f\x8b") }

// FuzzVocabulary checks that any stored vocabulary is rejected, or is stored identically and
// encodes all of its tokens.
func FuzzVocabulary(f *testing.F) {
	f.Add("byte")
	f.Add("char:\nabcäΩ")
	f.Fuzz(func(t *testing.T, text string) {
		v := new(Vocabulary)
		if v.UnmarshalText([]byte(text)) != nil {
			return
		}
		again, err := v.MarshalText()
		if err != nil || string(again) != text {
			t.Errorf("%q became %q, %v", text, again, err)
		}
		var all []int32
		for token := range v.Len() {
			all = append(all, int32(token))
		}
		if back, err := v.Encode(v.Decode(all)); err != nil || !slices.Equal(back, all) {
			t.Errorf("all tokens became %v, %v", back, err)
		}
	})
}
