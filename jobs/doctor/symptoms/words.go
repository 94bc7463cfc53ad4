package symptoms

import (
	"bytes"
	"regexp/syntax"
	"strings"
)

// words are texts in lower case of which a line must have one for a pattern to match it:
// looking for these is a hundred times as fast as the pattern. None says that nothing is
// known.
func words(pattern string) []string {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil // the caller compiles it, too
	}
	return wordsOf(parsed.Simplify())
}

func wordsOf(r *syntax.Regexp) []string {
	switch r.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(r.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return wordsOf(r.Sub[0])
	case syntax.OpConcat:
		var best []string
		for _, sub := range r.Sub {
			if w := wordsOf(sub); shortest(w) > shortest(best) {
				best = w
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, sub := range r.Sub {
			w := wordsOf(sub)
			if w == nil {
				return nil
			}
			all = append(all, w...)
		}
		return all
	}
	return nil
}

// shortest is the length of the shortest word: the one that is found most often where
// nothing is.
func shortest(words []string) int {
	if len(words) == 0 {
		return 0
	}
	n := len(words[0])
	for _, w := range words {
		n = min(n, len(w))
	}
	return n
}

// may says whether a line, in lower case, can match.
func (s *Symptom) may(lower []byte) bool {
	for _, w := range s.words {
		if bytes.Contains(lower, []byte(w)) {
			return true
		}
	}
	return len(s.words) == 0
}
