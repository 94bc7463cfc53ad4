package textgen

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// endOfText is GPT-2's token ID for the end of a text.
const endOfText = 50256

// A Codec converts between tokens and text. Without a vocabulary, the text is a list of token IDs.
type Codec struct {
	vocabulary *data.Vocabulary // nil for token IDs
	size       int              // size of the vocabulary
}

// start returns the first token of a text without a prompt: a newline, GPT-2's end-of-text
// token, or token 0.
func (c Codec) start() int32 {
	if c.vocabulary != nil {
		if line, err := c.vocabulary.Encode("\n"); err == nil {
			return line[0]
		}
	} else if c.size > endOfText {
		return endOfText
	}
	return 0
}

// Encode returns the tokens of text. Without a vocabulary, text contains token IDs, separated
// by spaces or commas.
func (c Codec) Encode(text string) ([]int32, error) {
	if c.vocabulary != nil {
		return c.vocabulary.Encode(text)
	}
	var tokens []int32
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil || n < 0 || n >= int64(c.size) {
			return nil, fmt.Errorf("%q is not a token ID from 0 to %d", word, c.size-1)
		}
		tokens = append(tokens, int32(n))
	}
	return tokens, nil
}

// Decode returns the text of tokens, or "" without a vocabulary.
func (c Codec) Decode(tokens []int32) string {
	if c.vocabulary == nil {
		return ""
	}
	return c.vocabulary.Decode(tokens)
}

// A Stream converts tokens to text as they arrive. Without a vocabulary, the text is the token IDs,
// separated by spaces.
type Stream struct {
	codec   Codec
	pending string // incomplete UTF-8 sequence, because a token can be a single byte
	started bool
}

// Stream returns a stream without tokens.
func (c Codec) Stream() *Stream { return &Stream{codec: c} }

// Add returns the text that the next tokens complete.
func (s *Stream) Add(tokens ...int32) string {
	if s.codec.vocabulary == nil {
		var text strings.Builder
		for _, t := range tokens {
			if s.started {
				text.WriteByte(' ')
			}
			text.WriteString(strconv.Itoa(int(t)))
			s.started = true
		}
		return text.String()
	}
	text := s.pending + s.codec.vocabulary.Decode(tokens)
	whole := 0
	for utf8.FullRuneInString(text[whole:]) {
		_, size := utf8.DecodeRuneInString(text[whole:])
		whole += size
	}
	s.pending = text[whole:]
	return text[:whole]
}

// Rest returns the incomplete UTF-8 sequence at the end of the text.
func (s *Stream) Rest() string { return s.pending }
