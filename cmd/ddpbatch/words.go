package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// endOfText is the token that GPT-2 has between two texts.
const endOfText = 50256

// words is what the tokens of a model stand for: text, or nothing but their numbers.
type words struct {
	vocabulary *data.Vocabulary // nil: numbers
	size       int              // tokens that there are
}

// start is what a text without a prompt begins after: the end of a line, or of
// another text; else the first token.
func (w words) start() int32 {
	if w.vocabulary != nil {
		if line, err := w.vocabulary.Encode("\n"); err == nil {
			return line[0]
		}
	} else if w.size > endOfText {
		return endOfText
	}
	return 0
}

// encode returns the tokens of text. Numbers have spaces or commas between them.
func (w words) encode(text string) ([]int32, error) {
	if w.vocabulary != nil {
		return w.vocabulary.Encode(text)
	}
	var tokens []int32
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil || n < 0 || n >= int64(w.size) {
			return nil, fmt.Errorf("%q is not the number of a token, 0 to %d", word, w.size-1)
		}
		tokens = append(tokens, int32(n))
	}
	return tokens, nil
}

// decode returns the text of tokens, "" if they have none.
func (w words) decode(tokens []int32) string {
	if w.vocabulary == nil {
		return ""
	}
	return w.vocabulary.Decode(tokens)
}

// writer prints tokens as they come. The zero value prints nothing.
type writer struct {
	words
	print   func(string)
	pending string // the beginning of a character, if tokens are bytes
	begun   bool
}

func (w *writer) write(tokens ...int32) {
	if w.print == nil {
		return
	}
	if w.vocabulary == nil {
		for _, t := range tokens {
			if w.begun {
				w.print(" ")
			}
			w.print(strconv.Itoa(int(t)))
			w.begun = true
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

func (w *writer) end() {
	if w.print != nil {
		w.print(w.pending + "\n")
	}
}
