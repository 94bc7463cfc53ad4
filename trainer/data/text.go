package data

import (
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// Text is what a dataset of kind text is besides.
type Text interface {
	Dataset
	// Vocabulary returns what turns text to tokens and back.
	Vocabulary() *Vocabulary
}

// text is sequences of characters or bytes.
type text[T token] struct {
	*sequences[T]
	vocabulary *Vocabulary
}

func (t text[T]) Vocabulary() *Vocabulary { return t.vocabulary }

// openText reads a text and cuts it into samples of o.Context tokens. The text is
// taken as it stands in the file, line ends and all.
func openText(o Options) (train, eval Dataset, err error) {
	if err := checkContext(o); err != nil {
		return nil, nil, err
	}
	content, err := readText(o.Path)
	if err != nil {
		return nil, nil, err
	}
	switch o.Vocabulary {
	case "", VocabularyChar:
		v, err := charsOf(o.Path, content)
		if err != nil {
			return nil, nil, err
		}
		return cutText(o, v, content, func(text []byte) ([]uint16, error) { return encodeChars[uint16](v.runes, text) })
	case VocabularyByte:
		return cutText(o, new(Vocabulary), content, func(text []byte) ([]byte, error) { return text, nil })
	}
	return nil, nil, fmt.Errorf("open data: unknown vocabulary %q, want %q or %q", o.Vocabulary, VocabularyChar, VocabularyByte)
}

// cutText makes the datasets of a text and of what is held out.
func cutText[T token](o Options, v *Vocabulary, content []byte, encode func([]byte) ([]T, error)) (train, eval Dataset, err error) {
	tokens, err := encode(content)
	if err != nil {
		return nil, nil, fmt.Errorf("read %q: %w", o.Path, err)
	}
	if o.Holdout == 0 && o.EvalPath == "" {
		train, err = newText(o.Path, tokens, o.Context, v)
		return train, nil, err
	}
	var held []T
	evalPath := o.Path
	if o.Holdout > 0 {
		// As nanoGPT does: data[:int(n*0.9)] for a held-out share of 0.1.
		cut := int(float64(len(tokens)) * (1 - o.Holdout))
		tokens, held = tokens[:cut], tokens[cut:]
	} else {
		evalPath = o.EvalPath
		content, err := readText(evalPath)
		if err != nil {
			return nil, nil, err
		}
		if held, err = encode(content); err != nil {
			return nil, nil, &hintError{
				fmt.Errorf("read %q: %w, those of %q", evalPath, err, o.Path),
				"hold out a share of one text that has all characters, or take bytes as the vocabulary",
			}
		}
	}
	if train, err = newText(o.Path, tokens, o.Context, v); err != nil {
		return nil, nil, err
	}
	eval, err = newText(evalPath, held, o.Context, v)
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

// readText reads the file at path, compressed or not.
func readText(path string) ([]byte, error) {
	raw, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, cause(err))
	}
	r, err := decompress(raw, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, maxValues+1))
	if err != nil {
		return nil, fmt.Errorf("read %q: at byte %d: %w", path, len(content), cause(err))
	}
	if len(content) > maxValues {
		return nil, &hintError{
			fmt.Errorf("read %q: more than %d bytes of text", path, maxValues),
			"write it as tokens, which need not fit in memory, and read it with kind " + KindTokens,
		}
	}
	return content, nil
}

// charsOf returns the characters of a text as a vocabulary, as nanoGPT's
// sorted(list(set(data))).
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
			return nil, &hintError{
				fmt.Errorf("read %q: at byte %d: 0x%02x is not UTF-8", path, i, content[i]),
				"convert the file to UTF-8, or take bytes as the vocabulary",
			}
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
		return nil, &hintError{
			fmt.Errorf("read %q: %d different characters, want at most %d", path, len(v.runes), maxChars),
			"take bytes as the vocabulary",
		}
	}
	return v, nil
}
