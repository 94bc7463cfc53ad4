package data

import (
	"context"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// Text is a dataset of kind text.
type Text interface {
	Dataset
	// Vocabulary returns the mapping between text and tokens.
	Vocabulary() *Vocabulary
}

// text is a dataset of sequences of characters or bytes.
type text[T token] struct {
	*sequences[T]
	vocabulary *Vocabulary
}

func (t text[T]) Vocabulary() *Vocabulary { return t.vocabulary }

// openText reads a text and divides it into samples of o.Context tokens. The text is used
// unchanged, including line ends.
func openText(ctx context.Context, o Options) (train, eval Dataset, err error) {
	if err := checkContext(o); err != nil {
		return nil, nil, err
	}
	content, err := readText(ctx, o.Path, maxValues)
	if err != nil {
		return nil, nil, err
	}
	switch o.Vocabulary {
	case "", VocabularyChar:
		v, err := charsOf(o.Path, content)
		if err != nil {
			return nil, nil, err
		}
		n := utf8.RuneCount(content)
		if v.Len() <= 1<<8 {
			return cutText(o, v, content[:n], content)
		}
		return cutText(o, v, make([]uint16, n), content)
	case VocabularyByte:
		return splitText(o, new(Vocabulary), content)
	}
	return nil, nil, fmt.Errorf("open data: unknown vocabulary %q, want %q or %q", o.Vocabulary, VocabularyChar, VocabularyByte)
}

// cutText returns the datasets of a text whose characters are in v. It uses tokens as memory.
func cutText[T uint8 | uint16](o Options, v *Vocabulary, tokens []T, content []byte) (train, eval Dataset, err error) {
	if err := encodeChars(tokens, v.runes, content); err != nil {
		return nil, nil, fmt.Errorf("read %q: %w", o.Path, err)
	}
	return splitText(o, v, tokens)
}

// splitText returns the training and the held-out dataset.
func splitText[T token](o Options, v *Vocabulary, tokens []T) (train, eval Dataset, err error) {
	if o.Holdout == 0 {
		train, err = newText(o.Path, tokens, o.Context, v)
		return train, nil, err
	}
	// Like nanoGPT: data[:int(n*0.9)] for a held-out fraction of 0.1.
	cut := int(float64(len(tokens)) * (1 - o.Holdout))
	if train, err = newText(o.Path, tokens[:cut], o.Context, v); err != nil {
		return nil, nil, err
	}
	eval, err = newText(o.Path, tokens[cut:], o.Context, v)
	return train, eval, err
}

func newText[T token](path string, tokens []T, context int, v *Vocabulary) (Dataset, error) {
	s, err := newSequences(path, [][]T{tokens}, context)
	if err != nil {
		return nil, err
	}
	name, err := v.MarshalText()
	if err != nil {
		return nil, err
	}
	d := s.newDigest()
	d.bytes(bytesOf(tokens))
	d.bytes(name)
	s.outputs, s.digest = v.Len(), d.String()
	return text[T]{s, v}, nil
}

// readText reads the file at path, compressed or not, of at most limit bytes. It allocates exactly
// the size of the text: it first determines the size of a compressed file.
func readText(ctx context.Context, path string, limit int64) ([]byte, error) {
	size, err := textSize(ctx, path, limit)
	switch {
	case err != nil:
		return nil, err
	case size == 0:
		return nil, fmt.Errorf("read %q: at byte 0: the file is empty", path)
	case size > limit:
		return nil, hints.Errorf("write it as tokens, which need not fit in memory, and read it with kind "+KindTokens,
			"read %q: at byte %d: more text than the limit of %d bytes", path, limit, limit)
	}
	r, err := openContent(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content := make([]byte, size)
	if n, err := io.ReadFull(r, content); err != nil {
		return nil, fmt.Errorf("read %q: at byte %d: %w", path, n, stripPath(err))
	}
	return content, nil
}

// textSize returns the size of the decompressed file at path. It reads compressed data up to one
// byte beyond the limit.
func textSize(ctx context.Context, path string, limit int64) (int64, error) {
	r, err := openContent(ctx, path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if r.size >= 0 {
		return r.size, nil
	}
	size, err := io.Copy(io.Discard, io.LimitReader(r, limit+1))
	if err != nil {
		return 0, fmt.Errorf("read %q: at byte %d: %w", path, size, stripPath(err))
	}
	return size, nil
}

// charsOf returns the vocabulary of a text's characters, like nanoGPT's sorted(list(set(data))).
func charsOf(path string, content []byte) (*Vocabulary, error) {
	var ascii [utf8.RuneSelf]bool
	others := make([]bool, utf8.MaxRune+1)
	for i := 0; i < len(content); {
		if c := content[i]; c < utf8.RuneSelf {
			ascii[c] = true
			i++
			continue
		}
		r, size := utf8.DecodeRune(content[i:])
		if r == utf8.RuneError && size == 1 {
			return nil, hints.Errorf("convert the file to UTF-8, or use bytes as the vocabulary",
				"read %q: at byte %d: 0x%02x is not UTF-8", path, i, content[i])
		}
		others[r] = true
		i += size
	}
	copy(others, ascii[:])
	v := &Vocabulary{runes: []rune{}}
	for r, there := range others {
		if there {
			v.runes = append(v.runes, rune(r))
		}
	}
	if len(v.runes) > maxChars {
		return nil, hints.Errorf("use bytes as the vocabulary",
			"read %q: %d different characters, want at most %d", path, len(v.runes), maxChars)
	}
	return v, nil
}
