package symptoms

import (
	"regexp/syntax"
	"strings"
)

// words returns texts in lower case. A line that matches the pattern contains at least one of
// them, in any case. The result is empty if the pattern has no such texts, or if it is
// invalid.
func words(pattern string) []string {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil // the caller also compiles the pattern, and reports the error
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
		var best, run []string // texts that the last consecutive parts match together
		for _, sub := range r.Sub {
			part := textsOf(sub)
			if run = join(run, part); run == nil {
				run = part
			}
			for _, w := range [][]string{wordsOf(sub), run} {
				if shortest(w) > shortest(best) {
					best = w
				}
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

// maxTexts limits the number of combined texts of a pattern.
const maxTexts = 16

// textsOf returns all texts that an expression matches, in lower case. It returns nil if there
// are more than maxTexts, or if one of the texts is empty.
func textsOf(r *syntax.Regexp) []string {
	switch r.Op {
	case syntax.OpLiteral:
		return wordsOf(r)
	case syntax.OpCapture:
		return textsOf(r.Sub[0])
	case syntax.OpConcat:
		all := textsOf(r.Sub[0])
		for _, sub := range r.Sub[1:] {
			all = join(all, textsOf(sub))
		}
		return all
	case syntax.OpAlternate:
		var all []string
		for _, sub := range r.Sub {
			texts := textsOf(sub)
			if texts == nil {
				return nil
			}
			all = append(all, texts...)
		}
		return all
	}
	return nil
}

// join returns the concatenations of each text of a with each text of b. It returns nil if a
// or b is empty, or if there are more than maxTexts results.
func join(a, b []string) []string {
	if len(a)*len(b) > maxTexts {
		return nil
	}
	var all []string
	for _, x := range a {
		for _, y := range b {
			all = append(all, x+y)
		}
	}
	return all
}

// shortest returns the length of the shortest word, which is the least selective one.
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
