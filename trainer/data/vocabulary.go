package data

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Vocabularies of text, for Options.Vocabulary.
const (
	VocabularyChar = "char" // the characters in the text, sorted
	VocabularyByte = "byte" // the 256 bytes
)

// maxChars is the maximum number of characters of a vocabulary, so that a token has 16 bits.
const maxChars = 1 << 16

// Vocabulary maps between text and tokens. The zero value is the 256 bytes. It is immutable except
// through UnmarshalText, which together with MarshalText stores it in a checkpoint.
type Vocabulary struct {
	runes []rune // sorted; nil for bytes
}

// Len returns the number of tokens.
func (v *Vocabulary) Len() int {
	if v.runes == nil {
		return 256
	}
	return len(v.runes)
}

// Encode returns the tokens of text. If a character is not in the vocabulary, the error names it
// and its position.
func (v *Vocabulary) Encode(text string) ([]int32, error) {
	if v.runes != nil {
		tokens := make([]int32, utf8.RuneCountInString(text))
		if err := encodeChars(tokens, v.runes, []byte(text)); err != nil {
			return nil, err
		}
		return tokens, nil
	}
	tokens := make([]int32, len(text))
	for i := range tokens {
		tokens[i] = int32(text[i])
	}
	return tokens, nil
}

// encodeChars sets tokens, one per character of text, to the index of the character in runes. They
// may share text's memory, because no token is longer than its character.
func encodeChars[T uint8 | uint16 | int32](tokens []T, runes []rune, text []byte) error {
	size := utf8.RuneSelf // of the table: the ASCII characters, and all up to the last one
	if len(runes) > 0 {
		size = max(size, int(runes[len(runes)-1])+1)
	}
	ids := slices.Repeat([]int32{-1}, size) // by rune; -1: not in the vocabulary
	for token, r := range runes {
		ids[r] = int32(token)
	}
	ascii := (*[utf8.RuneSelf]int32)(ids)
	i := 0
	for n := range tokens {
		id, size := int32(-1), 1
		if c := text[i]; c < utf8.RuneSelf {
			id = ascii[c]
		} else {
			var r rune
			if r, size = utf8.DecodeRune(text[i:]); int(r) < len(ids) && (r != utf8.RuneError || size > 1) {
				id = ids[r]
			}
		}
		if id < 0 {
			return fmt.Errorf("at byte %d: %q is not among the %d characters of the vocabulary", i, text[i:i+size], len(runes))
		}
		tokens[n] = T(id)
		i += size
	}
	return nil
}

// Decode returns the text of tokens. With bytes it may be invalid UTF-8. It panics if a token is
// not in the vocabulary.
func (v *Vocabulary) Decode(tokens []int32) string {
	var text strings.Builder
	for _, token := range tokens {
		switch {
		case token < 0 || int(token) >= v.Len():
			panic(fmt.Sprintf("data: token %d of a vocabulary of %d", token, v.Len()))
		case v.runes == nil:
			text.WriteByte(byte(token))
		default:
			text.WriteRune(v.runes[token])
		}
	}
	return text.String()
}

// MarshalText returns "byte", or "char:" and the characters in order.
func (v *Vocabulary) MarshalText() ([]byte, error) {
	if v.runes == nil {
		return []byte(VocabularyByte), nil
	}
	return []byte(VocabularyChar + ":" + string(v.runes)), nil
}

// UnmarshalText parses the output of MarshalText.
func (v *Vocabulary) UnmarshalText(text []byte) error {
	if string(text) == VocabularyByte {
		v.runes = nil
		return nil
	}
	chars, ok := strings.CutPrefix(string(text), VocabularyChar+":")
	switch {
	case !ok:
		return fmt.Errorf("vocabulary begins neither with %q nor with %q", VocabularyByte, VocabularyChar+":")
	case chars == "":
		return errors.New("vocabulary without characters")
	case !utf8.ValidString(chars):
		return errors.New("vocabulary is not UTF-8")
	}
	runes := []rune(chars)
	if len(runes) > maxChars {
		return fmt.Errorf("vocabulary of %d characters, want at most %d", len(runes), maxChars)
	}
	for i := range len(runes) - 1 {
		if runes[i] >= runes[i+1] {
			return fmt.Errorf("vocabulary is not sorted: %q before %q", runes[i], runes[i+1])
		}
	}
	v.runes = runes
	return nil
}
