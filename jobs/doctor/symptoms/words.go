package symptoms

import (
	"regexp/syntax"
	"strings"
)

// requiredWords returns texts in lower case. A line that matches the pattern contains at least
// one of them, in any case. The result is empty if the pattern has no such texts, or if it is
// invalid.
func requiredWords(pattern string) []string {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil // compiling the pattern reports the error
	}
	return findWords(parsed.Simplify())
}

func findWords(r *syntax.Regexp) []string {
	switch r.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(r.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return findWords(r.Sub[0])
	case syntax.OpConcat:
		var best, run []string // texts that the last consecutive parts match together
		for _, sub := range r.Sub {
			part := matchedTexts(sub)
			if run = concatTexts(run, part); run == nil {
				run = part
			}
			for _, w := range [][]string{findWords(sub), run} {
				if minLength(w) > minLength(best) {
					best = w
				}
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, sub := range r.Sub {
			w := findWords(sub)
			if w == nil {
				return nil
			}
			all = append(all, w...)
		}
		return all
	}
	return nil
}

// maxTexts is the maximum number of texts of a concatenation.
const maxTexts = 16

// matchedTexts returns all texts that an expression matches, in lower case. It returns nil for
// expressions that it does not expand, such as classes and repetitions, and if a concatenation
// has more than maxTexts texts.
func matchedTexts(r *syntax.Regexp) []string {
	switch r.Op {
	case syntax.OpLiteral:
		return findWords(r)
	case syntax.OpCapture:
		return matchedTexts(r.Sub[0])
	case syntax.OpConcat:
		all := matchedTexts(r.Sub[0])
		for _, sub := range r.Sub[1:] {
			all = concatTexts(all, matchedTexts(sub))
		}
		return all
	case syntax.OpAlternate:
		var all []string
		for _, sub := range r.Sub {
			texts := matchedTexts(sub)
			if texts == nil {
				return nil
			}
			all = append(all, texts...)
		}
		return all
	}
	return nil
}

// concatTexts returns the concatenations of each text of a with each text of b. It returns nil if
// a or b is empty, or if there are more than maxTexts results.
func concatTexts(a, b []string) []string {
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

// minLength returns the length of the shortest word, which is the least selective one.
func minLength(words []string) int {
	if len(words) == 0 {
		return 0
	}
	n := len(words[0])
	for _, w := range words {
		n = min(n, len(w))
	}
	return n
}
