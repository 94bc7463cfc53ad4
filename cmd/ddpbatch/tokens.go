package main

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

// A tokenCodec converts between tokens and text. Without a vocabulary, the text is a list of token
// IDs.
type tokenCodec struct {
	vocabulary *data.Vocabulary // nil for token IDs
	size       int              // size of the vocabulary
}

// start returns the first token of a text without a prompt: a newline, GPT-2's end-of-text
// token, or token 0.
func (c tokenCodec) start() int32 {
	if c.vocabulary != nil {
		if line, err := c.vocabulary.Encode("\n"); err == nil {
			return line[0]
		}
	} else if c.size > endOfText {
		return endOfText
	}
	return 0
}

// encode returns the tokens of text. Without a vocabulary, text contains token IDs, separated
// by spaces or commas.
func (c tokenCodec) encode(text string) ([]int32, error) {
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

// decode returns the text of tokens, or "" without a vocabulary.
func (c tokenCodec) decode(tokens []int32) string {
	if c.vocabulary == nil {
		return ""
	}
	return c.vocabulary.Decode(tokens)
}

// A tokenWriter prints tokens as they arrive. The zero value prints nothing.
type tokenWriter struct {
	tokenCodec
	print   func(string)
	pending string // incomplete UTF-8 sequence, because a token can be a single byte
	started bool
}

func (w *tokenWriter) write(tokens ...int32) {
	if w.print == nil {
		return
	}
	if w.vocabulary == nil {
		for _, t := range tokens {
			if w.started {
				w.print(" ")
			}
			w.print(strconv.Itoa(int(t)))
			w.started = true
		}
		return
	}
	w.pending += w.vocabulary.Decode(tokens)
	whole := 0
	for utf8.FullRuneInString(w.pending[whole:]) {
		_, size := utf8.DecodeRuneInString(w.pending[whole:])
		whole += size
	}
	w.print(w.pending[:whole])
	w.pending = w.pending[whole:]
}

func (w *tokenWriter) end() {
	if w.print != nil {
		w.print(w.pending + "\n")
	}
}
